"""Rules on GPUs that are held and not used: raised, just not raised, and not evaluable."""

import base64
import gzip
import json
from dataclasses import replace

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rightsize.gpus import gpus_need
from gpumon.analysis.rules import gpu_idle, gpu_idle_stretch, gpu_idle_time, gpu_partly_idle
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rundata import Coverage
from gpumon.model.sample import Mig
from gpumon.site import Policy, Site
from gpumon.slurm.job import Job, Request, Resources, Step, Usage
from tests.analysis.build import GIB, START, device, evidence, node, process, track

MIN = 6  # bins of 10 s
HOUR = 360
SLICE = Mig("GPU-parent", 3, 0, "1g.10gb")


def job(**values):
    request = Request(Resources(gpus=4), gres="gpu:a100:4", gres_form="node")
    known = {"raw_id": "4711", "id": "4711", "state": "COMPLETED", "requested": request, **values}
    return Job(**known)


def only(outcome):
    assert not isinstance(outcome, NotEvaluable), outcome
    assert len(outcome) == 1, outcome
    return outcome[0]


# -- gpu-never-used --------------------------------------------------------------------------------


def test_never_used_on_the_one_node_of_several_that_was_recorded():
    devices = [device(HOUR, n, busy_percent=0, mem_used_bytes=0) for n in (0, 1)]
    others = ("gpu02", "gpu03", "gpu04")
    this = evidence(HOUR, devices, job=job(nodes=("gpu01", *others)))
    this.coverage = replace(this.coverage, unrecorded=others, covered_percent=25.0)
    found = only([each for each in evaluate(this).raised if each.id == "gpu-never-used"])
    assert (found.level, found.confidence) == ("warning", "low")


def never(count=180, level="critical", state="COMPLETED", **values):
    """The finding of a device that ran no kernel; None where there is none."""
    known = {"busy_percent": 0, "mem_used_bytes": 3 << 20, "power_w": 60, **values}
    found = gpu_idle.never_used(evidence(count, [device(count, **known)], job=job(state=state)))
    return only(found) if found else None


def test_polls_far_apart_prove_no_idle_time():
    """A cycle of a minute that is polled each minute shows the same part of it each time."""
    far = Coverage("recording", 100.0, 60.0, from_start=True, to_end=True)
    held = device(1080, busy_percent=0, polled=True, mem_used_bytes=40 * GIB,
                  processes=[process(1080, mem=40 * GIB, framework="torch")])  # fmt: skip
    evaluation = evaluate(evidence(1080, [held], job=job(), coverage=far))
    assert "gpu-never-used" in evaluation.not_evaluable
    assert evaluation.waste_gpu_hours == 0
    assert all(each.level == "info" for each in evaluation.raised)
    empty = device(1080, busy_percent=0, polled=True, mem_used_bytes=0)
    found = only(gpu_idle.never_used(evidence(1080, [empty], job=job(), coverage=far)))
    assert found.level == "warning"


def test_accounting_shows_the_start_that_was_not_seen():
    step = Step("0", usage=Usage(maximum={"gres/gpuutil": 0}))
    run = evidence(360, four(360, (0, 0)), job=job(steps=(step,)))
    run.coverage.from_start = False
    assert only(gpu_idle.never_used(run)).level == "warning"


# -- gpu-allocated-no-process ----------------------------------------------------------------------


@pytest.mark.parametrize("before", [None, 7 * GIB])
@pytest.mark.parametrize("listed", [True, False])
def test_memory_that_nobody_is_known_to_hold_may_be_the_jobs(before, listed):
    """Its processes may be hidden, or have begun before the first sample: nobody can tell."""
    one = device(90, busy_percent=None, mem_used_bytes=7 * GIB)
    one.process_list_known, one.mem_before_bytes = listed, before
    assert isinstance(gpu_idle.no_process(evidence(90, [one])), NotEvaluable)


# -- gpus-partly-idle ------------------------------------------------------------------------------


def four(count, busy=(97, 0, 0, 0), **values):
    return [device(count, n, busy_percent=each, **{"mem_used_bytes": 3 << 20, **values})
            for n, each in enumerate(busy)]  # fmt: skip


def test_filled_memory_or_a_little_work_asks_for_no_fewer():
    for values, words in (
        ({"busy": (97, [0] * 119 + [5])}, "barely used"),
        ({"mem_used_bytes": 20 * GIB}, "ran no kernel"),
    ):
        found = only(gpu_partly_idle.partly_idle(evidence(120, four(120, **values), job=job())))
        assert found.level == "warning"
        assert not any(each.after for each in found.actions)
        assert words in found.title


def test_as_many_processes_as_gpus_on_one_of_them():
    ranks = [process(120, pid=100 + n, framework="torch") for n in range(4)]
    devices = [device(120, n, busy_percent=99 if n == 0 else 0, mem_used_bytes=3 << 20,
                      processes=ranks if n == 0 else []) for n in range(4)]  # fmt: skip
    asked = Request(Resources(cpus=16, gpus=4), gres="gpu:a100:4", gres_form="node")
    for count, words in ((4, "4 processes share GPU 0: "), (1, "")):
        devices[0].processes = ranks[:count]
        run = evidence(120, devices, job=job(requested=asked))
        found = only(gpu_partly_idle.partly_idle(run))
        assert any(each.text.startswith(words or "To use all:") for each in found.actions)
        assert bool(found.change("--gres")) == (count == 1)
        assert (gpus_need(run) is None) == (count == 4)


def test_tasks_that_slurm_started_need_no_launcher():
    asked = Request(Resources(cpus=16, gpus=4), tasks=4, gres="gpu:1", gres_form="task")
    found = only(gpu_partly_idle.partly_idle(evidence(120, four(120), job=job(requested=asked))))
    assert found.uses_more


def test_whole_nodes_come_with_all_of_their_gpus():
    asked = Request(Resources(cpus=16, gpus=4), gres="gpu:a100:4", gres_form="node")
    made = job(requested=asked, submit_line="sbatch --exclusive job.sh")
    found = only(gpu_partly_idle.partly_idle(evidence(120, four(120), job=made)))
    assert found.change("--gres") is None


def test_a_pause_beside_others_has_two_ends():
    paused = [95] * HOUR + [0] * HOUR + [95] * HOUR
    run = evidence(3 * HOUR, four(3 * HOUR, (95, paused)), job=job())
    assert only(gpu_partly_idle.partly_idle(run))
    run = replace(run, live=True)
    assert gpu_partly_idle.partly_idle(run) == []  # it works again


def test_a_gpu_that_is_not_known_is_neither_idle_nor_working():
    devices = four(120, (97, None))
    assert isinstance(gpu_partly_idle.partly_idle(evidence(120, devices)), NotEvaluable)
    devices = four(120, (97, None, 0))
    found = only(gpu_partly_idle.partly_idle(evidence(120, devices)))
    assert found.devices == ("gpu01:2",)


def js1(busy, elapsed_s=67316, held=76 << 30):
    gpus = {str(n): value for n, value in enumerate(busy)}
    half = {"cpus": 24, "total_time": 1.0, "total_memory": 128 << 30, "used_memory": 15 << 30,
            "gpu_total_memory": dict.fromkeys(gpus, 80 << 30),
            "gpu_used_memory": dict.fromkeys(gpus, held)}  # fmt: skip
    nodes = {"n1": {**half, "gpu_utilization": gpus}}
    text = json.dumps({"gpus": len(busy), "total_time": elapsed_s, "nodes": nodes})
    return "JS1:" + base64.b64encode(gzip.compress(text.encode())).decode()


def summarised(busy, elapsed_s=67316.0, held=76 << 30):
    run = evidence(1, job=job(admin_comment=js1(busy, elapsed_s, held), elapsed_s=elapsed_s))
    run.nodes, run.count, run.end = [], 0, START + elapsed_s
    return run


def test_a_jobstats_page_judged_again():
    """2 nodes, 4 A100, 18:41:56, busy 65.7/64.5/72.9/0 % (findings, 15.5)."""
    evaluation = evaluate(summarised([65.7, 64.5, 72.9, 0.0]))
    found = next(each for each in evaluation.raised if each.id == "gpus-partly-idle")
    assert (found.level, found.confidence) == ("warning", "medium")
    assert found.waste_gpu_hours == pytest.approx(18.7, abs=0.01)
    assert {"gpu-never-used", "low-busy"} <= set(evaluation.clear)
    assert "idle-tail" in evaluation.not_evaluable


def test_jobstats_without_utilization_is_not_zero():
    for rule in (gpu_idle.never_used, gpu_partly_idle.partly_idle):
        assert isinstance(rule(summarised([None, 50.0])), NotEvaluable)
    assert only(gpu_idle.never_used(summarised([0, 0], held=3 << 20))).level == "warning"
    assert gpu_idle.never_used(summarised([0, 0], 300.0, held=3 << 20)) == []


# -- nodes-idle ------------------------------------------------------------------------------------


def two_nodes(count, cores=0.02, busy=0, **values):
    nodes = [node(count, "gpu06", 32, job={"cpu_cores_used": 20}),
             node(count, "gpu07", 32, job={"cpu_cores_used": cores})]  # fmt: skip
    devices = [device(count, n, "gpu06", busy_percent=90) for n in (0, 1)]
    devices += [device(count, n, "gpu07", busy_percent=busy) for n in (0, 1)]
    return evidence(count, devices, nodes, **values)


def test_a_node_that_idles_for_a_part_of_the_run_is_needed():
    found = only(gpu_partly_idle.nodes_idle(two_nodes(200, cores=[20] * 50 + [0.02] * 150,
                                                      busy=[90] * 50 + [0] * 150)))  # fmt: skip
    assert (found.level, found.actions[0].after) == ("warning", "")
    run = two_nodes(HOUR, cores=[0.02] * 97 + [20] * 263, busy=[0] * 97 + [90] * 263)
    (found,) = [each for each in evaluate(run).raised if each.id == "nodes-idle"]
    assert found.waste_gpu_hours == pytest.approx(2 * 970 / 3600)


def test_a_program_on_one_core_needs_one_node():
    nodes = [node(144, name_, job={"cpu_cores_used": cores})
             for name_, cores in (("n1", 1.0), ("n2", 0))]  # fmt: skip
    found = only(gpu_partly_idle.nodes_idle(evidence(144, [], nodes)))
    assert not found.uses_more


# -- gpu-idle-now and policy-kill-soon -------------------------------------------------------------


def stopped(worked, idle, **values):
    """A live job that worked and then did nothing, in bins."""
    count = worked + idle
    busy = [90] * worked + [0] * idle
    return evidence(count, [device(count, busy_percent=busy)], live=True, **values)


@pytest.mark.parametrize(("bins", "level"), [(90, "info"), (180, "warning")])
@pytest.mark.parametrize("command", ["vllm serve", "python -m ipykernel_launcher"])
def test_sessions_and_servers_may_pause(command, bins, level):
    run = stopped(60, bins)
    run.devices[0].processes.append(process(60 + bins, mem=GIB, command=command))
    assert only(gpu_idle_time.idle_now(run)).level == level


def test_policy_countdown_of_no_use_at_all():
    site = Site("Princeton", policy=Policy(2, None, (60, 105)))
    count = int(1.75 * HOUR)
    run = evidence(count, [device(count, busy_percent=0)], live=True, site=site)
    found = only(gpu_idle_time.policy_kill_soon(run))
    assert found.numbers["left_s"] == pytest.approx(900)
    run.coverage.from_start = False  # whether it was used before is not known
    assert gpu_idle_time.policy_kill_soon(run) == []


# -- idle-tail -------------------------------------------------------------------------------------


def tailed(worked, idle, gpus=4, nodes=(), **values):
    count = worked + idle
    busy = [94] * worked + [0] * idle
    devices = [device(count, n, busy_percent=busy) for n in range(gpus)]
    return evidence(count, devices, nodes, **values)


@pytest.mark.parametrize(("state", "spins"), [("TIMEOUT", True), ("COMPLETED", False)])
def test_one_busy_thread_until_the_limit_may_only_wait(state, spins):
    nodes = [node(300 * MIN, cpus=8, job={"cpu_cores_used": 1.0})]
    run = tailed(60 * MIN, 240 * MIN, nodes=nodes, job=job(state=state))
    found = only(gpu_idle_stretch.idle_tail(run))
    assert found.actions[0].text.startswith("The program still ran") == spins


def test_idle_tail_of_a_job_that_hit_its_limit_says_so():
    run = tailed(60, 60, job=job(state="TIMEOUT"))
    assert "until the time limit" in only(gpu_idle_stretch.idle_tail(run)).evidence


def hosted(cores, worked=124 * MIN, idle=310 * MIN, **values):
    """A tail; the cores that the host used, in it."""
    nodes = [node(worked + idle, job={"cpu_cores_used": [7] * worked + cores, **values})]
    return tailed(worked, idle, nodes=nodes, job=job(time_limit_s=8 * 3600))


def test_a_shorter_limit_leaves_time_for_what_moves_data_or_waits():
    sends = hosted([0.01] * 1860, write_bytes_per_s=20e6)
    waits = hosted([0.01] * 1860)
    waits.devices[0].processes.append(process(2604, mem=GIB))
    for run in (sends, waits):
        assert len(only(gpu_idle_stretch.idle_tail(run)).actions) == 1


@pytest.mark.parametrize(
    ("ended", "command", "text"),
    [
        (None, "python train.py", "what it waited for"),
        (START + 7000, "python train.py", "if it only waited (sleep"),
        (None, "vllm serve", "Stop the server"),
    ],
)
def test_what_ends_an_idle_tail(ended, command, text):
    run = hosted([0.01] * 1860)
    run.devices[0].processes.append(process(2604, mem=GIB, last=ended, command=command))
    assert text in only(gpu_idle_stretch.idle_tail(run)).actions[0].text


# -- idle-time -------------------------------------------------------------------------------------


def phased(*parts, gpus=2, cores=None, **job_fields):
    """A run of (bins, busy % of each GPU) one after another; `cores`: of each part."""
    count = sum(bins for bins, *_ in parts)
    columns = [[busy[n] for bins, *busy in parts for _ in range(bins)] for n in range(gpus)]
    used = [value for (bins, *_), value in zip(parts, cores or [1] * len(parts))
            for _ in range(bins)]  # fmt: skip
    nodes = [node(count, cpus=16, job={"cpu_cores_used": used, **job_fields})]
    return evidence(count, [device(count, n, busy_percent=busy) for n, busy in enumerate(columns)],
                    nodes)  # fmt: skip


WORK, REST = (90, 90), (0, 0)


def test_a_partition_for_sessions_has_sessions():
    run = phased((360, *REST), (360, *WORK))
    run.job = job(partition="interactive")
    assert "Start a session" in only(gpu_idle_stretch.idle_time(run)).actions[0].text


def test_a_blip_ends_no_stretch():
    run = phased((90, *REST), (1, 5, 0), (89, *REST), (300, *WORK))
    found = only(gpu_idle_stretch.idle_time(run))
    assert found.numbers["idle_s"] == 1790


@pytest.mark.parametrize(
    "parts",
    [
        [(30, *REST), (600, *WORK)],  # 5 min at the start
        [(60, *REST), (3000, *WORK)],  # 2 % of the run
        [(600, *WORK)],
        [(300, 90, 0), (300, *WORK)],  # the second joins later
        [(3, *WORK), (3, *REST)] * 100,  # a wave, no stretch
        [(60, *WORK), (9, *REST)] * 20,  # checkpoints: 90 s each ten minutes
        [(600, *REST)],  # never worked
    ],
)
def test_idle_time_near_misses(parts):
    run = phased(*parts)
    assert gpu_idle_stretch.idle_time(run) == gpu_idle_stretch.in_turns(run) == []


# -- jupyter-idle ----------------------------------------------------------------------------------


def notebook(idle, held=21.3 * GIB, **facts):
    count = 30 + idle
    kernel = process(count, mem=held, command="python -m ipykernel_launcher -f k.json", **facts)
    busy = [50] * 30 + [0] * idle
    return device(count, busy_percent=busy, processes=[kernel])


def test_jupyter_idle_is_not_evaluable_on_a_slice():
    silent = replace(notebook(282), active=track(None, 312))
    assert isinstance(gpu_idle_time.jupyter_idle(evidence(312, [silent])), NotEvaluable)
