"""Findings on device memory whose need a probe measured: they rest on it, and say so."""

from __future__ import annotations

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.report.provenance import missing_text
from gpumon.slurm.job import Job
from tests.analysis.build import GIB, START, evidence, pooled, track
from tests.analysis.rules.test_gpu_memory import (
    ASKED,
    MIB,
    UVA,
    ended,
    jump,
    of,
    run,
)


def probed(devices, used, reserved=None, **figures):
    """All processes of the devices tell of such a pool."""
    for device in devices:
        for process in device.processes:
            pooled(process, used, reserved, **figures)
    return devices


def tensorflow(used=9 * GIB, **rest):
    return probed(run(jump(80000 * MIB), framework="tf", **rest), used)


def torch(used=60.4 * GIB, reserved=77.4 * GIB, figures=None, **rest):
    return probed(run(jump(reserved + 0.5 * GIB), **rest), used, reserved, **(figures or {}))


def found_of(devices, **more):
    more = {"site": UVA, "job": ASKED, **more}
    return evaluate(evidence(len(devices[0].active.mean), devices, **more))


def ids(evaluation):
    return {each.id for each in evaluation.raised if each.id.startswith(("gpu-m", "sma", "alloc"))}


def test_a_probed_tensorflow_run_tells_its_need_and_the_gpu_that_holds_it():
    evaluation = found_of(tensorflow())
    assert ids(evaluation) == {"alloc-all-tf", "smaller-gpu"}
    (reserved,) = [each for each in evaluation.raised if each.id == "alloc-all-tf"]
    assert reserved.title == "GPU 0: TensorFlow preallocated 78.1 / 80 GiB; 9 GiB in use at most"
    assert (reserved.mem_truth, reserved.actions) == ("measured", ())
    assert "9 GiB of it in use at most, about 614 MiB beside it" in reserved.evidence
    (smaller,) = [each for each in evaluation.raised if each.id == "smaller-gpu"]
    assert "TensorFlow used 9 of the 77.5 GiB it reserved; A40 (45 GiB)" in smaller.title
    assert smaller.mem_truth == "measured"
    assert smaller.numbers["need_bytes"] == (1.15 * 9.6 + 1) * GIB


def test_a_slice_for_a_probed_run_that_is_little_busy():
    (found,) = of("smaller-gpu", tensorflow(4 * GIB, busy=5), site=UVA, job=ASKED)
    assert "A100-80/1g.10gb (9.5 GiB)" in found.title


def test_no_gpu_is_named_where_the_run_proves_nothing():
    failed = of("smaller-gpu", tensorflow(), site=UVA, job=Job(state="FAILED"))
    assert isinstance(failed, NotEvaluable)
    early = tensorflow()
    early[0].processes[0].pool.last = START + 60  # the probe ended long before the program
    answer = of("smaller-gpu", early, site=UVA, job=ASKED)
    assert isinstance(answer, NotEvaluable)
    assert "does not show the need" in missing_text(answer)


def test_devices_whose_need_is_known_and_others_are_two_findings():
    devices = run(jump(80000 * MIB), framework="tf", count_gpus=3)
    probed(devices[:2], 9 * GIB)
    known, unknown = of("alloc-all-tf", devices)
    assert (known.devices, known.mem_truth) == (("gpu01:0", "gpu01:1"), "measured")
    assert (unknown.devices, unknown.mem_truth) == (("gpu01:2",), "unknown")
    assert unknown.actions


def test_pytorchs_reserve_is_no_need():
    """FSDP of the course notes: 36.33 allocated, 52.7 reserved: an A40 holds it."""
    assert of("smaller-gpu", run(jump(53.2 * GIB)), site=UVA, job=ASKED) == []
    (found,) = of("smaller-gpu", torch(36.33 * GIB, 52.7 * GIB), site=UVA, job=ASKED)
    assert "PyTorch used 36.3 of the 52.7 GiB it reserved; A40 (45 GiB)" in found.title
    retried = torch(36.33 * GIB, 52.7 * GIB, {"retries": 1.0})
    assert of("smaller-gpu", retried, site=UVA, job=ASKED) == []


def test_a_full_reserve_is_not_full_and_a_full_pool_is():
    assert of("gpu-mem-full", torch(40 * GIB, 78.5 * GIB)) == []
    (found,) = of("gpu-mem-full", torch(78 * GIB, 78.5 * GIB))
    assert (found.level, found.mem_truth) == ("warning", "measured")
    assert found.title == "GPU 0: 78.5 / 80 GiB used (98 %)"


def test_room_for_a_batch_by_what_is_in_use():
    assert of("gpu-mem-headroom", run(jump(60 * GIB))) == []
    (found,) = of("gpu-mem-headroom", torch(20 * GIB, 60 * GIB))
    assert found.title == "GPU 0: room for a larger batch, peak 20.5 / 80 GiB at 90 % busy"
    assert found.adds == "; PyTorch used 20 of the 60 GiB it reserved"
    assert (found.mem_truth, found.numbers["times"]) == ("measured", 3)
    assert of("gpu-mem-headroom", tensorflow())
    assert of("gpu-mem-headroom", tensorflow(50 * GIB)) == []


def test_a_leak_is_what_grows_in_use():
    def grows(bins, by):
        return [4 * GIB + n * by / 360 for n in range(bins)]

    long = {"seconds": 7200}
    steady = torch(10 * GIB, 40 * GIB, **long)
    assert of("gpu-leak", steady) == []
    hidden = torch(grows(720, 8 * GIB), 60 * GIB, **long)
    (found,) = of("gpu-leak", hidden)
    assert "memory in use grew by 8 GiB/h to 20 / 80 GiB" in found.title
    assert found.mem_truth == "measured"
    inside = run(jump(80000 * MIB), framework="tf", **long)  # its reservation never grows
    assert of("gpu-leak", probed(inside, grows(720, 8 * GIB)))
    torn = {"trace": lambda time: (10 + 8 * time / 3600) * GIB, **long}
    assert of("gpu-leak", run(**torn))
    fragments = run(**torn)
    reserved = [value - 0.5 * GIB for value in fragments[0].processes[0].mem_bytes.mean]
    assert of("gpu-leak", probed(fragments, 8 * GIB, reserved)) == []


def test_a_failed_allocation_that_pytorch_counted():
    (found,) = of("gpu-oom-suspect", torch(figures={"ooms": 2.0}))
    assert found.title == "GPU 0: 2 allocations of GPU memory failed in the program"
    assert (found.level, found.confidence) == ("info", "high")
    assert "60.4 / 80 GiB in use at most" in found.evidence
    (failed,) = of("gpu-oom-suspect", torch(figures={"ooms": 1.0}), job=Job(state="FAILED"))
    assert failed.level == "warning"
    assert "1 allocation of" in failed.title


def test_a_full_process_that_ended_well_did_not_run_out():
    left = ended(72 * GIB)
    assert of("gpu-oom-suspect", left)
    probed(left, 60 * GIB, 71.5 * GIB)
    assert of("gpu-oom-suspect", left) == []
    left[0].processes[0].pool.last -= 4  # it told nothing of its end
    assert of("gpu-oom-suspect", left)


def test_a_cache_that_is_freed_again_and_again():
    (gaps,) = of("gpu-mem-retries", torch(figures={"retries": 130.0}))
    assert gaps.title == "GPU 0: PyTorch freed its cache 130 times to allocate memory"
    assert gaps.adds == "; PyTorch used 60.4 of the 77.4 GiB it reserved"
    assert gaps.actions[0].after == "export PYTORCH_ALLOC_CONF=expandable_segments:True"
    (short,) = of("gpu-mem-retries", torch(76 * GIB, 77.4 * GIB, {"retries": 130.0}))
    assert "batch" in short.actions[0].text
    assert of("gpu-mem-retries", torch(figures={"retries": 9.0})) == []
    assert of("gpu-mem-retries", tensorflow()) == []
    unprobed = of("gpu-mem-retries", run(jump(60 * GIB)))
    assert missing_text(unprobed) == "gpu01:0: only gpumon record --probe can read its counters"


def test_a_process_that_shares_its_gpu_with_another_probed_one():
    devices = torch(10 * GIB, 20 * GIB)
    (other,) = torch(5 * GIB, 30 * GIB)[0].processes
    devices[0].processes.append(other)
    devices[0].tracks["mem_used_bytes"] = track(51 * GIB, 120)
    (found,) = of("smaller-gpu", devices, site=UVA, job=ASKED)
    assert "PyTorch used 15 of the 50 GiB they reserved" in found.title
