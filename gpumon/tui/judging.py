"""Findings while a job is watched: samples are gathered beside the store and judged now and then.

The stream's threads only put samples in a queue; one thread gathers and judges, at most so often
that it takes a fiftieth of a core. It imports what it needs after the first paint.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Union

from gpumon.model.bounded import weight
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status

if TYPE_CHECKING:
    from gpumon.analysis.evidence import Evidence
    from gpumon.analysis.finding import Finding
    from gpumon.analysis.gather import Gathering
    from gpumon.model.past import Past
    from gpumon.model.ticks import Digest, Ticks
    from gpumon.report.model import Report
    from gpumon.slurm.job import Job
    from gpumon.store import Store

#: s; from one verdict to the next, and the share of a core that verdicts may take
_PERIOD_S = 5.0
_SHARE = 0.02
_IDLE_S = 0.25
#: a verdict on more nodes takes seconds, in which nothing else of this process moves
_MAX_NODES = 256
#: samples that may wait while the first import runs, or the machine is busy, each of 20 KB with
#: eight devices and 16 processes; a replay gives many at once. Of as many more only events are kept
_MAX_WAITING, _MAX_REPLAYED = 4096, 100_000
#: and what they take all together
WAITING_BYTES = 96 << 20
_ROW_BYTES, _READING_BYTES = 120, 28  # about
#: how long a replay is held up for a verdict, and how often it looks
_HOLD_S, _LOOK_S = 10.0, 0.005


Item = Union[Header, Sample, "Ticks", "Digest"]


class Verdict(NamedTuple):
    """What was found at one moment."""

    findings: list[Finding]  # of a running job, in their rank, neither flickering nor staying
    evidence: Evidence  # of the devices what charts show: the whole is 1 MiB a node in an hour
    report: Report | None  # as if the job ended now; only where somebody looks at it
    left_out: Sequence[str] = ()  # what these do not rest on, in sentences


class Judging:
    """A sink in front of the store that also says what a report would say now."""

    def __init__(self, store: Store, *, replayed: bool = False) -> None:
        self._store = store
        self._most = _MAX_REPLAYED if replayed else _MAX_WAITING
        #: of a node, in order; or what gathers from now on, None: a plain one
        self._waiting: deque[tuple[str, Header | Sample | Iterator[Item], int] | Gathering | None]
        self._waiting = deque()
        self._waiting_bytes = 0
        self._counting = threading.Lock()
        self.left_out = 0  # samples that there was no room for
        self._replayed = replayed
        self._is_judging = False
        self._resets = 0
        self._nodes: set[str] = set()
        self._stopping = threading.Event()
        self._job: Callable[[], Job | None] = lambda: None
        self.wants_report = False
        self.latest: Verdict | None = None
        self.trouble = ""  # why there are no findings

    # -- as a sink, called by the streams' threads

    def header(self, node: str, header: Header) -> None:
        self._store.header(node, header)
        self._nodes.add(node)
        self._keep(node, header)

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        self._store.add(node, sample, received)
        self._keep(node, sample)

    def status(self, node: str, status: Status) -> None:
        self._store.status(node, status)

    def past(self, node: str, pasts: Sequence[Past], items: Iterator[Item]) -> None:
        """What was before: for the store in buckets, for the verdict to be gathered beside it."""
        self._store.past(node, pasts)
        self._nodes.add(node)
        self._keep(node, items)

    def reset(self, gathering: Gathering | None = None) -> None:
        """Forget all nodes; from now on `gathering` gathers, which nobody else may use."""
        self._store.reset()
        self._resets += 1
        self._waiting.append(gathering)

    def _keep(self, node: str, item: Header | Sample | Iterator[Item]) -> None:
        if self._stopping.is_set():
            return
        if len(self._nodes) > _MAX_NODES:
            most = f"no findings live on more than {_MAX_NODES} nodes"
            self._give_up(f"{most}: gpumon report has them")
            return
        size = _bytes_of(item)
        if self._replayed:
            self._wait_for_room()
        fill = self._fill(size)
        if fill >= 2 or (fill >= 1 and isinstance(item, Sample) and not item.events):
            with self._counting:
                self.left_out += 1
            return
        if fill >= 1 and isinstance(item, Sample):
            item = item._replace(rows={})  # a gap
            size = _bytes_of(item)
        with self._counting:
            self._waiting_bytes += size
        self._waiting.append((node, item, size))

    def _fill(self, size: int) -> float:
        """How full the queue would be: 1 is what samples may take, 2 what anything may."""
        return max(len(self._waiting) / self._most, (self._waiting_bytes + size) / WAITING_BYTES)

    def _wait_for_room(self) -> None:
        """A replay comes as fast as it can be read; it is held up rather than cut."""
        until = time.monotonic() + _HOLD_S
        while self._is_judging and self._fill(0) >= 1 and time.monotonic() < until:
            if self._stopping.wait(_LOOK_S):
                return

    def _give_up(self, why: str) -> None:
        self._stopping.set()
        self._waiting.clear()
        self._waiting_bytes = 0
        self.latest = None
        self.trouble = why

    # -- judging, in a thread of its own

    def start(self, job: Callable[[], Job | None]) -> None:
        """Begin; `job` tells what Slurm knows by then."""
        self._job = job
        threading.Thread(target=self._run, daemon=True, name="judging").start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        try:
            from gpumon.site.read import load_site

            site = load_site()
            self._is_judging = True
            self._judge(site)
        except Exception as error:  # findings may fail; the dashboard must not
            self._give_up(f"no findings: {type(error).__name__}: {error}")

    def _unjudged(self, gathering: Gathering) -> list[str]:
        found = gathering.left_out()
        if self.left_out:
            found.append(f"Findings leave out {self.left_out:,} samples that arrived too fast.")
        return found

    def _until_reset(self, items: Iterator[Item]) -> Iterator[Item]:
        resets = self._resets
        for item in items:
            if self._resets != resets or self._stopping.is_set():
                return
            yield item

    def _judge(self, site: object) -> None:
        from gpumon.analysis.catalogue import evaluate
        from gpumon.analysis.gather import Gathering
        from gpumon.analysis.hysteresis import Live
        from gpumon.analysis.room import LIVE
        from gpumon.report.build import build
        from gpumon.site import Site

        assert isinstance(site, Site)
        gathering, live = Gathering(LIVE), Live()
        new, due = False, 0.0
        known = told = over = False  # whether there are samples; what the last verdict was made of
        while not self._stopping.wait(_IDLE_S):
            while self._waiting:
                try:
                    item = self._waiting.popleft()
                except IndexError:  # too many nodes: a stream's thread has emptied it
                    break
                if item is None or isinstance(item, Gathering):
                    gathering, live, self.latest = item or Gathering(LIVE), Live(), None
                    known = False
                    due = min(due, time.monotonic() + _PERIOD_S)  # nothing is shown until then
                    continue
                node, said, size = item
                with self._counting:
                    self._waiting_bytes -= size
                for each in self._until_reset(said) if isinstance(said, Iterator) else (said,):
                    gathering.add(node, each)
                new = known = True
            began, job = time.monotonic(), self._job()
            ended = job is not None and job.has_ended  # then no sample comes any more
            asked = (self.wants_report and not told) or ended != over
            if not known or not (asked or (new and began >= due)):
                continue
            evidence = gathering.evidence(job, site, live=True, shared=True)
            findings = live.update(evaluate(evidence), evidence.end)
            charted, report = _charted(evidence), None
            if self.wants_report:
                evidence = gathering.evidence(job, site, shared=True)
                coverage = replace(evidence.coverage, source="live")
                report = build(replace(evidence, coverage=coverage))
            if self._stopping.is_set():
                return
            self.latest = Verdict(findings, charted, report, self._unjudged(gathering))
            del evidence  # what was computed of it takes as much as what was gathered
            new, told, over = False, self.wants_report, ended
            due = began + max(_PERIOD_S, (time.monotonic() - began) / _SHARE)


def _bytes_of(item: Header | Sample | Iterator[Item]) -> int:
    """About what it takes; what is read only when its turn comes takes nothing yet."""
    if isinstance(item, Header):
        return weight(item)
    if not isinstance(item, Sample):
        return 0
    rows = sum(
        _ROW_BYTES + _READING_BYTES * len(readings)
        for table in item.rows.values()
        for readings in table.values()
    )
    return rows + weight(item.events) + weight(item.states)


def _charted(evidence: Evidence) -> Evidence:
    from gpumon.analysis.evidence import DeviceEvidence, Track

    return replace(evidence, nodes=[], devices=[
        DeviceEvidence(each.node, each.device, active=Track(), tracks={
            name: Track(each.track(name).mean[:]) for name in ("busy_percent", "mem_used_bytes")
        })
        for each in evidence.devices
    ])  # fmt: skip
