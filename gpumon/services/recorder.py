"""Records this node: the agent's samples and the marks, until there is a reason to end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpumon.analysis.aggregate.limits import LIVE
from gpumon.analysis.aggregate.run import Aggregation
from gpumon.analysis.summary import run_summary
from gpumon.collect.agent import Agent, next_tick
from gpumon.collect.cgroup.room import LEFT
from gpumon.errors import GpumonError
from gpumon.model.axis import Axis
from gpumon.model.reading import number
from gpumon.model.sample import Header, Key, Sample
from gpumon.model.text import clean
from gpumon.model.units import plural
from gpumon.recording import Recorder, marks_dir, new_path
from gpumon.recording.claims import Claims
from gpumon.recording.marks import MarkSpool, mark_event
from gpumon.recording.rollups import Roller
from gpumon.services.probing import Probe, sweep
from gpumon.services.retention import start_retention
from gpumon.services.run_summary import summary_lines

if TYPE_CHECKING:
    from gpumon.config import Settings

#: sleeps until this monotonic time; returns why to end, "" to continue
Wait = Callable[[float], str]


def record(
    output: str | None,
    settings: Settings,
    wait: Wait,
    *,
    quiet: bool = False,
    probe: Probe | None = None,
) -> tuple[bool, list[str]]:
    """Record until `wait` gives a reason to end; whether it failed, and what to print about it.

    `output`: a new file or a folder; None: a new file among all recordings. `probe`: of the
    command beside it.
    """
    began = time.monotonic()
    agent = Agent(settings.interval_s, {**os.environ, **(probe.variables if probe else {})})
    agent.start()
    header = agent.header()
    recorder = new_recorder(output, header)
    if not quiet and sys.stderr.isatty():
        print(f"gpumon: recording to {clean(recorder.path)}; press Ctrl-C to stop", file=sys.stderr)
    start_retention(settings)
    node = _NodeRecorder(agent, recorder, is_usual=output is None)
    run, axis = Aggregation(LIVE), Axis()
    for item in node.items(header, wait):
        run.add(header.node, axis.item(item))
    agent.close()
    if probe is not None:
        sweep(os.environ, node.probed)
    if recorder.failed:
        return True, [f"gpumon: {clean(recorder.failed)}"]
    if node.reason == LEFT:  # a summary would take what memory is left
        return False, [f"gpumon: recording stopped: {LEFT}"]
    if quiet:
        return False, []
    summary, ran_s = run_summary(run.evidence()), time.monotonic() - began
    lines = summary_lines(summary, node.host_peaks, recorder.path, ran_s)
    if probe is not None:
        lines.append(f"gpumon: {probe.why_not or _probe_line(len(node.probed))}")
    return False, [clean(line) for line in lines]


def _probe_line(count: int) -> str:
    """How far the probe came."""
    if count:
        return f"the probe measured inside {plural(count, 'process', 'es')}"
    return "the probe found no Python that trains with PyTorch or has JAX or TensorFlow on a GPU"


def _roller() -> Roller:
    from gpumon.analysis.aggregate import roller

    return roller.Roller()


def new_recorder(output: str | None, header: Header) -> Recorder:
    """Another task of the step may take the next free name at the same moment."""
    while True:
        path = _path(output, header)
        try:
            return Recorder(path, roller=_roller)
        except GpumonError:
            if output is not None or not os.path.lexists(path):
                raise


def _path(output: str | None, header: Header) -> str:
    """The file that was named, or one of the usual name in the usual or the named folder."""
    usual = new_path(header, header.time)
    if output is None:
        return usual
    is_folder = os.path.isdir(output) or output.endswith("/")
    return os.path.join(output, os.path.basename(usual)) if is_folder else output


class _NodeRecorder:
    """One node's recording; `items` drives it."""

    def __init__(self, agent: Agent, recorder: Recorder, *, is_usual: bool) -> None:
        """`is_usual`: it lies where reports look for it, so no dashboard need record the node."""
        self.host_peaks: dict[str, float] = {}  # of the fields of `host`
        self.probed: set[Key] = set()  # processes that a probe told of
        self.reason = ""  # for which it ended
        self._agent = agent
        self._recorder = recorder
        self._is_usual = is_usual

    def items(self, header: Header, wait: Wait) -> Iterator[Header | Sample]:
        """Record, and pass on what was recorded; ends with the recording closed."""
        agent, recorder = self._agent, self._recorder
        spool = _open_spool(header)
        claims = Claims(spool) if spool is not None else None
        if claims is not None:
            claims.start()
        recorder.header(header)
        yield header
        while not self.reason:
            sample = agent.sample()
            if agent.devices.changed:
                header = agent.header()
                recorder.header(header)
                yield header
            if claims is not None and self._is_usual:
                _claim(claims, header)
            if spool is not None:
                marks = map(mark_event, spool.take())
                sample = sample._replace(events=[*sample.events, *marks])
            recorder.add(sample)
            self._note(sample)
            yield sample
            self.reason = recorder.failed or self._next(wait)
        if (last := agent.last_words()).rows:
            recorder.add(last)
            self._note(last)
            yield last
        for mark in spool.close() if spool is not None else ():
            recorder.mark(mark.time, mark.text)
        recorder.close(self.reason)
        if claims is not None:
            claims.stop()

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
        self.probed.update(sample.rows.get("program", ()))
        self.probed.update(key[1] for key in sample.rows.get("pool", ()) if isinstance(key, tuple))


def _claim(claims: Claims, header: Header) -> None:
    """Claim the node, for dashboards to see, as long as samples come."""
    claims.seen(header.node, header.interval_s)
    claims.hold(header.node, claims.made(header.node, header, is_asked_for=True))


def _open_spool(header: Header) -> MarkSpool | None:
    """Where marks come in; None where the folder cannot be written: that is no reason to fail."""
    try:
        return MarkSpool(marks_dir(), header.job.id if header.job else "", header.node)
    except OSError:
        return None
