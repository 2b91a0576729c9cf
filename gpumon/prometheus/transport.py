"""A running job by the scrapes of a Prometheus server, where no agent can be on its nodes.

The newest scrapes come as the lines that an agent would write, so that the rest is the same for
all transports. One question serves all nodes of the job.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.errors import GpumonError
from gpumon.model import clock
from gpumon.model.sample import Header, Sample
from gpumon.prometheus.client import Server
from gpumon.prometheus.samples import Scraped, scraped
from gpumon.site.prometheus import Family
from gpumon.slurm.job import Job
from gpumon.transport.agentless import AgentlessStream, line_of
from gpumon.transport.stream import Failure
from gpumon.wire.encoder import Encoder

#: s; a scrape is some seconds old when the server has it
_LOOK_BACK_S = 300.0
_LEAST_PERIOD_S = 5.0


class PrometheusTransport:
    """The newest scrapes of the job's nodes."""

    name = "prometheus"
    lacks = "No processes: only what Prometheus scrapes, at its pace."

    def __init__(
        self, job: Job, server: Server, families: Sequence[Family], interval_s: float | None
    ) -> None:
        """`interval_s`: between scrapes; None: seen from the data."""
        self._asked = _Asked(job, server, families, interval_s)

    def open(self, node: str, argv: list[str]) -> ScrapeStream:
        """Raises Failure where the server does not know the job on this node."""
        try:
            found = self._asked.newest()
        except GpumonError as error:
            raise Failure(str(error)) from None
        if node not in found.nodes:
            why = found.missing or "it has no samples of the job on this node"
            raise Failure(why, late=True)
        return ScrapeStream(node, self._asked)

    def close(self) -> None:
        """Nothing is shared that must be given up."""


class _Answer(NamedTuple):
    """What the server had at a moment: of each node its stream."""

    mono: float
    nodes: dict[str, list[Header | Sample]]
    interval_s: float
    missing: str


class _Asked:
    """The server, asked once a scrape for all nodes."""

    def __init__(
        self, job: Job, server: Server, families: Sequence[Family], interval_s: float | None
    ) -> None:
        self._job, self._families, self._interval_s = job, families, interval_s
        self._server = server
        self._lock = threading.Lock()
        self._answer: _Answer | None = None

    def newest(self) -> _Answer:
        """Raises GpumonError."""
        with self._lock:
            last = self._answer
            if last is None or clock.since_boot() - last.mono >= period_of(last.interval_s):
                last = self._answer = self._ask()
            return last

    def _ask(self) -> _Answer:
        now = clock.now()
        found: Scraped = scraped(
            self._server, self._families, self._job, now - _LOOK_BACK_S, now, self._interval_s
        )
        nodes = {name: told for name, items in found.streams if (told := list(items))}
        missing = "; ".join(found.missing.values())
        return _Answer(clock.since_boot(), nodes, found.interval_s, missing)


def period_of(interval_s: float) -> float:
    """Seconds between two questions: half a scrape, so that none is long unseen."""
    return max(_LEAST_PERIOD_S, interval_s / 2)


class ScrapeStream(AgentlessStream):
    """Lines of an agent that is not there."""

    def __init__(self, node: str, asked: _Asked) -> None:
        self._node, self._asked = node, asked
        super().__init__()

    def _told(self) -> Iterator[bytes]:
        encoder, told, begun = Encoder(), 0.0, None
        while not self._closed.is_set():
            try:
                answer = self._asked.newest()
            except GpumonError as error:
                self._trouble = str(error)
                return
            items = answer.nodes.get(self._node, [])
            header = next((each for each in items if isinstance(each, Header)), None)
            samples = [each for each in items if isinstance(each, Sample) and each.time > told]
            if header is not None and header.devices != begun:
                begun = header.devices
                first = samples[-1:] if not told else samples
                at = first[0].time if first else header.time
                yield line_of(encoder.header(header._replace(time=at, mono=at)))
                samples = first
            for sample in samples:
                told = sample.time
                yield line_of(encoder.sample(sample))
            if self._closed.wait(period_of(answer.interval_s)):
                return
