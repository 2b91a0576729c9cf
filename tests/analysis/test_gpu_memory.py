"""Findings on device memory: raised, near misses, and nothing on what is missing."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gpumon import site
from gpumon.analysis.evidence import Queue
from gpumon.analysis.finding import LEVELS
from gpumon.analysis.findings.gpu_memory import RULES
from gpumon.analysis.rules import NotEvaluable
from gpumon.model.reading import UNSUPPORTED
from gpumon.model.sample import Event, Mig
from gpumon.site import GpuType
from gpumon.site.read import load_site, shipped_gpus
from gpumon.slurm.job import Job, Request
from tests.analysis.build import GIB, START, device, evidence, held, node, process, track

MIB = 1 << 20
CHECKS = {rule.id: rule.check for rule in RULES}
UVA = load_site(os.path.join(os.path.dirname(site.__file__), "examples", "uva.toml"))


def jump(level):
    return lambda time: level if time >= 4 else 0.4 * GIB


def run(trace, seconds=1200, reserved=0, count_gpus=1, total=80 * GIB, busy=90, rest=None, **facts):
    """A job of devices that each hold one process of this trace."""
    devices = []
    for index in range(count_gpus):
        of = held(trace, seconds, pid=4312 + index, framework=facts.get("framework", "torch"),
                  **{k: v for k, v in facts.items() if k != "framework"})  # fmt: skip
        made = device(
            len(of.mem_bytes.mean), index=index, processes=[of], total=total, busy_percent=busy,
            mem_used_bytes=[None if v != v else v for v in of.mem_bytes.mean],
            facts={"power_limit_default_w": 400}, **(rest or {}),
        )  # fmt: skip
        made.last["mem_reserved_bytes"] = reserved
        devices.append(made)
    return devices


def of(rule, devices, **more):
    count = len(devices[0].active.mean) if devices else 60
    return CHECKS[rule](evidence(count, devices, **more))


def test_every_entry_is_there_once_and_says_when():
    assert [rule.id for rule in RULES] == [
        "alloc-all-tf", "alloc-all-jax", "alloc-all-kv", "alloc-all-pool", "gpu-mem-full",
        "gpu-oom-suspect", "gpu-mem-headroom", "smaller-gpu", "gpu-type-scarce", "gpu-leak",
        "leftover-procs", "foreign-proc",
    ]  # fmt: skip
    assert all(rule.check.__doc__ for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_nothing_fires_on_what_is_missing(rule):
    bare = device(200, processes=[process(200, framework="torch")], total=UNSUPPORTED)
    for devices in ([bare], [device(200)], []):
        for live in (True, False):
            answer = rule.check(evidence(200, devices, live=live))
            assert isinstance(answer, NotEvaluable) or answer == []


# -- reserved --------------------------------------------------------------------------------------
def test_tensorflow_on_four_devices_is_one_finding():
    (found,) = of("alloc-all-tf", run(jump(80000 * MIB), count_gpus=4, framework="tf"))
    assert (found.level, found.confidence, found.mem_truth) == ("info", "high", "unknown")
    assert found.devices == tuple(f"gpu01:{n}" for n in range(4))
    assert found.title == "GPUs 0,1,2,3: TensorFlow reserved 78.1 / 80 GiB: not what it needs"
    assert "flat" in found.evidence
    assert found.actions[0].after == "export TF_FORCE_GPU_ALLOW_GROWTH=true"
    assert found.resource == "gpu-mem"


@pytest.mark.parametrize(
    ("rule", "level", "facts", "action"),
    [
        ("alloc-all-jax", 60.5, {"framework": "jax"}, "export XLA_PYTHON_CLIENT_PREALLOCATE=false"),
        ("alloc-all-kv", 73, {"framework": "vllm"}, "--gpu-memory-utilization 0.5"),
        ("alloc-all-pool", 40, {"framework": ""}, "rmm.reinitialize"),
    ],
)
def test_the_other_reservations(rule, level, facts, action):
    (found,) = of(rule, run(jump(level * GIB), **facts))
    assert found.actions[0].after.startswith(action)
    assert found.mem_truth == "unknown"
    others = [id for id in CHECKS if id.startswith("alloc-all") and id != rule]
    assert all(of(id, run(jump(level * GIB), **facts)) == [] for id in others)


def test_a_pytorch_job_reserves_nothing_ahead_and_a_young_one_is_not_judged():
    assert of("alloc-all-tf", run(jump(30 * GIB))) == []
    young = of("alloc-all-tf", run(jump(80000 * MIB), seconds=30, framework="tf"))
    assert isinstance(young, NotEvaluable)
    assert "s only" in young.reason


# -- full ------------------------------------------------------------------------------------------
def test_full_by_pytorch_is_information_and_says_reserved():
    (found,) = of("gpu-mem-full", run(jump(79 * GIB)))
    assert (found.level, found.mem_truth) == ("info", "upper-bound")
    assert "reserved by PyTorch" in found.title
    assert "no failure so far" in found.evidence
    (real,) = of("gpu-mem-full", run(jump(79 * GIB), framework="llama"))
    assert (real.level, real.mem_truth) == ("warning", "real")


def test_full_counts_the_drivers_reserve_but_no_reservation():
    assert of("gpu-mem-full", run(jump(77 * GIB))) == []  # 96 %
    (found,) = of("gpu-mem-full", run(jump(77 * GIB), reserved=GIB))
    assert found.numbers["peak_bytes"] == 78 * GIB
    assert isinstance(of("gpu-mem-full", run(jump(80384 * MIB), framework="tf")), NotEvaluable)
    strict = replace(UVA, thresholds={"gpu-mem-full.percent": 95})
    assert of("gpu-mem-full", run(jump(77 * GIB)), site=strict)


def test_full_for_a_moment_is_not_full():
    spike = held(lambda time: (79 if 500 <= time < 530 else 40) * GIB, 1200, framework="torch")
    used = [value for value in spike.mem_bytes.mean]
    made = device(120, processes=[spike], mem_used_bytes=used)
    assert of("gpu-mem-full", [made]) == []


# -- out of memory ---------------------------------------------------------------------------------
def ended(level, at=600, **facts):
    gone = held(jump(level), at, last=START + at, **{"framework": "torch", **facts})
    gone.mem_bytes = track([*gone.mem_bytes.mean, *[None] * (120 - at // 10)])
    gone.sm_percent = track(0, 120)
    used = [value if value == value else 0 for value in gone.mem_bytes.mean]
    return [device(120, processes=[gone], mem_used_bytes=used)]


def test_a_process_that_leaves_full_while_the_job_goes_on():
    (found,) = of("gpu-oom-suspect", ended(72 * GIB))
    assert (found.level, found.confidence) == ("info", "low")
    assert "72 / 80 GiB" in found.evidence
    log = "x\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried\x1b[31m to allocate\nbye"
    (sure,) = of("gpu-oom-suspect", ended(72 * GIB), log_tail=log)
    assert sure.confidence == "high"
    assert "OutOfMemoryError" in sure.evidence
    assert "\x1b" not in sure.evidence
    assert "at its start" in of("gpu-oom-suspect", ended(72 * GIB, at=60))[0].title


def test_who_leaves_with_less_or_at_the_jobs_end_did_not_run_out():
    assert of("gpu-oom-suspect", ended(60 * GIB)) == []
    assert of("gpu-oom-suspect", ended(72 * GIB, at=1190)) == []
    failed = Job(state="FAILED")
    assert of("gpu-oom-suspect", ended(72 * GIB, at=1190), job=failed)
    assert of("gpu-oom-suspect", ended(80384 * MIB, framework="tf")) == []
    (logged,) = of("gpu-oom-suspect", ended(6 * GIB), log_tail="RESOURCE_EXHAUSTED: OOM")
    assert (logged.confidence, logged.devices) == ("medium", ())


# -- room left -------------------------------------------------------------------------------------
def test_room_for_a_larger_batch():
    """ECE459: 3281 of 7611 MiB, twice the batch fits."""
    small = run(jump(3281 * MIB), total=7611 * MIB, busy=95)
    (found,) = of("gpu-mem-headroom", small)
    assert found.numbers["times"] == 2
    assert "at least that much is free" in found.evidence
    (two,) = of("gpu-mem-headroom", run(jump(30 * GIB), count_gpus=2))
    assert two.devices == ("gpu01:0", "gpu01:1")


def test_no_room_where_it_is_half_full_idle_reserved_or_a_server():
    assert of("gpu-mem-headroom", run(jump(53 * GIB))) == []  # FSDP: 65.8 %
    assert of("gpu-mem-headroom", run(jump(30 * GIB), busy=50)) == []
    assert isinstance(of("gpu-mem-headroom", run(jump(30 * GIB), seconds=600)), NotEvaluable)
    assert isinstance(of("gpu-mem-headroom", run(jump(30 * GIB), busy=None)), NotEvaluable)
    served = run(jump(30 * GIB), framework="llama", command="ollama serve")
    assert of("gpu-mem-headroom", served) == []
    tf = run(jump(80384 * MIB), framework="tf")
    assert isinstance(of("gpu-mem-headroom", tf), NotEvaluable)


# -- a smaller one ---------------------------------------------------------------------------------
ASKED = Job(raw_id="1", state="COMPLETED", partition="gpu",
            requested=Request(gres="gpu:a100:1", gres_form="node"))  # fmt: skip


def smaller(level_gib, at=UVA, job=ASKED, **more):
    return of("smaller-gpu", run(jump(level_gib * GIB), **more), site=at, job=job)


def test_a_smaller_gpu_of_the_site():
    (found,) = smaller(9.1)
    assert found.level == "info"
    assert "at most 9.1 GiB" in found.title
    assert "RTX3090 (24 GiB), V100-32" in found.title
    change = found.actions[0]
    assert change.before == "#SBATCH --gres=gpu:a100:1"
    assert change.after == "#SBATCH --gres=gpu:rtx_3090:1"
    assert found.numbers["need_bytes"] == pytest.approx((1.15 * 9.1 + 1) * GIB)


def test_11_5_gib_does_not_fit_a_slice_and_little_does_where_it_is_idle():
    assert "1g.10gb" not in smaller(9.1, busy=5)[0].title
    (found,) = smaller(4, busy=5)
    assert "1g.10gb" in found.title
    assert found.actions[0].after == "#SBATCH --gres=gpu:1g.10gb:1"
    assert found.actions[1].after == "#SBATCH --partition=gpu-mig"
    assert "1g.10gb" not in smaller(4, busy=60)[0].title
    assert "1g.10gb" not in smaller(4, busy=5, count_gpus=2)[0].title
    assert found.level == "info"  # nothing is known of the host's memory
    poor = evidence(
        120, run(jump(4 * GIB), busy=5), [node(120, mem_peak_bytes=8e9)], ASKED, site=UVA
    )
    assert CHECKS["smaller-gpu"](poor)[0].level == "warning"


def test_bf16_fp64_and_links_exclude():
    bf16 = smaller(9.1, command="train.py --bf16")[0]
    assert "V100" not in bf16.title
    assert "A40" in bf16.title
    fp64 = smaller(20, rest={"fp64_active_percent": 30})[0]
    assert "A40" not in fp64.title
    assert "V100-32" in fp64.title
    linked = smaller(20, count_gpus=2, rest={"nvlink_tx_bytes_per_s": 1e9})[0]
    assert "A40" not in linked.title
    slow = replace(UVA, gpus=tuple(replace(each, infiniband=False) for each in UVA.gpus))
    apart = run(jump(20 * GIB), count_gpus=2)
    apart[1].node = "gpu02"
    nodes = [node(120), node(120, "gpu02")]
    assert CHECKS["smaller-gpu"](evidence(120, apart, nodes, ASKED, site=slow)) == []


def test_no_smaller_gpu_from_a_reservation_a_large_need_or_little_time():
    assert isinstance(smaller(78.5, framework="tf"), NotEvaluable)
    assert smaller(53) == []  # FSDP: needs 61.6 GiB
    running = Job(state="RUNNING")
    assert isinstance(smaller(9.1, job=running, seconds=600), NotEvaluable)
    assert smaller(9.1, job=running, seconds=1200)
    assert isinstance(smaller(9.1, at=replace(UVA, gpus=())), NotEvaluable)


def test_without_a_site_file_any_gpu_and_no_invented_line():
    (found,) = smaller(9.1, at=replace(UVA, gpus=shipped_gpus()))
    assert found.actions[0].after == ""
    assert "by the site's name" in found.actions[0].text


def test_a_slice_in_use_is_compared_with_slices():
    mig = Mig("GPU-x", 1, 0, "3g.40gb")
    made = run(jump(4 * GIB), total=40192 * MIB, busy=None)[0]
    made.device = made.device._replace(mig=mig, name="NVIDIA A100-SXM4-80GB MIG 3g.40gb")
    made.tracks["sm_active_percent"] = track(5, 120)
    (found,) = of("smaller-gpu", [made], site=UVA, job=ASKED)
    assert "1g.10gb" in found.title


def test_scarce_only_with_a_queue():
    devices = run(jump(9.1 * GIB))
    assert isinstance(of("gpu-type-scarce", devices, site=UVA, job=ASKED), NotEvaluable)
    busy = Queue(START, {"gpu:a100": 14}, {"gpu:a40": 9})
    (found,) = of("gpu-type-scarce", devices, site=UVA, job=ASKED, queue=busy)
    assert "14 jobs wait for A100-80" in found.title
    assert "9 A40 idle" in found.title
    for queue in (Queue(START, {}, {"gpu:a40": 9}), Queue(START, {"gpu:a100": 14})):
        assert of("gpu-type-scarce", devices, site=UVA, job=ASKED, queue=queue) == []


# -- growing ---------------------------------------------------------------------------------------
def test_a_leak_of_a_process():
    grows = run(lambda time: (20 + time / 450) * GIB, seconds=5400)
    (found,) = of("gpu-leak", grows)
    assert "+8" in found.title
    assert found.numbers["per_s"] * 3600 / GIB == pytest.approx(8, rel=0.05)
    assert of("gpu-leak", run(jump(30 * GIB), seconds=5400)) == []
    assert isinstance(of("gpu-leak", run(jump(30 * GIB), seconds=1200)), NotEvaluable)
    stairs = lambda time: 2 ** min(int(time / 900), 5) * GIB  # noqa: E731
    assert of("gpu-leak", run(stairs, seconds=5400, framework="tf")) == []


# -- processes -------------------------------------------------------------------------------------
def present(*processes, mem=61 * GIB, live=True, cpu=0, events=(), others=()):
    here = device(120, processes=list(processes), mem_used_bytes=mem, busy_percent=0)
    host = node(120, processes={each.facts.pid: (each.facts, track(cpu, 120))
                                for each in processes})  # fmt: skip
    return evidence(120, [here, *others], [host], live=live, events=events)


def proc(pid, mem=61 * GIB, sm=0, **facts):
    return process(120, mem, sm, pid=pid, **facts)


def test_left_over_from_no_job():
    left = proc(4312, in_job=False, job="")
    (found,) = CHECKS["leftover-procs"](present(left))
    assert found.actions[0].after == "kill 4312"
    assert "in no job" in found.evidence
    notebook = proc(4312, in_job=False, command="python -m ipykernel_launcher")
    assert "notebook kernel" in CHECKS["leftover-procs"](present(notebook))[0].title
    for fine in (
        proc(1, in_job=False, job="99"), proc(1, in_job=False, own=False), proc(1),
        proc(1, mem=4 * MIB, in_job=False), proc(1, mem=None, in_job=False),
        proc(1, in_job=False, note="in another PID namespace"),
    ):  # fmt: skip
        assert CHECKS["leftover-procs"](present(fine)) == []


def test_left_over_from_a_dead_rank():
    dead = proc(4311, last=START + 600)
    orphan = proc(4312, ppid=1)
    (found,) = CHECKS["leftover-procs"](present(dead, orphan))
    assert "parent gone" in found.evidence
    child = proc(4312, ppid=77)
    gone = ("gpu01", Event(START + 600, "process-end", pid=77))
    assert CHECKS["leftover-procs"](present(dead, child, events=[gone]))
    assert CHECKS["leftover-procs"](present(dead, child)) == []
    assert CHECKS["leftover-procs"](present(orphan)) == []  # nobody died
    assert CHECKS["leftover-procs"](present(dead, proc(4312, ppid=1, sm=30))) == []
    assert CHECKS["leftover-procs"](present(dead, proc(4312, ppid=1, sm=None))) == []
    assert CHECKS["leftover-procs"](present(dead, orphan, cpu=90)) == []


def test_a_stranger_on_the_jobs_device():
    mine = proc(1)
    stranger = proc(9921, 11 * GIB, own=False, in_job=False, user="", command="")
    (found,) = CHECKS["foreign-proc"](present(mine, stranger))
    assert found.title == "pid 9921 (another user) uses 11 GiB on your GPU 0"
    assert found.actions[0].kind == "staff"
    server = proc(9922, own=False, in_job=False, name="Xorg")
    assert CHECKS["foreign-proc"](present(mine, server)) == []
    unsure = CHECKS["foreign-proc"](present(stranger))
    assert isinstance(unsure, NotEvaluable)


def test_the_jobs_process_on_a_device_of_others():
    astray = proc(4312, in_job=True)
    elsewhere = device(120, index=5, processes=[astray], busy_percent=0)
    elsewhere.device = elsewhere.device._replace(cuda_index=None)
    (found,) = CHECKS["foreign-proc"](present(proc(1), others=[elsewhere]))
    assert "GPU 5, which is not in the job" in found.title
    assert found.actions[0].after == "unset CUDA_VISIBLE_DEVICES"


def test_levels_and_devices_are_of_the_contract():
    found = of("alloc-all-tf", run(jump(80000 * MIB), framework="tf"))
    assert all(each.level in LEVELS and each.devices and each.subject for each in found)


def test_a_site_may_name_a_gpu_of_its_own():
    own = GpuType("MINI", "MINI", "9.0", 12 * GIB, gres="gpu:mini")
    (found,) = smaller(9, at=replace(UVA, gpus=(*UVA.gpus, own)))
    assert found.actions[0].after == "#SBATCH --gres=gpu:mini:1"
