"""A run in numbers: from samples made by hand, and from the recording that ships with gpumon."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon import demos
from gpumon.analysis.summary import RunSummary, run_summary
from gpumon.model.reading import LOST, MIG, UNSUPPORTED
from gpumon.model.sample import Device, Event, Header, JobContext, Mig, Sample
from gpumon.recording import Recording
from gpumon.services.run_summary import summary_lines
from tests.frames.framing import gather

GPU = Device(0, 0, "GPU-a", "NVIDIA A100", 0, None, {"mem_total_bytes": 80 << 30})
OTHER = Device(1, 1, "GPU-b", "NVIDIA A100", 1, None, {"mem_total_bytes": 80 << 30})
JOB = JobContext("4711", cpus=8, mem_limit_bytes=64 << 30)


def summarise(items):
    return run_summary(gather([("gpu01", items)]))


def header(*devices, at=1000.0, node="gpu01", **more):
    return Header(node, "boot", at, at, 1.0, "0.1.0", list(devices), **more)


def sample(at, device=None, usage=None, job=None, events=(), states=None):
    rows = {"host": {"": {"cpu_percent": 1}}}
    if device is not None:
        rows["device"] = device
    if usage is not None:
        rows["usage"] = usage
    if job is not None:
        rows["job"] = {"": job}
    return Sample(at, at, rows, states or {}, list(events))


def busy(at, *values):
    return sample(at, {n: {"busy_percent": value} for n, value in enumerate(values)})


def process(at, pid, **facts):
    return Event(at, "process", pid=pid, data=facts)


def test_nothing_at_all():
    empty = summarise([])
    assert (empty.headers, empty.devices, empty.jobs, empty.elapsed_s) == ([], [], [], 0)
    alone = summarise([header(GPU)])
    (device,) = alone.devices
    assert alone.start == alone.end == 1000
    assert (alone.covered_percent, device.coverage) == (0, 0)
    assert (device.busy_mean, device.idle_tail_s, device.energy_j, device.active_share) == (
        None,
    ) * 4
    assert device.mem_total_bytes == 80 << 30


def test_a_gap_is_a_gap_and_not_idleness():
    """10 s busy, 80 s without samples, 10 s busy: always busy, half unknown."""
    times = [*range(1000, 1010), *range(1090, 1100)]
    run = summarise([header(GPU), *(busy(at, 80) for at in times)])
    (device,) = run.devices
    assert (device.busy_mean, device.busy_p50, device.active_share) == (80, 80, 1)
    assert (run.gaps, run.covered_percent, device.coverage) == (1, 20, 0.2)
    assert (run.start, run.end, run.elapsed_s) == (1000, 1099, 99)


def test_a_lost_device_keeps_what_it_was_and_has_no_idle_tail():
    items = [header(GPU, OTHER), *(busy(at, 90, 0) for at in range(1000, 1010))]
    items += [busy(at, LOST, 0) for at in range(1010, 1030)]
    items.insert(12, Sample(1010, 10, {}, {}, [Event(1010, "xid", device=0, text="79")]))
    lost, idle = summarise(items).devices
    assert (lost.busy_mean, lost.idle_tail_s, lost.xids) == (90, None, ["79"])
    assert lost.coverage == pytest.approx(1 / 3)
    assert (idle.busy_mean, idle.idle_tail_s, idle.active_share, idle.xids) == (0, 29, 0, [])


def test_the_tail_begins_after_the_last_work():
    items = [header(GPU), *(busy(at, 100 if at < 1040 else 0) for at in range(1000, 1100))]
    (device,) = summarise(items).devices
    assert device.idle_tail_s == 59  # from a bucket's edge to the last sample
    assert device.active_share == 0.4


def test_a_tail_is_no_longer_than_the_samples():
    """Five samples in the middle of a bucket of 10 s, of a job that began long before."""
    job = JOB._replace(start=0.0)
    items = [header(GPU, at=1003.0, job=job), *(busy(at, 0) for at in range(1003, 1008))]
    run = summarise(items)
    assert run.devices[0].idle_tail_s == run.elapsed_s == 4


def test_a_burst_between_ticks_and_a_process_at_work_are_activity():
    def tick(at, **readings):
        return sample(at, {0: {"busy_percent": 0, **readings}})

    (burst,) = summarise(
        [header(GPU), *(tick(at, busy_max_percent=40) for at in range(1000, 1010))]
    ).devices
    assert (burst.busy_mean, burst.active_share, burst.idle_tail_s) == (0, 1, 0)
    working = [
        sample(at, {0: {"busy_percent": MIG}}, {(0, 7): {"sm_percent": 30, "mem_bytes": 5}})
        for at in range(1000, 1010)
    ]
    (mig,) = summarise([header(GPU), *working]).devices
    assert (mig.busy_mean, mig.busy_p95, mig.active_share) == (None, None, 1)


def test_mig_without_any_activity_is_unknown_and_not_idle():
    rows = {0: {"busy_percent": MIG, "mem_used_bytes": 7 << 30, "power_w": UNSUPPORTED}}
    (device,) = summarise([header(GPU), *(sample(at, rows) for at in range(1000, 1010))]).devices
    assert (device.busy_mean, device.active_share, device.idle_tail_s) == (None,) * 3
    assert (device.power_mean_w, device.mem_peak_bytes, device.coverage) == (None, 7 << 30, 1)


@pytest.mark.parametrize(
    ("framework", "hints", "reserved"),
    [
        ("tf", {}, True),
        ("tf", {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, False),
        ("tf", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, True),
        ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, False),
        ("vllm", {}, True),
        ("torch", {}, False),
        ("", {}, False),
    ],
)
def test_reserved_memory_is_told_from_needed(framework, hints, reserved):
    said = process(1000, 7, framework=framework, command="python t.py", hints=hints)
    items = [
        header(GPU, OTHER),
        sample(1000, {0: {"busy_percent": 5}}, {(0, 7): {"mem_bytes": 70 << 30}}, events=[said]),
    ]
    device, other = summarise(items).devices
    assert (device.framework, device.reserved) == (framework, reserved)
    assert device.command == "python t.py"
    assert (other.framework, other.reserved, other.command) == ("", False, "")


def test_the_framework_is_that_of_the_largest():
    said = [process(1000, 7, framework="tf"), process(1000, 8, framework="torch")]
    usage = {(0, 7): {"mem_bytes": 1 << 30}, (0, 8): {"mem_bytes": 9 << 30}}
    (device,) = summarise(
        [header(GPU), sample(1000, {0: {"busy_percent": 1}}, usage, events=said)]
    ).devices
    assert (device.framework, device.reserved) == ("torch", True)  # tf is there all the same


def test_a_new_agent_that_numbers_devices_otherwise_goes_on():
    """The same devices by UUID; the gap between the two streams is one."""
    first = [header(GPU, OTHER), *(busy(at, 10, 90) for at in range(1000, 1010))]
    swapped = (OTHER._replace(key=0), GPU._replace(key=1))
    second = [header(*swapped, at=1100), *(busy(at, 90, 10) for at in range(1100, 1110))]
    run = summarise([*first, *second])
    assert [(each.device.uuid, each.busy_mean) for each in run.devices] == [
        ("GPU-a", 10), ("GPU-b", 90),
    ]  # fmt: skip
    assert run.gaps == 1


def test_a_device_that_lost_its_name_is_the_one_in_its_place():
    nameless = GPU._replace(uuid="", name="", facts={})
    items = [header(GPU), busy(1000, 50), header(nameless, at=1001), busy(1001, LOST)]
    (device,) = summarise(items).devices
    assert (device.device.uuid, device.mem_total_bytes) == ("GPU-a", 80 << 30)


def test_mig_instances_are_devices_of_their_own():
    slices = [
        Device(n, 0, f"MIG-{n}", "A100 MIG", n, Mig("GPU-a", n, 0, "1g.10gb")) for n in range(2)
    ]
    run = summarise([header(*slices), busy(1000, MIG, MIG)])
    assert [each.device.uuid for each in run.devices] == ["MIG-0", "MIG-1"]


def test_energy_counts_through_gaps():
    items = [header(GPU)]
    items += [
        sample(at, {0: {"busy_percent": 1, "energy_j": at * 100}}) for at in (1000, 1001, 1500)
    ]
    assert summarise(items).devices[0].energy_j == 50_000


def test_the_job():
    items = [header(GPU, job=JOB)]
    for at in range(1020, 1140):  # the first second of a minute of the clock
        cores = 6.0 if at >= 1080 else 2.0
        memory = (9 if at == 1050 else 4) << 30
        items.append(
            sample(at, job={"cpu_cores_used": cores, "mem_used_bytes": memory, "cpu_s": 4 * at,
                            "mem_peak_bytes": 30 << 30, "mem_limit_bytes": 64 << 30,
                            "oom_kills": 1})
        )  # fmt: skip
    (job,) = summarise(items).jobs
    assert (job.node, job.cpus, job.cpu_cores_mean, job.cpu_cores_peak60) == ("gpu01", 8, 4, 6)
    assert (job.cpu_core_s, job.oom_kills) == (4 * 119, 1)
    assert (job.mem_peak_bytes, job.mem_charged_peak_bytes) == (9 << 30, 30 << 30)
    assert job.mem_limit_bytes == 64 << 30


def test_what_the_cgroup_does_not_tell_is_not_nothing():
    told = {"cpu_cores_used": UNSUPPORTED, "mem_used_bytes": UNSUPPORTED, "oom_kills": UNSUPPORTED}
    (job,) = summarise([header(job=JOB), sample(1000, job=told)]).jobs
    assert job.mem_limit_bytes == 64 << 30  # as Slurm says
    assert (job.cpu_cores_mean, job.cpu_cores_peak60, job.cpu_core_s) == (None,) * 3
    assert (job.mem_peak_bytes, job.mem_charged_peak_bytes, job.oom_kills) == (None,) * 3


def test_restated_facts_and_an_end_are_no_samples():
    restated = Sample(1001, 1, {}, {}, [process(1001, 7)])
    end = Sample(1900, 1, {}, {}, [Event(1900, "end")])
    items = [header(GPU), busy(1000, 50), restated, header(GPU, at=1001), busy(1001, 50), end]
    run = summarise(items)
    assert (run.end, run.gaps, run.covered_percent) == (1001, 0, 100)


def test_the_shipped_recording_against_direct_computation():
    """A real one: means by hand over every sample, where no reading was missed."""
    items = list(Recording(demos.path("finetune")).items())
    samples = [item for item in items if isinstance(item, Sample) and item.rows]
    rows: list[Any] = [sample.rows["device"] for sample in samples]
    run = summarise(items)
    for key, device in enumerate(run.devices):
        values = [row[key]["busy_percent"] for row in rows]
        assert device.busy_mean == pytest.approx(sum(values) / len(values), abs=0.5)
        assert device.busy_p50 == pytest.approx(sorted(values)[(len(values) - 1) // 2], abs=1)
        assert device.mem_peak_bytes == max(row[key]["mem_used_bytes"] for row in rows)
        energy = [row[key]["energy_j"] for row in rows if "energy_j" in row[key]]
        assert device.energy_j == pytest.approx(energy[-1] - energy[0])
        assert device.energy_j == pytest.approx(device.power_mean_w * run.elapsed_s, rel=0.01)
    assert [device.framework for device in run.devices] == ["torch", "torch", "tf", ""]
    assert [device.reserved for device in run.devices] == [False, False, True, False]
    assert run.devices[3].idle_tail_s == pytest.approx(run.elapsed_s, rel=0.02)


def test_several_nodes_keep_their_names():
    one = [header(GPU), *(busy(at, 10) for at in range(1000, 1010))]
    two = [header(GPU, node="gpu02"), *(busy(at, 90) for at in range(1005, 1020))]
    run = run_summary(gather([("gpu01", one), ("gpu02", two)]))
    assert [(each.node, each.busy_mean) for each in run.devices] == [("gpu01", 10), ("gpu02", 90)]
    assert (run.start, run.end, run.covered_percent) == (1000, 1019, 100)


def test_nothing_and_a_node_without_samples():
    assert run_summary(gather([])) == RunSummary([], 0.0, 0.0, 0.0, 0, [], [])
    run = summarise([header(GPU)])
    (device,) = run.devices
    assert (run.start, run.end, run.covered_percent, device.coverage) == (1000, 1000, 0, 0)
    assert (device.busy_mean, device.idle_tail_s, device.energy_j, device.active_share) == (
        None,
    ) * 4


def test_kills_and_charged_memory_from_before_the_samples_count():
    told = {"cpu_cores_used": 2, "mem_used_bytes": 4, "mem_peak_bytes": 30, "oom_kills": 1}
    gone = {
        "cpu_cores_used": LOST,
        "mem_used_bytes": LOST,
        "mem_peak_bytes": LOST,
        "oom_kills": LOST,
    }
    items = [header(job=JOB), sample(1000, job=told), sample(1001, job=gone)]
    (job,) = summarise(items).jobs
    assert (job.oom_kills, job.mem_charged_peak_bytes, job.mem_peak_bytes) == (1, 30, 4)


def test_the_summary_of_a_recording_counts_the_time_without_samples():
    run = summarise([header(GPU), *(busy(1001.0 + n, 50) for n in range(38))])
    for ran_s, words in ((40.0, "38 s of 40 s on gpu01 (95 % covered)"),
                         (38.2, "38 s on gpu01 (99 % covered)")):  # fmt: skip
        where, *_ = summary_lines(run, {}, "run.gpumon", ran_s)
        assert where == f"gpumon: recorded {words} in run.gpumon"
