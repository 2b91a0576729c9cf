"""Host memory rules: waste, the limit, kills, leaks, swap; page cache is never need."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rightsize import amounts
from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rules.catalogue import BY_ID, evaluate
from gpumon.analysis.rundata import Coverage
from gpumon.site import NodeType, Site
from gpumon.slurm.job import ExitCode, Job, Step, Usage
from tests.analysis.build import GIB, device, evidence, node, track
from tests.analysis.rightsize.test_recommend import job, run, with_facts
from tests.analysis.test_accounting import js1, js1_node

CHECK = BY_ID
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
    assert found.title == "peak memory use 7.4 GiB of 64 GiB requested (12 %)"
    assert "page cache not counted (48 GiB)" in found.evidence
    assert found.actions[0].before == "#SBATCH --mem=64G"
    assert found.actions[0].after == "#SBATCH --mem=9G"


def test_page_cache_that_is_read_again_is_used():
    def over(active):
        this = run(mem=4 * GIB, limit=200 * GIB)
        for name, size in (("mem_cache_bytes", 190), ("mem_active_cache_bytes", active)):
            this.nodes[0].job[name] = track(size * GIB, 360)
        return CHECK["mem-over"](this)

    assert [each.level for each in over(0)] == ["warning"]
    (found,) = over(128)
    assert (
        "page cache not counted (190 GiB; the 128 GiB read more than once are kept)"
        in found.evidence
    )
    assert found.numbers["waste_bytes"] == 68 * GIB
    assert [each.level for each in over(135)] == ["info"]
    assert over(140) == []


def test_page_cache_and_shared_memory():
    """Measured on cgroup v1: 101 MB rss, 600 MB of a file, 80 MB in /dev/shm; Slurm says 861."""
    step = Step("batch", max_rss_bytes=861 * MB, usage=Usage(maximum={"mem": 861.0 * MB}))
    made = job(mem=1 << 30, steps=(step,), slurm_version="24.11.7", elapsed=3600)
    need = amounts.memory_need(run(mem=181 * MB, limit=1 << 30, made=made))
    assert need.amount == 181 * MB


@pytest.mark.parametrize(("asked", "level"), [(64, "info"), (80, "warning")])
def test_the_level_is_of_the_waste(asked, level):
    assert only("mem-over", run(mem=8 * GIB, limit=asked * GIB)).level == level


def test_above_a_gpus_share_it_is_a_warning():
    site = Site(nodes=(NodeType("A100", 8, 128, 256 * GIB),))
    this = run(mem=8 * GIB, limit=60 * GIB, devices=[device(360, busy_percent=50)], site=site)
    assert only("mem-over", this).level == "warning"
    found = only("mem-per-gpu-high", this)
    assert found.title == (
        "60 GiB of host memory requested per GPU (fair share 32 GiB), 13 % of it used"
    )
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
    assert found.title.startswith("memory use at most 7 GiB of 64 GiB requested")
    assert found.confidence == "medium"
    assert only("mem-over", bare(job(elapsed=3600, steps=(step,)))).confidence == "low"


def test_jobstats_counts_the_larger_node():
    comment = js1(gpu01=js1_node(int(15.7 * GIB)), gpu02=js1_node(10 * GIB))
    made = job(cpus=24, mem=128 * GIB, nodes=2, gpus=2, elapsed=67_316, admin_comment=comment)
    found = only("mem-over", bare(made, 6731))
    assert found.level == "warning"
    assert found.title == "peak memory use 15.7 GiB of 128 GiB requested on a node (12 %)"


def test_a_running_job_may_still_grow():
    found = only("mem-over", run(mem=8 * GIB, live=True, made=job("RUNNING")))
    assert found.confidence == "low"
    assert found.title.startswith("peak memory use so far 8 GiB of 64 GiB")
    much = {"mem": 8 * GIB, "limit": 256 * GIB}
    assert only("mem-over", run(**much)).level == "warning"
    for state in ("RUNNING", "FAILED", "CANCELLED"):
        made = job(state, mem=256 * GIB)
        assert only("mem-over", run(**much, live=state == "RUNNING", made=made)).level == "info"


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
    assert found.actions[0].text == "Save a checkpoint now, if the program can."
    assert found.actions[1].after == "#SBATCH --mem=100G"


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


def test_a_kill_in_a_job_that_completed_is_a_warning():
    found = only("oom-killed", killed(run(), 1))
    assert found.level == "warning"
    assert "the job still COMPLETED" in found.evidence


def test_no_more_memory_is_advised_where_the_kernels_own_peak_was_low():
    this = killed(run(made=job("FAILED")), 1)
    this.nodes[0].mem_charged_peak_bytes = 12 * GIB
    found = only("oom-killed", this)
    assert "its own peak was 12 GiB" in found.evidence
    assert not any(each.after for each in found.actions)
    this.nodes[0].mem_charged_peak_bytes = 64 * GIB
    assert only("oom-killed", this).actions[0].after == "#SBATCH --mem=100G"


def test_an_oom_step_is_named_and_not_said_to_have_used_nothing():
    made = job("FAILED", mem=200 << 20, exit_code=ExitCode(1), derived_exit_code=ExitCode(0, 125),
               steps=(OOM_STEP,))  # fmt: skip
    found = only("oom-killed", bare(made))
    assert "step 4711.0 OUT_OF_MEMORY (0:125)" in found.evidence
    assert found.title == "out of memory: step 4711.0 OUT_OF_MEMORY (0:125), limit 200 MiB"
    assert isinstance(CHECK["mem-over"](bare(made)), NotEvaluable)


def test_exit_137_near_the_limit_is_a_possibility():
    made = job("FAILED", exit_code=ExitCode(137))
    counted = run(mem=60 * GIB, made=made)
    found = only("oom-killed", counted)
    assert (found.level, found.confidence) == ("warning", "medium")
    assert found.title.startswith("possibly out of memory: killed by SIGKILL")
    assert "until the last sample the kernel had killed no process" in found.evidence
    (line,) = recommend(counted, [found])
    assert line.adds == "half as much again"
    uncounted = run(mem=60 * GIB, made=made)
    uncounted.nodes[0].oom_kills = None
    found = only("oom-killed", uncounted)
    assert found.level == "warning"
    assert "sample" not in found.evidence


@pytest.mark.parametrize(("mem", "count"), [(60 * GIB, 1), (20 * GIB, 0)], ids=["near", "far"])
def test_a_failed_allocation_in_the_output_near_the_limit(mem, count):
    tail = "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried 8 GiB"
    made = replace(run(mem=mem, made=job("FAILED", exit_code=ExitCode(1))), log_tail=tail)
    answer = CHECK["oom-killed"](made)
    assert [each.level for each in answer] == ["warning"] * count
    assert CHECK["oom-killed"](replace(made, log_tail="")) == []


def test_twice_what_was_polled_is_not_called_half_as_much_again():
    made = job(
        "FAILED", exit_code=ExitCode(137), mem=32 * GIB, slurm_version="22.05.8",
        acct_gather="linux", steps=(Step("batch", max_rss_bytes=int(31.4 * GIB)),),
    )  # fmt: skip
    this = bare(made)
    (line,) = recommend(this, [only("oom-killed", this)])
    assert (line.change.after_line, line.adds) == ("65G", "")


@pytest.mark.parametrize("mem", [16 * MB, 40 * GIB])
def test_exit_137_far_below_the_limit_is_somebodys_kill(mem):
    made = job("FAILED", exit_code=ExitCode(137))
    assert CHECK["oom-killed"](run(mem=mem, made=made)) == []
    assert CHECK["oom-killed"](bare(made)) == []
    assert "killed by SIGKILL" in only("ended-badly", bare(made)).title


def test_no_kill():
    assert CHECK["oom-killed"](killed(run(), 0)) == []
    assert CHECK["oom-killed"](bare(job("FAILED", exit_code=ExitCode(0, 9)))) == []
    unknown = killed(run(made=job("RUNNING")), None)
    assert isinstance(CHECK["oom-killed"](unknown), NotEvaluable)


# -- growth and swap -------------------------------------------------------------------------------


def test_a_leak_of_anonymous_memory_only():
    grows = [(8 + n * 10 * 9.4 / 3600) * GIB for n in range(360)]
    found = only("host-leak", using(30 * GIB, count=360, mem_anon_bytes=grows))
    what = "anonymous memory grows by 9.4 GiB/h and is full in about 3 h 36 min"
    assert found.title == f"gpu01: {what}"
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
    assert found.title == "gpu01: anonymous memory grew by 9.4 GiB/h over 1 h 00 min"
    change = found.actions[0]
    assert change.after == "#SBATCH --mem=140G"
    assert change.text == "At that pace, 140 GiB per node would last 14 h 02 min."
    assert "64 GiB per node last 5 h 57 min; the time limit is 12 h 00 min" in found.evidence
    never = only("host-leak", leaking(9.4, limit_h=72, state="TIMEOUT")).actions[0]
    assert (never.after, never.changes) == ("", ())
    assert "no memory request lasts" in never.text
    unknown = only("host-leak", leaking(9.4, limit_h=None))
    assert unknown.adds == "; at that pace, 64 GiB per node last 5 h 57 min"
    assert unknown.actions[0].kind == "code"


def test_a_run_that_grew_and_completed_needs_no_larger_request():
    found = only("host-leak", leaking(9.4))
    assert "64 GiB per node last 5 h 57 min; the time limit is 12 h 00 min" in found.evidence
    assert found.actions[0].changes == ()
    assert "request more memory only for a longer run" in found.actions[0].text


def test_a_run_is_not_said_to_have_lasted_longer_than_its_memory():
    """Its pace was slower at first: back from the second half's it began below nothing."""
    memory = [(2 + 10 * (n / 360) ** 2) * GIB for n in range(720)]
    this = using(42 * GIB, limit=48 * GIB, count=720, mem_anon_bytes=memory)
    this.job, this.live = job(mem=48 * GIB, limit=14_400), False
    assert "48 GiB per node last 2 h 1" in only("host-leak", this).evidence


def test_a_leak_that_the_request_outlasts():
    found = only("host-leak", leaking(4.5, limit_h=12))
    assert found.level == "warning"
    assert not found.actions[0].changes
    assert "64 GiB per node last 12 h 26 min; the time limit is 12 h" in found.evidence
    assert only("host-leak", leaking(4.5, limit_h=3)).level == "info"  # by far


def test_more_memory_after_a_kill_lasts_for_the_time_limit_too():
    killed_ = leaking(9.4, state="OUT_OF_MEMORY")
    assert only("oom-killed", killed_).actions[0].after == "#SBATCH --mem=140G"
    hopeless = leaking(9.4, limit_h=72, state="OUT_OF_MEMORY")
    assert only("oom-killed", hopeless).actions[0].after == ""


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


def test_waiting_for_io_in_a_small_part_of_a_run_is_information():
    def found(count):
        waits = {"io_pressure_percent": [0] * 60 + [90] * 60 + [0] * (count - 120)}
        ended = evidence(count, nodes=[node(count, job=waits)], job=job("COMPLETED", mem=64 * GIB))
        return next(each for each in evaluate(ended).raised if each.id == "swap-io")

    assert found(360).level == "warning"
    brief = found(3600)
    assert brief.level == "info"
    assert brief.evidence.endswith("of 10 h 00 min")


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


def test_the_sites_default_of_memory_goes_with_the_cores_that_are_given_back():
    site = Site("x", mem_default_per_core_bytes={"": 9 * GIB})
    made = job(cpus=16, mem=120 * GIB, cpus_per_task=16)
    this = run(cores=1, peak=1, mem=8 * GIB, cpus=16, limit=120 * GIB, threads=1, made=made,
               site=site)  # fmt: skip
    assert only("mem-over", this).level == "warning"
    found = {each.change.option: each.change.after_line for each in evaluate(this).recommendations}
    assert found == {"--cpus-per-task": "1", "--mem": "10G"}
