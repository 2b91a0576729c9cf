"""The engine: three answers, who folds in whom, ranking, waste counted once, live hysteresis."""

from dataclasses import replace
from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.analysis import suppression, waste
from gpumon.analysis.catalogue import RULES, Verdicts, evaluate, ranked
from gpumon.analysis.finding import CONFIDENCES, LEVELS, Finding
from gpumon.analysis.hysteresis import Live
from gpumon.analysis.rules import NotEvaluable, Rule
from gpumon.model.sample import Event, Mig, Process
from gpumon.site import Policy, Site
from tests.analysis.build import GIB, START, device, evidence, node, process, track

HOUR = 3600.0


def finding(id, *devices, hours=0.0, start=0.0, end=HOUR, level="warning", **values):
    return Finding(
        id, level, id, "", devices=devices, subject=" ".join(devices) or "job", resource="gpu",
        start=start, end=end, waste_gpu_hours=hours, **values,
    )  # fmt: skip


# -- the catalogue ---------------------------------------------------------------------------------


def test_the_catalogue_has_every_rule_of_its_index():
    """The index of the catalogue, but `waste-rank`, which is about many jobs."""
    assert {rule.id for rule in RULES} == set(INDEX.split())


INDEX = """
gpu-never-used gpu-allocated-no-process gpus-partly-idle gpu-idle-now policy-kill-soon idle-tail
jupyter-idle nodes-idle low-busy low-sm low-power-high-busy no-tensor suspected-hang input-bound
host-stall comm-bound gpu-imbalance straggler alloc-all-tf alloc-all-jax alloc-all-kv alloc-all-pool
gpu-mem-full gpu-oom-suspect gpu-mem-headroom smaller-gpu gpu-type-scarce gpu-leak leftover-procs
foreign-proc cpu-never-used cpu-low cpu-underused serial-many-cores cpu-starved cpu-oversubscribed
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
        assert rule.live or rule.report
        assert rule.check.__doc__, rule.id


def test_each_rule_that_applies_gets_one_of_three_answers():
    rules = (
        Rule("a", lambda _: [finding("a", "n:0")]),
        Rule("b", lambda _: []),
        Rule("c", lambda _: NotEvaluable("why")),
        Rule("d", lambda _: [finding("d")], live=False),
    )
    live = evaluate(evidence(60, live=True), rules)
    assert [each.id for each in live.raised] == ["a"]
    assert (live.clear, live.not_evaluable) == (("b",), {"c": "why"})
    assert [each.id for each in evaluate(evidence(60), rules).raised] == ["a", "d"]


def test_without_samples_no_gpu_rule_says_clear():
    run = evidence(60)
    run.nodes, run.count = [], 0
    verdicts = evaluate(run)
    assert not verdicts.raised
    assert {"gpu-never-used", "low-busy", "gpu-health", "comm-bound"} <= set(verdicts.not_evaluable)


def test_a_node_without_gpus_is_clear():
    verdicts = evaluate(evidence(60))
    assert {"gpu-never-used", "gpus-partly-idle", "low-busy"} <= set(verdicts.clear)


# -- suppression -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "folded"),
    [(root, folded) for root, all_folded in suppression.FOLDS.items() for folded in all_folded],
)
def test_a_root_cause_folds_in_its_consequence_on_the_same_devices_only(root, folded):
    same = suppression.fold([finding(root, "n:0", "n:1"), finding(folded, "n:1")])
    assert [each.suppressed_by for each in same] == ["", root]
    apart = suppression.fold([finding(root, "n:0"), finding(folded, "n:1")])
    assert [each.suppressed_by for each in apart] == ["", ""]


@pytest.mark.parametrize("root", ["gpu-never-used", "gpus-partly-idle"])
def test_an_idle_gpu_hides_nothing_else(root):
    others = ["mem-over", "cpu-underused", "time-over", "oom-killed", "policy-kill-soon",
              "gpu-health", "throttle-thermal", "nodes-idle"]  # fmt: skip
    found = suppression.fold([finding(root, "n:0"), *(finding(id, "n:0") for id in others)])
    assert not any(each.suppressed_by for each in found)


def test_a_finding_on_more_devices_than_its_root_stays():
    found = suppression.fold([finding("gpus-partly-idle", "n:1"), finding("low-sm", "n:0", "n:1")])
    assert found[1].suppressed_by == ""
    found = suppression.fold(
        [finding("gpus-partly-idle", "n:1"), finding("gpu-imbalance", "n:0", "n:1")]
    )
    assert found[1].suppressed_by == "gpus-partly-idle"


def test_several_findings_of_a_root_cover_together():
    found = suppression.fold(
        [finding("input-bound", "n:0"), finding("input-bound", "m:0"),
         finding("low-busy", "n:0", "m:0")]
    )  # fmt: skip
    assert found[2].suppressed_by == "input-bound"


def test_oom_folds_near_limit_on_its_node_only():
    killed = replace(finding("oom-killed"), subject="n1")
    near = [replace(finding("mem-near-limit"), subject=name) for name in ("n1", "n2")]
    assert [each.suppressed_by for each in suppression.fold([killed, *near])] == [
        "", "oom-killed", ""
    ]  # fmt: skip


# -- waste and rank --------------------------------------------------------------------------------


def attributed(*findings, end=10 * HOUR):
    return [each.waste_gpu_hours for each in waste.attribute(findings, 0.0, end)]


def test_an_idle_end_is_not_counted_again_in_a_low_mean():
    tail = finding("idle-tail", "n:0", hours=5, start=2 * HOUR, end=7 * HOUR)
    mean = finding("low-busy", "n:0", hours=5.5, start=0, end=7 * HOUR)
    assert attributed(mean, tail) == pytest.approx([0.5, 5])


def test_the_same_claim_twice_counts_once_and_other_devices_count_apart():
    a, b = (finding(id, "n:0", hours=1) for id in ("a", "b"))
    assert attributed(a, b, finding("c", "n:1", hours=1)) == pytest.approx([1, 0, 1])


def test_overlapping_windows_never_exceed_their_time():
    a = finding("a", "n:0", hours=2, start=0, end=2 * HOUR)
    b = finding("b", "n:0", hours=2, start=HOUR, end=3 * HOUR)
    assert sum(attributed(a, b)) == pytest.approx(3)


def test_suppressed_findings_claim_nothing_and_other_runs_stay():
    folded = replace(finding("low-busy", "n:0", hours=1), suppressed_by="gpu-never-used")
    assert attributed(folded, finding("array-gpu-idle", hours=40)) == [0, 40]
    assert waste.total_gpu_hours([folded, finding("array-gpu-idle", hours=40)]) == 0


def test_a_claim_beyond_the_run_is_cut():
    assert attributed(finding("a", "n:0", hours=9, end=9 * HOUR), end=2 * HOUR) == [2]


_claims = st.lists(
    st.tuples(
        st.sampled_from([("n:0",), ("n:1",), ("n:0", "n:1")]),
        st.floats(0, 10), st.floats(0, 10), st.floats(0, 1), st.booleans(),
    ),
    max_size=8,
)  # fmt: skip


@given(_claims)
def test_waste_is_bounded_by_the_time_of_the_devices(claims):
    findings = [
        finding("x", *devices, start=min(a, b) * HOUR, end=max(a, b) * HOUR,
                hours=share * abs(a - b) * len(devices),
                suppressed_by="root" if folded else "")
        for devices, a, b, share, folded in claims
    ]  # fmt: skip
    shared = waste.attribute(findings, 0.0, 10 * HOUR)
    assert all(0 <= new.waste_gpu_hours <= old.waste_gpu_hours + 1e-9
               for old, new in zip(findings, shared))  # fmt: skip
    for label in ("n:0", "n:1"):
        alone = [each for each in findings if each.devices == (label,)]
        total = sum(each.waste_gpu_hours for each in waste.attribute(alone, 0.0, 10 * HOUR))
        assert total <= 10 + 1e-6
        if alone:
            begin = min(each.start for each in alone)
            end = max(each.end for each in alone)
            assert total <= (end - begin) / HOUR + 1e-6
    assert waste.total_gpu_hours(shared) <= 20 + 1e-6


def test_rank_is_by_waste_then_level_then_harm():
    found = [
        finding("late", level="critical", harm_in_s=900.0),
        finding("info", level="info"),
        finding("soon", level="critical", harm_in_s=60.0),
        finding("never", level="critical"),
        finding("wasteful", "n:0", hours=1, level="info"),
    ]
    assert [each.id for each in ranked(found)] == ["wasteful", "soon", "late", "never", "info"]


# -- live ------------------------------------------------------------------------------------------


def verdicts(*raised, suppressed=(), **values):
    return Verdicts(raised, tuple(suppressed), values.get("not_evaluable", {}), ())


def test_a_finding_stays_for_two_minutes_after_it_was_true():
    live = Live()
    one = finding("low-sm", "n:0")
    assert live.update(verdicts(one), 0) == [one]
    assert live.update(verdicts(), 119) == [one]
    assert live.update(verdicts(one), 119.5) == [one]  # it did not flicker
    assert live.update(verdicts(), 239) == [one]
    assert live.update(verdicts(), 239.5) == []


def test_what_only_stays_claims_no_waste():
    live = Live()
    live.update(verdicts(finding("low-sm", "n:0", hours=1)), 0)
    assert [each.waste_gpu_hours for each in live.update(verdicts(), 1)] == [0]


def test_a_finding_on_other_devices_of_the_same_id_replaces():
    live = Live()
    live.update(verdicts(finding("low-sm", "n:0")), 0)
    wider = finding("low-sm", "n:0", "n:1")
    assert live.update(verdicts(wider), 1) == [wider]


def test_a_consequence_goes_at_once():
    live = Live()
    one = finding("gpu-idle-now", "n:0")
    live.update(verdicts(one), 0)
    folded = replace(one, suppressed_by="policy-kill-soon")
    root = finding("policy-kill-soon", "n:0")
    assert live.update(verdicts(root, suppressed=[folded]), 1) == [root]


def test_the_newest_words_are_shown():
    live = Live()
    live.update(verdicts(finding("low-sm", "n:0")), 0)
    newer = replace(finding("low-sm", "n:0"), title="SM 20 %")
    assert live.update(verdicts(newer), 10)[0].title == "SM 20 %"


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
                one.xids = [Event(START, "xid", 0, text=draw(st.text(max_size=5)))]
            devices.append(one)
    site = Site("x", policy=Policy(1, 2)) if draw(st.booleans()) else None
    run = evidence(count, devices, made_nodes, live=draw(st.booleans()), site=site)
    run.coverage.from_start = draw(st.booleans())
    return run


@settings(max_examples=150, deadline=None)
@given(runs())
def test_any_evidence_gives_verdicts(run):
    found = evaluate(run)
    asked = [rule.id for rule in RULES if (rule.live if run.live else rule.report)]
    answered = {*found.clear, *found.not_evaluable, *(each.id for each in found.findings)}
    assert set(asked) <= answered
    if found.held_gpu_hours is not None:
        assert found.waste_gpu_hours <= found.held_gpu_hours + 1e-6
    for each in found.findings:
        assert each.level in LEVELS
        assert each.confidence in CONFIDENCES
        assert each.waste_gpu_hours >= 0
        assert all(value == value for value in each.numbers.values()), each
        assert "nan" not in (each.title + each.evidence).lower()
        assert run.start - 1e-6 <= (each.start or run.start)
        assert (each.end or run.end) <= run.end + 1e-6


@settings(max_examples=50, deadline=None)
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


GPU_FAMILIES = {"gpu_idle", "gpu_idle_time", "gpu_ineffective", "hang", "bottleneck", "balance",
                "health"}  # fmt: skip
