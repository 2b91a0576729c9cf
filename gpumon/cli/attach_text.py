"""One sample of each node of a job as text or JSON, where there is no dashboard."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence

from gpumon.cli.once import merged
from gpumon.errors import EXIT_FAILED, EXIT_OK
from gpumon.export.sample_json import sample_json
from gpumon.export.sample_text import sample_text
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.sources.watched import WatchedJob, parts_of

#: a node that has not told anything by then is reported as such
_WAIT_S = 60.0


class Samples:
    """A sink that keeps of each node what its first two samples tell: rates need two."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.headers: dict[str, Header] = {}
        self.samples: dict[str, Sample] = {}
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
                rows = merged(first.rows, sample.rows)
                self.samples[node] = sample._replace(rows=rows, events=events)
                self._open.discard(node)
                self._news.notify_all()

    def status(self, node: str, status: Status) -> None:
        with self._news:
            self.statuses[node] = status
            if status.state in ("lost", "ended"):
                self._open.discard(node)
            self._news.notify_all()

    def reset(self) -> None:
        """Nothing is played here."""

    def wait(self, timeout_s: float) -> None:
        """Until every node has told something or was lost."""
        until = time.monotonic() + timeout_s
        with self._news:
            while self._open and time.monotonic() < until:
                self._news.wait(min(1.0, until - time.monotonic()))  # so that Ctrl-C comes through


def print_samples(source: WatchedJob, only: Sequence[str] = (), *, as_json: bool = False) -> int:
    """Print a sample of each node (those in `only`), and why there is none; 1 where that is any.

    As JSON a line each. Returns the exit code.
    """
    nodes = [part.name for part in parts_of(source.jobs(), only)]
    samples = Samples(nodes)
    source.start(samples)
    try:
        samples.wait(_WAIT_S)
    finally:
        source.stop()
    told = [
        (samples.headers[node], samples.samples[node]) for node in nodes if node in samples.samples
    ]
    if as_json:
        for each in told:
            print(json.dumps(sample_json(*each)))
    elif told:
        print("\n\n".join(sample_text(*each) for each in told))
    failed = [node for node in nodes if node not in samples.samples]
    for node in failed:
        refused = "; ".join(f"{rung.name}: {rung.why}" for rung in source.rungs(node))
        status = samples.statuses.get(node)
        why = refused or (status.detail if status is not None else "") or "no answer"
        print(f"gpumon: {node}: {why}", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK
