"""Findings on device memory: raised, near misses, and nothing on what is missing."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gpumon import site
from gpumon.analysis.finding import LEVELS, NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID, FAMILIES, evaluate
from gpumon.analysis.rundata import Coverage, Queue
from gpumon.model.reading import UNSUPPORTED
from gpumon.model.sample import Event, Mig
from gpumon.report.provenance import missing_text
from gpumon.site import GpuType
from gpumon.site.read import load_site, shipped_gpus
from gpumon.slurm.job import Job, Request
from tests.analysis.build import GIB, START, device, evidence, held, node, process, track

MIB = 1 << 20
CHECKS = BY_ID
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


@pytest.mark.parametrize("rule", FAMILIES["GPU memory"], ids=lambda rule: rule.id)
def test_nothing_fires_on_what_is_missing(rule):
    bare = device(200, processes=[process(200, framework="torch")], total=UNSUPPORTED)
    for devices in ([bare], [device(200)], []):
        for live in (True, False):
            answer = rule(evidence(200, devices, live=live))
            assert isinstance(answer, NotEvaluable) or answer == []


# -- reserved --------------------------------------------------------------------------------------
def test_a_pool_of_a_program_that_is_not_python_is_not_that_of_a_library_for_python():
    (found,) = of("alloc-all-pool", run(jump(40 * GIB), framework="", command="vasp_std",
                                        name="vasp_std"))  # fmt: skip
    assert [each.after for each in found.actions] == [""]


def test_tensorflow_on_four_devices_is_one_finding():
    (found,) = of("alloc-all-tf", run(jump(80000 * MIB), count_gpus=4, framework="tf"))
    assert (found.level, found.confidence, found.mem_truth) == ("info", "high", "unknown")
    assert found.devices == tuple(f"gpu01:{n}" for n in range(4))
    what = "TensorFlow preallocated 78.1 / 80 GiB; the real need is unknown"
    assert found.title == f"GPUs 0–3: {what}"
    assert "flat" in found.evidence
    assert found.actions[0].after == "export TF_FORCE_GPU_ALLOW_GROWTH=true"


@pytest.mark.parametrize(
    ("rule", "level", "facts", "action"),
    [
        ("alloc-all-jax", 60.5, {"framework": "jax"}, "export XLA_PYTHON_CLIENT_PREALLOCATE=false"),
        ("alloc-all-kv", 73, {"framework": "vllm"}, ""),
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
    assert "s only" in missing_text(young)


# -- full ------------------------------------------------------------------------------------------
def test_full_by_pytorch_is_information_and_says_reserved():
    (found,) = of("gpu-mem-full", run(jump(79 * GIB)))
    assert (found.level, found.mem_truth) == ("info", "upper-bound")
    assert "reserved by PyTorch" in found.title
    assert "no failure so far" in found.evidence
    (real,) = of("gpu-mem-full", run(jump(79 * GIB), framework="llama"))
    assert (real.level, real.mem_truth) == ("warning", "real")


def test_full_memory_is_not_said_to_be_well_beside_a_failure():
    (found,) = of("gpu-mem-full", run(jump(79 * GIB)), job=Job(state="FAILED"))
    assert "no failure" not in found.evidence
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    assert of("gpu-mem-full", run(jump(79 * GIB)), job=Job(state="FAILED"), log_tail=log) == []
    assert of("gpu-oom-suspect", run(jump(79 * GIB)), job=Job(state="FAILED"), log_tail=log)


def test_gpus_that_are_full_alike_are_one_finding():
    devices = run(jump(79 * GIB), count_gpus=4)
    devices[3] = replace(run(jump(78.5 * GIB), count_gpus=4)[3])
    (found,) = of("gpu-mem-full", devices)
    assert found.title == "GPUs 0–3: 78.5–79 / 80 GiB reserved by PyTorch (98–99 %)"
    assert found.adds == " for 19 min; no failure so far"
    assert [each.kind for each in found.actions] == ["code"]


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
    assert sure.level == "info"  # a job that goes on may have caught it
    (failed,) = of("gpu-oom-suspect", ended(72 * GIB), log_tail=log, job=Job(state="FAILED"))
    assert (failed.level, failed.title) == ("warning", "pid 4312 ran out of memory on GPU 0")
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
    assert "even more may be free" in found.evidence
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


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        ("gmx mdrun", "cuda-other"),
        ("pmemd.cuda -O", "cuda-other"),
        ("vasp_std", "cuda-other"),
        ("python run_openmm.py", "torch"),
        ("python train_ppo.py", "torch"),
        ("blender -b scene.blend", "cuda-other"),
        ("./simulate", "cuda-other"),
    ],
)
def test_only_what_learns_has_a_batch(command, framework):
    made = run(jump(20 * GIB), framework=framework, command=command)
    assert of("gpu-mem-headroom", made) == []


def test_a_gpu_that_waits_in_a_kernel_gets_no_larger_batch():
    made = run(jump(20 * GIB))
    made[0].tracks["power_w"] = track(90, 400)
    made[0].device.facts["power_limit_default_w"] = 400.0
    assert of("gpu-mem-headroom", made) == []


# -- a smaller one ---------------------------------------------------------------------------------
ASKED = Job(raw_id="1", state="COMPLETED", partition="gpu",
            requested=Request(gres="gpu:a100:1", gres_form="node"))  # fmt: skip


def smaller(level_gib, at=UVA, job=ASKED, **more):
    return of("smaller-gpu", run(jump(level_gib * GIB), **more), site=at, job=job)


def test_a_smaller_gpu_of_the_site():
    (found,) = smaller(9.1)
    assert found.level == "info"
    assert "at most 9.1 GiB" in found.title
    assert "A40 (45 GiB), A6000 (45 GiB)" in found.title  # an RTX 3090 takes 4.4 times as long
    assert found.confidence == "medium"
    assert found.numbers["slowdown"] == pytest.approx(1 + 0.97 * (1935 / 696 - 1), rel=0.05)
    assert f"at most {found.numbers['slowdown']:.1f} times as long on A40" in found.evidence
    assert found.actions[0].text == "Compare a short run on one A40 first: --gres=gpu:a40:1."
    assert [each for action in found.actions for each in action.changes] == []
    assert found.numbers["need_bytes"] == pytest.approx((1.15 * 9.1 + 1) * GIB)


def test_11_5_gib_does_not_fit_a_slice_and_little_does_where_it_is_idle():
    assert "1g.10gb" not in smaller(9.1, busy=5)[0].title
    (found,) = smaller(4, busy=5)
    assert "1g.10gb" in found.title
    request = "--gres=gpu:1g.10gb:1 --partition=gpu-mig"
    assert found.actions[0].text == f"Compare a short run on one A100-80/1g.10gb first: {request}."
    assert "1g.10gb" not in smaller(4, busy=60)[0].title
    assert "1g.10gb" not in smaller(4, busy=5, count_gpus=2)[0].title
    assert found.level == "info"  # nothing is known of the host's memory
    poor = evidence(
        120, run(jump(4 * GIB), busy=5), [node(120, mem_peak_bytes=8e9)], ASKED, site=UVA
    )
    (found,) = CHECKS["smaller-gpu"](poor)
    assert found.level == "warning"


def test_bf16_fp64_and_links_exclude():
    bf16 = smaller(9.1, command="train.py --bf16")[0]
    assert "V100" not in bf16.title
    assert "A40" in bf16.title
    unknown = smaller(9.1)[0]  # PyTorch may use bf16, which a V100 has not
    assert "V100" not in unknown.title
    rest = {"fp64_active_percent": 30, "tensor_active_percent": 0}
    fp64 = smaller(20, rest=rest)[0]
    assert "A40" not in fp64.title
    assert "V100-32" in fp64.title
    rest = {"tensor_active_percent": 0}
    assert "A40" not in str(smaller(20, rest=rest, framework="", command="solve"))  # FP64, perhaps
    linked = smaller(20, count_gpus=2, rest=rest | {"nvlink_tx_bytes_per_s": 1e9})[0]
    assert "A40" not in linked.title
    slow = replace(UVA, gpus=tuple(replace(each, infiniband=False) for each in UVA.gpus))
    apart = run(jump(20 * GIB), count_gpus=2)
    apart[1].node = "gpu02"
    nodes = [node(120), node(120, "gpu02")]
    assert CHECKS["smaller-gpu"](evidence(120, apart, nodes, ASKED, site=slow)) == []


def test_no_smaller_gpu_for_one_that_was_polled_too_rarely():
    devices = run(jump(9.1 * GIB))
    devices[0].polled = True
    far = Coverage("recording", 100.0, 60.0, from_start=True, to_end=True)
    answer = of("smaller-gpu", devices, site=UVA, job=ASKED, coverage=far)
    assert isinstance(answer, NotEvaluable)


def test_no_smaller_gpu_from_a_reservation_a_large_need_or_little_time():
    assert isinstance(smaller(78.5, framework="tf"), NotEvaluable)
    assert smaller(53) == []  # FSDP: needs 61.6 GiB
    running = Job(state="RUNNING")
    assert isinstance(smaller(9.1, job=running, seconds=600), NotEvaluable)
    assert smaller(9.1, job=running, seconds=1200)
    assert isinstance(smaller(9.1, at=replace(UVA, gpus=())), NotEvaluable)


def test_no_smaller_gpu_where_a_part_of_the_run_may_hide_the_peak():
    def at(**coverage):
        run_ = evidence(120, run(jump(9.1 * GIB)), job=ASKED, site=UVA)
        run_.coverage = replace(run_.coverage, **coverage)
        return CHECKS["smaller-gpu"](run_)

    assert at()[0].id == "smaller-gpu"
    for part in ({"longest_gap_s": 40.0}, {"from_start": False}, {"to_end": False}):
        assert missing_text(at(**part)) == "gpu01:0: a part of the run was not measured"
    unread = run(jump(9.1 * GIB))
    unread[0].tracks["mem_used_bytes"].mean[60] = float("nan")
    assert isinstance(of("smaller-gpu", unread, site=UVA, job=ASKED), NotEvaluable)


@pytest.mark.parametrize("engine", ["encoder_percent", "decoder_percent"])
def test_no_smaller_gpu_for_what_used_the_video_engines(engine):
    answer = smaller(4, busy=5, rest={engine: 60})
    assert "video engines" in missing_text(answer)
    assert smaller(4, busy=5, rest={engine: 0})


def test_a_guess_about_the_need_is_no_line():
    (found,) = smaller(4, busy=5, framework="", command="solve", rest={"fp64_active_percent": 0})
    assert (found.level, found.confidence) == ("info", "low")
    assert [each.after for each in found.actions] == [""]
    assert found.actions[0].text == "Compare a short run on one A100-80/1g.10gb first."


def test_room_for_a_larger_batch_is_the_other_choice():
    evaluation = evaluate(evidence(120, run(jump(9.1 * GIB)), job=ASKED, site=UVA))
    (found,) = [each for each in evaluation.raised if each.id.startswith(("smaller", "gpu-mem"))]
    assert found.id == "smaller-gpu"
    assert found.actions[-1].text.startswith("Or stay on this GPU and use its memory")


def test_without_a_site_file_any_gpu_and_no_invented_line():
    (found,) = smaller(9.1, at=replace(UVA, gpus=shipped_gpus()))
    assert found.actions[0].text == "Compare a short run on one A10 first."


def test_another_type_is_compared_by_words_that_fit_the_job():
    short = replace(ASKED, time_limit_s=1300)
    (found,) = smaller(9.1, job=short)
    assert found.actions[0].text.endswith("--gres=gpu:a40:1; a whole run may need a longer --time.")
    session = replace(ASKED, submit_line="salloc --gres=gpu:a100:1 -t 8:00:00")
    (found,) = smaller(4, busy=5, job=session)
    assert found.level == "info"
    offered = "Request one A100-80/1g.10gb for sessions that need no more memory."
    assert found.actions[0].text == offered


def test_what_a_gpu_did_for_somebody_else_says_nothing_of_the_job():
    made = run(jump(9.1 * GIB))
    other = process(120, GIB, pid=99, own=False, in_job=False, name="python")
    made[0].processes.append(other)
    for rule in ("smaller-gpu", "gpu-mem-headroom"):
        answer = of(rule, made, site=UVA, job=ASKED)
        assert missing_text(answer) == "gpu01:0: another user's process used it as well"
    other.facts = other.facts._replace(name="nv-hostengine")
    assert of("smaller-gpu", made, site=UVA, job=ASKED)


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
    assert "14 jobs waited for A100-80, while 9 A40 were idle" in found.title
    for queue in (Queue(START, {}, {"gpu:a40": 9}), Queue(START, {"gpu:a100": 14})):
        assert of("gpu-type-scarce", devices, site=UVA, job=ASKED, queue=queue) == []


# -- growing ---------------------------------------------------------------------------------------
def test_a_leak_of_a_process():
    grows = run(lambda time: (20 + time / 450) * GIB, seconds=5400)
    (found,) = of("gpu-leak", grows)
    assert found.title == "GPU 0: memory grew by 8 GiB/h to 32 / 80 GiB"
    assert found.adds == "; at this pace full after 7 h 30 min of run"
    limited = of("gpu-leak", grows, job=Job(state="COMPLETED", time_limit_s=7200))
    beyond = ", which the time limit of 2 h 00 min does not reach"
    assert limited[0].adds == f"{found.adds}{beyond}"
    longer = of("gpu-leak", grows, job=Job(state="COMPLETED", time_limit_s=36_000))
    assert longer[0].adds == f"{found.adds}; the time limit is 10 h 00 min"
    running = Job(state="RUNNING", time_limit_s=7200)
    (found,) = of("gpu-leak", grows, job=running, live=True)
    assert found.adds.endswith("at this pace full in 6 h 00 min; 30 min of the time limit left")
    (several,) = of("gpu-leak", run(lambda t: (20 + t / 450) * GIB, seconds=5400, count_gpus=4))
    assert several.title.startswith("GPUs 0–3: memory grew by 8 GiB/h")
    assert found.numbers["per_s"] * 3600 / GIB == pytest.approx(8, rel=0.05)
    assert of("gpu-leak", run(jump(30 * GIB), seconds=5400)) == []
    assert isinstance(of("gpu-leak", run(jump(30 * GIB), seconds=1200)), NotEvaluable)
    stairs = lambda time: 2 ** min(int(time / 900), 5) * GIB  # noqa: E731
    assert of("gpu-leak", run(stairs, seconds=5400, framework="tf")) == []


def test_a_leak_that_no_run_reaches_is_information():
    grows = run(lambda t: (20 + t / 450) * GIB, seconds=5400)  # full after 7.5 h
    job = lambda hours, state="COMPLETED": Job(state=state, time_limit_s=3600 * hours)  # noqa: E731
    asked = [job(7), job(6), job(1.5, "TIMEOUT"), job(4, "TIMEOUT"), Job(state="COMPLETED")]
    levels = [of("gpu-leak", grows, job=each)[0].level for each in asked]
    assert levels == ["warning", "info", "info", "info", "info"]
    faster = run(lambda t: (20 + t / 112) * GIB, seconds=5400)  # after 1 h 50 min
    assert of("gpu-leak", faster, job=job(1.5, "TIMEOUT"))[0].level == "warning"
    assert of("gpu-leak", faster, job=Job(state="COMPLETED"))[0].level == "warning"


def test_a_smaller_batch_is_no_cure_of_a_leak():
    grows = run(lambda t: (20 + t / 92) * GIB, seconds=5400)
    tail = "torch.OutOfMemoryError: CUDA out of memory."
    (found,) = of("gpu-oom-suspect", grows, job=Job(state="FAILED"), log_tail=tail)
    assert [each.text for each in found.actions if "first" in each.text]


def test_memory_that_follows_sorted_inputs_is_no_leak():
    def cubic(time):
        return (6 + 60 * (time / 5400) ** 3) * GIB

    (found,) = of("gpu-leak", run(cubic, seconds=5400), job=Job(state="COMPLETED"))
    assert found.level == "info"
    assert "ever faster" in found.evidence
    assert all(not each.after for each in found.actions)
    (found,) = of("gpu-leak", run(cubic, seconds=5400), job=Job(state="TIMEOUT"))
    assert found.level == "warning"


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
    (found,) = CHECKS["leftover-procs"](present(notebook))
    assert "notebook kernel" in found.title
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


@pytest.mark.parametrize(
    ("facts", "whose"),
    [
        ({"own": False, "uid": 0, "user": "root"}, "root"),
        ({"own": False, "job": "99"}, "job 99 of another user"),
        ({"own": True, "job": "99"}, "job 99"),
        ({"own": True}, "yours, in no job"),
    ],
)
def test_a_stranger_is_in_the_report_too(facts, whose):
    mine, stranger = proc(1), proc(9921, 11 * GIB, in_job=False, last=START + 700, **facts)
    (found,) = CHECKS["foreign-proc"](present(mine, stranger, live=False))
    assert found.title == f"pid 9921 ({whose}) used 11 GiB on your GPU 0"
    assert (found.start, found.end) == (START, START + 710)
    brief = proc(9921, 11 * GIB, in_job=False, last=START + 30, **facts)
    assert CHECKS["foreign-proc"](present(mine, brief, live=False)) == []


def test_a_stranger_on_several_gpus_is_one_finding():
    stranger = {"in_job": False, "own": False}
    here = present(proc(1), proc(9921, 11 * GIB, **stranger))
    there = device(120, index=1, processes=[proc(9921, 12 * GIB, **stranger)], busy_percent=0)
    here.devices.append(there)
    (found,) = CHECKS["foreign-proc"](here)
    assert found.title == "pid 9921 (another user) uses 11–12 GiB on your GPUs 0,1"
    assert found.actions[0].after == "node gpu01: pid 9921 (another user) on GPUs 0,1"


@pytest.mark.parametrize("gres", ["gres/shard:2", "mps:50"])
def test_a_gpu_asked_for_in_shares_has_other_processes(gres):
    run = present(proc(1), proc(9921, 11 * GIB, own=False, in_job=False))
    run.job = Job(requested=Request(gres=gres))
    assert CHECKS["foreign-proc"](run) == []


def test_the_jobs_process_on_a_device_of_others():
    astray = proc(4312, in_job=True)
    elsewhere = device(120, index=5, processes=[astray], busy_percent=0)
    elsewhere.device = elsewhere.device._replace(cuda_index=None)
    (found,) = CHECKS["foreign-proc"](present(proc(1), others=[elsewhere]))
    assert "GPU 5, which is not in the job" in found.title
    (action,) = found.actions
    assert (action.after, action.text) == (
        "", "Delete every line that sets CUDA_VISIBLE_DEVICES; keep Slurm's value."
    )  # fmt: skip


def test_levels_and_devices_are_of_the_contract():
    found = of("alloc-all-tf", run(jump(80000 * MIB), framework="tf"))
    assert all(each.level in LEVELS and each.devices and each.subject for each in found)


def test_a_site_may_name_a_gpu_of_its_own():
    rates = dict.fromkeys(("fp64", "fp32", "tf32", "bf16", "fp16"), 400.0)
    own = GpuType("MINI", "MINI", "9.0", 12 * GIB, rates, 2000, gres="gpu:mini")
    (found,) = smaller(9, at=replace(UVA, gpus=(*UVA.gpus, own)))
    assert "--gres=gpu:mini:1" in found.actions[0].text
