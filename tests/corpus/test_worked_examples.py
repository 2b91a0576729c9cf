"""Measured and published runs, and what gpumon must say of each of them.

Sources: the author's notes on OpenLLaMA 7B on four A100 (Chameleon, llm-chi), BERT on a card of
7611 MiB (ECE459, lecture 24), the Alvis course's table of peaks, a measured cgroup, one page of
jobstats, and rows that Slurm printed.
"""

import base64
import gzip
import json
import re
from dataclasses import replace

import pytest

from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.gpu_choice import Used, candidates, need_bytes
from gpumon.analysis.signals import job_devices
from gpumon.report.provenance import missing_text
from gpumon.slurm.job import ExitCode, Step
from tests.corpus.cases import all_cases
from tests.corpus.generator import Gpu, Node, Proc, Run, evidence_of
from tests.corpus.hardware import A100, A100_PCIE, GIB, MIB, P100_8, torch
from tests.corpus.jobs import run, slurm, uva

PLAIN_PCIE = replace(A100_PCIE, reserved_mib=0)  # the notes' sizes contain the driver's reserve


def judged(made):
    return evaluate(evidence_of(made, "worked example"))


def ids(evaluation):
    return {each.id: each.level for each in evaluation.raised}


def only(evaluation, id):
    (found,) = [each for each in evaluation.raised if each.id == id]
    return found


def evaluation_of(name):
    return all_cases()[name].evaluation


# -- OpenLLaMA 7B on four A100 PCIe ----------------------------------------------------------------


def four(peak_gib, pf=0.7, pcie=2e9):
    procs = [Proc(4312 + n, torch(peak_gib * GIB)) for n in range(4)]
    gpus = [Gpu(99, [proc], PLAIN_PCIE, pf=pf, pcie=pcie, base=0.0) for proc in procs]
    return run(960, Node(gpus, cpus=32, mem=256 * GIB))


def test_script_for_one_device():
    """165 to 212 s: nothing is said. The same for 20 min: three of four idle."""
    assert ids(evaluation_of("one_device_script_short")) == {}
    found = only(evaluation_of("one_device_script"), "gpus-partly-idle")
    assert found.title.startswith("3 of 4 GPUs idle")


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "said"), [(1e9, {}), (GIB, {"gpu-mem-full": "info"})])
def test_ddp_by_unit_of_the_notes(unit, said):
    """78.30 GB reserved and a context: 91.8 % if GB is 10⁹, 98.5 % if it is 2³⁰."""
    evaluation = judged(four(78.30 * unit / GIB + 0.5))
    assert ids(evaluation) == said
    for each in evaluation.raised:
        assert "reserved by PyTorch" in each.title
        assert each.mem_truth == "upper-bound"


@pytest.mark.slow
def test_ddp_is_bound_by_communication_only_where_the_link_says_so():
    assert "comm-bound" not in ids(judged(four(60, pf=0.45)))
    assert ids(judged(four(60, pf=0.45, pcie=12e9))) == {"comm-bound": "warning"}


@pytest.mark.slow
def test_fsdp_fits_a_smaller_gpu_only_by_what_was_allocated():
    """56.00 GB reserved need 61.6 GiB; 36.33 GB allocated need 40.5 GiB."""
    reserved, allocated = 56.00e9 / GIB + 0.5, 36.33e9 / GIB + 0.5
    assert need_bytes(reserved * GIB) / GIB == pytest.approx(61.6, abs=0.1)
    assert need_bytes(allocated * GIB) / GIB == pytest.approx(40.5, abs=0.1)
    by_reserved = judged(four(reserved))
    assert ids(by_reserved) == {}  # nor room: 65.8 % is above 45 %, though batch 8 fits
    found = only(judged(four(allocated)), "smaller-gpu")
    assert "A40" in found.title
    assert "A6000" in found.title
    assert "at most" in found.title


def test_offload_stalls_on_the_host():
    found = only(evaluation_of("optimizer_on_the_cpu"), "host-stall")
    assert "between GPU work, 26.8 of 32 cores are busy" in found.title
    assert "optimizer runs on the CPU" in found.actions[0].text


def test_out_of_memory_at_the_start_is_configuration():
    evaluation = evaluation_of("out_of_memory_at_the_start")
    assert only(evaluation, "gpu-oom-suspect").title.endswith("at its start")
    assert "gpu-leak" not in ids(evaluation)


def test_after_the_crash_exact_pids():
    found = only(evaluation_of("orphan_after_a_crash"), "leftover-procs")
    assert [each.after for each in found.actions] == ["kill 4313"]


def test_start_of_ddp_is_no_idle_time():
    assert ids(evaluation_of("warming_up")) == {}


# -- BERT on a card of 7611 MiB --------------------------------------------------------------------


def bert(mib, seconds=1260):
    proc = Proc(mem=torch(mib * MIB))
    gpu = Gpu(85, [proc], P100_8, base=0.0)
    return run(seconds, Node([gpu]), live=True)


def test_batch_1_has_room_for_two():
    found = only(judged(bert(3281)), "gpu-mem-headroom")
    assert found.numbers["times"] == 2
    assert "stop when it gets no faster" in found.actions[0].text


@pytest.mark.parametrize("mib", [7069, 3619])
def test_batch_8_and_checkpointing_are_well(mib):
    """92.9 %, which lies 42 MiB from TensorFlow's plateau of such a card; and 47.5 %."""
    assert ids(judged(bert(mib))) == {}


def test_accumulation_fills_it_and_is_no_fault():
    found = only(judged(bert(7509)), "gpu-mem-full")
    assert found.level == "info"
    assert "reserved by PyTorch" in found.title
    assert "no failure so far" in found.evidence


# -- what a smaller GPU costs ----------------------------------------------------------------------


def offered(peak_gib, site=None, nodes=1, model=A100, gpu=None, **proc):
    made = run(1200, *(
        Node([Gpu(80, [Proc(mem=torch(peak_gib * GIB), **proc)], model, **(gpu or {}))], f"gpu0{n}")
        for n in range(nodes)
    ), site=site)  # fmt: skip
    evidence = evidence_of(made, "offered")
    devices = job_devices(evidence)
    own = evidence.site.gpu_type(model.name)
    used = Used(own, devices, [], peak_gib * GIB, 80.0)
    return [each.gpu.key for each in candidates(evidence, used)]


def test_bf16_training():
    """Peak 9.1 GiB needs 11.5: what has no bf16, 11 GiB or a slice of 9.5 is out."""
    names = offered(9.1, command="python train.py --bf16")
    assert "A40" in names
    assert not {"V100-32", "T4", "RTX2080Ti", "A100-80/1g.10gb"} & set(names)
    peaks = {each.name: each.peak for each in uva().gpus}
    assert peaks["A100-80"]["bf16"] / peaks["A40"]["bf16"] == pytest.approx(2.1, abs=0.05)


def test_fp64_code():
    """An A40 is 16.7 times slower in FP64, a V100 1.24 times."""
    names = offered(
        20, model=replace(A100, gpm=True), gpu={"fp64": 30, "tensor": 0}, framework="cuda-other"
    )
    assert names == ["V100-32"]


def test_fp32_code_without_tensor_cores():
    assert "A40" in offered(20)
    peaks = {each.name: each.peak for each in uva().gpus}
    assert peaks["A40"]["fp32"] > peaks["A100-80"]["fp32"]


@pytest.mark.slow
def test_several_nodes_need_infiniband():
    site = replace(uva(), gpus=tuple(
        replace(each, infiniband=False) if each.name == "A40" else each for each in uva().gpus
    ))  # fmt: skip
    assert "A40" in offered(30)
    assert "A40" not in offered(30, site, nodes=2)


def test_a_v100_has_no_bf16_so_it_is_only_for_programs_without_tensor_cores():
    proc = [Proc(mem=torch(22 * GIB))]
    found = only(judged(run(1200, Node([Gpu(95, proc)]))), "smaller-gpu")
    assert "V100-32" not in found.title
    gpm = replace(A100, gpm=True)
    found = only(judged(run(1200, Node([Gpu(95, proc, gpm, tensor=0)]))), "smaller-gpu")
    assert "V100-32" in found.title
    assert "it has no bf16" in found.evidence


def test_decode_with_low_tensor_activity_is_well():
    assert ids(evaluation_of("serving_bound_by_memory")) == {"alloc-all-kv": "info"}


# -- host memory and page cache, measured ----------------------------------------------------------


def test_shared_memory_counts_and_page_cache_does_not():
    """101 MB of its own, 80 MB in /dev/shm, 600 MB of page cache: 181 MB."""
    node = Node([Gpu()], mem=8 * GIB, anon=101e6, shmem=80e6, cache=600e6)
    evaluation = judged(run(900, node))
    found = only(evaluation, "mem-over")
    assert found.numbers["peak_bytes"] == pytest.approx(181e6, rel=0.001)
    assert [each.after for each in found.actions] == ["#SBATCH --mem=1G"]


# -- a page of jobstats ----------------------------------------------------------------------------


def jobstats_page():
    """2 nodes, 48 cores, 256 GB, 4 A100, 18:41:56 of four days."""
    elapsed, total = 67_316, 128 * GIB

    def node(*busy):
        indices = [str(n) for n in range(len(busy))]
        used = [int(0.951 * 80 * GIB) if value else 0 for value in busy]
        return {
            "used_memory": int(15.7e9 / 2), "total_memory": total, "cpus": 24,
            "total_time": 0.099 * 24 * elapsed, "gpu_utilization": dict(zip(indices, busy)),
            "gpu_used_memory": dict(zip(indices, used)),
            "gpu_total_memory": dict.fromkeys(indices, 80 * GIB),
        }  # fmt: skip

    document = {"total_time": elapsed, "gpus": 4,
                "nodes": {"gpu01": node(65.7, 64.5), "gpu02": node(72.9, 0)}}  # fmt: skip
    text = base64.b64encode(gzip.compress(json.dumps(document).encode())).decode()
    job = slurm(elapsed, (), per_node=(24, total, 2, "gpu:a100:2"), node_count=2,
                time_limit_s=4 * 86_400.0, admin_comment=f"JS1:{text}")  # fmt: skip
    return Run(elapsed, (), job, site=uva())


def test_a_page_of_jobstats():
    """Jobstats itself prints one note, of the idle GPU."""
    evaluation = judged(jobstats_page())
    assert ids(evaluation) == {
        "gpus-partly-idle": "warning", "mem-over": "warning", "time-over": "info",
        "cpu-mostly-idle": "info",
    }  # fmt: skip
    idle = only(evaluation, "gpus-partly-idle")
    assert idle.devices == ("gpu02:1",)
    assert idle.waste_gpu_hours == pytest.approx(18.7, abs=0.05)
    assert only(evaluation, "mem-over").numbers["waste_bytes"] >= 64 * GIB
    assert "19 %" in only(evaluation, "time-over").title
    assert "mean 10 %" in missing_text(evaluation.not_evaluable["cpu-underused"])
    cannot_tell = "95 % may be a reservation; a summary does not show it"
    for id in ("alloc-all-tf", "alloc-all-jax", "alloc-all-kv", "alloc-all-pool", "gpu-mem-full",
               "smaller-gpu"):  # fmt: skip
        assert missing_text(evaluation.not_evaluable[id]) == cannot_tell


# -- idle or not -----------------------------------------------------------------------------------


def test_bursts_that_the_driver_saw():
    """50 ms of work every 30 s."""
    assert ids(evaluation_of("bursts_between_polls")) == {"low-busy": "warning"}


def test_bursts_that_no_poll_saw():
    found = only(evaluation_of("never_used_polled"), "gpu-never-used")
    assert found.confidence == "medium"
    assert "only polled every 2 s" in found.evidence


def test_a_slice_with_and_without_a_process():
    evaluation = evaluation_of("slice_with_process")
    assert ids(evaluation) == {"gpu-unreadable": "info"}
    assert "MIG instances" in only(evaluation, "gpu-unreadable").title
    empty = only(evaluation_of("slice_without_process"), "gpu-allocated-no-process")
    assert empty.level == "warning"


@pytest.mark.slow
def test_four_gpus_that_hang():
    found = only(evaluation_of("hang"), "suspected-hang")
    assert re.search(r"71 W \(2[45]\d W before\)", found.title)
    assert "no PCIe or NVLink traffic" in found.title


def test_published_training_is_well():
    assert ids(evaluation_of("training_hopper")) == {}


@pytest.mark.slow
def test_tail_of_five_hours():
    found = only(evaluation_of("kept_after_the_last_work"), "idle-tail")
    assert found.waste_gpu_hours == pytest.approx(20.7, abs=0.1)
    assert "20.7 GPU-h" in found.evidence


# -- rows that Slurm printed -----------------------------------------------------------------------


def ended(elapsed=960.0, limit=3600.0, **fields):
    job = slurm(elapsed, (), per_node=(1, 200 * MIB, 0, ""), time_limit_s=limit, **fields)
    return judged(Run(elapsed, (), job))


def test_time_limit_and_its_grace():
    """TIMEOUT 0:0, .batch CANCELLED 0:15, 88 s of 60."""
    batch = Step("batch", state="CANCELLED", exit_code=ExitCode(0, 15))
    evaluation = ended(88.0, 60.0, state="TIMEOUT", exit_code=ExitCode(0), steps=(batch,))
    assert ids(evaluation) == {"timed-out": "warning"}
    assert only(evaluation, "timed-out").numbers["used_percent"] == 100


@pytest.mark.parametrize("fields", [
    {"state": "OUT_OF_MEMORY", "exit_code": ExitCode(0, 125),
     "steps": (Step("batch", max_rss_bytes=196156 * 1024),)},
    {"state": "FAILED", "exit_code": ExitCode(1), "derived_exit_code": ExitCode(0, 125),
     "steps": (Step("0", state="OUT_OF_MEMORY", exit_code=ExitCode(0, 125), max_rss_bytes=0),)},
])  # fmt: skip
def test_out_of_memory_by_job_and_by_step(fields):
    evaluation = ended(**fields)
    assert ids(evaluation) == {"oom-killed": "critical"}
    assert "200 MiB" in only(evaluation, "oom-killed").title


def test_segmentation_fault():
    evaluation = ended(180.0, state="FAILED", exit_code=ExitCode(0, 11))
    assert "segmentation fault" in only(evaluation, "ended-badly").title


def test_cancelled_by_another_uid():
    evaluation = ended(state="CANCELLED", state_by="20001")
    assert ids(evaluation) == {"ended-badly": "warning"}
    assert "20001" in only(evaluation, "ended-badly").title
