"""One consistent set of lines, the arithmetic behind it, and the batch script that it changes."""

import re
import shlex
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpumon.analysis.finding import Action, Change, Finding, ask_for
from gpumon.analysis.rightsize.amounts import GIB, round_memory, round_time
from gpumon.analysis.rightsize.changes import gpus_line, memory_line
from gpumon.analysis.rightsize.cores import cpus_for
from gpumon.analysis.rightsize.directives import apply, apply_to_submit_line, diff, overridden
from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rightsize.requested import Requested, requested
from gpumon.analysis.rules.catalogue import FAMILIES, evaluate
from gpumon.analysis.rundata import Coverage
from gpumon.model.lines import Line
from gpumon.model.sample import Process
from gpumon.model.units import parse_size, size_text
from gpumon.report.build import from_accounting
from gpumon.site import NodeType, Site
from gpumon.slurm.job import ExitCode, Job, Request, Resources, Step, Usage
from gpumon.slurm.options import options_of_submit_line, script_options, submitted_script
from tests.analysis.build import device, evidence, node, process, track
from tests.analysis.test_accounting import js1, js1_node

FAMILY_NAMES = ("Cores", "Host memory", "Time and outcome", "Disks and nodes", "Arrays")
RULES = [each for name in FAMILY_NAMES for each in FAMILIES[name]]


def options_of_script(text):
    return {option.name: option.value for option in script_options(text)}


def findings_of(run):
    found = [rule(run) for rule in RULES if rule.applies(live=run.live)]
    return [each for answer in found if isinstance(answer, list) for each in answer]


def lines(run, *more):
    """{directive: (before, after)}; each directive at most once."""
    found = [each.change for each in recommend(run, [*findings_of(run), *more])]
    answer = {each.option or each.after: (each.before_line, each.after_line) for each in found}
    assert len(answer) == len(found)
    return answer


def job(state="COMPLETED", cpus=8, mem=64 * GIB, gpus=0, nodes=1, limit=None, elapsed=None,
        form="node", gres="", gres_form="", tasks=None, cpus_per_task=None, **rest):  # fmt: skip
    tres = {"cpu": cpus * nodes, "mem": mem * nodes, "node": nodes}
    return Job(
        raw_id="4711", id=rest.pop("id", "4711"), state=state, time_limit_s=limit,
        elapsed_s=elapsed, nodes=tuple(f"gpu{n:02d}" for n in range(1, nodes + 1)),
        requested=Request(mem_form=form, gres=gres, gres_form=gres_form, tasks=tasks,
                          cpus_per_task=cpus_per_task),
        allocated=Resources(cpus * nodes, mem * nodes, gpus * nodes, nodes=nodes, tres=tres),
        **rest,
    )  # fmt: skip


def run(count=360, cores=None, peak=None, mem=None, cpus=8, limit=64 * GIB, made=None, nodes=None,
        devices=(), mean=None, threads=None, **rest):  # fmt: skip
    """An hour on one node: cores (`mean`: of those that change), their peak of a minute, memory
    without page cache; `threads`: as many as the peak shows.
    """
    mean = cores if mean is None else mean
    facts = {} if cores is None else {"cpu_cores_used": cores}
    one = node(count, cpus=cpus, limit=limit, job=facts, peak60_cores=peak, mem_peak_bytes=mem,
               cpu_core_s=None if mean is None else mean * count * 10, oom_kills=0,
               threads=track(threads or ceil(peak or 1), count))  # fmt: skip
    return evidence(
        count, devices, nodes or [one], made or job(cpus=cpus, mem=limit, gpus=len(devices)), **rest
    )


def with_facts(this, **facts):
    """The run, with these facts of its first node."""
    this.nodes[0].header = this.nodes[0].header._replace(facts=facts)
    return this


# -- the arithmetic --------------------------------------------------------------------------------


def test_memory_per_cpu_that_rounding_leaves_nearly_as_it_was_is_not_changed():
    request = Requested(1, cpus=8, mem_bytes=16.0 * GIB, mem_form="cpu")
    assert memory_line(request, 12.2 * GIB) is None
    assert memory_line(request, 12 * GIB).setting == "--mem-per-cpu=1536M"
    assert memory_line(request, 17 * GIB).setting == "--mem-per-cpu=2304M"


@pytest.mark.parametrize(("cpus", "total_gib", "line"), [(32, 1024, "1024G"), (16, 64, "64G")])
def test_memory_for_fewer_cpus_is_no_more_than_before(cpus, total_gib, line):
    """More than a node has would never start."""
    request = Requested(1, cpus=cpus, mem_bytes=float(total_gib * GIB), mem_form="cpu")
    change = memory_line(request, 0.99 * total_gib * GIB, 1)
    assert change.setting == f"--mem-per-cpu={line}"
    three = memory_line(request, request.mem_bytes, 3)
    assert 0 <= total_gib * GIB - 3 * three.after < GIB


@pytest.mark.parametrize(("used", "asked"), [(9, 11), (26, 35), (90, 110), (900, 1100), (0.1, 1)])
def test_memory_is_rounded_as_jobstats_does(used, asked):
    assert round_memory(1.2 * used * GIB) == asked * GIB


@given(st.floats(1, 2**50))
def test_rounding_is_up_and_never_by_much(size):
    assert size <= round_memory(size) + 64
    assert round_memory(size) <= max(GIB, 1.34 * size + GIB)
    assert parse_size(size_text(round_memory(size))) == round_memory(size)


def test_time_is_rounded_to_a_quarter_of_an_hour_or_to_minutes():
    assert round_time(1.25 * 32 * 60) == 40 * 60
    assert round_time(1.25 * 52 * 60) == 75 * 60
    assert round_time(1) == 300


def test_cpus_of_a_peak():
    assert cpus_for(1.0, 32, 0) == 2
    assert cpus_for(1.0, 32, 4) == 6  # one and one per GPU, even
    assert cpus_for(28.0, 32, 0) == 32
    assert cpus_for(3.1, 4, 0) == 4
    assert cpus_for(4.0, 16, 0) == 14  # bursts of all 16, for a quarter of the time


def test_two_nodes_need_what_the_larger_one_needs():
    """jobstats prints 65 G here, from the mean."""
    two = [node(360, f"gpu{n:02d}", limit=256 * GIB, mem_peak_bytes=mem * GIB, oom_kills=0)
           for n, mem in ((1, 100), (2, 2))]  # fmt: skip
    answer = lines(run(nodes=two, made=job(mem=256 * GIB, nodes=2)))
    assert answer["--mem"] == ("256G", "120G")


def test_page_cache_that_is_read_again_stays():
    """A memory-mapped database: the program would read it from disk over and over."""

    def mapped(active):
        this = run(mem=4 * GIB, limit=200 * GIB)
        this.nodes[0].job |= node(360, job={"mem_cache_bytes": 196 * GIB}).job
        this.nodes[0].job["mem_active_cache_bytes"] = track(active, 360)
        (made,) = recommend(this, findings_of(this))
        return made

    assert mapped(0).change.after_line == "5G"
    assert mapped(0).basis.startswith("peak 4 GiB, page cache not counted")
    read_again = mapped(100 * GIB)
    assert read_again.change.after_line == "110G"
    assert read_again.adds == "1.2 × the peak and 100 GiB of page cache, rounded up"
    this = run(mem=4 * GIB, limit=200 * GIB)
    this.nodes[0].job["mem_active_cache_bytes"] = track(190 * GIB, 360)
    assert lines(this) == {}


def test_one_form_of_memory_only():
    """`--mem-per-cpu=1G` × 24 and `--mem=10G` must not stand together."""
    made = job(cpus=24, mem=96 * GIB, form="cpu")
    answer = lines(run(mem=5 * GIB, cpus=24, limit=96 * GIB, cores=20, peak=22, made=made))
    assert [each for each in answer if each.startswith("--mem")] == ["--mem-per-cpu"]
    assert answer["--mem-per-cpu"] == ("4G", "256M")


def test_memory_per_cpu_is_for_the_new_number_of_cpus():
    made = job(cpus=32, mem=64 * GIB, form="cpu", cpus_per_task=32)
    answer = lines(run(mem=30 * GIB, cpus=32, cores=1.4, peak=3.1, made=made))
    assert answer["--cpus-per-task"] == ("32", "4")
    before, after = answer["--mem-per-cpu"]
    assert before == "2G"
    assert 4 * parse_size(after) >= 1.2 * 30 * GIB


def test_memory_per_cpu_keeps_the_total_where_memory_is_not_known():
    made = job(cpus=32, mem=64 * GIB, form="cpu", cpus_per_task=32)
    answer = lines(run(mem=None, cpus=32, cores=1.4, peak=3.1, made=made))
    assert answer["--mem-per-cpu"] == ("2G", "16G")


def test_what_hangs_on_the_gpus_stands_in_one_offer_with_them():
    """One GPU alone would have an eighth of the memory, and 8 of the 12 cores."""
    gpus = [device(360, n, busy_percent=busy) for n, busy in enumerate((97, 0, 0, 0))]
    submit = "sbatch --gres=gpu:a100:4 --cpus-per-gpu=8 --mem-per-gpu=64G job.sh"
    made = job(cpus=32, mem=256 * GIB, gpus=4, form="gpu", gres="gpu:a100:4", submit_line=submit)
    this = run(mem=200 * GIB, cpus=32, limit=256 * GIB, cores=12, peak=12.2, devices=gpus,
               made=made)  # fmt: skip
    evaluation = evaluate(this)
    lines = [each.change for each in evaluation.recommendations]
    assert [each.setting for each in lines] == [
        "--gres=gpu:a100:1", "--cpus-per-gpu=15", "--mem-per-gpu=240G",
    ]  # fmt: skip
    assert {each.finding for each in evaluation.recommendations} == {"gpus-partly-idle"}
    offers = [action.changes for each in evaluation.raised for action in each.actions]
    assert [each for each in offers if each and list(each) != lines] == []


def test_memory_per_cpu_is_offered_with_the_cpus_whatever_finding_is_about_memory():
    made = job(cpus=32, mem=64 * GIB, form="cpu", cpus_per_task=32)
    this = run(mem=30 * GIB, cpus=32, cores=1.4, peak=3.1, made=made)
    offers = [a.changes for each in evaluate(this).raised for a in each.actions if a.changes]
    assert {each.option for each in offers[0]} == {"--cpus-per-task", "--mem-per-cpu"}
    assert all(each == offers[0] for each in offers)


def test_fewer_gpus_in_each_form():
    gpus = [device(360, n, busy_percent=busy) for n, busy in enumerate((97, 0, 0, 0))]
    idle = Finding("gpus-partly-idle", "critical", "", "3 of 4 idle")
    for gres, form, option, after in (
        ("gpu:a100:4", "node", "--gres", "gpu:a100:1"),
        ("gpu:4", "", "--gres", "gpu:1"),
        ("gpu:a100:4", "job", "--gpus", "a100:1"),
    ):
        made = job(gpus=4, gres=gres, gres_form=form)
        assert lines(run(devices=gpus, made=made), idle)[option][1] == after


def test_a_gpu_of_which_nothing_is_known_is_not_taken_away():
    gpus = [device(360, 0, busy_percent=97), device(360, 1)]
    idle = Finding("gpus-partly-idle", "critical", "", "")
    made = job(gpus=2, gres="gpu:2")
    assert "--gres" not in lines(run(devices=gpus, made=made), idle)


def test_a_folded_finding_gives_no_line():
    tail = Finding("idle-tail", "warning", "", "", suppressed_by="suspected-hang", actions=(
        ask_for(Change("--time", 28_800, 9900)),
    ))  # fmt: skip
    assert lines(run(made=job(limit=28_800, elapsed=26_040)), tail) == {}


def test_more_cpus_only_where_the_gpus_wait_and_within_the_share():
    site = Site(nodes=(NodeType("A100", 8, 128, 2000 * GIB),))
    gpus = [device(360, busy_percent=38)]
    more = ask_for(Change("--cpus-per-task", 4, 11))
    waits = Finding("input-bound", "warning", "", "", actions=(more,))
    made = job(cpus=4, gpus=1, gres="gpu:1", cpus_per_task=4)
    answer = lines(run(cores=3.9, peak=4, cpus=4, devices=gpus, site=site, made=made), waits)
    assert answer["--cpus-per-task"] == ("4", "10")
    tight = Site(nodes=(NodeType("A100", 8, 48, 2000 * GIB),))
    answer = lines(run(cores=3.9, peak=4, cpus=4, devices=gpus, site=tight, made=made), waits)
    assert answer["--cpus-per-task"] == ("4", "6")
    assert lines(run(cores=3.9, peak=4, cpus=4, devices=gpus, made=made), waits) == {}


def test_memory_per_cpu_is_safe_without_the_line_that_raises_the_cpus():
    site = Site(nodes=(NodeType("A100", 8, 128, 2000 * GIB),))
    more = ask_for(Change("--cpus-per-task", 4, 8))
    waits = Finding("input-bound", "warning", "", "", actions=(more,))
    submit = "sbatch -c 4 --mem-per-cpu=16G --gres=gpu:1 job.sh"
    made = job(cpus=4, form="cpu", gpus=1, gres="gpu:1", cpus_per_task=4, submit_line=submit)
    gpus = [device(360, busy_percent=38)]
    this = run(mem=20 * GIB, cores=3.9, peak=4, cpus=4, site=site, made=made, devices=gpus)
    answer = lines(this, waits)
    assert answer["--cpus-per-task"] == ("4", "10")
    assert 4 * parse_size(answer["--mem-per-cpu"][1]) >= 20 * GIB


def test_tasks_are_changed_where_the_cpus_are_theirs():
    made = job(cpus=16, tasks=16, cpus_per_task=1)
    alone = run(cores=0.99, peak=1.1, cpus=16, made=made)
    assert lines(alone) == {}  # a rank may wait for a core
    alone.nodes[0].processes[1] = (process(pid=1).facts, track(99, 360))
    assert lines(alone)["--ntasks"] == ("16", "1")
    ranks = run(cores=0.99, peak=1.1, cpus=16, made=made)
    ranks.nodes[0].processes.update(
        {pid: (process(pid=pid).facts, track(6, 360)) for pid in range(16)}
    )
    assert lines(ranks) == {}
    made = job(cpus=16, tasks=4, cpus_per_task=4)
    four = run(cores=2, peak=3.2, cpus=16, made=made)
    four.nodes[0].processes.update(
        {pid: (process(pid=pid).facts, track(50, 360)) for pid in range(4)}
    )
    assert lines(four)["--cpus-per-task"] == ("4", "1")
    four.nodes[0].processes[0] = (process(pid=1).facts, track(250, 360))  # one has most to do
    assert lines(four)["--cpus-per-task"] == ("4", "3")


def test_a_run_without_its_gpus_shows_no_need():
    made = job(gpus=1, gres="gpu:1", limit=36_000, elapsed=3600)
    for busy, options in ((90, {"--mem", "--time", "--cpus-per-task"}), (0, {"--time"})):
        gpu = device(360, busy_percent=busy, mem_used_bytes=0, processes=[process(360, 0)])
        evaluation = evaluate(run(mem=6 * GIB, cores=4, peak=4, devices=[gpu], made=made))
        assert {each.change.option for each in evaluation.recommendations} == options
    assert "gpu-never-used" in {each.id for each in evaluation.raised}
    said = [action.text for each in evaluation.raised for action in each.actions]
    assert any("no GPU was seen at work" in each for each in said)


def test_after_an_oom_memory_only_goes_up():
    made = job("OUT_OF_MEMORY", mem=64 * GIB, exit_code=ExitCode(0, 125))
    assert lines(run(mem=7 * GIB, made=made))["--mem"] == ("64G", "100G")  # 96, rounded up
    worker = run(mem=7 * GIB)
    worker.nodes[0].oom_kills = 1  # a worker died, and the job COMPLETED
    assert lines(worker)["--mem"][1] == "100G"


def test_not_more_than_a_node_has():
    made = job("OUT_OF_MEMORY", mem=64 * GIB)
    site = Site(nodes=(NodeType("", 0, 64, 64 * GIB),))
    assert "--mem" not in lines(run(mem=7 * GIB, made=made, site=site))
    site = Site(nodes=(NodeType("", 0, 64, 80 * GIB),))
    assert lines(run(mem=7 * GIB, made=made, site=site))["--mem"] == ("64G", "80G")


def test_never_below_the_sites_default():
    site = Site(mem_default_per_core_bytes={"standard": 6 * GIB})
    made = job(cpus=8, mem=64 * GIB, partition="standard")
    answer = lines(run(mem=2 * GIB, made=made, site=site))
    assert answer["--mem"] == ("64G", "50G")  # 48, rounded up
    made = job(cpus=8, mem=48 * GIB, partition="standard")
    assert lines(run(mem=2 * GIB, limit=48 * GIB, made=made, site=site)) == {}


@pytest.mark.parametrize(
    ("coverage", "after"),
    [
        (Coverage("recording", 100.0, 1.0, from_start=True, to_end=True), "12G"),
        (Coverage("recording", 100.0, 1.5, from_start=True, to_end=True), "12G"),
        (Coverage("recording", 100.0, 4.0, from_start=True, to_end=True), None),
        (Coverage("recording", 100.0, 10.0, from_start=True, to_end=True), None),
        (Coverage("recording", 85.0, 1.0, from_start=True), None),
        (Coverage("recording", 100.0, 1.0), None),
        (Coverage("recording", 30.0, 1.0, from_start=True), None),
    ],
)
def test_the_margin_hangs_on_how_much_was_seen(coverage, after):
    answer = lines(run(mem=10 * GIB, coverage=coverage))
    assert answer.get("--mem", (None, None))[1] == after


@pytest.mark.parametrize(("kernel", "after"), [(11, "14G"), (18, "22G"), (64, None), (None, None)])
def test_between_far_samples_lies_what_the_kernels_peak_does_not_exclude(kernel, after):
    """Page cache that fills the job's memory hides every spike: of that the peak says nothing."""
    far = Coverage("recording", 100.0, 20.0, from_start=True, to_end=True)
    this = run(mem=10 * GIB, coverage=far)
    this.nodes[0].mem_charged_peak_bytes = kernel and kernel * GIB
    this.nodes[0].job |= node(360, job={"mem_charged_bytes": kernel and kernel * GIB}).job
    assert lines(this).get("--mem", (None, None))[1] == after
    (found,) = [each for each in evaluate(this).raised if each.id == "mem-over"]
    refused = "readings of the memory were up to 20 s apart"
    assert (refused in found.actions[0].text) == (after is None)


@pytest.mark.parametrize(
    ("used", "threads", "cpus"), [(4, 16, 12), (4, 4, 5), (0.6, 16, 5), (1.0, 8, 1), (0.9, 1, 1)]
)
def test_bursts_shorter_than_a_sample_may_use_all_cores(used, threads, cpus):
    """16 cores for a fifth of each second, and a mean of 4 in every sample."""
    made = run(cores=used, peak=used, cpus=16, threads=threads, made=job(cpus=16, cpus_per_task=16))
    after = lines(made).get("--cpus-per-task")
    assert after == (cpus and ("16", str(cpus)))


def test_what_used_cores_and_was_not_seen_may_be_any_number():
    """A driver whose children live for a second, sampled every half minute."""
    made = job(cpus=32, cpus_per_task=32)
    assert lines(run(cores=4, peak=4, cpus=32, threads=5, made=made))["--cpus-per-task"][1] == "5"
    unseen = lines(run(cores=4, peak=4, cpus=32, threads=1, made=made))
    assert unseen["--cpus-per-task"][1] == "18"
    this = run(cores=4, peak=4, cpus=32, threads=5, made=made)
    this.nodes[0].processes[9] = (Process(9, "ada", "make", "make"), track(20, 360))
    assert lines(this) == unseen


@pytest.mark.parametrize("submit", ["sbatch --exclusive job.sh", "sbatch --mem=0 job.sh"])
def test_a_node_for_itself_gives_no_cores_back(submit):
    made = job(cpus=128, cpus_per_task=128, submit_line=submit)
    assert lines(run(cores=24, peak=24, cpus=128, made=made)) == {}
    assert lines(run(cores=24, peak=24, cpus=128, made=replace(made, submit_line="sbatch j.sh")))


def test_all_memory_in_words_is_the_need_and_no_default_of_the_site():
    site = Site(mem_default_per_core_bytes={"p": 9 * GIB})
    made = job(cpus=128, mem=2000 * GIB, partition="p", submit_line="sbatch --mem=0 job.sh")
    this = run(mem=90 * GIB, cpus=128, limit=2000 * GIB, cores=100, peak=128, made=made, site=site)
    (found,) = [each for each in findings_of(this) if each.id == "mem-over"]
    assert "--mem=110G would do" in found.actions[0].text


def test_too_few_samples_give_no_advice():
    thin = Coverage("recording", 100.0, 1800.0, from_start=True)
    assert lines(run(cores=1, peak=1, mem=GIB, coverage=thin)) == {}


def test_a_node_that_was_not_recorded_forbids_advice():
    assert lines(run(mem=7 * GIB, peak=1, cores=1, made=job(state="RUNNING", nodes=2))) == {}


def test_time_lines():
    done = run(count=192, made=job(limit=18_000, elapsed=1920))
    assert lines(done)["--time"] == ("05:00:00", "00:40:00")
    killed = run(made=job("TIMEOUT", limit=43_200, elapsed=43_210))
    assert lines(killed)["--time"] == ("12:00:00", "1-00:00:00")
    assert lines(run(made=job("RUNNING", limit=43_200), live=True)) == {}


def test_an_idle_end_needs_no_limit():
    tail = Finding("idle-tail", "warning", "", "", actions=(
        ask_for(Change("--time", 28_800, 9900)),
    ))  # fmt: skip
    made = job(limit=28_800, elapsed=26_040)
    assert lines(run(count=2604, made=made), tail) == {"--time": ("08:00:00", "02:45:00")}
    made = job(limit=86_400, elapsed=26_040)  # `time-over` alone would keep the idle end
    longer = Finding("idle-tail", "warning", "", "", actions=(
        ask_for(Change("--time", 86_400, 9900)),
    ))  # fmt: skip
    assert lines(run(count=2604, made=made), longer)["--time"] == ("1-00:00:00", "02:45:00")
    made = job("CANCELLED", limit=28_800, elapsed=26_040)
    assert lines(run(count=2604, made=made), tail) == {}
    made = job("TIMEOUT", limit=3600, elapsed=3600)
    assert "--time" not in lines(run(made=made), tail)


def test_nodes_that_did_nothing():
    idle = Finding("nodes-idle", "critical", "", "", actions=(
        ask_for(Change("--nodes", 2, 1)),))  # fmt: skip
    two = [node(360, f"gpu{n:02d}", job={"cpu_cores_used": cores})
           for n, cores in ((1, 4), (2, 0.01))]  # fmt: skip
    batch = Step("batch", node_count=1)
    made = job(nodes=2, tasks=2, steps=(batch,))
    assert lines(run(nodes=two, made=made), idle) == {
        "--nodes": ("2", "1"), "--ntasks": ("2", "1"),
    }  # fmt: skip
    assert lines(run(nodes=two, made=replace(made, steps=())), idle) == {}
    everywhere = (batch, Step("0", node_count=2))  # the program may wait for its part there
    assert lines(run(nodes=two, made=replace(made, steps=everywhere)), idle) == {}
    assert lines(run(nodes=two, made=job(nodes=2, tasks=16, steps=(batch,))), idle) == {}
    later = [0.0] * 180 + [4.0] * 180  # it only began later
    two[1] = node(360, "gpu02", job={"cpu_cores_used": later})
    assert lines(run(nodes=two, made=made), idle) == {}


def test_export_lines_once_each():
    tf = [Finding(f"alloc-all-{n}", "info", "", "", actions=(
        Action("export", Line("export TF_FORCE_GPU_ALLOW_GROWTH=true"), text="to see"),))
        for n in ("tf", "pool")]  # fmt: skip
    answer = lines(run(), *tf)
    assert list(answer) == ["export TF_FORCE_GPU_ALLOW_GROWTH=true"]


def test_one_node_gets_the_memory_of_all():
    site = Site(nodes=(NodeType("A100", 8, 128, 2000 * GIB),))
    four = [node(360, f"gpu{n:02d}", limit=64 * GIB, mem_peak_bytes=20 * GIB, oom_kills=0,
                 job={"cpu_cores_used": 4}, peak60_cores=4.0) for n in range(1, 5)]  # fmt: skip
    gpus = [device(360, 0, each.node, busy_percent=90) for each in four]
    made = job(nodes=4, gpus=1, gres="gpu:a100:1", gres_form="node", tasks=4)
    answer = lines(run(nodes=four, devices=gpus, made=made, site=site))
    assert answer["--nodes"] == ("4", "1")
    assert answer["--ntasks"] == ("", "4")  # by default there is one on each node
    assert answer["--gres"] == ("gpu:a100:1", "gpu:a100:4")
    assert answer["--mem"] == ("64G", "100G")  # 4 × 20 × 1.2


def test_accounting_alone_lowers_only_by_its_upper_bound():
    step = Step("batch", max_rss_bytes=10 * GIB, usage=Usage(maximum={"mem": 10.0 * GIB}))
    made = job(elapsed=3600, steps=(step,), slurm_version="24.11.7", acct_gather="cgroup/v2")
    bare = evidence(360, [], [node(360)], made)
    bare.nodes.clear()
    found = recommend(bare, findings_of(bare))
    assert [(each.change.line, each.confidence) for each in found] == [
        ("#SBATCH --mem=12G", "medium")
    ]
    assert "page cache included" in found[0].basis


@pytest.mark.parametrize(
    ("core_h", "nodes", "line"), [(2, 1, "25"), (8, 1, "46"), (16, 1, None), (2, 2, None)]
)
def test_accounting_alone_lowers_cores_as_far_as_no_burst_can_cost_a_twentieth(core_h, nodes, line):
    """2 of 64 cores in the mean may be 64 at once for a 32nd of the time."""
    step = Step("batch", cpu_s=3600.0 * core_h, max_rss_bytes=GIB, tasks=1, node_count=1)
    made = job(cpus=64 * nodes, nodes=nodes, cpus_per_task=64, elapsed=3600.0, steps=(step,))
    found = lines(from_accounting(made, Site()))
    assert found.get("--cpus-per-task", ("", None))[1] == line


def test_accounting_alone_keeps_the_memory_of_fewer_cores_and_leaves_tasks_alone():
    step = Step("batch", cpu_s=7200.0, max_rss_bytes=110 * GIB, tasks=1, node_count=1)
    usual = dict(cpus=64, mem=256 * GIB, form="cpu", cpus_per_task=64, elapsed=3600.0,
                 slurm_version="23.02.1", acct_gather="linux")  # fmt: skip
    found = lines(from_accounting(job(steps=(step,), **usual), Site()))
    assert (found["--cpus-per-task"][1], found["--mem-per-cpu"][1]) == ("25", "10485M")
    ranks = replace(step, tasks=64)
    assert not lines(from_accounting(job(steps=(ranks,), **usual), Site()))
    line = "sbatch -n 8 -c 8 job.sh"
    assert not lines(from_accounting(job(steps=(step,), submit_line=line, **usual), Site()))


@pytest.mark.parametrize(
    ("made", "node_gib", "adds"),
    [
        (dict(mem=64 * GIB), None, "half as much again"),
        (dict(mem=64 * GIB), 80, "all that a node has"),
    ],
)
def test_more_memory_says_on_what_it_rests(made, node_gib, adds):
    step = Step("0", state="OUT_OF_MEMORY")
    this = run(cores=1, peak=1.0, mem=20 * GIB, made=job("OUT_OF_MEMORY", steps=(step,), **made))
    if node_gib:
        with_facts(this, mem_total_bytes=node_gib * GIB)
    (found,) = [e for e in recommend(this, findings_of(this)) if e.change.option == "--mem"]
    assert found.adds == adds


def test_jobstats_gives_the_maximum_node():
    comment = js1(gpu01=js1_node(100 * GIB, 256 * GIB), gpu02=js1_node(2 * GIB, 256 * GIB))
    made = job(elapsed=3600, nodes=2, mem=256 * GIB, admin_comment=comment)
    bare = evidence(360, [], [node(360)], made)
    bare.nodes.clear()
    assert lines(bare)["--mem"] == ("256G", "200G")


_FACTS = st.fixed_dictionaries({
    "state": st.sampled_from(["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED"]),
    "cpus": st.integers(1, 128),
    "mem": st.integers(1, 4096).map(lambda n: n * GIB // 4),
    "nodes": st.integers(1, 3),
    "form": st.sampled_from(["node", "cpu", "gpu", ""]),
    "gpus": st.integers(0, 8),
    "limit": st.none() | st.integers(60, 1_000_000),
    "tasks": st.none() | st.integers(1, 64),
    "cpus_per_task": st.none() | st.integers(1, 64),
    "gres_form": st.sampled_from(["", "node", "job", "task"]),
})  # fmt: skip


@given(
    _FACTS, st.none() | st.floats(0, 2.0**42), st.none() | st.floats(0, 130),
    st.lists(st.sampled_from(
        ["gpu-never-used", "gpus-partly-idle", "input-bound", "oom-killed", "idle-tail"]
    ), unique=True),
    st.lists(st.none() | st.floats(0, 100), max_size=8),
    st.sampled_from([0, 2 * GIB, 9 * GIB]),
)  # fmt: skip
def test_any_set_is_consistent_parses_back_and_keeps_the_guards(
    facts, mem, peak, extra, busy, default
):
    site = Site(
        nodes=(NodeType("A100", 8, 128, 4096 * GIB),),
        mem_default_per_core_bytes={"p": default} if default else {},
    )
    facts["gres"] = f"gpu:a100:{facts['gpus']}" if facts["gpus"] else ""
    made = job(**facts, partition="p", elapsed=3600.0)
    nodes = [
        node(40, f"gpu{n:02d}", facts["cpus"], facts["mem"], mem_peak_bytes=mem, peak60_cores=peak,
             job={} if peak is None else {"cpu_cores_used": peak / 2})
        for n in range(1, facts["nodes"] + 1)
    ]  # fmt: skip
    gpus = [device(40, n, busy_percent=each) for n, each in enumerate(busy)]
    this = evidence(40, gpus, nodes, made, site=site)
    found = recommend(
        this, [*findings_of(this), *(Finding(each, "warning", "", "") for each in extra)]
    )
    request = requested(this)
    directives = [each.change.option for each in found if each.change.option]
    assert len(set(directives)) == len(directives)
    assert sum(each.startswith("--mem") for each in directives) <= 1
    assert sum(each.startswith(("--cpus", "--ntasks")) for each in directives) <= 1
    by_name = {each.change.option: each.change for each in found}
    new = {name: change.after for name, change in by_name.items()}
    assert all(each.confidence in ("high", "medium", "low") for each in found)
    cpus = facts["cpus"]
    for name, line in by_name.items():
        if line.after:
            assert options_of_submit_line(f"sbatch {line.setting} x.sh") == {
                name[2:]: line.after_line
            }
        assert line.before_line != line.after_line
    if "--cpus-per-task" in by_name and "--nodes" not in by_name:
        per_node = request.tasks_per_node or -(-(request.tasks or request.nodes) // request.nodes)
        cpus = new["--cpus-per-task"] * per_node
    elif "--ntasks" in by_name and "--nodes" not in by_name:
        cpus = new["--ntasks"] / request.nodes
    for name, units in (("--mem", 1), ("--mem-per-cpu", cpus)):
        if name in by_name and "--nodes" not in by_name:
            in_all = new[name] * units
            before = facts["mem"]
            if facts["state"] == "OUT_OF_MEMORY":
                assert in_all >= before * 0.999
            elif in_all < before and mem is not None:
                assert in_all >= 1.2 * mem * 0.999
                assert in_all >= default * cpus * 0.999
    if "--time" in by_name:
        assert facts["state"] in ("COMPLETED", "TIMEOUT")


# -- scripts ---------------------------------------------------------------------------------------

SCRIPT = """#!/bin/bash
#SBATCH --job-name="a b"   # mine: --mem=1G
#SBATCH -c32 --mem 64G
#SBATCH --gres=tmp:5G,gpu:a100:4
#SBATCH -p gpu -t 8:00:00
##SBATCH --mem=1G

python train.py --mem=3
#SBATCH --mem=2G
"""


def to(directive, after, before=""):
    return Change(directive, Line(before), Line(after) if after else None)


def test_values_change_where_they_stand():
    changed = apply(SCRIPT, [
        to("--mem", "9G"), to("--cpus-per-task", "4"), to("--gres", "gpu:a100:1"),
        to("--time", "02:45:00"), to("--partition", "small"),
    ])  # fmt: skip
    assert changed == (
        SCRIPT.replace("-c32 --mem 64G", "-c4 --mem 9G").replace("gpu:a100:4", "gpu:a100:1")
        .replace("-p gpu -t 8:00:00", "-p small -t 02:45:00")
    )  # fmt: skip


def test_the_last_line_counts_and_what_lies_behind_a_command_is_none():
    assert options_of_script(SCRIPT)["mem"] == "64G"
    assert options_of_script("#!/bin/sh\n#SBATCH --mem=1G\n#SBATCH --mem=2G\n")["mem"] == "2G"
    assert options_of_script("#!/bin/sh\necho\n#SBATCH --mem=1G\n") == {}


def test_a_new_line_stands_behind_the_last_directive():
    changed = apply(SCRIPT, [to("--nodes", "1"), to("", "export OMP_NUM_THREADS=4")])
    assert "-t 8:00:00\n#SBATCH --nodes=1\nexport OMP_NUM_THREADS=4\n" in changed
    assert options_of_script(changed)["nodes"] == "1"


def test_a_script_without_directives():
    assert apply("#!/bin/sh\nx\n", [to("--mem", "1G")]) == "#!/bin/sh\n#SBATCH --mem=1G\nx\n"
    assert apply("#!/bin/sh", [to("--mem", "1G")]) == "#!/bin/sh\n#SBATCH --mem=1G"


def test_another_form_of_the_same_request_is_replaced():
    script = "#!/bin/sh\n#SBATCH --mem-per-gpu=32G -G 2 # two\nx\n"
    changed = apply(script, [to("--mem", "6G"), to("--gres", "")])
    assert changed == "#!/bin/sh\n#SBATCH --mem=6G # two\nx\n"


def test_two_forms_at_once_are_left_alone():
    script = "#!/bin/sh\n#SBATCH --gpus=4\n#SBATCH --gpus-per-node=2\nx\n"
    assert apply(script, [to("--gpus", "1")]) == script


def test_a_line_that_asked_for_gpus_alone_goes():
    script = "#!/bin/sh\n#SBATCH --gres=gpu:1\n#SBATCH -c 2\nx\n"
    assert apply(script, [to("--gres", "")]) == "#!/bin/sh\n#SBATCH -c 2\nx\n"


def test_a_het_job_has_several_requests():
    script = "#!/bin/sh\n#SBATCH --mem=4G\n#SBATCH hetjob\n#SBATCH --mem=8G\nx\n"
    assert apply(script, [to("--mem", "1G")]) == script


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("--mem='4G'", "--mem='1G'"),
        ('--mem "4G"', '--mem "1G"'),
        ('"--mem=4G"', "--mem=1G"),
        (r"--mem=4\G", "--mem=1G"),
        ("--mem=4G#mine", "--mem=1G#mine"),
    ],
)
def test_quotes_stay_in_pairs(line, after):
    script = f"#!/bin/sh\n#SBATCH {line} # x\nx\n"
    assert apply(script, [to("--mem", "1G")]) == f"#!/bin/sh\n#SBATCH {after} # x\nx\n"


def test_windows_line_ends_stay():
    script = "#!/bin/sh\r\n#SBATCH --mem=4G\r\nx\r\n"
    changed = apply(script, [to("--mem", "1G"), to("--nodes", "1")])
    assert changed == "#!/bin/sh\r\n#SBATCH --mem=1G\r\n#SBATCH --nodes=1\r\nx\r\n"


def test_a_value_that_is_no_value_is_refused():
    script = "#!/bin/sh\n#SBATCH --mem=4G\nx\n"
    for value in ("1G; rm -rf ~", "$(id)", "1G\n#", "a b"):
        assert apply(script, [to("--mem", value)]) == script
    assert apply(script, [to("", "export A=$(id)")]) == script
    assert apply(script, [to("", "rm -rf ~")]) == script


def test_options_of_the_command_line_win_over_the_scripts():
    changes = [to("--mem", "9G"), to("--time", "1:00:00"), to("--gres", "gpu:a100:1")]
    assert overridden("sbatch -p gpu job.sh", changes) == []
    assert overridden("sbatch --mem-per-cpu=4G -t 5:00:00 job.sh", changes) == changes[:2]
    assert overridden("sbatch --gres=tmp:10G job.sh --mem=1G", changes) == []
    assert overridden("sbatch -G 2 job.sh", changes) == changes[2:]
    assert overridden("sbatch --mem=4G --wrap hostname", changes) == []


def test_submit_lines():
    line = "sbatch -p gpu --mem=64G -N1 job.sh --mem=3"
    assert options_of_submit_line(line) == {"partition": "gpu", "mem": "64G", "nodes": "1"}
    assert submitted_script(line) == "job.sh"
    changed = apply_to_submit_line(line, [to("--mem", "9G"), to("--time", "1:00:00")])
    assert changed == "sbatch --time=1:00:00 -p gpu --mem=9G -N1 job.sh --mem=3"
    assert shlex.split(changed)[0] == "sbatch"
    hostile = "sbatch --job-name=it's#1 --mem=4G job.sh"
    assert apply_to_submit_line(hostile, [to("--mem", "1G")]) == hostile.replace("4G", "1G")
    typed = "sbatch --comment='a b' --mem=4G job.sh"
    assert apply_to_submit_line(typed, [to("--mem", "1G")]) == typed.replace("4G", "1G")
    wrapped = "sbatch --wrap python x.py --mem=4G"
    assert apply_to_submit_line(wrapped, [to("--mem", "1G")]) == wrapped
    assert apply_to_submit_line("", [to("--mem", "1G")]) == ""
    assert options_of_submit_line("sbatch --exclusive --mem=4G --hold -c 3 x") == {
        "mem": "4G", "cpus-per-task": "3", "exclusive": "",
    }  # fmt: skip


def test_the_diff_shows_the_line_alone():
    text = diff("#!/bin/sh\n#SBATCH --mem=4G\nx\ny\nz\n", [to("--mem", "1G")])
    assert "-#SBATCH --mem=4G\n+#SBATCH --mem=1G\n" in text
    assert "y" not in text
    assert diff("#!/bin/sh\nx\n", []) == ""


_LINE = st.one_of(
    st.text(max_size=40),
    st.text(max_size=30).map(lambda text: f"#SBATCH {text}"),
    st.sampled_from([
        "#SBATCH --mem=4G", "#SBATCH -c 4 --mem 4G # x", "#SBATCH --gres=gpu:2,x:1",
        "##SBATCH -c 3", '#SBATCH "--mem=4G"',
        "#SBATCH --mem='4G'", "#SBATCH --comment '-c 3' -c3", "python x.py", "#SBATCH hetjob", "",
    ]),
)  # fmt: skip


@given(
    st.lists(_LINE, max_size=8).map("\n".join),
    st.sampled_from(["--mem", "--cpus-per-task", "--gres", "--time"]),
)
def test_nothing_but_directives_changes(text, directive):
    after = {"--mem": "9G", "--gres": "gpu:1", "--time": "00:45:00"}.get(directive, "4")
    change = to(directive, after)
    changed = apply(text, [change])
    kept = [line for line in text.split("\n") if not line.startswith("#SBATCH")]
    left = [line for line in changed.split("\n") if not line.startswith("#SBATCH")]
    assert kept == left or (not text.strip() and left == [""])
    before = {n: v for n, v in options_of_script(text).items() if n != directive[2:]}
    behind = {n: v for n, v in options_of_script(changed).items() if n != directive[2:]}
    if directive in ("--time",):
        assert before == behind
    if changed != text:
        assert apply(changed, [change]) == changed  # once is enough


@given(st.text(max_size=80))
def test_any_submit_line_is_read_without_a_fault(text):
    options_of_submit_line(f"sbatch {text}")
    changed = apply_to_submit_line(f"sbatch {text}", [to("--time", "00:15:00")])
    assume("wrap" not in options_of_submit_line(f"sbatch {text}"))
    assert options_of_submit_line(changed)["time"] == "00:15:00" or "-t" in text or "time" in text


def test_every_line_has_a_unit():
    request = requested(run(made=job(mem=3 * GIB + (1 << 20))))
    line = memory_line(request, 2 * GIB)
    assert (line.before_line, line.after_line) == ("3073M", "2G")
    assert re.fullmatch(r"\d+[MG]", line.after_line)
    assert gpus_line(request, 1, 1) is None


def test_gpu_processes_keep_their_cores():
    workers = [process(360, GIB, pid=n) for n in range(5)]
    gpu = device(360, busy_percent=90, processes=workers)
    made = job(cpus=32, gpus=1, gres="gpu:1", cpus_per_task=32)
    answer = lines(run(cores=1, peak=1.0, cpus=32, devices=[gpu], made=made))
    assert answer["--cpus-per-task"] == ("32", "6")
