"""Host memory rules: waste, the limit, kills, leaks, swap; page cache is never need."""

from dataclasses import replace

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.slurm.job import ExitCode, Step
from tests.analysis.build import GIB, evidence, node
from tests.analysis.rightsize.test_recommend import job, run, with_facts

CHECK = BY_ID


def only(name, this):
    answer = CHECK[name](this)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


def bare(made, count=360):
    this = evidence(count, job=made)
    this.nodes.clear()
    return this


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


# -- the limit -------------------------------------------------------------------------------------


def using(values, limit=64 * GIB, count=60, **facts):
    return evidence(
        count, nodes=[node(count, limit=limit, job={"mem_used_bytes": values, **facts})],
        job=job("RUNNING", mem=limit or GIB), live=True,
    )  # fmt: skip


# -- kills -----------------------------------------------------------------------------------------


def killed(this, kills):
    this.nodes[0].oom_kills = kills
    return this


OOM_STEP = Step("0", state="OUT_OF_MEMORY", exit_code=ExitCode(0, 125), max_rss_bytes=0)


@pytest.mark.parametrize(
    "this",
    [
        killed(run(made=job("FAILED", exit_code=ExitCode(1))), 1),
        bare(job("OUT_OF_MEMORY", exit_code=ExitCode(0, 125))),
        bare(job("FAILED", exit_code=ExitCode(1), derived_exit_code=ExitCode(0, 125))),
        bare(job("FAILED", exit_code=ExitCode(1), steps=(OOM_STEP,))),
        run(
            made=job("FAILED"),
            log_tail="slurmstepd: error: Detected 1 oom_kill event in StepId=4.batch.",
        ),
    ],
)
def test_killed_for_memory(this):
    found = only("oom-killed", this)
    assert (found.level, found.confidence) == ("critical", "high")
    assert found.actions[0].after == "#SBATCH --mem=100G"


def test_no_more_memory_is_advised_where_the_kernels_own_peak_was_low():
    this = killed(run(made=job("FAILED")), 1)
    this.nodes[0].mem_charged_peak_bytes = 12 * GIB
    found = only("oom-killed", this)
    assert not any(each.after for each in found.actions)
    this.nodes[0].mem_charged_peak_bytes = 64 * GIB
    assert only("oom-killed", this).actions[0].after == "#SBATCH --mem=100G"


@pytest.mark.parametrize(("mem", "count"), [(60 * GIB, 1), (20 * GIB, 0)], ids=["near", "far"])
def test_a_failed_allocation_in_the_output_near_the_limit(mem, count):
    tail = "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried 8 GiB"
    made = replace(run(mem=mem, made=job("FAILED", exit_code=ExitCode(1))), log_tail=tail)
    answer = CHECK["oom-killed"](made)
    assert [each.level for each in answer] == ["warning"] * count
    assert CHECK["oom-killed"](replace(made, log_tail="")) == []


# -- growth and swap -------------------------------------------------------------------------------


def test_a_leak_of_anonymous_memory_only():
    grows = [(8 + n * 10 * 9.4 / 3600) * GIB for n in range(360)]
    found = only("host-leak", using(30 * GIB, count=360, mem_anon_bytes=grows))
    assert found.harm_in_s == pytest.approx((64 - 30) / 9.4 * 3600, rel=0.01)
    flat = using(grows, count=360, mem_anon_bytes=8 * GIB, mem_cache_bytes=grows)
    assert CHECK["host-leak"](flat) == []
    assert isinstance(CHECK["host-leak"](using(grows, count=360)), NotEvaluable)


def leaking(per_hour, mem=64 * GIB, limit_h=12, node_gib=256, **rest):
    memory = [(8 + n * 10 * per_hour / 3600) * GIB for n in range(360)]
    this = using(memory, limit=mem, count=360, mem_anon_bytes=memory)
    this.job, this.live = job(mem=mem, limit=limit_h and limit_h * 3600, **rest), False
    return with_facts(this, mem_total_bytes=node_gib * GIB)


def test_whether_a_request_lasts_for_the_time_limit():
    found = only("host-leak", leaking(9.4, state="TIMEOUT"))
    assert found.level == "warning"
    change = found.actions[0]
    assert change.after == "#SBATCH --mem=140G"
    never = only("host-leak", leaking(9.4, limit_h=72, state="TIMEOUT")).actions[0]
    assert (never.after, never.changes) == ("", ())
    unknown = only("host-leak", leaking(9.4, limit_h=None))
    assert unknown.actions[0].kind == "code"


def test_more_memory_after_a_kill_lasts_for_the_time_limit_too():
    killed_ = leaking(9.4, state="OUT_OF_MEMORY")
    assert only("oom-killed", killed_).actions[0].after == "#SBATCH --mem=140G"
    hopeless = leaking(9.4, limit_h=72, state="OUT_OF_MEMORY")
    assert only("oom-killed", hopeless).actions[0].after == ""
