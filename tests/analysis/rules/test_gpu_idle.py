"""Rules on GPUs that are held and not used: raised, just not raised, and not evaluable."""

import base64
import gzip
import json
from dataclasses import replace
from random import Random

import pytest

from gpumon.analysis.finding import Lack, NotEvaluable
from gpumon.analysis.rightsize.gpus import gpus_need
from gpumon.analysis.rules import (
    gpu_idle,
    gpu_idle_stretch,
    gpu_idle_time,
    gpu_ineffective,
    gpu_partly_idle,
)
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.instant import use_or_return
from gpumon.analysis.rundata import Coverage
from gpumon.model.reading import MIG as MIG_REASON
from gpumon.model.sample import Mig
from gpumon.report.provenance import missing_text
from gpumon.report.sentences import brief_action
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
    assert found.title.startswith("GPUs gpu01:0,1 did no work")
    assert found.doubt == "Preliminary: 3 of 4 nodes were not recorded"
    assert [each.text[:44] for each in found.actions] == [
        "If this node should do more than coordinate,"
    ]


def test_a_service_that_held_a_context_is_named():
    mps = process(86, mem=30 << 20, name="nvidia-cuda-mps-server", command="nvidia-cuda-mps-server")
    devices = [device(86, busy_percent=0, mem_used_bytes=30 << 20, processes=[mps])]
    found = only(gpu_idle.never_used(evidence(86, devices, job=job())))
    assert "only nvidia-cuda-mps-server ran there" in found.evidence


def test_never_used_without_a_process():
    devices = [device(86, n, busy_percent=0, mem_used_bytes=0) for n in (0, 1)]
    found = only(gpu_idle.never_used(evidence(86, devices, job=job())))
    assert (found.level, found.confidence) == ("critical", "high")
    assert found.devices == ("gpu01:0", "gpu01:1")
    assert found.subject == "gpu01:0,1"
    assert "idle for 14 min of 14 min; no process ran there" in found.evidence
    assert found.waste_gpu_hours == pytest.approx(2 * 860 / 3600)
    check, last = found.actions
    assert ("torch" in check.after, check.kind) == (True, "shell")
    assert (last.after, last.changes) == ("", ())  # a CPU fallback looks the same
    assert last.text.startswith("If the program needs no GPU, remove --gres")


def never(count=180, level="critical", state="COMPLETED", **values):
    """The finding of a device that ran no kernel; None where there is none."""
    known = {"busy_percent": 0, "mem_used_bytes": 3 << 20, "power_w": 60, **values}
    found = gpu_idle.never_used(evidence(count, [device(count, **known)], job=job(state=state)))
    return only(found) if found else None


def test_exactly_nothing_is_critical():
    assert never().level == "critical"
    idle = {f"pcie_{way}_bytes_per_s": 2e6 for way in ("tx", "rx")}  # NVML's own reading
    assert never(encoder_percent=0, decoder_percent=0, mem_controller_percent=0, **idle).level == (
        "critical"
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"power_w": [60] * 90 + [110] * 90}, "power up to 110 W"),
        ({"power_w": 150}, "power up to 150 W"),  # it never rested
        ({"mem_used_bytes": 20 * GIB}, "GPU memory up to 20 GiB"),
        ({"pcie_rx_bytes_per_s": [5e8] * 3 + [0] * 177}, "PCIe up to 477 MiB/s"),
        ({"mem_controller_percent": [4] + [0] * 179}, "memory controller up to 4 %"),
    ],
)
def test_any_trace_of_use_is_no_longer_critical(values, words):
    found = never(**values, facts={"power_limit_default_w": 400})
    assert found.level == "warning"
    assert words in found.evidence


@pytest.mark.parametrize(
    "values",
    [
        {"pcie_tx_bytes_per_s": 2e9},
        {"nvlink_rx_bytes_per_s": 2e9},
        {"power_w": 250, "facts": {"power_limit_default_w": 400}},
        {"mem_controller_percent": [0] * 160 + [30] * 20},
    ],
)
def test_copies_are_a_use(values):
    found = never(**values)
    assert (found.level, found.waste_gpu_hours, found.actions) == ("info", 0, ())
    assert "ran no kernel in 30 min, but was used" in found.title


def test_a_reservation_is_no_use():
    held = process(180, mem=76 * GIB, framework="tf", rise=[(START, 76 * GIB)])
    found = never(mem_used_bytes=76 * GIB, processes=[held], total=80 * GIB)
    assert "filled" not in found.evidence
    assert "tf.debugging" in found.actions[0].after


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "TIMEOUT", "RUNNING"])
def test_a_short_job_that_did_not_complete_may_still_have_prepared(state):
    assert never(60, state=state).level == "warning"
    assert never(180, state=state).level == "critical"


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
    evaluation = evaluate(run)
    assert "gpu-never-used" in evaluation.clear
    assert [each.id for each in evaluation.raised] == ["low-busy"]


def test_polling_alone_is_at_most_medium_and_names_its_period():
    found = only(gpu_idle.never_used(evidence(60, [device(60, busy_percent=0, polled=True)])))
    assert (found.level, found.confidence) == ("warning", "medium")
    assert "polled every 1 s" in found.evidence


def test_polls_far_apart_prove_no_idle_time():
    """A cycle of a minute that is polled each minute shows the same part of it each time."""
    far = Coverage("recording", 100.0, 60.0, from_start=True, to_end=True)
    held = device(1080, busy_percent=0, polled=True, mem_used_bytes=40 * GIB,
                  processes=[process(1080, mem=40 * GIB, framework="torch")])  # fmt: skip
    evaluation = evaluate(evidence(1080, [held], job=job(), coverage=far))
    (found,) = [each for each in evaluation.raised if each.id == "gpu-never-used"]
    assert (found.level, found.confidence, found.waste_gpu_hours) == ("info", "low", 0)
    assert "not seen at work" in found.title
    assert evaluation.waste_gpu_hours == 0
    assert all(each.level == "info" for each in evaluation.raised)
    empty = device(1080, busy_percent=0, polled=True, mem_used_bytes=0)
    found = only(gpu_idle.never_used(evidence(1080, [empty], job=job(), coverage=far)))
    assert found.level == "warning"


def test_mig_without_gpm_is_not_evaluable():
    slice_ = device(252, busy_percent=None, mem_used_bytes=3 * GIB, mig=SLICE,
                    processes=[process(252, mem=3 * GIB)])  # fmt: skip
    slice_.last["busy_percent"] = MIG_REASON
    run = evidence(252, [slice_])
    outcome = gpu_idle.never_used(run)
    assert isinstance(outcome, NotEvaluable)
    assert "n/a MIG" in missing_text(outcome)
    assert [(each.id, each.level) for each in evaluate(run).raised] == [("gpu-unreadable", "info")]


def test_gaps_are_not_idle():
    busy = [0] * 60 + [None] * 60
    assert isinstance(
        gpu_idle.never_used(evidence(120, [device(120, busy_percent=busy)])), NotEvaluable
    )


@pytest.mark.parametrize(
    ("live", "level", "since"),
    [(False, "info", "since the recording began"), (True, "warning", "since gpumon attached")],
)
def test_what_began_late_has_not_seen_the_start(live, level, since):
    run = evidence(360, four(360, (0, 0)), job=job(), live=live)
    run.coverage.from_start = False
    for each in (gpu_idle.never_used, gpu_idle.no_process):
        found = only(each(run))
        assert found.level == level
        assert since in found.title
    run = evidence(360, four(360, (97, 0)), job=job(), live=live)
    run.coverage.from_start = False
    found = [each for each in evaluate(run).findings if each.devices == ("gpu01:1",)]
    assert {each.level for each in found} == {level}


def test_accounting_shows_the_start_that_was_not_seen():
    step = Step("0", usage=Usage(maximum={"gres/gpuutil": 0}))
    run = evidence(360, four(360, (0, 0)), job=job(steps=(step,)))
    run.coverage.from_start = False
    assert only(gpu_idle.never_used(run)).level == "warning"


def test_a_recording_that_ends_early_says_little():
    run = evidence(60, [device(60, busy_percent=0)])
    run.coverage.to_end = False
    found = only(gpu_idle.never_used(run))
    assert (found.level, found.confidence) == ("info", "low")
    assert "cpu_cores_mean" not in found.numbers  # it was not measured


def test_a_working_core_asks_whether_it_still_prepares():
    nodes = [node(60, job={"cpu_cores_used": 0.9})]
    run = evidence(60, [device(60, busy_percent=0)], nodes, live=True)
    assert "may still be preparing" in only(gpu_idle.never_used(run)).evidence


@pytest.mark.parametrize(("cores", "level"), [(0.9, "warning"), (0.1, "critical")])
def test_a_running_job_whose_host_works_may_use_them_later(cores, level):
    nodes = [node(360, job={"cpu_cores_used": cores})]
    run = evidence(360, four(360, (0, 0)), nodes, job=job(state="RUNNING"), live=True)
    assert only(gpu_idle.never_used(run)).level == level
    assert only(gpu_idle.no_process(run)).level == level
    ended = evidence(360, four(360, (0, 0)), nodes, job=job())
    assert only(gpu_idle.never_used(ended)).level == "critical"


def test_what_to_check_stands_before_what_is_not_advised():
    run = evidence(360, four(360, (0, 0)), job=job(state="RUNNING"), live=True)
    for found in evaluate(run, [gpu_idle.never_used, gpu_idle.no_process]).findings:
        assert "First check" in found.actions[0].text


@pytest.mark.parametrize(
    ("framework", "command", "line"),
    [
        ("jax", "python x.py", "jax.devices()"),
        ("", "python x.py", "import torch"),
        ("", "gmx mdrun", ""),
    ],
)
def test_the_check_is_one_of_the_program(framework, command, line):
    each = process(360, mem=GIB, framework=framework, command=command, name=command.split()[0])
    nodes = [node(360, processes={4312: (each.facts, track(10, 360))})]
    run = evidence(360, [device(360, busy_percent=0, processes=[each])], nodes)
    check, _ = only(gpu_idle.never_used(run)).actions
    assert line in check.after
    assert bool(check.after) == bool(line)


def test_a_machine_without_a_job_wastes_nothing():
    run = evidence(60, [device(60, busy_percent=0)])
    run.job = None
    run.nodes[0].header = run.nodes[0].header._replace(job=None)
    assert gpu_idle.never_used(run) == NotEvaluable(Lack.JOB)


# -- gpu-allocated-no-process ----------------------------------------------------------------------


def test_mig_slice_without_a_process_for_42_minutes():
    slice_ = device(252, busy_percent=None, mem_used_bytes=4 << 20, mig=SLICE)
    found = only(gpu_idle.no_process(evidence(252, [slice_])))
    assert (found.level, found.confidence) == ("critical", "high")
    assert "42 min" in found.title
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


@pytest.mark.parametrize("before", [None, 7 * GIB])
@pytest.mark.parametrize("listed", [True, False])
def test_memory_that_nobody_is_known_to_hold_may_be_the_jobs(before, listed):
    """Its processes may be hidden, or have begun before the first sample: nobody can tell."""
    one = device(90, busy_percent=None, mem_used_bytes=7 * GIB)
    one.process_list_known, one.mem_before_bytes = listed, before
    assert isinstance(gpu_idle.no_process(evidence(90, [one])), NotEvaluable)


def test_a_display_server_is_no_process_of_the_job():
    server = process(90, mem=4 << 20, name="Xorg", command="Xorg", own=True)
    one = device(90, busy_percent=0, mem_used_bytes=4 << 20, processes=[server])
    assert only(gpu_idle.no_process(evidence(90, [one])))


# -- gpus-partly-idle ------------------------------------------------------------------------------


def four(count, busy=(97, 0, 0, 0), **values):
    return [device(count, n, busy_percent=each, **{"mem_used_bytes": 3 << 20, **values})
            for n, each in enumerate(busy)]  # fmt: skip


def test_one_of_four_worked():
    found = only(gpu_partly_idle.partly_idle(evidence(120, four(120), job=job())))
    assert found.level == "critical"
    assert found.subject == "gpu01:1,2,3"
    assert found.evidence.startswith("GPU 0 was busy 97 % in 20 min")
    less, use = found.actions
    assert "Start a process on each" in use.text
    assert less.before == "#SBATCH --gres=gpu:a100:4"
    assert less.after == "#SBATCH --gres=gpu:a100:1"
    assert "about 1.0 GPUs' worth of work on 4 GPUs" in found.evidence
    assert found.waste_gpu_hours == pytest.approx(1.0)


def test_filled_memory_or_a_little_work_asks_for_no_fewer():
    for values, words in (
        ({"busy": (97, [0] * 119 + [5])}, "barely used"),
        ({"mem_used_bytes": 20 * GIB}, "ran no kernel"),
    ):
        found = only(gpu_partly_idle.partly_idle(evidence(120, four(120, **values), job=job())))
        assert found.level == "warning"
        assert not any(each.after for each in found.actions)
        assert words in found.title


def test_one_gpu_that_only_copies_is_used():
    copies = device(120, 1, busy_percent=0, nvlink_rx_bytes_per_s=9e9)
    devices = [*four(120, (97,)), copies]
    assert gpu_partly_idle.partly_idle(evidence(120, devices, job=job())) == []


def test_a_transcoder_works():
    devices = [device(120, 0, busy_percent=97)]
    devices += [device(120, 1, busy_percent=0, encoder_percent=60, active=1)]
    run = evidence(120, devices)
    ids = {each.id for each in evaluate(run).raised}
    assert not {"gpus-partly-idle", "low-busy"} & ids


@pytest.mark.parametrize(
    ("form", "busy", "text"),
    [
        ("node", (97, 0), "Or use all of them."),
        ("node", (97, 97), "Use all of them, or fewer nodes; one node used all of its 2."),
        ("job", (97, 97), "Use all 4 GPUs or request fewer, whichever the rest of the run needs."),
    ],
)
def test_a_request_per_node_has_one_number_for_all(form, busy, text):
    request = Request(Resources(gpus=4), gres="gpu:2", gres_form=form)
    devices = [device(120, n, node="gpu01", busy_percent=each) for n, each in enumerate(busy)]
    devices += [device(120, n, node="gpu02", busy_percent=0) for n in range(2)]
    nodes = [node(120, name) for name in ("gpu01", "gpu02")]
    run = evidence(120, devices, nodes, job=job(requested=request))
    assert only(gpu_partly_idle.partly_idle(run)).actions[0].text == text


def test_a_run_as_short_as_in_the_notes_raises_nothing():
    """Chameleon's 1-device script on 4 GPUs ran 165 to 212 s (findings, 15.1)."""
    assert evaluate(evidence(21, four(21))).raised == ()


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
    assert found.actions[1].text.startswith("Find out why some tasks used no GPU")
    assert found.uses_more


def test_whole_nodes_come_with_all_of_their_gpus():
    asked = Request(Resources(cpus=16, gpus=4), gres="gpu:a100:4", gres_form="node")
    made = job(requested=asked, submit_line="sbatch --exclusive job.sh")
    found = only(gpu_partly_idle.partly_idle(evidence(120, four(120), job=made)))
    assert found.actions[0].text.startswith("--exclusive reserves all GPUs")
    assert found.change("--gres") is None


def test_partly_idle_near_misses():
    assert gpu_partly_idle.partly_idle(evidence(120, four(120, (19, 0, 0, 0)))) == []
    assert gpu_partly_idle.partly_idle(evidence(120, four(120, (97, 97, 97, 97)))) == []
    late = [0] * 59 + [50] * 61  # a rank that loads for 9 min
    assert gpu_partly_idle.partly_idle(evidence(120, four(120, (97, late)))) == []


def left(*works, pids=(), live=False, **values):
    """The finding of GPUs that are busy in so many bins each, of 3 h, with processes until then."""
    run = evidence(3 * HOUR, [
        device(3 * HOUR, n, busy_percent=[95] * bins + [0] * (3 * HOUR - bins), processes=[
            process(bins, pid=100 + n, last=START + 10 * bins)
        ] if n in pids else [], **values)
        for n, bins in enumerate(works)
    ], job=job(), live=live)  # fmt: skip
    outcome = gpu_partly_idle.partly_idle(run)
    return only(outcome) if outcome else None


def test_gpus_whose_work_ended_early_idle_beside_others():
    found = left(HOUR, 2 * HOUR, 3 * HOUR, pids=(0, 1))
    assert (found.level, found.devices) == ("warning", ("gpu01:0", "gpu01:1"))
    assert found.title == "GPUs 0,1 idle for 1 h 00 min to 2 h 00 min of 3 h 00 min " + (
        "while others worked"
    )
    assert "GPU 0 since 1 h 00 min after the start" in found.evidence
    assert found.evidence.endswith("their processes ended then")
    assert not any(each.after for each in found.actions)
    assert found.waste_gpu_hours == pytest.approx(3.0)
    assert "ended" not in left(HOUR, 3 * HOUR).evidence
    assert left(3 * HOUR, 3 * HOUR) is None


def test_what_copies_beside_others_is_no_idle_time():
    assert left(HOUR, 3 * HOUR, pcie_rx_bytes_per_s=5e9) is None


def test_a_pause_beside_others_has_two_ends():
    paused = [95] * HOUR + [0] * HOUR + [95] * HOUR
    run = evidence(3 * HOUR, four(3 * HOUR, (95, paused)), job=job())
    found = only(gpu_partly_idle.partly_idle(run))
    assert "from 1 h 00 min to 2 h 00 min after the start" in found.evidence
    run = replace(run, live=True)
    assert gpu_partly_idle.partly_idle(run) == []  # it works again


def test_each_gpu_is_charged_its_own_idle_time():
    works = (HOUR, 2 * HOUR, 3 * HOUR)
    busy = [[95] * bins + [0] * (3 * HOUR - bins) for bins in works]
    evaluation = evaluate(evidence(3 * HOUR, four(3 * HOUR, busy), job=job()))
    assert evaluation.waste_gpu_hours == pytest.approx(3.0)
    assert evaluation.unattributed_gpu_hours == pytest.approx(0.0, abs=0.01)


def test_over_several_nodes_no_launcher_is_guessed():
    torch = [process(120, framework="torch")]
    devices = [device(120, n, name_, busy_percent=busy, mem_used_bytes=3 << 20,
                      processes=torch if busy else [])
               for name_ in ("gpu01", "gpu02") for n, busy in enumerate((97, 0))]  # fmt: skip
    nodes = [node(120, name_, job={"cpu_cores_used": 3}) for name_ in ("gpu01", "gpu02")]
    for run, is_guessed in (
        (evidence(120, devices, nodes, job=job()), False),
        (evidence(120, devices[:2], nodes[:1], job=job()), True),
    ):
        use = only(gpu_partly_idle.partly_idle(run)).actions[1]
        assert ("torchrun" in use.after) == is_guessed


@pytest.mark.parametrize("state", ["", "RUNNING"])
def test_until_a_job_has_ended_the_report_says_what_the_screen_says(state):
    """Of GPUs that idled as long as anybody looked: the same level, the same advice."""
    late = evidence(120, four(120), job=job(state=state, requested=Request(Resources(gpus=4))))
    late.coverage.from_start = False
    for check in (gpu_partly_idle.partly_idle, gpu_idle.no_process):
        found = only(check(late))
        assert (found.level, found.actions[0].after) == ("warning", "")
        assert brief_action(found.actions[0]) == use_or_return(4)
        assert not any(action.changes for action in found.actions)


def test_live_waits_fifteen_minutes():
    assert gpu_partly_idle.partly_idle(evidence(89, four(89), live=True)) == []
    assert only(gpu_partly_idle.partly_idle(evidence(90, four(90), live=True)))
    found = only(gpu_partly_idle.partly_idle(evidence(360, four(360), live=True)))
    assert found.level == "warning"  # the turn of the others may come


def test_a_gpu_that_is_not_known_is_neither_idle_nor_working():
    devices = four(120, (97, None))
    assert isinstance(gpu_partly_idle.partly_idle(evidence(120, devices)), NotEvaluable)
    devices = four(120, (97, None, 0))
    found = only(gpu_partly_idle.partly_idle(evidence(120, devices)))
    assert found.devices == ("gpu01:2",)
    assert found.evidence.startswith("GPU 0 was busy 97 % in 20 min; 1 GPU unknown")


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
    assert "1 of 4" in found.title
    assert {"gpu-never-used", "low-busy"} <= set(evaluation.clear)
    assert "idle-tail" in evaluation.not_evaluable


def test_jobstats_without_utilization_is_not_zero():
    for rule in (gpu_idle.never_used, gpu_partly_idle.partly_idle):
        assert isinstance(rule(summarised([None, 50.0])), NotEvaluable)
    assert only(gpu_idle.never_used(summarised([0, 0], held=3 << 20))).level == "warning"
    assert gpu_idle.never_used(summarised([0, 0], 300.0, held=3 << 20)) == []


def test_a_mean_of_jobstats_rounded_to_zero_is_little_use_and_not_none():
    run = summarised([0, 0])
    assert gpu_idle.never_used(run) == []
    found = next(each for each in evaluate(run).raised if each.id == "low-busy")
    assert (found.level, found.title) == ("warning", "n1:0,1 busy at most 0.5 % mean")
    assert [each.after for each in found.actions] == ["gpumon record -- COMMAND"]


# -- nodes-idle ------------------------------------------------------------------------------------


def two_nodes(count, cores=0.02, busy=0, **values):
    nodes = [node(count, "gpu06", 32, job={"cpu_cores_used": 20}),
             node(count, "gpu07", 32, job={"cpu_cores_used": cores})]  # fmt: skip
    devices = [device(count, n, "gpu06", busy_percent=90) for n in (0, 1)]
    devices += [device(count, n, "gpu07", busy_percent=busy) for n in (0, 1)]
    return evidence(count, devices, nodes, **values)


def test_an_idle_node_of_two():
    found = only(gpu_partly_idle.nodes_idle(two_nodes(144)))
    assert (found.subject, found.devices) == ("gpu07", ("gpu07:0", "gpu07:1"))
    assert "node gpu07 of 2 was idle: 0.1 % CPU, 2 GPUs idle for 24 min" in found.evidence
    assert (found.level, found.actions[0].after) == ("critical", "#SBATCH --nodes=1")


def test_idle_nodes_are_one_finding():
    names = ("gpu06", "gpu07", "gpu08")
    cores = (20, 0.02, 0.02)
    nodes = [
        node(144, name_, 32, job={"cpu_cores_used": used}) for name_, used in zip(names, cores)
    ]
    devices = [device(144, 0, name_, busy_percent=busy, mem_used_bytes=3 << 20)
               for name_, busy in zip(names, (90, 0, 0))]  # fmt: skip
    run = evidence(144, devices, nodes, job=job())
    found = only(gpu_partly_idle.nodes_idle(run))
    assert found.title == "2 of 3 nodes (gpu07, gpu08) were idle: 0.1 % CPU, 2 GPUs idle"
    assert found.waste_gpu_hours == pytest.approx(2 * 1440 / 3600)
    assert found.actions[0].text.startswith("Start the program on every node")
    assert [each.id for each in evaluate(run).raised if each.level == "critical"] == ["nodes-idle"]


def test_a_node_that_idles_for_a_part_of_the_run_is_needed():
    found = only(gpu_partly_idle.nodes_idle(two_nodes(200, cores=[20] * 50 + [0.02] * 150,
                                                      busy=[90] * 50 + [0] * 150)))  # fmt: skip
    assert (found.level, found.actions[0].after) == ("warning", "")
    run = two_nodes(HOUR, cores=[0.02] * 97 + [20] * 263, busy=[0] * 97 + [90] * 263)
    found = only(gpu_partly_idle.nodes_idle(run))
    assert "idle for 16 min of 1 h 00 min" in found.title  # no whole number of windows
    assert found.waste_gpu_hours == pytest.approx(2 * 970 / 3600)


def test_a_node_that_coordinates_or_holds_data_is_not_idle():
    hours = 2 * HOUR
    assert gpu_partly_idle.nodes_idle(two_nodes(hours, cores=0.2)) == []
    assert only(gpu_partly_idle.nodes_idle(two_nodes(hours, cores=0.07))).level == "warning"
    for facts in ({"mem_anon_bytes": 100 * GIB}, {"read_bytes_per_s": 3e8}):
        run = two_nodes(hours)
        run.nodes[1].job.update({name: track(value, hours) for name, value in facts.items()})
        assert gpu_partly_idle.nodes_idle(run) == []


def test_a_program_on_one_core_needs_one_node():
    nodes = [node(144, name_, job={"cpu_cores_used": cores})
             for name_, cores in (("n1", 1.0), ("n2", 0))]  # fmt: skip
    found = only(gpu_partly_idle.nodes_idle(evidence(144, [], nodes)))
    assert found.actions[0].text == "Request one node: the program ran on one core."
    assert not found.uses_more


def test_nodes_idle_near_misses():
    assert gpu_partly_idle.nodes_idle(two_nodes(144, cores=0.33)) == []
    assert gpu_partly_idle.nodes_idle(two_nodes(144, busy=5)) == []
    assert gpu_partly_idle.nodes_idle(two_nodes(70)) == []  # 10 min begin after the launch
    assert isinstance(gpu_partly_idle.nodes_idle(two_nodes(144, busy=None)), NotEvaluable)
    lonely = evidence(144, [device(144, busy_percent=0)], job=job(nodes=("gpu01", "gpu02")))
    assert isinstance(gpu_partly_idle.nodes_idle(lonely), NotEvaluable)


def test_a_node_without_gpus_is_its_own_subject():
    nodes = [node(144, "n1", job={"cpu_cores_used": 8}), node(144, "n2", job={"cpu_cores_used": 0})]
    assert only(gpu_partly_idle.nodes_idle(evidence(144, [], nodes))).subject == "n2"


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
    assert "idle for 10 min" in found.title
    assert gpu_idle_time.idle_now(stopped(60, 59)) == []
    assert gpu_idle_time.idle_now(evidence(120, [device(120, busy_percent=0)], live=True)) == []


@pytest.mark.parametrize(("bins", "level"), [(90, "info"), (180, "warning")])
@pytest.mark.parametrize("command", ["vllm serve", "python -m ipykernel_launcher"])
def test_sessions_and_servers_may_pause(command, bins, level):
    run = stopped(60, bins)
    run.devices[0].processes.append(process(60 + bins, mem=GIB, command=command))
    assert only(gpu_idle_time.idle_now(run)).level == level


@pytest.mark.parametrize(("cores", "line"), [(6.0, ""), (0.1, "scancel 4711")])
def test_what_is_at_work_is_not_cancelled(cores, line):
    nodes = [node(180, job={"cpu_cores_used": cores})]
    found = only(gpu_idle_time.idle_now(stopped(60, 120, nodes=nodes)))
    assert found.actions[0].after == line
    assert "Check the job's output" in found.actions[0].text


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
    assert "meanwhile the job read or wrote 60 MB/s" in found.title
    slow = node(count, job={"write_bytes_per_s": 49e6, "cpu_cores_used": 4.0})
    assert (
        "meanwhile"
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
    assert "UVA ends this job in 30 min: idle" in found.title
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
    evaluation = evaluate(stopped(60, int(4.8 * HOUR), site=UVA))
    assert "policy-kill-soon" in [each.id for each in evaluation.raised]
    assert [(each.id, each.suppressed_by) for each in evaluation.suppressed] == [
        ("gpu-idle-now", "policy-kill-soon")
    ]


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


def test_two_hours_of_work_and_five_idle():
    """2 h 04 busy, 5 h 10 idle, 4 GPUs: 20.7 GPU-h (findings, 15.6)."""
    run = tailed(124 * MIN, 310 * MIN, job=job(time_limit_s=8 * 3600))
    found = only(gpu_idle_stretch.idle_tail(run))
    assert found.level == "warning"
    assert found.waste_gpu_hours == pytest.approx(20.67, abs=0.01)
    assert "idle for the last 5 h 10 min of 7 h 14 min" in found.title
    assert len(found.actions) == 1  # whether the host worked is not known
    assert evaluate(run).raised[0].id == "idle-tail"
    assert evaluate(run).raised[0].waste_gpu_hours == pytest.approx(20.67, abs=0.01)


def test_idle_tail_near_misses():
    assert gpu_idle_stretch.idle_tail(tailed(60, 59)) == []
    assert only(gpu_idle_stretch.idle_tail(tailed(60, 60)))
    assert only(gpu_idle_stretch.idle_tail(tailed(HOUR * 10, 60 * MIN))).level == "warning"  # 4 h
    short = tailed(HOUR * 10, 60 * MIN, gpus=1)  # under a tenth
    assert only(gpu_idle_stretch.idle_tail(short)).level == "info"
    assert gpu_idle_stretch.idle_tail(tailed(HOUR * 10, 20 * MIN)) == []
    assert gpu_idle_stretch.idle_tail(tailed(0, 120)) == []  # never worked


def test_polls_that_miss_work_for_minutes_make_no_idle_time():
    busy = ([97] * 30 + [0] * 15) * 8 + [97]
    polled = [device(len(busy), busy_percent=busy, polled=each) for each in (False, True)]
    runs = [evidence(len(busy), [each], job=job()) for each in polled]
    assert only(gpu_idle_stretch.idle_time(runs[0])).level == "warning"
    assert gpu_idle_stretch.idle_time(runs[1]) == []
    long = evidence(721, [device(721, busy_percent=[97] * 360 + [0] * 360 + [97], polled=True)])
    assert only(gpu_idle_stretch.idle_time(long))


def test_a_gpu_that_hardly_worked_is_told_once():
    run = tailed(MIN, 2 * HOUR, gpus=1, job=job())
    assert only(gpu_ineffective.low_busy(run)).level == "warning"
    assert [each.id for each in evaluate(run).raised] == ["idle-tail"]
    run = evidence(720, [device(720, busy_percent=[0] * 120 + [97] * 9 + [0] * 591)], job=job())
    assert only(gpu_ineffective.low_busy(run)).level == "warning"
    assert [each.id for each in evaluate(run).raised] == ["idle-time"]


def test_idle_tail_needs_samples_to_the_end():
    run = tailed(60, 90)
    run.end += 1200
    assert isinstance(gpu_idle_stretch.idle_tail(run), NotEvaluable)
    busy = [90] * 60 + [None] * 60
    assert isinstance(
        gpu_idle_stretch.idle_tail(evidence(120, [device(120, busy_percent=busy)])), NotEvaluable
    )


def test_idle_tail_of_a_job_that_hit_its_limit_says_so():
    run = tailed(60, 60, job=job(state="TIMEOUT"))
    assert "until the time limit" in only(gpu_idle_stretch.idle_tail(run)).evidence


def hosted(cores, worked=124 * MIN, idle=310 * MIN, **values):
    """A tail; the cores that the host used, in it."""
    nodes = [node(worked + idle, job={"cpu_cores_used": [7] * worked + cores, **values})]
    return tailed(worked, idle, nodes=nodes, job=job(time_limit_s=8 * 3600))


@pytest.mark.parametrize(
    ("cores", "limit"),
    [
        ([0.01] * 1860, "03:15:00"),
        ([4] * 180 + [0.01] * 1680, "04:00:00"),  # what it did before it slept is needed
        ([0.4] * 1860, None),
        ([4] * 1860, None),
        ([None] * 1860, None),
    ],
)
def test_a_shorter_limit_is_for_all_that_the_host_did(cores, limit):
    found = only(gpu_idle_stretch.idle_tail(hosted(cores)))
    lines = [each.after for each in found.actions if each.kind == "sbatch"]
    assert lines == ([f"#SBATCH --time={limit}"] if limit else [])


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


def test_what_the_host_does_after_the_gpus_needs_a_cpu_job():
    found = only(gpu_idle_stretch.idle_tail(hosted([6] * 1860)))
    assert "meanwhile 6.0 of 8 cores were busy" in found.evidence
    assert "CPU job" in found.actions[0].text


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


@pytest.mark.parametrize(
    ("cores", "io", "says", "advises"),
    [
        (14, 0, "14.0 of 16 cores were busy", "CPU job"),
        (1, 0, "1.0 of 16 cores were busy", "compile"),
        (0.5, 200e6, "200 MB/s", "Copy or unpack"),
        (14, 200e6, "14.0 of 16 cores were busy, and the job read or wrote", "Do this part in"),
        (0.4, [200e6] * 30 + [0] * 450, "only 0.4 of 16 cores were busy", "the program waited for"),
        (0.2, 0, "only 0.2 of 16 cores were busy", "Find out what the program waited for"),
        (0.0, 0, "none of 16 cores was busy", "Find out what the program waited for"),
    ],
)
def test_idle_at_the_start_with_what_the_host_did(cores, io, says, advises):
    run = phased((180, *REST), (300, *WORK), cores=[cores, 8], read_bytes_per_s=io)
    found = only(gpu_idle_stretch.idle_time(run))
    assert (found.level, found.numbers["idle_s"]) == ("warning", 1800)
    assert "idle for 30 min of 1 h 20 min, before their first work" in found.title
    assert says in found.evidence
    assert advises in found.actions[0].text
    assert found.waste_gpu_hours == pytest.approx(1.0)


def test_short_stretches_count_where_they_are_a_large_part_of_the_run():
    """70 s of each 190 s."""
    run = phased(*[(12, *WORK), (7, *REST)] * 60)
    found = only(gpu_idle_stretch.idle_time(run))
    assert found.level == "warning"
    assert "in 59 stretches between work" in found.title
    assert "Split" not in found.actions[0].text  # it would be needed 59 times
    learns = phased(*[(12, *WORK), (7, *REST)] * 60)
    for each in learns.devices:
        each.processes.append(process(run.count, command="python train_ppo.py"))
    assert gpu_idle_stretch.idle_time(learns) == []


def test_moments_of_work_all_over_the_run_are_not_at_its_start():
    run = phased(*[(360, *REST), (3, *WORK)] * 8)
    assert "working for only 3 min" in only(gpu_idle_stretch.idle_time(run)).title


def test_stretches_between_work_are_one_finding():
    run = phased(*[(60, *WORK), (30, *REST)] * 4, (60, *WORK), cores=[8, 15] * 4 + [8])
    found = only(gpu_idle_stretch.idle_time(run))
    assert "in 4 stretches between work" in found.title
    assert found.numbers["idle_s"] == 1200
    assert found.actions[0].text.endswith("as a job of its own, or request fewer GPUs.")
    one = phased((60, 90), (120, 0), (60, 90), gpus=1, cores=[8, 15, 8])
    assert only(gpu_idle_stretch.idle_time(one)).actions[0].text.endswith("of its own.")


def test_a_partition_for_sessions_has_sessions():
    run = phased((360, *REST), (360, *WORK))
    run.job = job(partition="interactive")
    assert "Start a session" in only(gpu_idle_stretch.idle_time(run)).actions[0].text


def test_a_blip_ends_no_stretch():
    run = phased((90, *REST), (1, 5, 0), (89, *REST), (300, *WORK))
    found = only(gpu_idle_stretch.idle_time(run))
    assert found.numbers["idle_s"] == 1790
    assert "at the start, but for 10 s of work" in found.title


def test_a_run_with_next_to_no_work_is_one_stretch_that_says_so():
    run = phased((360, *REST), (2, *WORK), (358, *REST), cores=[15] * 3)
    found = only(gpu_idle_stretch.idle_time(run))
    assert "idle for 1 h 59 min of 2 h 00 min, working for only 20 s" in found.title
    assert "request a GPU only for the part" in found.actions[0].text
    assert gpu_idle_stretch.idle_tail(run) == []


def test_an_idle_start_is_told_while_the_job_runs():
    run = phased((360, *REST), (360, *WORK))
    run.live = True
    assert "idle-time" in [each.id for each in evaluate(run).raised]


def test_a_session_is_not_advised_as_a_script():
    run = phased((180, *REST), (300, *WORK), (120, *REST))
    run = replace(run, job=job(name="sys/dashboard/sys/jupyter"))
    assert "Start a session" in only(gpu_idle_stretch.idle_time(run)).actions[0].text
    assert "End the session" in only(gpu_idle_stretch.idle_tail(run)).actions[0].text


def test_gpus_that_take_turns():
    run = phased((180, 90, 0), (180, 0, 90))
    assert gpu_idle_stretch.idle_time(run) == []
    found = only(gpu_idle_stretch.in_turns(run))
    assert "worked one after another: never more than 1 of 2 at a time" in found.title
    assert found.waste_gpu_hours == pytest.approx(1.0)
    assert not any(each.changes for each in found.actions)


def test_turns_in_a_phase_of_the_run():
    found = only(gpu_idle_stretch.in_turns(phased((360, 90, 0), (360, 0, 90), (360, *WORK))))
    assert "one after another for 2 h 00 min: never more than 1 of 2" in found.title
    assert found.waste_gpu_hours == pytest.approx(2.0, abs=0.02)


def test_a_gpu_that_never_worked_takes_no_turn():
    run = phased((180, 90, 0, 0), (180, 0, 90, 0), gpus=3)
    found = only(gpu_idle_stretch.in_turns(run))
    assert found.title.startswith("GPUs 0,1 worked one after another: never more than 1 of 2")


def at_random(gpus, share, bins):
    """GPUs that work for a bin now and then, each by itself."""
    rng = Random(1)
    run = phased((bins, *[0] * gpus), gpus=gpus)
    for each in run.devices:
        busy = [100 * (rng.random() < share) for _ in range(bins)]
        each.tracks["busy_percent"] = track(busy)
        each.active = track([float(value > 0) for value in busy])
    return run


@pytest.mark.parametrize(("gpus", "share"), [(2, 0.02), (2, 0.3), (4, 0.05), (8, 0.12)])
def test_short_pieces_of_work_meet_by_chance(gpus, share):
    assert gpu_idle_stretch.in_turns(at_random(gpus, share, 2000)) == []


def test_a_server_takes_requests_and_no_turns():
    run = phased((180, 90, 0), (180, 0, 90))
    for each in run.devices:
        each.processes.append(process(360, mem=40 * GIB, command="vllm serve"))
    assert gpu_idle_stretch.in_turns(run) == []


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


def test_idle_time_is_information_where_it_is_little():
    found = only(gpu_idle_stretch.idle_time(phased((100, *REST), (1200, *WORK), gpus=1)))
    assert found.level == "info"


@pytest.mark.parametrize(("bins", "level"), [(170, "info"), (190, "warning")])
def test_a_server_may_wait_for_requests_but_not_for_long(bins, level):
    run = phased((60, *WORK), (bins, *REST))
    for each in run.devices:
        each.processes.append(
            process(60 + bins, mem=40 * GIB, command="vllm serve", framework="vllm")
        )
    assert only(gpu_idle_stretch.idle_tail(run)).level == level


def test_a_start_that_was_not_seen_is_not_told():
    run = phased((180, *REST), (300, *WORK))
    run.coverage.from_start = False
    assert gpu_idle_stretch.idle_time(run) == []


def test_idle_time_needs_every_gpu():
    run = phased((180, 0, None), (300, *WORK))
    assert isinstance(gpu_idle_stretch.idle_time(run), NotEvaluable)


# -- jupyter-idle ----------------------------------------------------------------------------------


def notebook(idle, held=21.3 * GIB, **facts):
    count = 30 + idle
    kernel = process(count, mem=held, command="python -m ipykernel_launcher -f k.json", **facts)
    busy = [50] * 30 + [0] * idle
    return device(count, busy_percent=busy, processes=[kernel])


def test_a_notebook_kernel_that_does_nothing():
    found = only(gpu_idle_time.jupyter_idle(evidence(312, [notebook(282)], live=True)))
    assert "notebook kernel 4312 holds 21.3 GiB" in found.title
    assert "idle for 47 min" in found.title
    assert found.actions[0].after == "scancel 4711"


def test_what_has_ended_is_not_cancelled():
    found = only(gpu_idle_time.jupyter_idle(evidence(312, [notebook(282)])))
    assert "held 21.3 GiB" in found.title
    assert [(each.after, "End the session" in each.text) for each in found.actions] == [("", True)]


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
