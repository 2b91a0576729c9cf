"""One sample of each node of a job as text or JSON, where there is no dashboard."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence

from gpumon.errors import EXIT_FAILED, EXIT_OK
from gpumon.export.sample_json import sample_json
from gpumon.export.sample_text import sample_text
from gpumon.model.reading import NOT_SAMPLED, Reading, number
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.services.once import merged
from gpumon.slurm.parts import parts_of
from gpumon.sources.watched import WatchedJob
from gpumon.transport.fallback import why_not as refusals

#: a node that has sent nothing by then is reported as such
WAIT_S = 60.0
#: s; a shorter time says nothing about the cores that a job uses
_WINDOW_S = 1.0
#: s; a driver that is slow to begin on a busy node is waited for so long
_DRIVER_S = 5.0


class Samples:
    """A sink that keeps of each node what its first samples tell: rates need two, and a second
    between them.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self.headers: dict[str, Header] = {}
        self.samples: dict[str, Sample] = {}
        self.windows_s: dict[str, float] = {}  # between the samples that rates are from
        self.statuses: dict[str, Status] = {}
        self._open = set(nodes)
        self._news = threading.Condition()

    def header(self, node: str, header: Header) -> None:
        self.headers[node] = header

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        with self._news:
            first = self.samples.get(node)
            if first is None:
                self.samples[node] = sample
            elif node in self._open:
                events = [*first.events, *sample.events]
                window_s = sample.mono - first.mono
                if window_s < (_DRIVER_S if self._lacks_gpus(node) else _WINDOW_S):
                    self.samples[node] = first._replace(events=events)
                    return
                cpu = _cpu(first, sample)
                rows = merged(first.rows, sample.rows)
                if cpu:
                    rows["job"][""].update(cpu)
                self.samples[node] = sample._replace(rows=rows, events=events)
                self.windows_s[node] = window_s
                self._open.discard(node)
                self._news.notify_all()

    def _lacks_gpus(self, node: str) -> bool:
        """Whether none of the job's GPUs was seen on the node so far."""
        header = self.headers.get(node)
        job = header.job if header is not None else None
        return header is not None and job is not None and bool(job.gpus) and not header.devices

    def status(self, node: str, status: Status) -> None:
        with self._news:
            self.statuses[node] = status
            if status.state in ("lost", "ended"):
                self._open.discard(node)
            self._news.notify_all()

    def json(self, node: str) -> str:
        """The sample of a node as a line of JSON."""
        window_s = self.windows_s.get(node)
        return json.dumps(sample_json(self.headers[node], self.samples[node], window_s))

    def reset(self) -> None:
        """Nothing is played here."""

    def wait(self, timeout_s: float) -> None:
        """Until every node has sent something or was lost."""
        until = time.monotonic() + timeout_s
        with self._news:
            while self._open and time.monotonic() < until:
                self._news.wait(min(1.0, until - time.monotonic()))  # so that Ctrl-C comes through


def _cpu(first: Sample, last: Sample) -> dict[str, Reading]:
    """CPU time of the job, and cores from one sample to the other; empty where not known."""
    before, after = (
        number(sample.rows.get("job", {}).get("", {}).get("cpu_s", NOT_SAMPLED))
        for sample in (first, last)
    )
    if before is None or after is None or after < before:
        return {}
    return {"cpu_s": after, "cpu_cores_used": (after - before) / (last.mono - first.mono)}


def print_samples(source: WatchedJob, only: Sequence[str] = (), *, as_json: bool = False) -> int:
    """Print a sample of each node (those in `only`), and why there is none; 1 where that is any.

    As JSON a line each. Returns the exit code.
    """
    nodes = [part.name for part in parts_of(source.jobs(), only)]
    samples = Samples(nodes)
    source.start(samples)
    try:
        samples.wait(WAIT_S)
    finally:
        source.stop()
    told = [node for node in nodes if node in samples.samples]
    for place, node in enumerate(told):
        if as_json:
            print(samples.json(node))
        else:
            print("\n" * bool(place) + sample_text(samples.headers[node], samples.samples[node]))
    failed = [node for node in nodes if node not in samples.samples]
    for node in failed:
        print(f"gpumon: {node}: {why_not(source, samples, node)}", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK


def why_not(source: WatchedJob, samples: Samples, node: str) -> str:
    """Why there is no sample of a node."""
    refused = refusals(source.attempts(node))
    status = samples.statuses.get(node)
    return refused or (status.detail if status is not None else "") or "no answer"
