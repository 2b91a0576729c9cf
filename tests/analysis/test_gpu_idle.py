"""Rules on GPUs that are held and not used: raised, just not raised, and not evaluable."""

import base64
import gzip
import json
from dataclasses import replace

import pytest

from gpumon.analysis.catalogue import evaluate
from gpumon.analysis.findings import gpu_idle, gpu_idle_time
from gpumon.analysis.rules import NotEvaluable
from gpumon.model.reading import MIG as MIG_REASON
from gpumon.model.sample import Mig
from gpumon.site import Policy, Site
from gpumon.slurm.job import Job, Request, Resources
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


def test_never_used_without_a_process():
    devices = [device(86, n, busy_percent=0, mem_used_bytes=0) for n in (0, 1)]
    found = only(gpu_idle.never_used(evidence(86, devices, job=job())))
    assert (found.level, found.confidence) == ("critical", "high")
    assert found.devices == ("gpu01:0", "gpu01:1")
    assert found.subject == "gpu01:0,1"
    assert "idle for 00:14:20 of 00:14:20; no GPU process" in found.evidence
    assert found.waste_gpu_hours == pytest.approx(2 * 860 / 3600)
    assert found.actions[0].before == "#SBATCH --gres=gpu:a100:4"
    assert found.actions[0].after == ""


def test_never_used_needs_five_minutes():
    assert gpu_idle.never_used(evidence(29, [device(29, busy_percent=0)])) == []
    assert only(gpu_idle.never_used(evidence(30, [device(30, busy_percent=0)])))


def test_one_active_bin_is_a_use():
    busy = [0] * 59 + [1]
    assert gpu_idle.never_used(evidence(60, [device(60, busy_percent=busy)])) == []


def test_a_process_that_only_holds_memory_is_critical_after_half_an_hour():
    for count, level in ((179, "warning"), (180, "critical")):
        held = device(count, busy_percent=0, processes=[process(count, mem=3 * GIB)])
        found = only(gpu_idle.never_used(evidence(count, [held])))
        assert found.level == level
        assert "4312" in found.title


def test_bursts_seen_by_the_driver_are_no_idleness():
    """50 ms of work every 30 s: the device was active in every third bin (findings, 15.6)."""
    active = [1, 0, 0] * 60
    busy = [0.2] * 180
    run = evidence(180, [device(180, busy_percent=busy, active=active)])
    verdicts = evaluate(run)
    assert "gpu-never-used" in verdicts.clear
    assert [each.id for each in verdicts.raised] == ["low-busy"]


def test_polling_alone_is_at_most_medium_and_names_its_period():
    found = only(gpu_idle.never_used(evidence(60, [device(60, busy_percent=0, polled=True)])))
    assert found.confidence == "medium"
    assert "polled every 1 s" in found.evidence


def test_mig_without_gpm_is_not_evaluable():
    slice_ = device(252, busy_percent=None, mem_used_bytes=3 * GIB, mig=SLICE,
                    processes=[process(252, mem=3 * GIB)])  # fmt: skip
    slice_.last["busy_percent"] = MIG_REASON
    run = evidence(252, [slice_])
    outcome = gpu_idle.never_used(run)
    assert isinstance(outcome, NotEvaluable)
    assert "n/a MIG" in outcome.reason
    assert [(each.id, each.level) for each in evaluate(run).raised] == [("gpu-unreadable", "info")]


def test_gaps_are_not_idle():
    busy = [0] * 60 + [None] * 60
    assert isinstance(
        gpu_idle.never_used(evidence(120, [device(120, busy_percent=busy)])), NotEvaluable
    )


def test_since_attach_is_said():
    run = evidence(60, [device(60, busy_percent=0)], live=True)
    run.coverage.from_start = False
    found = only(gpu_idle.never_used(run))
    assert found.confidence == "low"
    assert "since attach" in found.title


def test_a_recording_that_ends_early_says_little():
    run = evidence(60, [device(60, busy_percent=0)])
    run.coverage.to_end = False
    found = only(gpu_idle.never_used(run))
    assert found.confidence == "low"
    assert "cpu_cores_mean" not in found.numbers  # it was not measured


def test_a_working_core_asks_whether_it_still_prepares():
    run = evidence(60, [device(60, busy_percent=0)], [node(60, job={"cpu_cores_used": 0.9})])
    assert "still preparing?" in only(gpu_idle.never_used(run)).evidence
    run = evidence(180, [device(180, busy_percent=0)], [node(180, job={"cpu_cores_used": 0.9})])
    assert "still preparing?" not in only(gpu_idle.never_used(run)).evidence


def test_a_machine_without_a_job_wastes_nothing():
    run = evidence(60, [device(60, busy_percent=0)])
    run.job = None
    run.nodes[0].header = run.nodes[0].header._replace(job=None)
    assert gpu_idle.never_used(run) == gpu_idle.NO_JOB


# -- gpu-allocated-no-process ----------------------------------------------------------------------


def test_mig_slice_without_a_process_for_42_minutes():
    slice_ = device(252, busy_percent=None, mem_used_bytes=4 << 20, mig=SLICE)
    found = only(gpu_idle.no_process(evidence(252, [slice_])))
    assert (found.level, found.confidence) == ("critical", "high")
    assert "00:42:00" in found.title
    assert "memory 4 MiB" in found.evidence


@pytest.mark.parametrize(
    "near",
    [
        device(59, busy_percent=0, mem_used_bytes=0),
        device(90, busy_percent=0, mem_used_bytes=51 << 20),
        device(90, busy_percent=0, mem_used_bytes=0, processes=[process(90, mem=0)]),
        device(90, busy_percent=0, mem_used_bytes=0,
               processes=[process(90, own=False, in_job=False, note="in another PID namespace")]),
    ],
)  # fmt: skip
def test_no_process_near_misses(near):
    assert gpu_idle.no_process(evidence(len(near.active.mean), [near])) == []


def test_without_a_process_list_only_memory_counts():
    silent = device(90, busy_percent=0, mem_used_bytes=0)
    silent.process_list_known = False
    assert only(gpu_idle.no_process(evidence(90, [silent]))).confidence == "low"
    silent = device(90, busy_percent=0)
    assert isinstance(gpu_idle.no_process(evidence(90, [silent])), NotEvaluable)


def test_a_display_server_is_no_process_of_the_job():
    server = process(90, mem=4 << 20, name="Xorg", command="Xorg", own=True)
    one = device(90, busy_percent=0, mem_used_bytes=4 << 20, processes=[server])
    assert only(gpu_idle.no_process(evidence(90, [one])))


# -- gpus-partly-idle ------------------------------------------------------------------------------


def four(count, busy=(97, 0, 0, 0), **values):
    return [device(count, n, busy_percent=each, mem_used_bytes=70 * GIB, **values)
            for n, each in enumerate(busy)]  # fmt: skip


def test_one_of_four_worked():
    found = only(gpu_idle.partly_idle(evidence(120, four(120), job=job())))
    assert found.level == "critical"
    assert found.subject == "gpu01:1,2,3"
    assert found.evidence.startswith("1 of 4 GPUs worked (GPU 0 97 %, others 0 %)")
    assert found.actions[0].before == "#SBATCH --gres=gpu:a100:4"
    assert found.actions[0].after == "#SBATCH --gres=gpu:a100:1"
    assert found.waste_gpu_hours == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("form", "busy", "text"),
    [
        ("node", (97, 0), "Ask for 1 instead of 2 GPUs on each node, or use them all:"),
        ("node", (97, 97), "Use them all, or fewer nodes; one node worked with all its 2:"),
        ("job", (97, 97), "Ask for 2 instead of 4 GPUs, or use them all:"),
    ],
)
def test_a_request_per_node_has_one_number_for_all(form, busy, text):
    request = Request(Resources(gpus=4), gres="gpu:2", gres_form=form)
    devices = [device(120, n, node="gpu01", busy_percent=each) for n, each in enumerate(busy)]
    devices += [device(120, n, node="gpu02", busy_percent=0) for n in range(2)]
    nodes = [node(120, name) for name in ("gpu01", "gpu02")]
    run = evidence(120, devices, nodes, job=job(requested=request))
    assert only(gpu_idle.partly_idle(run)).actions[0].text == text


def test_a_run_as_short_as_in_the_notes_raises_nothing():
    """Chameleon's 1-device script on 4 GPUs ran 165 to 212 s (findings, 15.1)."""
    assert evaluate(evidence(21, four(21))).raised == ()


def test_partly_idle_near_misses():
    assert gpu_idle.partly_idle(evidence(120, four(120, (19, 0, 0, 0)))) == []
    assert gpu_idle.partly_idle(evidence(120, four(120, (97, 97, 97, 97)))) == []
    busy = [0] * 118 + [50, 50]  # 1.7 % of the bins
    assert gpu_idle.partly_idle(evidence(120, four(120, (97, busy)))) == []


def test_live_waits_fifteen_minutes():
    assert gpu_idle.partly_idle(evidence(89, four(89), live=True)) == []
    assert only(gpu_idle.partly_idle(evidence(90, four(90), live=True)))


def test_a_gpu_that_is_not_known_is_neither_idle_nor_working():
    devices = four(120, (97, None))
    assert isinstance(gpu_idle.partly_idle(evidence(120, devices)), NotEvaluable)
    devices = four(120, (97, None, 0))
    found = only(gpu_idle.partly_idle(evidence(120, devices)))
    assert found.devices == ("gpu01:2",)
    assert found.evidence.startswith("1 of 3 GPUs worked (GPU 0 97 %, 1 unknown, others 0 %)")


def js1(busy, elapsed_s=67316):
    gpus = {str(n): value for n, value in enumerate(busy)}
    half = {"cpus": 24, "total_time": 1.0, "total_memory": 128 << 30, "used_memory": 15 << 30,
            "gpu_total_memory": dict.fromkeys(gpus, 80 << 30),
            "gpu_used_memory": dict.fromkeys(gpus, 76 << 30)}  # fmt: skip
    nodes = {"n1": {**half, "gpu_utilization": gpus}}
    text = json.dumps({"gpus": len(busy), "total_time": elapsed_s, "nodes": nodes})
    return "JS1:" + base64.b64encode(gzip.compress(text.encode())).decode()


def summarised(busy, elapsed_s=67316.0):
    run = evidence(1, job=job(admin_comment=js1(busy, elapsed_s), elapsed_s=elapsed_s))
    run.nodes, run.count, run.end = [], 0, START + elapsed_s
    return run


def test_a_jobstats_page_judged_again():
    """2 nodes, 4 A100, 18:41:56, busy 65.7/64.5/72.9/0 % (findings, 15.5)."""
    verdicts = evaluate(summarised([65.7, 64.5, 72.9, 0.0]))
    found = next(each for each in verdicts.raised if each.id == "gpus-partly-idle")
    assert (found.level, found.confidence) == ("critical", "medium")
    assert found.waste_gpu_hours == pytest.approx(18.7, abs=0.01)
    assert "1 of 4" in found.title
    assert {"gpu-never-used", "low-busy"} <= set(verdicts.clear)
    assert "idle-tail" in verdicts.not_evaluable


def test_jobstats_without_utilization_is_not_zero():
    for rule in (gpu_idle.never_used, gpu_idle.partly_idle):
        assert isinstance(rule(summarised([None, 50.0])), NotEvaluable)
    assert only(gpu_idle.never_used(summarised([0, 0]))).level == "critical"
    assert gpu_idle.never_used(summarised([0, 0], 300.0)) == []


# -- nodes-idle ------------------------------------------------------------------------------------


def two_nodes(count, cores=0.02, busy=0, **values):
    nodes = [node(count, "gpu06", 32, job={"cpu_cores_used": 20}),
             node(count, "gpu07", 32, job={"cpu_cores_used": cores})]  # fmt: skip
    devices = [device(count, n, "gpu06", busy_percent=90) for n in (0, 1)]
    devices += [device(count, n, "gpu07", busy_percent=busy) for n in (0, 1)]
    return evidence(count, devices, nodes, **values)


def test_an_idle_node_of_two():
    found = only(gpu_idle.nodes_idle(two_nodes(144)))
    assert (found.subject, found.devices) == ("gpu07", ("gpu07:0", "gpu07:1"))
    assert "node gpu07 of 2: 0.1 % CPU, 2 GPUs idle for 00:22:00" in found.evidence
    assert found.actions[0].after == "#SBATCH --nodes=1"


def test_nodes_idle_near_misses():
    assert gpu_idle.nodes_idle(two_nodes(144, cores=0.33)) == []
    assert gpu_idle.nodes_idle(two_nodes(144, busy=5)) == []
    assert gpu_idle.nodes_idle(two_nodes(70)) == []  # 10 min begin after the launch
    assert isinstance(gpu_idle.nodes_idle(two_nodes(144, busy=None)), NotEvaluable)
    lonely = evidence(144, [device(144, busy_percent=0)], job=job(nodes=("gpu01", "gpu02")))
    assert isinstance(gpu_idle.nodes_idle(lonely), NotEvaluable)


def test_a_node_without_gpus_is_its_own_subject():
    nodes = [node(144, "n1", job={"cpu_cores_used": 8}), node(144, "n2", job={"cpu_cores_used": 0})]
    assert only(gpu_idle.nodes_idle(evidence(144, [], nodes))).subject == "n2"


# -- gpu-idle-now and policy-kill-soon -------------------------------------------------------------

UVA = Site("UVA", policy=Policy(3, 5, (), ("interactive",), 3))


def stopped(worked, idle, **values):
    """A live job that worked and then did nothing, in bins."""
    count = worked + idle
    busy = [90] * worked + [0] * idle
    return evidence(count, [device(count, busy_percent=busy)], live=True, **values)


def test_idle_now():
    found = only(gpu_idle_time.idle_now(stopped(60, 60)))
    assert found.level == "warning"
    assert "idle for 10 m" in found.title
    assert gpu_idle_time.idle_now(stopped(60, 59)) == []
    assert gpu_idle_time.idle_now(evidence(120, [device(120, busy_percent=0)], live=True)) == []


def test_idle_now_is_critical_when_the_site_ends_it_soon():
    near = round(4.6 * HOUR)
    found = only(gpu_idle_time.idle_now(stopped(60, near, site=UVA)))
    assert (found.level, found.harm_in_s) == ("critical", pytest.approx(1440))
    assert only(gpu_idle_time.idle_now(stopped(60, 60, site=UVA))).level == "warning"


def test_a_checkpoint_is_named_and_stays_a_warning():
    count = 60 + int(4.6 * HOUR)
    busy = node(count, job={"write_bytes_per_s": 60e6})
    found = only(gpu_idle_time.idle_now(stopped(60, count - 60, site=UVA, nodes=[busy])))
    assert found.level == "warning"
    assert "CPU/IO phase: 60 MB/s" in found.title
    slow = node(count, job={"write_bytes_per_s": 49e6, "cpu_cores_used": 4.0})
    assert (
        "phase"
        not in only(gpu_idle_time.idle_now(stopped(60, count - 60, site=UVA, nodes=[slow]))).title
    )


def test_idle_now_is_not_evaluable_without_readings():
    busy = [90] * 60 + [None] * 60
    run = evidence(120, [device(120, busy_percent=busy)], live=True)
    assert isinstance(gpu_idle_time.idle_now(run), NotEvaluable)


def test_policy_countdown_of_idle_hours():
    run = stopped(60, int(4.5 * HOUR), site=UVA)
    found = only(gpu_idle_time.policy_kill_soon(run))
    assert found.harm_in_s == pytest.approx(1800)
    assert "UVA ends this job in 30 m: idle" in found.title
    assert gpu_idle_time.policy_kill_soon(stopped(60, int(3.9 * HOUR), site=UVA)) == []


def test_policy_countdown_of_no_use_at_all():
    site = Site("Princeton", policy=Policy(2, None, (60, 105)))
    count = int(1.75 * HOUR)
    run = evidence(count, [device(count, busy_percent=0)], live=True, site=site)
    found = only(gpu_idle_time.policy_kill_soon(run))
    assert found.numbers["left_s"] == pytest.approx(900)
    assert "warns at 60 min and 105 min" in found.evidence
    run.coverage.from_start = False  # whether it was used before is not known
    assert gpu_idle_time.policy_kill_soon(run) == []


def test_policy_guards():
    near = int(4.8 * HOUR)
    exempt = job(partition="interactive")
    assert gpu_idle_time.policy_kill_soon(stopped(60, near, site=UVA, job=exempt)) == []
    short = job(time_limit_s=2 * 3600)
    assert gpu_idle_time.policy_kill_soon(stopped(60, near, site=UVA, job=short)) == []
    ends = job(end=START + (60 + near) * 10 + 60)
    assert gpu_idle_time.policy_kill_soon(stopped(60, near, site=UVA, job=ends)) == []
    assert isinstance(gpu_idle_time.policy_kill_soon(stopped(60, near)), NotEvaluable)
    working = evidence(60, [device(60, busy_percent=90)], live=True, site=UVA)
    assert gpu_idle_time.policy_kill_soon(working) == []


def test_policy_folds_idle_now():
    verdicts = evaluate(stopped(60, int(4.8 * HOUR), site=UVA))
    assert "policy-kill-soon" in [each.id for each in verdicts.raised]
    assert [(each.id, each.suppressed_by) for each in verdicts.suppressed] == [
        ("gpu-idle-now", "policy-kill-soon")
    ]


# -- idle-tail -------------------------------------------------------------------------------------


def tailed(worked, idle, gpus=4, **values):
    count = worked + idle
    busy = [94] * worked + [0] * idle
    return evidence(count, [device(count, n, busy_percent=busy) for n in range(gpus)], **values)


def test_two_hours_of_work_and_five_idle():
    """2 h 04 busy, 5 h 10 idle, 4 GPUs: 20.7 GPU-h (findings, 15.6)."""
    run = tailed(124 * MIN, 310 * MIN, job=job(time_limit_s=8 * 3600))
    found = only(gpu_idle_time.idle_tail(run))
    assert found.level == "warning"
    assert found.waste_gpu_hours == pytest.approx(20.67, abs=0.01)
    assert "GPUs busy 94 % for 02:04:00, then idle for 05:10:00 until the end (20.7 GPU-h" in (
        found.evidence
    )
    line = found.actions[1]
    assert (line.before, line.after) == ("#SBATCH -t 08:00:00", "#SBATCH -t 02:45:00")
    assert evaluate(run).raised[0].id == "idle-tail"
    assert evaluate(run).raised[0].waste_gpu_hours == pytest.approx(20.67, abs=0.01)


def test_idle_tail_near_misses():
    assert gpu_idle_time.idle_tail(tailed(60, 59)) == []
    assert only(gpu_idle_time.idle_tail(tailed(60, 60)))
    assert gpu_idle_time.idle_tail(tailed(HOUR * 10, 119 * MIN // 2)) == []  # under a tenth
    assert gpu_idle_time.idle_tail(tailed(0, 120)) == []  # never worked


def test_idle_tail_needs_samples_to_the_end():
    run = tailed(60, 90)
    run.end += 1200
    assert isinstance(gpu_idle_time.idle_tail(run), NotEvaluable)
    busy = [90] * 60 + [None] * 60
    assert isinstance(
        gpu_idle_time.idle_tail(evidence(120, [device(120, busy_percent=busy)])), NotEvaluable
    )


def test_idle_tail_of_a_job_that_hit_its_limit_says_so():
    run = tailed(60, 60, job=job(state="TIMEOUT"))
    assert "until the time limit" in only(gpu_idle_time.idle_tail(run)).evidence


# -- jupyter-idle ----------------------------------------------------------------------------------


def notebook(idle, held=21.3 * GIB, **facts):
    count = 30 + idle
    kernel = process(count, mem=held, command="python -m ipykernel_launcher -f k.json", **facts)
    busy = [50] * 30 + [0] * idle
    return device(count, busy_percent=busy, processes=[kernel])


def test_a_notebook_kernel_that_does_nothing():
    found = only(gpu_idle_time.jupyter_idle(evidence(312, [notebook(282)], live=True)))
    assert "notebook kernel 4312 holds 21.3 GiB" in found.title
    assert "idle 47 m" in found.title


def test_jupyter_idle_near_misses():
    assert gpu_idle_time.jupyter_idle(evidence(209, [notebook(179)])) == []
    assert gpu_idle_time.jupyter_idle(evidence(312, [notebook(282, held=0)])) == []
    batch = replace(notebook(282), processes=[process(312, mem=GIB)])
    assert gpu_idle_time.jupyter_idle(evidence(312, [batch], job=job(name="good_run"))) == []
    assert only(gpu_idle_time.jupyter_idle(evidence(312, [batch], job=job(name="ood-desktop"))))
    assert only(
        gpu_idle_time.jupyter_idle(evidence(312, [batch], job=job(name="sys/dashboard/sys/x")))
    )


def test_jupyter_idle_is_not_evaluable_on_a_slice():
    silent = replace(notebook(282), active=track(None, 312))
    assert isinstance(gpu_idle_time.jupyter_idle(evidence(312, [silent])), NotEvaluable)
