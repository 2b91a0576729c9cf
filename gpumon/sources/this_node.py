"""This node, by an agent in this process: for who shows nothing meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpumon.collect.agent import Agent, next_tick
from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.sample import Header
from gpumon.sources.base import Sink


class ThisNode:
    """Brings samples in the thread that starts it, until there is a reason to end."""

    name = "local"

    def __init__(self, agent: Agent, header: Header, wait: Callable[[float], str]) -> None:
        """`header`: the newest of the agent, which was started. `wait` sleeps until a monotonic
        time; it returns why to end, "" to continue.
        """
        self.reason = ""  # for which it ended
        self._agent = agent
        self._header = header
        self._wait = wait

    def start(self, sink: Sink) -> None:
        agent, node, axis = self._agent, self._header.node, Axis()
        sink.header(node, axis.header(self._header, clock.now()))
        while not self.reason:
            sample = agent.sample()
            if agent.devices.changed:
                sink.header(node, axis.header(agent.header(), clock.now()))
            sink.add(node, axis.sample(sample, clock.now()))
            self.reason = self._next()
        if (last := agent.last_words()).rows:
            sink.add(node, axis.sample(last, clock.now()))

    def stop(self) -> None:
        self._agent.close()

    def now(self) -> float:
        return clock.now()

    def _next(self) -> str:
        """Why this was the last sample, "" after a wait for the next one."""
        if self._agent.job_ended:
            return "the job has ended"
        due = next_tick(self._agent.interval_s)
        reason = self._wait(due)
        self._agent.late(time.monotonic() - due)
        return reason
