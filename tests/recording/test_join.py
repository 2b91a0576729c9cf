"""Recordings of one node that overlap are read as one: nothing counts twice, nothing is lost."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.run import run_of
from gpumon.export import tables
from gpumon.model.rollup import STEP_S
from gpumon.model.sample import Event, Header, JobContext, Sample
from gpumon.recording import Recorder, Recording
from gpumon.recording.join import Joined
from gpumon.report.build import build
from tests.frames.alike import differences
from tests.frames.framing import FramedRecorder, gather
from tests.recording import made
from tests.support.examples import examples

TICKS = 700
WATTS, CORES = 250.0, 3.5
MARKS = (40, 333, 334, 610)
LATE_S = 15  # so soon a recorder tells of a mark, or never
JOB = JobContext("4711", cpus=8, mem_limit_bytes=64 << 30, gpus=2)


class Piece(NamedTuple):
    """One recorder: from a tick to before another, each `interval_s`, by a clock that is off."""

    begin: int
    end: int
    interval_s: int = 1
    phase_s: float = 0.0
    off_s: float = 0.0
    hole: tuple[int, int] = (0, 0)
    kept: float = 1.0  # part of its bytes
    gpus: tuple[int, ...] = (0, 1)

    @property
    def ticks(self):
        first = -(-self.begin // self.interval_s) * self.interval_s
        ticks = range(first, self.end, self.interval_s)
        return [n for n in ticks if not self.hole[0] <= n < self.hole[1]]


def header_of(piece):
    header = made.header(job=JOB)
    facts = {"mem_total_bytes": 80 << 30, "power_limit_default_w": 400.0}
    devices = [header.devices[n]._replace(key=k, facts=facts) for k, n in enumerate(piece.gpus)]
    at = piece.ticks[0] + piece.phase_s
    return header._replace(
        devices=devices, interval_s=float(piece.interval_s),
        time=made.START + at + piece.off_s, mono=100.0 + at,
    )  # fmt: skip


def alive(tick):
    """The process on GPU 0 changes half way."""
    return 4001 if tick < 350 else 4002


def samples_of(piece):
    """What was true then; `load1` tells which tick it was."""
    before, known = piece.begin - 1, None
    for tick in piece.ticks:
        at = tick + piece.phase_s
        time = made.START + at + piece.off_s
        pid = alive(tick)
        events = [Event(made.START + n + 0.3 + piece.off_s, "mark", text=str(n))
                  for n in MARKS if max(before, tick - LATE_S) <= n < tick]  # fmt: skip
        if known not in (None, pid):
            events.append(Event(time, "process-end", pid=known))
        if known != pid:
            facts = {"user": "ada", "command": f"train {pid}", "name": "python", "own": True,
                     "in_job": True, "start": made.START + pid - 4001.0}  # fmt: skip
            events.append(Event(time, "process", pid=pid, data=facts))
        before, known = tick, pid
        rows = {
            "device": {
                key: {"busy_percent": 80 if tick % 100 < 60 else 0, "mem_used_bytes": 5 << 30,
                      "power_w": WATTS, "energy_j": 5e6 + WATTS * at, "processes": int(gpu == 0)}
                for key, gpu in enumerate(piece.gpus)
            },
            "process": {pid: {"cpu_percent": 90.0, "threads": 4}},
            "host": {"": {"load1": float(tick)}},
            "job": {"": {"cpu_cores_used": CORES, "cpu_s": 50 + CORES * at}},
        }  # fmt: skip
        if 0 in piece.gpus:
            rows["usage"] = {(piece.gpus.index(0), pid): {"mem_bytes": 4 << 30, "sm_percent": 70}}
        yield Sample(time, 100.0 + at, rows, {}, events)


def record(path, piece):
    clock = [0.0]
    recorder = FramedRecorder(str(path), clock=lambda: clock[0], frame_s=120.0)
    recorder.header(header_of(piece))
    for sample in samples_of(piece):
        clock[0] = sample.mono
        recorder.add(sample)
    recorder.close("done")
    if piece.kept < 1:
        os.truncate(path, max(int(piece.kept * path.stat().st_size), 3000))
        os.utime(path, (1e9, 1e9))
    return path


def joined(folder, *pieces):
    paths = [record(folder / f"{n}.gpumon", piece) for n, piece in enumerate(pieces)]
    return Joined([Recording(str(path)) for path in paths])


def data_of(read):
    return run_of([("gpu01", read.frames())]).data()


def evidence(items):
    return gather([("gpu01", items)])


def ticks_of(items):
    return [int(item.rows["host"][""]["load1"]) for item in items
            if isinstance(item, Sample) and "host" in item.rows]  # fmt: skip


def marks_of(run):
    return [event.text for _, event in run.events if event.kind == "mark"]


def whole(folder, ticks):
    """The recording of one recorder that had exactly these samples."""
    path = folder / "whole.gpumon"
    recorder = Recorder(str(path), clock=lambda: 0.0)
    piece = Piece(min(ticks), max(ticks) + 1)
    recorder.header(header_of(piece))
    for sample in samples_of(piece):
        if int(sample.rows["host"][""]["load1"]) in ticks:
            recorder.add(sample)
    recorder.close("done")
    return Recording(str(path))


PIECES = st.builds(
    lambda begin, length, interval_s, phase_s, off_s, hole, kept: Piece(
        begin, min(begin + length, TICKS), interval_s, phase_s, off_s,
        (begin + hole[0], begin + sum(hole)), kept,
    ),
    st.integers(0, TICKS - 60),
    st.integers(30, TICKS),
    st.sampled_from((1, 1, 2, 5)),
    st.sampled_from((0.0, 0.004, 0.4)),
    st.sampled_from((0.0, 0.0, 7.0, -3600.0)),
    st.sampled_from(((0, 0), (40, 3), (100, 200))),
    st.sampled_from((1.0, 1.0, 1.0, 0.6)),
).filter(lambda piece: len(piece.ticks) > 4)  # fmt: skip


@pytest.mark.slow
@given(pieces=st.lists(PIECES, min_size=1, max_size=4), again=st.booleans())
@examples(25)
def test_any_recordings_of_a_run_give_the_report_of_their_union(tmp_path_factory, pieces, again):
    folder = tmp_path_factory.mktemp("pieces")
    paths = [record(folder / f"{n}.gpumon", piece) for n, piece in enumerate(pieces)]
    if again:
        paths.append(shutil.copy(paths[0], folder / "copy.gpumon"))
    recordings = [Recording(str(path)) for path in paths]
    each = [ticks_of(recording.items()) for recording in recordings]
    union = sorted(set().union(*each))
    steps = [piece.interval_s for piece in [*pieces, pieces[0]]]
    read = Joined(recordings)
    items = list(read.items())

    found = ticks_of(items)
    assert found == sorted(set(found))  # nothing twice, nothing backwards
    times = [item.time for item in items]
    assert all(a <= b for a, b in pairwise(times))
    known = {n + k for own, step in zip(each, steps) for n in own for k in range(step)}
    widest = max(steps)
    taken = {n + k for n in found for k in range(widest)}
    # the last sample of a recorder is left out within a period of another's
    near = widest + (len({piece.phase_s for piece in pieces}) > 1)
    assert known <= taken | {n + k for n in taken for k in range(near)}
    if near == 1:
        assert found == union

    run, true = data_of(read), evidence(whole(folder, set(union)).items())
    assert_same(build(run), build(true), len(read._legs) * widest * 2)
    covered_s = run.nodes[0].covered_s
    assert covered_s == pytest.approx(len(known), abs=len(read._legs) * widest * 2)
    assert {p.facts.pid for d in run.devices for p in d.processes} == {alive(n) for n in found}
    told = marks_of(run)
    assert len(told) == len(set(told))
    surely = {n for n in MARKS for own in each if n in own and {n + 1, n + 2, n + 5} & set(own)}
    assert surely <= set(map(int, told)) if widest == 1 else set(map(int, told)) <= set(MARKS)

    rows = [row for row in tables.rows(read.items()) if row.table.name == "host"]
    assert len(rows) == len(found)
    by_samples = evidence(read.items())
    assert widest > 1 or differences(build(by_samples).used, build(run).used) == []


def assert_same(report, true, seam_s):
    """But for some seconds at each seam, and for buckets at both ends that are seen in part."""
    span_s = true.elapsed_s + 1
    apart_s = seam_s + 2 * STEP_S
    assert report.elapsed_s == pytest.approx(true.elapsed_s, abs=6)
    assert report.used.gpu_energy_j == pytest.approx(true.used.gpu_energy_j, abs=2 * WATTS * 6)
    assert report.used.cpu_core_s == pytest.approx(true.used.cpu_core_s, abs=CORES * 6)
    assert report.used.cores.used == pytest.approx(CORES)
    assert len(report.devices) == 2
    for ours, theirs in zip(report.devices, true.devices):
        assert ours.busy_mean == pytest.approx(theirs.busy_mean, abs=100 * apart_s / span_s + 5)


def test_tasks_that_see_a_gpu_each_give_both(tmp_path):
    """Beside them a dashboard saw both for a while."""
    read = joined(
        tmp_path, Piece(0, 400, gpus=(0,)), Piece(0, 400, gpus=(1,), phase_s=0.2), Piece(300, 600)
    )
    assert ticks_of(read.items()) == list(range(600))
    run = data_of(read)
    report = build(run)
    assert [row.device.uuid for row in report.devices] == ["GPU-00000000", "GPU-00000001"]
    assert [row.energy_j for row in report.devices] == pytest.approx([WATTS * 599] * 2, abs=WATTS)
    assert [row.busy_mean for row in report.devices] == pytest.approx([48.0] * 2)
    assert report.used.cpu_core_s == pytest.approx(CORES * 599)
    assert [len(device.processes) for device in run.devices] == [2, 0]
    assert marks_of(run) == ["40", "333", "334"]


def test_frames_are_used_where_they_lie_in_a_leg(tmp_path):
    read = joined(tmp_path, Piece(0, 500), Piece(100, 200), Piece(480, 700))
    run = data_of(read)
    parts = list(read.stretches())
    assert len(parts) == 7
    assert sum(part.opened() is None for part in parts) == 1  # at the seam
    assert build(run) == build(evidence(read.items()))


def test_a_mark_at_a_seam_is_told_once_where_a_part_has_to_be_built(tmp_path):
    """Of a recording that is moved, before one that is not."""
    later = Piece(177, 688, off_s=7.0, hole=(277, 477))
    read = joined(tmp_path, Piece(137, 502, kept=0.6), later)
    assert marks_of(data_of(read)) == ["333", "334", "610"]


def test_a_replay_goes_on_from_anywhere(tmp_path):
    read = joined(tmp_path, Piece(0, 400), Piece(200, 700, off_s=7.0))
    for since in (0, 150, 199, 200, 390, 650):
        at = made.START + since
        items = list(read.items(at))
        assert isinstance(items[0], Header)
        found = ticks_of(items)
        assert found[0] <= since
        assert found == list(range(found[0], 700))
        assert not any(item.rows for item in items if isinstance(item, Sample) and item.time < at)
        times = [item.time for item in items]
        assert all(a <= b for a, b in pairwise(times))
        lives = [event.pid for item in items[:3] if isinstance(item, Sample)
                 for event in item.events if event.kind == "process"]  # fmt: skip
        assert alive(since) in lives


def test_recordings_of_two_boots_keep_their_own_clocks(tmp_path):
    first, second = record(tmp_path / "a.gpumon", Piece(0, 100)), tmp_path / "b.gpumon"
    piece = Piece(200, 300, off_s=50.0)
    recorder = Recorder(str(second), clock=lambda: 0.0)
    recorder.header(header_of(piece)._replace(boot_id="another"))
    for sample in samples_of(piece):
        recorder.add(sample)
    recorder.close()
    read = Joined([Recording(str(first)), Recording(str(second))])
    assert (read.start - made.START, read.end - made.START) == (0, 349)
