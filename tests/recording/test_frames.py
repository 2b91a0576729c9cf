"""Frames of whole, torn, joined and damaged recordings."""

import os
import random
import time

import pytest
import zstandard

from gpumon.frames.framer import Framer
from gpumon.frames.lines import at_beginning, frame_of
from gpumon.model.fields import DERIVED, KEPT, SERIES
from gpumon.model.reading import IMPLAUSIBLE, LOST, UNSUPPORTED
from gpumon.model.sample import Event, Header, JobContext, Sample, State
from gpumon.pipeline.recorder import RecorderStage
from gpumon.recording import Recording
from gpumon.recording.reader import frames_of
from gpumon.services.runs import open_run
from tests.frames.alike import differences
from tests.frames.framing import FramedRecorder, gather
from tests.recording import made
from tests.recording.streams import by_frames, header, record, same_data, stream

JOB = JobContext("4711", cpus=64, mem_limit_bytes=512 << 30)

HAPPENINGS = [(5, "comes"), (150, "comes"), (200, "xid"), (300, "lost"), (330, "well"),
              (400, "vanishes"), (440, "header"), (460, "comes")]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Five frames of two minutes, and one that holds the rollups of the last."""
    return record(tmp_path_factory.mktemp("rollups") / "a.gpumon", stream(2, 560, HAPPENINGS))


def parts_of(path):
    with Recording(str(path)) as recording:
        return list(recording._parts)


def test_every_reading_that_is_kept_is_read_from_frames(tmp_path):
    """Of every reading that is declared, and of all that is derived; every series among them."""
    samples = list(made.samples(300))
    for sample in samples:  # which nothing else of these streams makes
        for row in sample.rows["device"].values():
            row.update({"throttle_mask": 4} if "throttle_mask" in row else {})
        for row in sample.rows.get("program", {}).values():
            row["worker"] = UNSUPPORTED
        for row in sample.rows.get("job", {}).values():
            row.update({"mem_peak_bytes": 1 << 30} if "mem_peak_bytes" in row else {})
    path = record(tmp_path / "a.gpumon", [made.header(), *samples])
    found = set()
    with Recording(str(path)) as recording:
        for frame in frames_of(recording.stretches(shown=True)):
            found |= {(entity, field) for (entity, _, field), _ in frame.named()}
        assert all(each.opened() for each in recording.stretches(shown=True))
    kept = {(entity, name) for entity, names in KEPT.items() for name in names}
    derived = {(entity, name) for entity, names in DERIVED.items() for name in names}
    assert {entity for entity, _ in derived - found} <= {"throttle"}  # one reason was there
    assert found == kept | derived & found
    assert {(entity, name) for entity, names in SERIES.items() for name in names} <= kept
    assert same_data(path) == 3


def test_a_frame_ends_on_the_grid_of_the_clock_and_has_rollups(whole):
    found = parts_of(whole)
    assert [frame.identity.number for frame in found] == [0, 1, 2, 3, 4, 5]
    assert [frame.start % 120 for frame in found[1:5]] == [0.0] * 4
    assert found[5].start == found[5].last == found[4].last
    assert same_data(whole) == 5


def test_closed_in_haste_the_last_frame_has_none(tmp_path):
    path = record(tmp_path / "a.gpumon", stream(2, 300, []), in_haste=True)
    with Recording(str(path)) as recording:
        assert recording.state == "ended"
        assert not recording.problems
    assert same_data(path) == 2


@pytest.mark.parametrize(("interval_s", "ticks", "late_s"), [(60.0, 93, 0), (1.0, 60, 118)])
def test_no_sample_is_lost_where_a_frame_ends(tmp_path, interval_s, ticks, late_s):
    """Where its border lies within a bucket, or it began too shortly before one."""
    items = [
        item._replace(time=item.time + late_s, mono=item.mono + late_s)
        for item in stream(2, ticks, [], interval_s)
    ]
    frame_s = max(120.0, 10 * interval_s)
    path = record(tmp_path / "a.gpumon", items, frame_s=frame_s, in_haste=True, phase=0.3)
    assert same_data(path) >= 1


@pytest.mark.slow
def test_cut_at_any_byte(tmp_path, whole):
    data = whole.read_bytes()
    edges = [at for frame in parts_of(whole) for at in (frame.end, frame.behind)]
    rng = random.Random(8)
    path = tmp_path / "cut.gpumon"
    cuts = {at + off for at in edges for off in (-300, -1, 0, 30)}
    cuts |= {rng.randrange(5000, len(data)) for _ in range(10)}
    seen = set()
    for cut in sorted(cuts & set(range(5000, len(data)))):
        path.write_bytes(data[:cut])
        os.utime(path, (1e9, 1e9))  # nobody writes there any more
        seen.add(same_data(path))
    assert seen == {0, 1, 2, 3, 4, 5}


def test_lines_that_end_among_those_that_only_screens_need(whole):
    """A frame comes with all its series, or as its samples: what follows may not be written yet."""
    with Recording(str(whole)) as recording:
        lines = list(recording._lines(recording._parts[1]))

    def series(count, shown):
        opened = frame_of(at_beginning(iter(lines[:count])), 0, shown=shown)
        return opened and len(opened().rollups)

    counts = range(len(lines) + 1)
    assert {series(count, True) for count in counts} == {None, series(len(lines), True)}
    assert None in {series(count, False) for count in counts}


def test_joined_files(tmp_path, whole):
    """Each frame is complete in itself: what is missing before it does not matter."""
    data = whole.read_bytes()
    frame = parts_of(whole)[2]
    path = tmp_path / "joined.gpumon"
    for rest, count in (
        (data[frame.begin :], 3),
        (data[: frame.begin] + data[frame.behind :], 3),
        (data[: frame.begin + 100] + data[frame.behind :], 3),
    ):
        path.write_bytes(rest)
        data, found = by_frames(path)
        assert found == count
        with Recording(str(path)) as recording:  # which do not know who came before
            built = gather([("gpu01", recording.items())])
        for one, other in zip(data.devices, built.devices):
            assert differences(one.tracks, other.tracks) == []


def test_damaged_lines_of_a_frame_are_made_good_from_its_samples(tmp_path, whole):
    """And where those are damaged, the lines have what they were."""
    truth = by_frames(whole)[0]
    path = tmp_path / "x.gpumon"
    for frame in parts_of(whole)[1:-1]:
        data = bytearray(whole.read_bytes())
        data[frame.begin + 300] ^= 0x10  # the lines of the one before, and samples of its own
        path.write_bytes(data)
        data, count = by_frames(path)
        assert differences(data, truth) == []
        assert count == 4


def test_damaged_samples_do_not_matter_where_the_rollups_are_whole(tmp_path, whole):
    """But they are found by who reads them."""
    truth = by_frames(whole)[0]
    data = bytearray(whole.read_bytes())
    frame = parts_of(whole)[1]
    data[frame.end - 300] ^= 0x10
    path = tmp_path / "x.gpumon"
    path.write_bytes(data)
    assert differences(by_frames(path)[0], truth) == []
    with Recording(str(path)) as recording:
        sum(1 for _ in recording.items())
        assert any("damaged" in problem for problem in recording.problems)


def test_packed_again_it_is_read_from_the_samples(tmp_path, whole):
    with whole.open("rb") as packed:
        lines = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    path = tmp_path / "again.gpumon"
    path.write_bytes(zstandard.ZstdCompressor().compress(lines))
    assert same_data(path) == 0
    assert all(line.startswith(b"{") for line in lines.splitlines())


def test_a_frame_that_cannot_be_kept_costs_no_sample(tmp_path):
    class Odd(Framer):
        def add(self, item):
            for frame in super().add(item):
                if frame.samples.first > made.START + 200:
                    frame.samples = None  # type: ignore[assignment]
                yield frame

    items = list(stream(2, 400, []))
    path = record(tmp_path / "a.gpumon", items, framer=Odd(replayed=True))
    assert same_data(path) == 1
    with Recording(str(path)) as recording:
        assert sum(1 for _ in recording.items()) == len(items) + 1


def test_recorders_write_frames_and_reports_read_them(tmp_path, whole, monkeypatch):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    [one] = open_run(str(whole))
    assert len(list(one.frames())) == 5
    assert all(each.opened() for each in one.joined.stretches())
    stage = RecorderStage(Silent(), str(tmp_path / "marks"), record=True)
    stage.start(Silent())
    stage.header("gpu01", header())
    for item in stream(2, 160, []):
        if isinstance(item, Sample):
            stage.add("gpu01", item)
    path = stage._nodes["gpu01"].recorder.path
    stage.close(in_haste=False)
    data, count = by_frames(path)
    assert (count, data.nodes[0].covered_s) == (1, 160)


def test_recorders_of_many_nodes_work_one_after_another(tmp_path):
    """By their phases: fed with the same ticks they write, and end their frames, apart."""
    wrote, ended = zip(*(worked(tmp_path, phase) for phase in (0.0, 0.3, 0.7)))
    assert sum(map(len, wrote)) == len(set.union(*wrote)) > 0
    assert [(at + 1) % 600 for at in ended] == [0, 160, 400]  # multiples of 40 s


def worked(folder, phase):
    """Of its second minute when it wrote; the end of its first frame."""
    clock, wrote = [0.0], set()
    path = folder / str(phase)
    recorder = FramedRecorder(str(path), clock=lambda: clock[0], phase=phase)
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
        frame = recording._parts[0]
    return wrote, frame.last


def test_a_recording_of_seconds_has_none(tmp_path):
    """Its command must not wait for the import; samples so few are read as quickly."""
    assert same_data(record(tmp_path / "a.gpumon", stream(2, 20, []))) == 0


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


# -- frames in the file, and frames built of what is in it -----------------------------------------


def changed(samples, *changes):
    """The samples, each as `change(n, sample)` makes it; None leaves it out."""
    for n, sample in enumerate(samples):
        for change in changes:
            sample = sample and change(n, sample)
        if sample:
            yield sample


def gap(n, sample):
    return None if 200 <= n < 317 else sample


def gone_gpu(n, sample):
    """Device 3 is lost for a while, and then comes back."""
    if not 333 <= n < 400:
        return sample
    row = sample.rows["device"][3]
    row.update(dict.fromkeys(row, LOST))
    events = [Event(sample.time, "xid", 3, text="79")] if n == 333 else []
    return sample._replace(
        states={3: State("lost", made.START + 333, "Xid 79")}, events=sample.events + events
    )


def no_gpm(n, sample):
    for row in sample.rows["device"].values():
        row.update((name, UNSUPPORTED) for name in row if name.startswith(("sm_active", "tensor")))
    return sample


def holes(n, sample):
    """Single values are missing, of one also the word for it; one is beyond its range."""
    if n % 7 == 3:
        sample.rows["device"][2]["power_w"] = IMPLAUSIBLE
        sample.rows["job"][""]["cpu_cores_used"] = UNSUPPORTED
        sample.rows["device"][5]["busy_percent"] = UNSUPPORTED
    return sample


def comes_and_goes(n, sample):
    """A process leaves without an event; another was never announced."""
    usage, processes = sample.rows.get("usage"), sample.rows.get("process")
    if usage and n > 250:
        del usage[0, 9000]
    if usage and n > 380:
        usage[1, 777] = dict(usage[1, 9002])
    if processes and n > 300 and n % 3:
        del processes[9005]
    return sample


def resets(n, sample):
    """Counters begin anew."""
    for row in sample.rows["device"].values():
        if n > 300 and "energy_j" in row:
            row["energy_j"] = row["energy_j"] % 5000
    return sample


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [(), (gap,), (gone_gpu,), (no_gpm,), (holes,), (comes_and_goes,), (resets,),
     (gap, gone_gpu, no_gpm, holes, comes_and_goes)],
    ids=lambda changes: "+".join(each.__name__ for each in changes) or "plain",
)  # fmt: skip
def test_the_same_data(tmp_path, changes):
    path = record(
        tmp_path / "a.gpumon", [made.header(job=JOB), *changed(made.samples(520), *changes)]
    )
    assert same_data(path) == 5


@pytest.mark.slow
def test_a_new_header_in_the_middle(tmp_path):
    samples = list(made.samples(520))
    fewer = made.header(job=JOB)
    fewer = fewer._replace(devices=fewer.devices[:7], time=made.START + 350)
    items = [made.header(job=JOB), *samples[:350], fewer, *samples[350:]]
    assert same_data(record(tmp_path / "a.gpumon", items)) == 5


@pytest.mark.slow
def test_long_intervals(tmp_path):
    header = made.header(job=JOB)._replace(interval_s=5.0)
    path = record(tmp_path / "a.gpumon", [header, *made.samples(300, interval_s=5)])
    assert same_data(path) == 13
