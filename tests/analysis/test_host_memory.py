"""Host memory rules: waste, the limit, kills, leaks, swap; page cache is never need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.evidence import Coverage
from gpumon.analysis.findings import host_memory
from gpumon.analysis.rules import NotEvaluable
from gpumon.site import NodeType, Site
from gpumon.slurm.job import ExitCode, Job, Step, Usage
from tests.analysis.build import GIB, device, evidence, node
from tests.analysis.test_accounting import js1, js1_node
from tests.analysis.test_recommend import job, run, with_facts

CHECK = {rule.id: rule.check for rule in host_memory.RULES}
MB = 1_000_000


def only(name, this):
    answer = CHECK[name](this)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


def bare(made, count=360):
    this = evidence(count, job=made)
    this.nodes.clear()
    return this


def test_far_more_than_was_needed():
    this = run(mem=int(7.4 * GIB))
    this.nodes[0].job["mem_cache_bytes"] = node(1, job={"mem_cache_bytes": 48 * GIB}).job[
        "mem_cache_bytes"
    ]
    found = only("mem-over", this)
    assert found.level == "info"
    assert found.title == "memory peak 7.4 / 64 GiB (12 %)"
    assert "page cache 48 GiB on top" in found.evidence
    assert found.actions[0].before == "#SBATCH --mem=64G"
    assert found.actions[0].after == "#SBATCH --mem=9G"


def test_page_cache_and_shared_memory():
    """Measured on cgroup v1: 101 MB rss, 600 MB of a file, 80 MB in /dev/shm; Slurm says 861."""
    step = Step("batch", max_rss_bytes=861 * MB, usage=Usage(maximum={"mem": 861.0 * MB}))
    made = job(mem=1 << 30, steps=(step,), slurm_version="24.11.7", elapsed=3600)
    need = host_memory.rightsize.memory_need(run(mem=181 * MB, limit=1 << 30, made=made))
    assert need.amount == 181 * MB


@pytest.mark.parametrize(("asked", "level"), [(64, "info"), (80, "warning")])
def test_the_level_is_of_the_waste(asked, level):
    assert only("mem-over", run(mem=8 * GIB, limit=asked * GIB)).level == level


def test_above_a_gpus_share_it_is_a_warning():
    site = Site(nodes=(NodeType("A100", 8, 128, 256 * GIB),))
    this = run(mem=8 * GIB, limit=60 * GIB, devices=[device(360, busy_percent=50)], site=site)
    assert only("mem-over", this).level == "warning"
    found = only("mem-per-gpu-high", this)
    assert found.title == "60 GiB host memory per GPU (share 32 GiB), used 13 %"
    assert CHECK["mem-per-gpu-high"](
        run(mem=55 * GIB, limit=60 * GIB, devices=this.devices, site=site)
    ) == []  # fmt: skip
    assert isinstance(CHECK["mem-per-gpu-high"](run(devices=this.devices)), NotEvaluable)
    assert CHECK["mem-per-gpu-high"](run(made=job(), site=site)) == []


def on_a_node_of(cores):
    return with_facts(run(mem=8 * GIB), cpus_online=cores)


@pytest.mark.parametrize(
    "this",
    [
        run(mem=45 * GIB),
        run(mem=8 * GIB, made=job("OUT_OF_MEMORY")),
        on_a_node_of(9),
        run(mem=GIB // 2, limit=GIB),
    ],
)
def test_near_misses_of_far_more_than_needed(this):
    assert CHECK["mem-over"](this) == []


def test_a_larger_node_is_not_the_jobs():
    assert only("mem-over", on_a_node_of(128))


@pytest.mark.parametrize(
    "this",
    [
        run(mem=None),
        run(count=20, mem=GIB),
        run(mem=GIB, coverage=Coverage("live", 20.0, 1.0)),
        run(mem=GIB, made=job("RUNNING", nodes=2)),
        bare(job("RUNNING", steps=(Step("batch"),))),
        bare(job("CANCELLED", elapsed=3600, steps=(Step("batch", max_rss_bytes=GIB),))),
    ],
)
def test_unknown_memory_is_no_waste(this):
    assert isinstance(CHECK["mem-over"](this), NotEvaluable)


def test_accounting_alone_says_at_most():
    step = Step("batch", max_rss_bytes=7 * GIB)
    made = job(elapsed=3600, steps=(step,), slurm_version="24.11.7", acct_gather="cgroup/v2")
    found = only("mem-over", bare(made))
    assert found.title.startswith("memory at most 7 / 64 GiB")
    assert found.confidence == "medium"
    assert only("mem-over", bare(job(elapsed=3600, steps=(step,)))).confidence == "low"


def test_jobstats_counts_the_larger_node():
    comment = js1(gpu01=js1_node(int(15.7 * GIB)), gpu02=js1_node(10 * GIB))
    made = job(cpus=24, mem=128 * GIB, nodes=2, gpus=2, elapsed=67_316, admin_comment=comment)
    found = only("mem-over", bare(made, 6731))
    assert found.level == "warning"
    assert found.title == "memory peak 15.7 / 128 GiB on a node (12 %)"


def test_a_running_job_may_still_grow():
    found = only("mem-over", run(mem=8 * GIB, live=True, made=job("RUNNING")))
    assert found.confidence == "low"
    assert "so far" in found.evidence


# -- the limit -------------------------------------------------------------------------------------


def using(values, limit=64 * GIB, count=60, **facts):
    return evidence(
        count, nodes=[node(count, limit=limit, job={"mem_used_bytes": values, **facts})],
        job=job("RUNNING", mem=limit or GIB), live=True,
    )  # fmt: skip


@pytest.mark.parametrize(("gib", "level"), [(57, None), (58, "warning"), (62.1, "critical")])
def test_near_the_limit(gib, level):
    answer = CHECK["mem-near-limit"](using(gib * GIB))
    assert [each.level for each in answer] == ([level] if level else [])


def test_the_time_until_the_limit():
    found = only("mem-near-limit", using([(50 + n * 0.2) * GIB for n in range(60)]))
    assert found.harm_in_s == pytest.approx((64 - 61.8) / 0.02, rel=0.01)
    assert found.actions[0].after == "#SBATCH --mem=100G"


def test_what_is_charged_is_never_judged():
    assert isinstance(
        CHECK["mem-near-limit"](using([None] * 60, mem_charged_bytes=64 * GIB)), NotEvaluable
    )


def test_no_limit_and_old_readings_say_nothing():
    assert isinstance(CHECK["mem-near-limit"](using(60 * GIB, limit=None)), NotEvaluable)
    assert isinstance(CHECK["mem-near-limit"](using(60 * GIB, limit=1 << 62)), NotEvaluable)
    assert isinstance(CHECK["mem-near-limit"](using([63 * GIB] * 40 + [None] * 20)), NotEvaluable)


# -- kills -----------------------------------------------------------------------------------------


def killed(this, kills):
    this.nodes[0].oom_kills = kills
    return this


OOM_STEP = Step("0", state="OUT_OF_MEMORY", exit_code=ExitCode(0, 125), max_rss_bytes=0)


@pytest.mark.parametrize(
    "this",
    [
        killed(run(), 1),
        bare(job("OUT_OF_MEMORY", exit_code=ExitCode(0, 125))),
        bare(job("FAILED", exit_code=ExitCode(1), derived_exit_code=ExitCode(0, 125))),
        bare(job("FAILED", exit_code=ExitCode(1), steps=(OOM_STEP,))),
        run(log_tail="slurmstepd: error: Detected 1 oom_kill event in StepId=4.batch."),
    ],
)
def test_killed_for_memory(this):
    found = only("oom-killed", this)
    assert (found.level, found.confidence) == ("critical", "high")
    assert found.actions[0].after == "#SBATCH --mem=100G"


def test_an_oom_step_is_named_and_not_said_to_have_used_nothing():
    made = job("FAILED", mem=200 << 20, exit_code=ExitCode(1), derived_exit_code=ExitCode(0, 125),
               steps=(OOM_STEP,))  # fmt: skip
    found = only("oom-killed", bare(made))
    assert "step 4711.0 OUT_OF_MEMORY (0:125)" in found.evidence
    assert found.title == "out of memory: step 4711.0 OUT_OF_MEMORY (0:125), limit 200 MiB"
    assert isinstance(CHECK["mem-over"](bare(made)), NotEvaluable)


def test_exit_137_alone_is_of_medium_confidence():
    assert only("oom-killed", bare(job("FAILED", exit_code=ExitCode(137)))).confidence == "medium"


def test_no_kill():
    assert CHECK["oom-killed"](killed(run(), 0)) == []
    assert CHECK["oom-killed"](bare(job("FAILED", exit_code=ExitCode(0, 9)))) == []
    unknown = killed(run(made=job("RUNNING")), None)
    assert isinstance(CHECK["oom-killed"](unknown), NotEvaluable)


# -- growth and swap -------------------------------------------------------------------------------


def test_a_leak_of_anonymous_memory_only():
    grows = [(8 + n * 10 * 9.4 / 3600) * GIB for n in range(360)]
    found = only("host-leak", using(30 * GIB, count=360, mem_anon_bytes=grows))
    assert "+9.4 GiB/h" in found.title
    assert found.harm_in_s == pytest.approx(found.numbers["full_in_s"])
    flat = using(grows, count=360, mem_anon_bytes=8 * GIB, mem_cache_bytes=grows)
    assert CHECK["host-leak"](flat) == []
    assert isinstance(CHECK["host-leak"](using(grows, count=360)), NotEvaluable)


def test_swapping():
    rising = [0] * 60 + [n * (100 << 20) for n in range(60)]
    found = only("swap-io", using(GIB, count=120, swap_used_bytes=rising))
    assert "swap" in found.title
    assert CHECK["swap-io"](using(GIB, count=120, swap_used_bytes=3 * GIB)) == []
    start = [n * (100 << 20) if n < 12 else 11 * (100 << 20) for n in range(120)]
    assert CHECK["swap-io"](using(GIB, count=120, swap_used_bytes=start)) == []


def test_waiting_for_io():
    assert "27 %" not in str(CHECK["swap-io"](using(GIB, count=120, io_pressure_percent=27)))
    assert "60 %" in only("swap-io", using(GIB, count=120, io_pressure_percent=60)).title
    assert isinstance(CHECK["swap-io"](using(GIB, count=120)), NotEvaluable)


@given(
    st.dictionaries(
        st.sampled_from(
            ["mem_used_bytes", "mem_anon_bytes", "swap_used_bytes", "io_pressure_percent"]
        ),
        st.lists(st.none() | st.floats(0, 2.0**45), min_size=50, max_size=50),
    ),
    st.none() | st.floats(0, 2.0**45), st.booleans(),
    st.sampled_from(["", "RUNNING", "COMPLETED", "FAILED", "OUT_OF_MEMORY"]),
)  # fmt: skip
def test_no_rule_fails_and_none_fires_without_signals(facts, peak, live, state):
    this = evidence(50, nodes=[node(50, job=facts, mem_peak_bytes=peak)], job=Job(state=state),
                    live=live)  # fmt: skip
    for check in CHECK.values():
        check(this)
    empty = evidence(50, nodes=[node(50)], job=Job(), live=live)
    assert all(isinstance(check(empty), NotEvaluable) or not check(empty)
               for check in CHECK.values())  # fmt: skip
