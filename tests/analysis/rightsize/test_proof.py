"""Only a run that completed proves that less would do."""

from dataclasses import replace
from itertools import cycle

import pytest

from gpumon.analysis.finding import Change, Finding, Gpus
from gpumon.analysis.rightsize.amounts import GIB, memory_need
from gpumon.analysis.rightsize.gate import OF_TASKS, asks_for_less
from gpumon.analysis.rightsize.proof import unproven
from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rundata import Coverage
from gpumon.slurm.job import Step
from tests.analysis.build import evidence, node
from tests.analysis.rightsize.test_recommend import job, run
from tests.corpus.cases import all_cases

CASES = all_cases()
ENDS = ("FAILED", "PREEMPTED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE", "RUNNING", "")


def less(data):
    """Whatever this run's findings and lines ask less of."""
    evaluation = evaluate(data)
    changes = [c for f in evaluation.findings for a in f.actions for c in a.changes]
    changes += [each.change for each in evaluation.recommendations]
    of_tasks = [r.change for r in evaluation.recommendations if r.finding in OF_TASKS]
    return [each for each in changes if asks_for_less(each) and each not in of_tasks]


@pytest.mark.parametrize(("name", "state"), zip(CASES, cycle(ENDS)))
def test_no_run_that_did_not_complete_asks_for_less(name, state):
    data = CASES[name].evidence
    made = replace(data.job, state=state) if data.job is not None else None
    assert less(replace(data, job=made)) == []


@pytest.mark.slow
def test_some_of_those_that_completed_ask_for_less():
    families = ("cpu", "host_memory", "idle")  # or the test above would prove nothing
    cases = [case for case in CASES.values() if case.family in families]
    assert sum(bool(less(case.evidence)) for case in cases) >= 10


@pytest.mark.parametrize(
    ("change", "is_less"),
    [
        (Change("--mem", 64 * GIB, 9 * GIB), True),
        (Change("--mem", 64 * GIB, 96 * GIB), False),
        (Change("--time", 3600, 900), True),
        (Change("--gres", Gpus("gpu:a100:", 4), Gpus("gpu:a100:", 3)), True),
        (Change("--gres", Gpus("gpu:a100:", 1), None), True),
        (Change("--gres", Gpus("gpu:a100:", 1), Gpus("gpu:v100:", 1)), True),
        (Change("--gres", Gpus("gpu:a100:", 1), Gpus("gpu:a100:", 2)), False),
        (Change("--signal", None, "B:USR1@300"), False),
    ],
)
def test_what_asks_for_less(change, is_less):
    assert asks_for_less(change) is is_less


_FEWER = {"gpus-partly-idle", "smaller-gpu", "gpu-never-used"}
#: of which the CPU time of what was not seen may show enough
_CORES = ("--cpus-per-task", "--cpus-per-gpu", "--ntasks", "--ntasks-per-node")
#: recorded cases whose GPUs or model may be fewer or smaller
_WITH_LINES = [n for n, case in CASES.items() if _FEWER & {*case.finds} and case.family != "arrays"]


@pytest.mark.parametrize("name", _WITH_LINES)
def test_no_part_of_a_run_asks_for_fewer_gpus(name):
    data = CASES[name].evidence
    partly = replace(data, coverage=replace(data.coverage, from_start=False))
    others = ("--mem", "--time", *_CORES)
    assert [each.option for each in less(partly) if each.option not in others] == []


def test_a_finding_says_why_it_has_no_line():
    (found,) = [e for e in evaluate(run(mem=8 * GIB, made=job("FAILED"))).raised
                if e.id == "mem-over"]  # fmt: skip
    assert [action.after for action in found.actions] == [""]
    assert "ended as FAILED" in found.actions[0].text


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "OUT_OF_MEMORY"])
def test_a_failed_step_of_a_job_that_completed_forbids_less(state):
    data = CASES["far_more_than_needed"].evidence
    steps = (Step("batch", state="COMPLETED"), Step("0", name="python", state=state))
    assert data.job is not None
    made = replace(data, job=replace(data.job, steps=steps))
    assert less(made) == []
    assert "time-over" not in {each.id for each in evaluate(made).raised}
    assert unproven(made).detail.startswith("step 0")


def test_the_last_of_several_attempts_forbids_less():
    data = CASES["far_more_than_needed"].evidence
    assert data.job is not None
    assert less(replace(data, job=replace(data.job, restarts=1))) == []


def test_an_output_that_ends_with_an_error_forbids_less():
    data = CASES["far_more_than_needed"].evidence
    tail = "Traceback (most recent call last):\n  File\nRuntimeError: shape mismatch"
    assert less(data)
    assert less(replace(data, log_tail=tail)) == []


def test_one_session_does_not_speak_for_the_next():
    case = CASES["far_more_than_needed"].evidence
    assert less(case)
    assert case.job is not None
    assert less(replace(case, job=replace(case.job, name="rstudio"))) == []


def test_memory_that_leaks_is_requested_for_a_longer_run():
    """2 GiB and 1 GiB more every 6 min: 12 GiB after an hour, 17 GiB after one and a half."""
    grows = [(2 + n / 36) * GIB for n in range(360)]
    one = node(360, mem_peak_bytes=grows[-1], limit=64 * GIB,
               job={"mem_anon_bytes": grows, "mem_used_bytes": grows})  # fmt: skip
    evaluation = evaluate(evidence(360, nodes=[one], job=job(mem=64 * GIB)))
    lines = {each.change.option: each for each in evaluation.recommendations}
    assert lines["--mem"].change.after == 19 * GIB
    assert "for a run half as long again" in lines["--mem"].basis


@pytest.mark.parametrize("uses_more", [False, True])
def test_what_a_run_is_to_use_more_of_is_no_measure(uses_more):
    data = CASES["far_more_than_needed"].evidence
    turns = Finding("gpus-in-turns", "warning", "", "", uses_more=uses_more)
    changes = [each.change for each in recommend(data, [*evaluate(data).raised, turns])]
    assert any(each.option == "--mem" for each in changes) is not uses_more


def nodes(*kernel_peaks, sampled=2 * GIB, charged=3 * GIB):
    """One node for each, by the kernel's own peak."""
    return [
        node(360, f"gpu{n:02}", mem_peak_bytes=sampled, mem_charged_peak_bytes=peak,
             job={"mem_charged_bytes": charged})
        for n, peak in enumerate(kernel_peaks, 1)
    ]  # fmt: skip


def need(*kernel_peaks, **coverage):
    told = Coverage(**{"source": "recording", "covered_percent": 100.0, "interval_s": 1.0,
                       "from_start": True, **coverage})  # fmt: skip
    return memory_need(evidence(360, nodes=nodes(*kernel_peaks), coverage=told))


def test_a_peak_between_samples_is_the_kernels():
    assert need(3 * GIB).amount == 2 * GIB
    assert need(9 * GIB).amount == 9 * GIB
    assert need(9 * GIB).is_upper_bound
    assert need(None).amount == 2 * GIB
    far = Coverage("recording", 100.0, 20.0, from_start=True, to_end=True)
    unused = nodes(5 * GIB, sampled=0, charged=5 * GIB)
    assert memory_need(evidence(360, nodes=unused, coverage=far)).amount == 0


def test_what_was_not_recorded_is_bounded_by_the_kernels_peak():
    late = {"covered_percent": 12.0, "from_start": False, "to_end": True}
    assert need(4 * GIB, **late).amount == 4 * GIB
    assert need(4 * GIB, 6 * GIB, **late).amount == 6 * GIB
    assert need(4 * GIB, None, **late).kind.value == "readings"
    assert need(4 * GIB, **{**late, "to_end": False}).kind.value == "readings"


def polled(kernel_peak=50 * GIB, rss=2 * GIB):
    """A run with a gap, and Slurm's polls of all of it."""
    told = Coverage("recording", 90.0, 1.0, from_start=True, to_end=True)
    accounted = job(
        mem=64 * GIB, slurm_version="22.05.8", acct_gather="cgroup/v2",
        steps=(Step("batch", max_rss_bytes=rss, tasks=1),),
    )  # fmt: skip
    return evidence(360, nodes=nodes(kernel_peak), job=accounted, coverage=told)


def test_slurms_polls_cover_a_gap_that_page_cache_hides_from_the_kernels_peak():
    data = polled()
    known = memory_need(data)
    assert (known.amount, known.factor, known.polled_s) == (2 * GIB, 2, 30)
    [found] = [each for each in evaluate(data).raised if each.id == "mem-over"]
    (once,) = found.actions
    assert (once.kind, once.after) == ("try", "#SBATCH --mem=4G")
    assert once.text.startswith("Try once: readings of the memory were up to 30 s apart")
    assert not [each for each in recommend(data, [found]) if each.change.option == "--mem"]
    assert memory_need(polled(kernel_peak=3 * GIB)).polled_s is None
    assert memory_need(polled(rss=6 * GIB)).amount == 6 * GIB


def test_more_for_each_of_fewer_cores_may_be_less_memory():
    """Which polls do not prove to be enough: 16 GiB stay, for one core in place of eight."""
    made = job(
        cpus=8, mem=16 * GIB, form="cpu", cpus_per_task=8, tasks=1, slurm_version="23.02.1",
        acct_gather="cgroup/v2", steps=(Step("batch", max_rss_bytes=2 * GIB, tasks=1),),
    )  # fmt: skip
    used = {"cpu_cores_used": 1.0, "mem_charged_bytes": 1.0 * GIB}
    one = node(
        360, "gpu01", 8, 16 * GIB, oom_kills=0, peak60_cores=1.0, cpu_core_s=3600.0,
        mem_peak_bytes=1.0 * GIB, mem_charged_peak_bytes=4.0 * GIB, job=used,
    )  # fmt: skip
    late = Coverage("recording", 100.0, 1.0, from_start=False)
    evaluation = evaluate(evidence(360, nodes=[one], job=made, coverage=late))
    after = {each.change.option: each.change.after for each in evaluation.recommendations}
    assert (after["--cpus-per-task"], after["--mem-per-cpu"]) == (1, 16 * GIB)


def test_coverage_is_of_each_node():
    """One node of two was recorded for half of the run."""
    two = nodes(None, None)
    two[1].covered_s = 1800.0
    told = Coverage("recording", 97.0, 1.0, from_start=True)
    assert memory_need(evidence(360, nodes=two, coverage=told)).kind.value == "readings"


def test_slurm_counts_too():
    """A step's peak without page cache, greater than what was sampled of it."""
    assert unproven(run()) is None
    assert unproven(run(made=job("TIMEOUT"))) is not None
    assert unproven(run(live=True)) is not None
