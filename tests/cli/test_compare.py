"""Two runs side by side, from recordings on disk to the text of 80 columns."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon import cli, demos
from gpumon.analysis.comparison import Metric, compare
from gpumon.analysis.known import total
from gpumon.analysis.summary import run_summary
from gpumon.model.reading import LOST, UNSUPPORTED
from gpumon.model.sample import Device, Event, Header, JobContext, Sample
from gpumon.recording import Recorder, Recording
from tests.frames.framing import gather

START = 1_795_289_520.0


def gpu(n, name="NVIDIA A100-SXM4-80GB"):
    return Device(n, n, f"GPU-{n}", name, n, None, {"mem_total_bytes": 80 << 30})


def run(*busy, seconds=100, node="gpu01", command="python train.py", energy=True, **job):
    """A recorded run: one device for each busy %, a process on the first."""
    context = JobContext("4711", **{"cpus": 8, "mem_limit_bytes": 64 << 30, **job})
    header = Header(node, "b", START, 0.0, 1.0, "0.1.0", [gpu(n) for n in range(len(busy))],
                    driver="580.1", job=context)  # fmt: skip
    items = [header]
    for at in range(seconds):
        device = {n: {"busy_percent": value, "mem_used_bytes": (10 + n) << 30, "power_w": 300,
                      "energy_j": 300 * at if energy else UNSUPPORTED}
                  for n, value in enumerate(busy)}  # fmt: skip
        rows = {
            "device": device,
            "usage": {(0, 7): {"mem_bytes": 9 << 30}} if busy else {},
            "job": {"": {"cpu_cores_used": 2, "cpu_s": 2 * at, "mem_used_bytes": 4 << 30}},
        }
        events = []
        if at == 0:
            facts = {"command": command, "framework": "tf", "in_job": True}
            events = [Event(START, "process", pid=7, data=facts)]
        items.append(Sample(START + at, float(at), rows, {}, events))
    return items


def record(path, items):
    recorder = Recorder(str(path))
    for item in items:
        (recorder.header if isinstance(item, Header) else recorder.add)(item)
    recorder.close()
    return str(path)


def compared(*runs):
    return compare(*(run_summary(gather([("gpu01", items)])) for items in runs))


def metric(comparison, name):
    (found,) = [each for each in comparison.metrics if each.name == name]
    return found


# -- what is better --------------------------------------------------------------------------------
def test_busier_is_better_and_idle_is_worse():
    both = compared(run(40), run(80))
    busy = metric(both, "gpu_busy_mean_percent")
    assert (busy.a, busy.b, busy.change, busy.better) == (40, 80, 40, "b")
    idle = metric(compared(run(80), run(0)), "gpu_idle_time_percent")
    assert (idle.a, idle.b, idle.better) == (0, 100, "a")


def test_more_memory_power_or_time_is_neither():
    both = compared(run(80), run(80, 80, seconds=500))
    for name in ("elapsed_s", "gpu_hours", "gpu_mem_peak_bytes", "gpu_energy_wh"):
        assert metric(both, name).ratio > 1
        assert metric(both, name).better == ""


def test_noise_is_no_change():
    assert metric(compared(run(80), run(80.5)), "gpu_busy_mean_percent").better == ""
    assert metric(compared(run(1), run(1.9)), "gpu_busy_mean_percent").better == ""  # < 1 point
    assert metric(compared(run(80), run(84)), "gpu_busy_mean_percent").better == "b"


def test_a_missing_value_is_compared_with_nothing():
    both = compared(run(UNSUPPORTED, energy=False), run(80))
    busy = metric(both, "gpu_busy_mean_percent")
    assert (busy.a, busy.b, busy.change, busy.ratio, busy.better) == (None, 80, None, None, "")
    assert metric(both, "gpu_energy_wh").change is None
    assert metric(both, "gpus_never_active").a is None


values = st.one_of(st.none(), st.floats(0, 1e9))


@given(values, values, st.sampled_from([-1, 0, 1]), st.sampled_from(["", "%"]))
def test_a_verdict_needs_two_values_and_a_direction(a, b, good, unit):
    one, other = Metric("m", "m", unit, a, b, good), Metric("m", "m", unit, b, a, good)
    if a is None or b is None or not good or a == b:
        assert one.better == other.better == ""
    else:  # the other way round it is the other one
        assert other.better == {"a": "b", "b": "a", "": ""}[one.better]


def test_a_part_is_no_total():
    assert (total([1, None]), total([]), total([1, 2.5])) == (None, None, 3.5)


# -- what changed ----------------------------------------------------------------------------------
def test_settings_that_differ_are_named():
    both = compared(
        run(80, command="python train.py --batch 4", partition="a100"),
        run(80, 80, command="python train.py --batch 8", partition="a100", cpus=16),
    )
    changed = {each.name: (each.a, each.b) for each in both.settings if each.changed}
    assert changed == {
        "GPUs": ("1 × A100-SXM4-80GB", "2 × A100-SXM4-80GB"),
        "CPUs per node": ("8", "16"),
        "arguments": ("--batch 4", "--batch 8"),
    }


def test_what_one_run_does_not_tell_has_not_changed():
    both = compared(run(80, start=1000.0, end=4600.0), run(80))
    (limit,) = [each for each in both.settings if each.name == "time limit"]
    assert (limit.a, limit.b, limit.changed) == ("01:00:00", "", False)


def test_devices_are_paired_by_their_order():
    both = compared(run(80), run(10, 20, 30))
    assert [(a and a.busy_mean, b and b.busy_mean) for a, b in both.pairs] == [
        (80, 10), (None, 20), (None, 30),
    ]  # fmt: skip


def test_normalised_by_gpu_hours():
    both = compared(run(80, seconds=361), run(80, 80, seconds=361))
    assert metric(both, "gpu_hours").a == pytest.approx(0.1)
    per_hour = metric(both, "gpu_energy_wh_per_gpu_hour")
    assert (per_hour.a, per_hour.b) == (pytest.approx(300), pytest.approx(300))
    cores = metric(both, "cpu_core_hours_per_gpu_hour")
    assert (cores.a, cores.b) == (pytest.approx(2), pytest.approx(1))


# -- the command -----------------------------------------------------------------------------------
def said(capsys, *args):
    assert cli.main(["compare", *map(str, args)]) == 0
    done = capsys.readouterr()
    assert done.err == ""
    return done.out


def test_text_fits_80_columns(tmp_path, capsys):
    a = record(tmp_path / "a.gpumon", run(40, node="a-node-with-a-long-name-01"))
    b = record(tmp_path / "b.gpumon", run(80, LOST, seconds=50, node="gpu02"))
    out = said(capsys, a, b)
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    busy = next(line for line in lines if line.startswith("GPU busy"))
    assert busy.split() == ["GPU", "busy,", "mean", "40.0", "%", "n/a"]  # of one GPU it is unknown
    assert any(line.endswith("changed") and "1 × A100" in line for line in lines)
    assert "10 GiB* → 10 GiB*" in out
    assert "* preallocated by a framework" in out
    assert "- → n/a" in out  # no second device in A; a lost one in B
    said_of_it = " ".join(lines)
    assert "B ran 0.49 × as long as A, on 2 GPUs instead of 1. If both did the same" in said_of_it
    assert "B was 2.02 × as fast, with 0.99 × the GPU-hours" in said_of_it


def with_steps(items, per_s, step_us, wait=5):
    """What the probe of two ranks reports of `per_s` steps a second."""
    for at, sample in enumerate(items[1:]):
        sample.rows["program"] = {
            pid: {"steps": at * per_s, "step_us": step_us, "data_wait_percent": wait, "rank": pid}
            for pid in (7, 8)
        }
    return items


def test_the_same_number_of_steps(tmp_path, capsys):
    slow = with_steps(run(40, seconds=101), 2, 5e5, wait=40)
    fast = with_steps(run(40, 80, seconds=201), 5, 2e5)
    both = compared(slow, fast)
    assert (metric(both, "steps").a, metric(both, "steps").b) == (200, 1000)
    took = metric(both, "step_mean_s")
    assert (took.a, took.b, took.better) == (pytest.approx(0.5), pytest.approx(0.2), "b")
    cost = metric(both, "gpu_hours_per_1000_steps")
    assert (cost.a, cost.b) == (pytest.approx(500 / 3600), pytest.approx(400 / 3600))
    assert metric(both, "data_wait_percent").better == "b"
    out = said(capsys, record(tmp_path / "a", slow), record(tmp_path / "b", fast))
    assert "500 ms" in out
    assert "For the same number of steps: B was 2.50 × as fast, with 0.80 × the" in " ".join(
        out.split()
    )
    assert metric(compared(run(40), run(40)), "step_mean_s").a is None


def with_marks(items, *marks):
    """`marks`: (s after the start, text)."""
    for at, text in marks:
        items[1 + at].events.append(Event(START + at, "mark", text=text))
    return items


def test_the_same_work_is_what_lies_between_the_same_marks(tmp_path, capsys):
    """The stage after the last mark ends with the run, and may be anything."""
    slow = with_marks(run(40), (10, "epoch 1"), (50, "epoch 2"), (90, "save"))
    fast = with_marks(run(80), (30, "epoch 1"), (40, "epoch 2"), (60, "test"))
    both = compared(slow, fast)
    took = metric(both, "same_work_s")
    assert (took.a, took.b, took.ratio, took.better) == (80, 30, 0.375, "b")
    names = [each.name for each in compared(run(40), run(80)).metrics]
    assert "same_work_s" not in names
    marked = [with_marks(run(40), (at, "epoch 1"), (at + 20, "end")) for at in (10, 30)]
    paths = [record(tmp_path / f"{n}.gpumon", items) for n, items in enumerate(marked)]
    out = " ".join(said(capsys, *paths).split())
    assert "For the same work, by your marks: B was 1.00 × as fast" in out


def test_json_has_both_runs_and_null_for_what_is_missing(tmp_path, capsys):
    a = record(tmp_path / "a.gpumon", run(UNSUPPORTED))
    body = json.loads(said(capsys, a, demos.path("finetune"), "--json"))
    assert next(iter(body)) == "version"
    assert (body["a"]["run"], body["a"]["elapsed_s"]) == (a, 99)
    (device,) = body["a"]["devices"]
    assert (device["node"], device["index"], device["busy_mean"]) == ("gpu01", 0, None)
    assert len(body["b"]["devices"]) == 4
    metrics = {each["name"]: each for each in body["metrics"]}
    assert metrics["gpu_busy_mean_percent"]["a"] is None
    assert metrics["gpu_busy_mean_percent"]["better"] is None
    assert metrics["gpu_hours"]["ratio"] == pytest.approx(body["b"]["elapsed_s"] * 4 / 99, rel=1e-6)


@pytest.mark.slow
def test_a_run_and_itself_differ_in_nothing(tmp_path, capsys):
    path = record(tmp_path / "demo.gpumon", Recording(demos.path("finetune")).items())
    out = said(capsys, path, path)
    assert "better" not in out
    assert "worse" not in out
    assert "changed" not in out


def test_an_error_of_a_device_that_was_never_read_is_not_known():
    both = compared(run(40, seconds=0), run(40))
    found = metric(both, "xids")
    assert (found.a, found.b, found.better) == (None, 0, "")


def test_runs_without_devices(tmp_path, capsys):
    path = record(tmp_path / "a.gpumon", run())
    out = said(capsys, path, path)
    assert "GPU busy" not in out
    assert "CPU cores, mean" in out


def test_no_such_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    path = record(tmp_path / "a.gpumon", run(5))
    assert cli.main(["compare", path, "4712"]) == 4
    done = capsys.readouterr()
    assert done.out == ""
    assert done.err.startswith("gpumon: ")
