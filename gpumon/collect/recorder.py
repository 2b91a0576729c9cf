"""Records this node: the agent's samples and the marks that come, until there is a reason to end.

The caller brings what writes (`gpumon.recording.Recorder`), so that the agent that travels to a
node does not need it, and `wait`, which knows the reasons: a signal, or the end of a command.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterator, Protocol, Union

from gpumon.collect.agent import Agent, next_tick
from gpumon.collect.marks import MarkSpool, mark_event
from gpumon.model.reading import number
from gpumon.model.sample import Header, Sample

#: sleeps until this monotonic time; returns why to end, "" to go on
Wait = Callable[[float], str]


class Writer(Protocol):
    """Of one recording."""

    @property
    def failed(self) -> str: ...
    def header(self, header: Header) -> None: ...
    def add(self, sample: Sample) -> None: ...
    def mark(self, time: float, text: str) -> None: ...
    def close(self, reason: str = "") -> None: ...


class NodeRecorder:
    """One node's recording; `items` drives it."""

    def __init__(self, agent: Agent, writer: Writer, spool: Union[MarkSpool, None]) -> None:
        self.host_peaks: Dict[str, float] = {}  # of the fields of `host`
        self._agent = agent
        self._writer = writer
        self._spool = spool

    def items(self, header: Header, wait: Wait) -> Iterator[Union[Header, Sample]]:
        """Record, and pass on what was recorded; ends with the recording closed."""
        agent, writer = self._agent, self._writer
        writer.header(header)
        yield header
        reason = ""
        while not reason:
            sample = agent.sample()
            if agent.devices.changed:
                header = agent.header()
                writer.header(header)
                yield header
            if self._spool is not None:
                marks = [mark_event(mark) for mark in self._spool.take()]
                sample = sample._replace(events=[*sample.events, *marks])
            writer.add(sample)
            self._note(sample)
            yield sample
            reason = writer.failed or self._next(wait)
        for mark in self._spool.close() if self._spool is not None else ():
            writer.mark(mark.time, mark.text)
        writer.close(reason)

    def _next(self, wait: Wait) -> str:
        """Why this was the last sample, "" after a wait for the next one."""
        if self._agent.job_ended:
            return "the job has ended"
        due = next_tick(self._agent.interval_s)
        reason = wait(due)
        self._agent.late(time.monotonic() - due)
        return reason

    def _note(self, sample: Sample) -> None:
        for name, reading in sample.rows.get("host", {}).get("", {}).items():
            value = number(reading)
            if value is not None:
                self.host_peaks[name] = max(value, self.host_peaks.get(name, value))
