"""Findings while a job is watched: a stage before the store that evaluates the run now and then.

The streams' threads only put frames in a backlog; one thread joins and evaluates them, with
at most a fiftieth of a core, of more than 16 nodes a hundredth. It imports what it needs after the
first paint.

Where the streams are recorded, the recorder makes the frames: marks come in there. Else this does.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gpumon.frames.framer import Framer
from gpumon.model import clock
from gpumon.model.sample import Header, Sample
from gpumon.model.view import LEFT, Status
from gpumon.pipeline.backlog import Backlog, Frames
from gpumon.report.advice import Box, box

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding, Recommendation
    from gpumon.analysis.rules.hysteresis import Live
    from gpumon.analysis.run import Run
    from gpumon.analysis.rundata import RunData
    from gpumon.analysis.steps import StepsNow
    from gpumon.frames.frame import Frame
    from gpumon.report.model import Report
    from gpumon.report.verdict import Verdict
    from gpumon.site import Site
    from gpumon.slurm.job import Job
    from gpumon.store import Store

#: s from one evaluation to the next, and the share of a core that evaluations may take
_PERIOD_S, _REPLAYED_S = 10.0, 5.0  # live no more often than a bucket of the grid is full
_SHARE, _SHARE_OF_MANY = 0.02, 0.01
_FEW_NODES = 16
#: so many evaluators have it each; of more, all together have so much
_WHOLE_SHARES = 4
_IDLE_S = 0.5
#: an evaluation of more nodes takes seconds, in which nothing else of this process moves
_MAX_NODES = 256


class LiveEvaluation(NamedTuple):
    """What was found at one moment."""

    findings: list[Finding]  # of a running job, in their rank, neither flickering nor staying
    run: RunData  # of the devices what charts show: the whole is 1 MiB a node in an hour
    report: Report | None  # as if the job ended now; only where somebody looks at it
    left_out: Sequence[str] = ()  # what these do not rest on, in sentences
    steps: StepsNow | None = None  # where the probe reports on the job's processes
    changes: Sequence[Recommendation] = ()  # of the request, that follow from the findings
    verdict: Verdict | None = None  # without events

    @property
    def box(self) -> Box:
        """What to do about the findings."""
        job = self.run.job
        return box(self.findings, self.changes, job is not None and job.is_running)


class Evaluator:
    """A sink in front of the store that also evaluates what a report would show now.

    `job` returns Slurm's latest answer; `is_framing`: nobody before it makes frames; `others`:
    evaluators beside this one in this process.
    """

    def __init__(
        self,
        store: Store,
        site: Callable[[], Site | None] = lambda: None,
        job: Callable[[], Job | None] = lambda: None,
        *,
        replayed: bool = False,
        is_framing: bool = False,
        is_seeking: Callable[[], bool] = lambda: False,
        others: int = 0,
    ) -> None:
        self._store = store
        self._others = others
        self._period_s = _REPLAYED_S if replayed else _PERIOD_S
        self._site = site
        self._job = job
        self._is_seeking = is_seeking
        self._is_framing = is_framing
        self._framers = defaultdict[str, Framer](partial(Framer, replayed=replayed))
        self.backlog = Backlog(replayed=replayed)
        self._resets = 0
        self._nodes: set[str] = set()
        self._stopping = threading.Event()
        self.wants_report = False
        self.latest: LiveEvaluation | None = None
        self.trouble = ""  # why there are no findings

    # -- as a sink, called by the streams' threads

    def header(self, node: str, header: Header) -> None:
        self._cut(node, header)
        self._store.header(node, header)
        self._nodes.add(node)
        if len(self._nodes) > _MAX_NODES and not self._stopping.is_set():
            self._give_up(f"no live findings above {_MAX_NODES} nodes; run gpumon report")

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        self._cut(node, sample)
        self._store.add(node, sample, received)

    def _cut(self, node: str, item: Header | Sample) -> None:
        if self._is_framing:
            for frame in self._framers[node].add(item):
                self.frame(node, frame)

    def frame(self, node: str, frame: Frames) -> None:
        """What samples that came were aggregated to."""
        if not self._stopping.is_set():
            self.backlog.put(node, frame)

    def status(self, node: str, status: Status) -> None:
        if node in self._framers and status.state not in ("connecting", "live"):
            for frame in self._framers[node].rest():
                self.frame(node, frame)
        self._store.status(node, status)
        if status.state == LEFT:  # its data are not about the job as it is now
            self._framers.pop(node, None)
            self._nodes.discard(node)
            self.backlog.reset(node)

    def load(self, node: str, past: Frame, frames: Iterator[Frame]) -> None:
        """What was before the next sample: in one frame to show, and in full to evaluate."""
        self._framers.pop(node, None)
        self._store.load(node, past)
        self._nodes.add(node)
        self.frame(node, frames)

    def reset(self) -> None:
        """Forget all nodes."""
        self.latest = None
        self._framers.clear()
        self._store.reset()
        self._resets += 1
        self.backlog.reset()

    def _give_up(self, why: str) -> None:
        self.stop()
        self.backlog.clear()
        self.latest = None
        self.trouble = why

    # -- evaluation, in a thread of its own

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="evaluator").start()

    def stop(self) -> None:
        self._stopping.set()
        self.backlog.is_read = False

    def _run(self) -> None:
        try:
            self._evaluate()
        except Exception as error:  # findings may fail; the dashboard must not
            self._give_up(f"no findings: {type(error).__name__}: {error}")

    def _evaluate(self) -> None:
        from gpumon.analysis.rules.hysteresis import Live
        from gpumon.analysis.run import LIVE, Run

        self.backlog.is_read = True
        run, live = Run(LIVE), Live()
        new, due = False, 0.0
        told = over = False  # what the last evaluation was made of
        while not self._stopping.wait(_IDLE_S):
            if self._is_seeking() and self.backlog.has_room:
                continue  # the seek comes first
            while (entry := self.backlog.take()) is not None:
                if entry.frames is None:
                    live = Live()
                    if entry.node:
                        run.forget(entry.node)
                    if not entry.node or not run.has_samples:
                        run, self.latest = Run(LIVE), None
                    new = run.has_samples
                    due = min(due, time.monotonic() + self._period_s)  # nothing is shown until then
                    continue
                job = self._job()
                for frame in self._until_reset(entry.frames):
                    run.add(entry.node, _while_running(frame, job))
                new = True
            began, job = time.monotonic(), self._job()
            job = None if job is None else job.as_of(clock.now())  # Slurm answered some time ago
            ended = job is not None and job.has_ended  # then no sample comes any more
            asked = (self.wants_report and not told) or ended != over
            if not run.has_samples or not (asked or (new and began >= due)):
                continue
            found = self._evaluation(run, live, job)
            if self._stopping.is_set():
                return
            self.latest = found
            new, told, over = False, found.report is not None, ended
            due = began + max(self._period_s, (time.monotonic() - began) / self._share)

    @property
    def _share(self) -> float:
        """Of a core."""
        whole = _SHARE if len(self._nodes) <= _FEW_NODES else _SHARE_OF_MANY
        return whole / (1 + self._others / _WHOLE_SHARES)

    def _until_reset(self, frames: Frames) -> Iterator[Frame]:
        resets = self._resets
        for frame in frames if isinstance(frames, Iterator) else (frames,):
            if self._resets != resets or self._stopping.is_set():
                return
            yield frame

    def _evaluation(self, run: Run, live: Live, job: Job | None) -> LiveEvaluation:
        from gpumon.analysis.rules.catalogue import evaluate
        from gpumon.analysis.steps import steps_now
        from gpumon.report.build import build
        from gpumon.report.verdict import verdict_now

        site = self._site()
        data = run.data(job, site, live=True, shared=True)
        found, report = evaluate(data), None
        findings = live.update(found, data.end)
        charted, steps = _charted(data), steps_now(data)
        if self.wants_report:
            data = run.data(job, site, shared=True)
            report = build(replace(data, coverage=replace(data.coverage, source="live")))
        left_out = run.left_out()
        if count := self.backlog.left_out:
            left_out.append(f"{count:,} samples that arrived too fast are not in the findings.")
        changes, answer = found.recommendations, verdict_now(data, findings, found)
        return LiveEvaluation(findings, charted, report, left_out, steps, changes, answer)


def _while_running(frame: Frame, job: Job | None) -> Frame:
    """The frame; of one that began while the job was suspended, its events: what stands still
    because Slurm stopped it is not idle.
    """
    from gpumon.slurm.suspension import is_suspended

    if frame.samples.seen and is_suspended(job, frame.samples.first):
        return frame.of_events()
    return frame


def _charted(run: RunData) -> RunData:
    """The run with the two readings that charts show."""
    from gpumon.analysis.rundata import DeviceData, Track

    shown = ("busy_percent", "mem_used_bytes")
    devices = []
    for each in run.devices:
        tracks = {name: Track(each.track(name).mean[:]) for name in shown}
        devices.append(DeviceData(each.node, each.device, active=Track(), tracks=tracks))
    return replace(run, nodes=[], devices=devices)
