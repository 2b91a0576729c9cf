"""Rollup lines of whole, torn, joined and damaged recordings."""

import os
import random
import time
from pathlib import Path

import pytest
import zstandard

from gpumon.analysis.aggregate.limits import BACKFILL
from gpumon.analysis.aggregate.roller import Roller
from gpumon.analysis.aggregate.run import gather
from gpumon.analysis.aggregate.series import TRACKED
from gpumon.model.fields import COURSES, SERIES
from gpumon.model.reading import UNSUPPORTED
from gpumon.model.rolled import DERIVED, FIELD_OF, RolledFrame
from gpumon.model.sample import Header, Sample
from gpumon.pipeline.tee import Tee
from gpumon.recording import Recorder, Recording
from gpumon.recording.rollups import at_beginning, rolled_of
from gpumon.services.recorder import new_recorder
from gpumon.services.runs import open_run
from tests.recording import made
from tests.recording.streams import by_rollups, header, record, same_evidence, stream
from tests.recording.test_batches import differences

HAPPENINGS = [(5, "comes"), (150, "comes"), (200, "xid"), (300, "lost"), (330, "well"),
              (400, "vanishes"), (440, "header"), (460, "comes")]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Five frames of two minutes, and one that holds the rollups of the last."""
    return record(tmp_path_factory.mktemp("rollups") / "a.gpumon", stream(2, 560, HAPPENINGS))


def frames_of(path):
    with Recording(str(path)) as recording:
        return list(recording._frames)


def test_every_series_that_is_recorded_is_read_from_rollups(tmp_path):
    """Of every reading that is declared, and of all that is derived; none has its samples read."""
    samples = list(made.samples(300))
    for sample in samples:  # which nothing else of these streams makes
        for row in sample.rows["device"].values():
            row.update({"throttle_mask": 4} if "throttle_mask" in row else {})
        for row in sample.rows.get("program", {}).values():
            row["worker"] = UNSUPPORTED
    path = record(tmp_path / "a.gpumon", [made.header(), *samples])
    with Recording(str(path)) as recording:
        frames = [item for item in recording.rolled(shown=True) if isinstance(item, RolledFrame)]
        names = [name for item in frames for each in item.opened().columns for name in each.names]
        truth = gather([("gpu01", recording.items())], limits=BACKFILL)
    assert {kind for kind, _, _ in names} == {*DERIVED, *FIELD_OF, *TRACKED, "device", "program"}
    fields = {(kind, field) for kind, field, _ in names}
    declared = {(entity, name) for entity, names in SERIES.items() for name in names}
    assert declared - fields <= {("device", "throttle_mask")}  # a series of each reason
    courses = {FIELD_OF[kind] for kind, _, _ in names if kind in FIELD_OF}
    assert {(entity, name) for entity, names in COURSES.items() for name in names} == courses - {
        ("pool", "reserved_bytes")
    }
    for shown in (False, True):
        evidence, count = by_rollups(path, shown=shown)
        assert count == len(frames) == 3
    assert differences(truth, evidence) == []


def test_a_frame_ends_on_the_grid_of_the_clock_and_has_rollups(whole):
    found = frames_of(whole)
    assert [frame.identity.number for frame in found] == [0, 1, 2, 3, 4, 5]
    assert [frame.start % 120 for frame in found[1:5]] == [0.0] * 4
    assert found[5].start == found[5].last == found[4].last
    assert same_evidence(whole) == 5


def test_closed_in_haste_the_last_frame_has_none(tmp_path):
    path = record(tmp_path / "a.gpumon", stream(2, 300, []), in_haste=True)
    with Recording(str(path)) as recording:
        assert recording.state == "ended"
        assert not recording.problems
    assert same_evidence(path) == 2


@pytest.mark.slow
def test_cut_at_any_byte(tmp_path, whole):
    data = whole.read_bytes()
    edges = [at for frame in frames_of(whole) for at in (frame.end, frame.behind)]
    rng = random.Random(8)
    path = tmp_path / "cut.gpumon"
    cuts = {at + off for at in edges for off in (-300, -1, 0, 30)}
    cuts |= {rng.randrange(5000, len(data)) for _ in range(10)}
    seen = set()
    for cut in sorted(cuts & set(range(5000, len(data)))):
        path.write_bytes(data[:cut])
        os.utime(path, (1e9, 1e9))  # nobody writes there any more
        seen.add(same_evidence(path))
    assert seen == {0, 1, 2, 3, 4, 5}


def test_lines_that_end_among_those_that_only_screens_need(whole):
    """A frame comes with all its series, or as its samples: what follows may not be written yet."""
    with Recording(str(whole)) as recording:
        lines = list(recording._lines(recording._frames[1]))

    def series(count, shown):
        opened = rolled_of(at_beginning(iter(lines[:count])), 0, shown=shown)
        return opened and sum(len(columns.names) for columns in opened().columns)

    counts = range(len(lines) + 1)
    assert {series(count, True) for count in counts} == {None, series(len(lines), True)}
    assert None in {series(count, False) for count in counts}


def test_joined_files(tmp_path, whole):
    """The rollups of a frame stand at the beginning of the next one."""
    data = whole.read_bytes()
    frame = frames_of(whole)[2]
    path = tmp_path / "joined.gpumon"
    for parts, count in (
        ((data, data), 5),
        ((data[: frame.behind], data), 2),
        ((data[: frame.begin + 100], data), 1),
        ((data[frame.begin :], data), 0),
        ((data[: frame.begin], data[frame.behind :]), 1),
    ):
        path.write_bytes(b"".join(parts))
        assert same_evidence(path) == count


def test_damaged_rollups_are_read_from_the_samples(tmp_path, whole):
    """Where they are and what follows in their frame is lost, as it is for everybody."""
    path = tmp_path / "x.gpumon"
    for n, frame in enumerate(frames_of(whole)[1:]):
        data = bytearray(whole.read_bytes())
        data[frame.begin + 300] ^= 0x10
        path.write_bytes(data)
        assert same_evidence(path) == n


def test_damaged_samples_do_not_matter_where_the_rollups_are_whole(tmp_path, whole):
    """But they are found by who reads them."""
    truth = by_rollups(whole)[0]
    data = bytearray(whole.read_bytes())
    frame = frames_of(whole)[1]
    data[frame.end - 300] ^= 0x10
    path = tmp_path / "x.gpumon"
    path.write_bytes(data)
    assert differences(by_rollups(path)[0], truth) == []
    with Recording(str(path)) as recording:
        sum(1 for _ in recording.items())
        assert any("damaged" in problem for problem in recording.problems)


def test_a_recording_with_digests_gives_the_same_without_them():
    """Older recorders wrote these in skippable frames; the samples are read."""
    path = Path(__file__).with_name("digests-0.1.gpumon")
    assert same_evidence(path) == 0
    with Recording(str(path)) as recording:
        assert len(list(recording.items())) == 563
        assert not recording.problems


def test_packed_again_it_is_read_from_the_samples(tmp_path, whole):
    with whole.open("rb") as packed:
        lines = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    path = tmp_path / "again.gpumon"
    path.write_bytes(zstandard.ZstdCompressor().compress(lines))
    assert same_evidence(path) == 0
    assert all(line.startswith(b"{") for line in lines.splitlines())


def test_a_roller_that_fails_costs_no_sample(tmp_path):
    class Failing(Roller):
        def add(self, item):
            super().add(item)
            if isinstance(item, Sample) and item.time > made.START + 200 and item.events:
                raise ZeroDivisionError

    clock = [0.0]
    path = tmp_path / "a.gpumon"
    recorder = Recorder(str(path), clock=lambda: clock[0], frame_s=120.0, roller=Failing)
    recorder.header(header())
    samples = [item for item in stream(2, 400, [(220, "comes")]) if isinstance(item, Sample)]
    for sample in samples:
        clock[0] = sample.mono
        recorder.add(sample)
    recorder.close()
    assert not recorder.failed
    assert same_evidence(path) == 1
    with Recording(str(path)) as recording:
        assert sum(1 for _ in recording.items()) == 1 + len(samples) + 1


def test_recorders_write_rollups_and_reports_read_them(tmp_path, whole, monkeypatch):
    """`gpumon record`, the dashboard; `gpumon report`, `fit` and the findings of a replay."""
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    [one] = open_run(str(whole))
    assert sum(isinstance(item, RolledFrame) for item in one.to_aggregate) == 5
    path = tmp_path / "record.gpumon"
    recorder = new_recorder(str(path), header())
    recorder.header(header())
    samples = [item for item in stream(2, 160, []) if isinstance(item, Sample)]
    for sample in samples:
        recorder.add(sample)
    recorder.close()
    assert same_evidence(path) == 1
    tee = Tee(Silent(), str(tmp_path / "marks"), record=True)
    tee.start(Silent())
    tee.header("gpu01", header())
    for sample in samples:
        tee.add("gpu01", sample)
    roller = tee._nodes["gpu01"].recorder._rolling._roller
    tee.stop()
    assert isinstance(roller, Roller)


def test_recorders_of_many_nodes_work_one_after_another(tmp_path):
    """By their phases: fed with the same ticks they write, and end their frames, apart."""
    wrote, ended = zip(*(worked(tmp_path, phase) for phase in (0.0, 0.3, 0.7)))
    assert sum(map(len, wrote)) == len(set.union(*wrote)) > 0
    assert [(at + 1) % 600 for at in ended] == [0, 160, 400]  # multiples of 40 s


def worked(folder, phase):
    """Of its second minute when it wrote; the end of its first frame."""
    clock, wrote = [0.0], set()
    path = folder / str(phase)
    recorder = Recorder(str(path), clock=lambda: clock[0], roller=Roller, phase=phase)
    for item in stream(2, 1100, []):
        clock[0] = item.mono
        if isinstance(item, Header):
            recorder.header(item)
            continue
        recorder.add(item)
        if recorder.pending_bytes and 160 <= item.mono < 220:
            wrote.add(item.mono)
        while recorder.pending_bytes:
            time.sleep(0)
    recorder.close()
    with Recording(str(path)) as recording:
        frame = recording._frames[0]
    return wrote, frame.last


def test_a_recording_of_seconds_has_none(tmp_path):
    """Its command must not wait for the import; samples so few are read as quickly."""
    assert same_evidence(record(tmp_path / "a.gpumon", stream(2, 20, []))) == 0


class Silent:
    """A source that says nothing, and a sink that keeps nothing."""

    name = "silent"

    def start(self, sink):
        pass

    def stop(self):
        pass

    def header(self, node, header):
        pass

    def add(self, node, sample, received=None):
        pass
