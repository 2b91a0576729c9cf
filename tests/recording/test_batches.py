"""A recording read in columns gives the evidence that it gives read sample by sample."""

from __future__ import annotations

import dataclasses
from itertools import chain
from math import isclose, isnan

import pytest

from gpumon.analysis.aggregate.run import gather
from gpumon.model.batch import ColumnBatch, cut
from gpumon.model.reading import IMPLAUSIBLE, LOST, UNSUPPORTED
from gpumon.model.sample import Event, JobContext, Sample, State
from gpumon.recording import Recorder, Recording
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.recording import made

JOB = JobContext("4711", cpus=64, mem_limit_bytes=512 << 30)


def recorded(path, items):
    clock = [0.0]
    recorder = Recorder(str(path), clock=lambda: clock[0])
    for item in items:
        clock[0] = item.mono
        recorder.add(item) if isinstance(item, Sample) else recorder.header(item)
    recorder.close("that is all")
    return path


def both(path):
    """Run data by samples and by columns, and how many samples came in columns."""
    found = []
    with Recording(str(path)) as recording:
        found.append(gather([("gpu01", recording.items())]))
        items = list(recording.batches())
        assert not recording.problems
        found.append(gather([("gpu01", items)]))
    return *found, sum(len(item.times) for item in items if isinstance(item, ColumnBatch))


def differences(one, other, where="evidence"):
    """Where the two are not the same; counters, sums of floats, may differ in the last bit."""
    if dataclasses.is_dataclass(one):
        pairs = [(f.name, getattr(one, f.name), getattr(other, f.name))
                 for f in dataclasses.fields(one)]  # fmt: skip
    elif isinstance(one, dict) and one.keys() == other.keys():
        pairs = [(key, one[key], other[key]) for key in one]
    elif type(one) in (list, tuple) and len(one) == len(other):
        pairs = [(n, *each) for n, each in enumerate(zip(one, other))]
    elif hasattr(one, "typecode"):
        same = len(one) == len(other) and all(
            a == b or (isnan(a) and isnan(b)) for a, b in zip(one, other)
        )
        return [] if same else [f"{where}: {one} {other}"]
    else:
        same = one == other and type(one) is type(other)
        if isinstance(one, float) and isinstance(other, float):
            same = one == other or isclose(one, other, rel_tol=1e-12)
        return [] if same else [f"{where}: {one!r} {other!r}"]
    return list(chain.from_iterable(differences(a, b, f"{where}.{n}") for n, a, b in pairs))


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
def test_the_same_evidence(tmp_path, changes):
    path = recorded(
        tmp_path / "a.gpumon", [made.header(job=JOB), *changed(made.samples(520), *changes)]
    )
    slow, fast, in_columns = both(path)
    assert differences(slow, fast) == []
    assert in_columns >= 120  # else nothing was compared


@pytest.mark.slow
def test_a_new_header_in_the_middle(tmp_path):
    samples = list(made.samples(520))
    fewer = made.header(job=JOB)
    fewer = fewer._replace(devices=fewer.devices[:7], time=made.START + 350)
    items = [made.header(job=JOB), *samples[:350], fewer, *samples[350:]]
    slow, fast, in_columns = both(recorded(tmp_path / "a.gpumon", items))
    assert differences(slow, fast) == []
    assert in_columns >= 120


@pytest.mark.slow
def test_joined_files_and_long_intervals(tmp_path):
    parts = [
        recorded(tmp_path / f"{n}", [made.header(job=JOB), *made.samples(300, interval_s=5)])
        for n in range(2)
    ]
    joined = tmp_path / "joined.gpumon"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    with Recording(str(joined)) as recording:
        slow = gather([("gpu01", recording.items())])
        fast = gather([("gpu01", recording.batches())])
    assert differences(slow, fast) == []


@pytest.mark.slow
def test_ticks_hold_what_the_samples_hold(tmp_path):
    path = recorded(tmp_path / "a.gpumon", [made.header(), *made.samples(400)])
    with Recording(str(path)) as recording:
        items = list(recording.items())
        again = []
        for item in recording.batches():
            again += item.samples() if isinstance(item, ColumnBatch) else [item]
    assert again == items


def test_a_value_out_of_range_is_missing_and_a_bad_row_is_left_to_the_decoder(tmp_path):
    from gpumon.recording.batches import Irregular, column_batch

    encoder, decoder = Encoder(), Decoder()
    decoder.line(encoder.header(made.header()))
    lines = [encoder.sample(each._replace(events=[])).encode() for each in made.samples(20)]
    lines = [line.partition(b',"why"')[0] + b"}" if b'"why"' in line else line for line in lines]
    beyond = [line.replace(b'"device.fast":[[0,', b'"device.fast":[[0,1') for line in lines]
    beyond[0] = lines[0].replace(b'"device.fast":[[0,', b'"device.fast":[[0,999')
    column = column_batch(beyond, decoder).groups["device.fast"][0].column("busy_percent")
    assert column is not None
    assert column[0] is None
    for bad in (
        lines[5].replace(b'"device.fast":[[0,', b'"device.fast":[[0,1,1,1,'),
        lines[5].replace(b'"m":', b'"m":"x","n":'),
        lines[5].replace(b'"rows":', b'"tables":'),
        lines[5][:-9],
        lines[4],  # the clock stands still
    ):
        with pytest.raises(Irregular):
            column_batch([*lines[:5], bad, *lines[6:]], decoder)


def test_cuts():
    assert cut([10.0, 19.9, 20.0, 45.0, 49.0], 10.0) == [(1, 0, 2), (2, 2, 3), (4, 3, 5)]
    assert cut([], 10.0) == []
