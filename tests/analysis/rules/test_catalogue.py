"""The engine: three answers, who folds in whom, ranking, waste counted once, live hysteresis."""

import ast
import gc
import re
import weakref
from collections import defaultdict
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon import analysis
from gpumon.analysis.finding import CONFIDENCES, LEVELS, Finding, Lack, NotEvaluable
from gpumon.analysis.ledger import IDLE, ledger_of
from gpumon.analysis.rules import weight
from gpumon.analysis.rules.catalogue import (
    BY_ID,
    FOLDS,
    RULES,
    SECTIONS,
    THRESHOLDS,
    Evaluation,
    evaluate,
    ranked,
)
from gpumon.analysis.rules.hysteresis import Live
from gpumon.analysis.rules.rule import Rule
from gpumon.analysis.rules.weight import fold
from gpumon.analysis.signals import job_devices
from gpumon.model.sample import Event, Mig, Process
from gpumon.site import Policy, Site
from gpumon.slurm.job import Job
from tests.analysis.build import GIB, START, device, evidence, node, process, track
from tests.support.examples import examples

HOUR = 3600.0


def folded_in(found):
    return fold(found, FOLDS)


def finding(id, *devices, hours=0.0, start=0.0, end=HOUR, level="warning", **values):
    return Finding(
        id, level, id, "", devices=devices, subject=" ".join(devices) or "job",
        start=start, end=end, waste_gpu_hours=hours, **values,
    )  # fmt: skip


# -- the catalogue ---------------------------------------------------------------------------------


def test_the_catalogue_has_every_rule_of_its_index():
    """The index of the catalogue, but `waste-rank`, which is about many jobs."""
    assert {rule.id for rule in RULES} == set(INDEX.split())


INDEX = """
gpu-never-used gpu-allocated-no-process gpus-partly-idle gpu-idle-now policy-kill-soon idle-tail
idle-time gpus-in-turns
jupyter-idle nodes-idle low-busy low-sm low-power-high-busy no-tensor suspected-hang input-bound
host-stall comm-bound gpu-imbalance straggler alloc-all-tf alloc-all-jax alloc-all-kv alloc-all-pool
gpu-mem-retries
gpu-mem-full gpu-oom-suspect gpu-mem-headroom smaller-gpu gpu-type-scarce gpu-leak leftover-procs
foreign-proc cpu-never-used cpu-low cpu-mostly-idle cpu-underused serial-many-cores cpu-starved
cpu-binding cpu-idle-time cpu-environments cpu-oversubscribed
cores-per-gpu-high numa-mismatch mem-over mem-per-gpu-high mem-near-limit oom-killed host-leak
swap-io time-short time-over timed-out ended-badly throttle-thermal throttle-power gpu-health
pcie-degraded scratch-full home-cache frag-nodes few-cores-per-node array-mem-over array-time-over
array-cpu-over array-gpu-idle array-outlier array-mixed-outcome requeued job-pending data-stale
gpu-unreadable wrong-job low-coverage accounting-mismatch
"""


def test_ids_are_unique_and_every_check_is_described():
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    for rule in RULES:
        assert rule.when in ("live", "report", "both")
        assert rule.check.__doc__, rule.id


def test_each_rule_that_applies_gets_one_of_three_answers():
    missing = NotEvaluable(Lack.TIME, "3 samples")
    rules = (
        Rule("a", "", "", "", lambda _: [finding("", "n:0"), NotEvaluable(Lack.TIME)]),
        Rule("b", "", "", "", lambda _: None),
        Rule("c", "", "", "", lambda _: missing),
        Rule("d", "", "", "", lambda _: finding(""), when="report"),
    )
    live = evaluate(evidence(60, live=True), rules)
    assert [each.id for each in live.raised] == ["a"]
    assert (live.clear, live.not_evaluable) == (("b",), {"c": missing})
    assert [each.id for each in evaluate(evidence(60), rules).raised] == ["a", "d"]


def test_without_samples_no_gpu_rule_says_clear():
    run = evidence(60)
    run.nodes, run.count = [], 0
    evaluation = evaluate(run)
    assert not evaluation.raised
    assert {"gpu-never-used", "low-busy", "gpu-health", "comm-bound"} <= set(
        evaluation.not_evaluable
    )


def test_a_node_without_gpus_is_clear():
    evaluation = evaluate(evidence(60))
    assert {"gpu-never-used", "gpus-partly-idle", "low-busy"} <= set(evaluation.clear)


# -- folding -----------------------------------------------------------------------------------


def test_information_folds_no_warning_in():
    mild = finding("input-bound", "n:0", level="info")
    warning, remark = finding("low-busy", "n:0"), finding("low-busy", "n:0", level="info")
    assert [each.suppressed_by for each in folded_in([mild, warning])] == ["", ""]
    assert [each.suppressed_by for each in folded_in([mild, remark])] == ["", "input-bound"]


@pytest.mark.parametrize(
    ("root", "folded"),
    [(root, folded) for root, all_folded in FOLDS.items() for folded in all_folded],
)
def test_a_root_cause_folds_in_its_consequence_on_the_same_devices_only(root, folded):
    same = folded_in([finding(root, "n:0", "n:1"), finding(folded, "n:1")])
    assert [each.suppressed_by for each in same] == ["", root]
    apart = folded_in([finding(root, "n:0"), finding(folded, "n:1")])
    assert [each.suppressed_by for each in apart] == ["", ""]


@pytest.mark.parametrize("root", ["gpu-never-used", "gpus-partly-idle"])
def test_an_idle_gpu_hides_nothing_else(root):
    others = ["mem-over", "cpu-underused", "time-over", "oom-killed", "policy-kill-soon",
              "gpu-health", "throttle-thermal", "nodes-idle"]  # fmt: skip
    found = folded_in([finding(root, "n:0"), *(finding(id, "n:0") for id in others)])
    assert not any(each.suppressed_by for each in found)


def test_a_finding_on_more_devices_than_its_root_stays():
    found = folded_in([finding("gpus-partly-idle", "n:1"), finding("low-sm", "n:0", "n:1")])
    assert found[1].suppressed_by == ""
    found = folded_in([finding("gpus-partly-idle", "n:1"), finding("gpu-imbalance", "n:0", "n:1")])
    assert found[1].suppressed_by == "gpus-partly-idle"


def test_several_findings_of_a_root_cover_together():
    found = folded_in(
        [finding("input-bound", "n:0"), finding("input-bound", "m:0"),
         finding("low-busy", "n:0", "m:0")]
    )  # fmt: skip
    assert found[2].suppressed_by == "input-bound"


def test_oom_folds_near_limit_on_its_node_only():
    killed = replace(finding("oom-killed"), subject="n1")
    near = [replace(finding("mem-near-limit"), subject=name) for name in ("n1", "n2")]
    assert [each.suppressed_by for each in folded_in([killed, *near])] == [
        "", "oom-killed", ""
    ]  # fmt: skip


# -- waste and rank --------------------------------------------------------------------------------


def ended(seconds):
    return Job(raw_id="1", state="COMPLETED", elapsed_s=seconds, start=START, end=START + seconds)


def wasted(run):
    """By finding, then what none explains; in GPU-h."""
    evaluation, found = evaluate(run), defaultdict(float)
    for each in evaluation.raised:
        found[each.id] += each.waste_gpu_hours
    return found, evaluation.unattributed_gpu_hours


def test_an_idle_end_is_not_counted_again_in_a_low_mean():
    """Two hours at 10 %, then three of nothing."""
    run = evidence(1800, [device(1800, busy_percent=[10] * 720 + [0] * 1080)], job=ended(18000.0))
    found, rest = wasted(run)
    assert found["idle-tail"] == pytest.approx(3)
    assert found["low-busy"] == pytest.approx(2 * 0.9)
    assert rest == pytest.approx(0)


def test_a_run_is_freed_at_once():
    """Beside a screen there is one every few seconds, and the collector hardly ever comes."""
    run = evidence(1800, [device(1800, busy_percent=[10] * 720 + [0] * 1080)], job=ended(18000.0))
    assert evaluate(run).raised
    known = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert known() is None
    finally:
        gc.enable()


def test_suppressed_findings_claim_nothing_and_other_runs_stay():
    run = evidence(360, [device(360, busy_percent=90)])
    folded = finding("low-busy", "gpu01:0", hours=1, suppressed_by="gpu-never-used")
    found, _ = weight.shared_out(
        run, [folded, finding("array-gpu-idle", hours=40)], {"low-busy": IDLE}
    )
    assert [each.waste_gpu_hours for each in found] == [0, 40]
    assert weight.total_gpu_hours(found) == 0


_busy = st.lists(st.sampled_from([None, 0, 0, 0, 5, 40, 100]), min_size=1, max_size=8)


@given(st.lists(_busy, min_size=1, max_size=3))
def test_waste_is_what_was_held_and_not_used(phases):
    """Phases of ten minutes on each device."""
    count = 60 * max(map(len, phases))
    tracks = [[value for value in each for _ in range(60)] for each in phases]
    tracks = [[*each, *[None] * (count - len(each))] for each in tracks]
    run = evidence(count, [device(count, n, busy_percent=each) for n, each in enumerate(tracks)],
                   job=ended(count * 10.0))  # fmt: skip
    known = [100 - value for each in tracks for value in each if value is not None]
    found, rest = wasted(run)
    assert sum(found.values()) + rest == pytest.approx(sum(known) / 100 * 10 / 3600, abs=1e-6)
    assert all(hours >= 0 for hours in (*found.values(), rest))


def test_time_that_was_not_measured_is_not_idle():
    run = evidence(360, [device(360, busy_percent=[100] * 180 + [None] * 180)])
    assert evaluate(run).unattributed_gpu_hours == 0
    late = evidence(360, [device(360, busy_percent=0)])
    late.start -= HOUR
    assert ledger_of(late).waste_s() == pytest.approx(HOUR)


def test_nobody_wastes_the_gpus_of_a_node_without_a_job():
    run = evidence(360, [device(360, 0, busy_percent=90), device(360, 1, busy_percent=0)])
    run.devices[0].device = run.devices[0].device._replace(cuda_index=0)  # all that CUDA lists
    run.job, run.nodes[0].header = None, run.nodes[0].header._replace(job=None)
    assert len(job_devices(run)) == 2
    assert not evaluate(run).raised
    assert evaluate(run).waste_gpu_hours == 0


def test_rank_is_by_level_then_waste_then_harm():
    found = [
        finding("late", level="critical", harm_in_s=900.0),
        finding("info", level="info"),
        finding("soon", level="critical", harm_in_s=60.0),
        finding("never", level="critical"),
        finding("wasteful", "n:0", hours=1, level="info"),
        finding("worst", "n:0", hours=1, level="critical"),
    ]
    ranks = ["worst", "soon", "late", "never", "wasteful", "info"]
    assert [each.id for each in ranked(found)] == ranks


# -- live ------------------------------------------------------------------------------------------


def evaluation(*raised, suppressed=(), **values):
    return Evaluation(raised, tuple(suppressed), values.get("not_evaluable", {}), ())


def test_a_finding_stays_for_two_minutes_after_it_was_true():
    live = Live()
    one = finding("low-sm", "n:0")
    assert live.update(evaluation(one), 0) == [one]
    assert live.update(evaluation(), 119) == [one]
    assert live.update(evaluation(one), 119.5) == [one]  # it did not flicker
    assert live.update(evaluation(), 239) == [one]
    assert live.update(evaluation(), 239.5) == []


def test_what_only_stays_claims_no_waste():
    live = Live()
    live.update(evaluation(finding("low-sm", "n:0", hours=1)), 0)
    assert [each.waste_gpu_hours for each in live.update(evaluation(), 1)] == [0]


def test_a_finding_on_other_devices_of_the_same_id_replaces():
    live = Live()
    live.update(evaluation(finding("low-sm", "n:0")), 0)
    wider = finding("low-sm", "n:0", "n:1")
    assert live.update(evaluation(wider), 1) == [wider]


def test_a_consequence_goes_at_once():
    live = Live()
    one = finding("gpu-idle-now", "n:0")
    live.update(evaluation(one), 0)
    folded = replace(one, suppressed_by="policy-kill-soon")
    root = finding("policy-kill-soon", "n:0")
    assert live.update(evaluation(root, suppressed=[folded]), 1) == [root]


def test_the_newest_words_are_shown():
    live = Live()
    live.update(evaluation(finding("low-sm", "n:0")), 0)
    newer = replace(finding("low-sm", "n:0"), title="SM 20 %")
    assert live.update(evaluation(newer), 10)[0].title == "SM 20 %"


# -- any evidence ----------------------------------------------------------------------------------

_percent = st.one_of(st.none(), st.floats(0, 100, width=32))
_fields = st.sampled_from(
    ["busy_percent", "sm_active_percent", "power_w", "mem_used_bytes", "dram_active_percent",
     "tensor_active_percent", "fp32_active_percent", "fp64_active_percent", "sm_clock_mhz",
     "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "pcie_width", "pcie_gen", "temperature_c"]
)  # fmt: skip


@st.composite
def _pieces(draw, count, top=100.0):
    """A track of a few constant pieces and gaps, or noise."""
    values = []
    while len(values) < count:
        value = draw(st.one_of(st.none(), st.sampled_from([0.0, top]), st.floats(0, top, width=32)))
        values += [value] * draw(st.integers(1, count))
    return values[:count]


@st.composite
def runs(draw):
    count = draw(st.integers(0, 240))
    size = max(count, 1)
    nodes = draw(st.integers(1, 2))
    made_nodes, devices = [], []
    for n in range(nodes):
        name = f"gpu{n:02d}"
        job = {
            field: draw(_pieces(size))[:count]
            for field in draw(st.sets(st.sampled_from(
                ["cpu_cores_used", "cpu_pressure_percent", "io_pressure_percent",
                 "read_bytes_per_s", "write_bytes_per_s"])))
        }  # fmt: skip
        own = {4312: (Process(4312, "ada", "p", "p"), track(draw(_pieces(size))[:count]))}
        made = node(count, name, job=job, processes=draw(st.sampled_from([{}, own])))
        made.covered = track([1 if draw(st.booleans()) else None] * count)
        made_nodes.append(made)
        for index in range(draw(st.integers(0, 3))):
            values = {
                field: draw(_pieces(size))[:count] for field in draw(st.sets(_fields, max_size=6))
            }
            one = device(
                count, index, name,
                facts={"power_limit_default_w": draw(st.sampled_from([400.0, 0.0, 50.0])),
                       "pcie_gen_max": 4, "pcie_width_max": 16, "nvlink_links": 4},
                mig=Mig("GPU-p", index, 0, "1g.10gb") if draw(st.integers(0, 5)) == 0 else None,
                processes=[process(count, mem=draw(_pieces(size))[:count])]
                if draw(st.booleans()) else [],
                polled=draw(st.booleans()),
                **values,
            )  # fmt: skip
            if draw(st.booleans()):
                one.throttle["hw_thermal"] = track(draw(_pieces(size, 1.0))[:count])
                one.counters["throttle_thermal_s"] = draw(st.floats(0, 1e6))
            one.mem_before_bytes = draw(st.sampled_from([None, 0.0, 3.0 * GIB]))
            one.process_list_known = draw(st.booleans())
            if draw(st.booleans()):
                one.last["recovery_action"] = 1
                one.xids = [Event(START, "xid", 0, text=draw(st.text("3 4x\0é", max_size=5)))]
            devices.append(one)
    site = Site("x", policy=Policy(1, 2)) if draw(st.booleans()) else None
    run = evidence(count, devices, made_nodes, live=draw(st.booleans()), site=site)
    run.coverage.from_start = draw(st.booleans())
    return run


@examples(150)
@given(runs())
def test_any_run_is_evaluated(run):
    found = evaluate(run)
    asked = [rule.id for rule in RULES if rule.applies(live=run.live)]
    answered = {*found.clear, *found.not_evaluable, *(each.id for each in found.findings)}
    assert set(asked) <= answered
    held_gpu_hours = len(job_devices(run)) * run.elapsed_s / 3600
    assert found.waste_gpu_hours <= held_gpu_hours + 1e-6
    for each in found.findings:
        assert each.level in LEVELS
        assert each.confidence in CONFIDENCES
        assert each.waste_gpu_hours >= 0
        assert all(value == value for value in each.numbers.values()), each
        assert "nan" not in (each.title + each.evidence).lower()
        assert run.start - 1e-6 <= (each.start or run.start)
        assert (each.end or run.end) <= run.end + 1e-6


@examples(50)
@given(st.integers(0, 300), st.integers(0, 4), st.booleans(), st.booleans())
def test_nothing_is_raised_where_nothing_is_known(count, gpus, live, named):
    """Devices and nodes are there, and every reading is missing."""
    names = ("busy_percent", "power_w", "mem_used_bytes", "sm_active_percent", "pcie_width")
    devices = [
        device(count, n, **({name: [nan] * count for name in names} if named else {}))
        for n in range(gpus)
    ]
    for each in devices:
        each.mem_before_bytes = None
    nodes = [node(count, limit=None)]
    nodes[0].covered = track(None, count)
    gpu_rules = [rule for rule in RULES if rule.check.__module__.rpartition(".")[2] in GPU_FAMILIES]
    assert evaluate(evidence(count, devices, nodes, live=live), gpu_rules).findings == ()


GPU_FAMILIES = {"gpu_idle", "gpu_idle_time", "gpu_ineffective", "hang", "bottleneck", "host_stall",
                "balance", "health"}  # fmt: skip


# -- declarations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_declaration_is_whole(rule):
    assert re.fullmatch(r"[a-z][a-z0-9-]+", rule.id)
    assert rule.title
    assert rule.remedy
    assert not rule.title.endswith(".")
    assert rule.why.endswith(".")
    assert set(rule.folds) <= set(BY_ID) - {rule.id}


def _calls_of_site():
    """(section, class of its thresholds) of every place that reads a section by its name."""
    folder = Path(analysis.__file__).parent
    for path in folder.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "of_site":
                _, section, numbers = call.args
                if isinstance(section, ast.Constant):
                    yield section.value, ast.unparse(numbers).rpartition(".")[2]


def test_what_is_read_by_name_is_what_is_declared():
    found = dict(_calls_of_site())
    assert found
    assert found == {section: SECTIONS[section].__name__ for section in found}


def test_every_threshold_is_read():
    folder = Path(analysis.__file__).parent
    code = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    read = set(re.findall(r"(?:\bt|\))\.([a-z0-9_]+)", code))
    assert {name.rpartition(".")[2] for name in THRESHOLDS} <= read
