"""Findings on device memory: raised, near misses, and nothing on what is missing."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gpumon import site
from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.analysis.rundata import Coverage
from gpumon.site.read import load_site
from gpumon.slurm.job import Job, Request
from tests.analysis.build import GIB, START, device, evidence, held, node, pooled, process, track

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


# -- a smaller one ---------------------------------------------------------------------------------
ASKED = Job(raw_id="1", state="COMPLETED", partition="gpu",
            requested=Request(gres="gpu:a100:1", gres_form="node"))  # fmt: skip


def smaller(level_gib, at=UVA, job=ASKED, **more):
    return of("smaller-gpu", run(jump(level_gib * GIB), **more), site=at, job=job)


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


def test_another_type_is_compared_by_words_that_fit_the_job():
    short = replace(ASKED, time_limit_s=1300)
    (found,) = smaller(9.1, job=short)
    session = replace(ASKED, submit_line="salloc --gres=gpu:a100:1 -t 8:00:00")
    (found,) = smaller(4, busy=5, job=session)
    assert found.level == "info"
    offered = "Request one A100-80/1g.10gb for sessions that need no more memory."
    assert found.actions[0].text == offered


# -- growing ---------------------------------------------------------------------------------------
def test_a_leak_of_a_process():
    grows = run(lambda time: (20 + time / 450) * GIB, seconds=5400)
    (found,) = of("gpu-leak", grows)
    assert of("gpu-leak", grows, job=Job(state="COMPLETED", time_limit_s=7200))
    assert of("gpu-leak", grows, job=Job(state="COMPLETED", time_limit_s=36_000))
    running = Job(state="RUNNING", time_limit_s=7200)
    (found,) = of("gpu-leak", grows, job=running, live=True)
    assert of("gpu-leak", run(lambda t: (20 + t / 450) * GIB, seconds=5400, count_gpus=4))
    assert found.numbers["per_s"] * 3600 / GIB == pytest.approx(8, rel=0.05)
    assert of("gpu-leak", run(jump(30 * GIB), seconds=5400)) == []
    assert isinstance(of("gpu-leak", run(jump(30 * GIB), seconds=1200)), NotEvaluable)
    stairs = lambda time: 2 ** min(int(time / 900), 5) * GIB  # noqa: E731
    assert of("gpu-leak", run(stairs, seconds=5400, framework="tf")) == []


def test_memory_that_follows_sorted_inputs_is_no_leak():
    def cubic(time):
        return (6 + 60 * (time / 5400) ** 3) * GIB

    (found,) = of("gpu-leak", run(cubic, seconds=5400), job=Job(state="COMPLETED"))
    assert found.level == "info"
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
    assert (found.start, found.end) == (START, START + 710)
    brief = proc(9921, 11 * GIB, in_job=False, last=START + 30, **facts)
    assert CHECKS["foreign-proc"](present(mine, brief, live=False)) == []


@pytest.mark.parametrize("gres", ["gres/shard:2", "mps:50"])
def test_a_gpu_asked_for_in_shares_has_other_processes(gres):
    run = present(proc(1), proc(9921, 11 * GIB, own=False, in_job=False))
    run.job = Job(requested=Request(gres=gres))
    assert CHECKS["foreign-proc"](run) == []


# -- a need that a probe measured ------------------------------------------------------------------


def probed(devices, used, reserved=None, **figures):
    """All processes of the devices tell of such a pool."""
    for one in (each for gpu in devices for each in gpu.processes):
        pooled(one, used, reserved, **figures)
    return devices


def torch(used=60.4 * GIB, reserved=77.4 * GIB, figures=None, **rest):
    return probed(run(jump(reserved + 0.5 * GIB), **rest), used, reserved, **(figures or {}))


def test_a_leak_is_what_grows_in_use():
    def grows(bins, by):
        return [4 * GIB + n * by / 360 for n in range(bins)]

    long = {"seconds": 7200}
    steady = torch(10 * GIB, 40 * GIB, **long)
    assert of("gpu-leak", steady) == []
    hidden = torch(grows(720, 8 * GIB), 60 * GIB, **long)
    (found,) = of("gpu-leak", hidden)
    assert found.mem_truth == "measured"
    inside = run(jump(80000 * MIB), framework="tf", **long)  # its reservation never grows
    assert of("gpu-leak", probed(inside, grows(720, 8 * GIB)))
    torn = {"trace": lambda time: (10 + 8 * time / 3600) * GIB, **long}
    assert of("gpu-leak", run(**torn))
    fragments = run(**torn)
    reserved = [value - 0.5 * GIB for value in fragments[0].processes[0].mem_bytes.mean]
    assert of("gpu-leak", probed(fragments, 8 * GIB, reserved)) == []
