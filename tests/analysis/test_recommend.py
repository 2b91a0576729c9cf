"""One consistent set of lines, the arithmetic behind it, and the batch script that it changes."""

import re
import shlex

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpumon.analysis.directives import options_of_script, options_of_submit_line, submitted_script
from gpumon.analysis.evidence import Coverage
from gpumon.analysis.finding import Action, Finding, Recommendation
from gpumon.analysis.findings import arrays, cpu, host_memory, outcome, storage, time
from gpumon.analysis.recommend import apply, apply_to_submit_line, diff, recommend
from gpumon.analysis.requested import requested
from gpumon.analysis.rightsize import (
    GIB,
    cpus_for,
    gpus_line,
    memory_line,
    round_memory,
    round_time,
    size_text,
)
from gpumon.model.lines import Line
from gpumon.model.units import parse_size
from gpumon.site import NodeType, Site
from gpumon.slurm.job import ExitCode, Job, Request, Resources, Step, Usage
from tests.analysis.build import device, evidence, node, process
from tests.analysis.test_accounting import js1, js1_node

RULES = (*cpu.RULES, *host_memory.RULES, *time.RULES, *outcome.RULES, *storage.RULES, *arrays.RULES)


def findings_of(run):
    found = [rule.check(run) for rule in RULES if (rule.live if run.live else rule.report)]
    return [each for answer in found if isinstance(answer, list) for each in answer]


def lines(run, *more):
    """{directive: (before, after)}; each directive at most once."""
    found = recommend(run, [*findings_of(run), *more])
    assert len({each.directive or each.after for each in found}) == len(found)
    return {each.directive or each.after: (each.before, each.after) for each in found}


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
        devices=(), **rest):  # fmt: skip
    """An hour on one node: mean cores, peak of a minute, memory without page cache."""
    facts = {} if cores is None else {"cpu_cores_used": cores}
    one = node(count, cpus=cpus, limit=limit, job=facts, peak60_cores=peak, mem_peak_bytes=mem,
               cpu_core_s=None if cores is None else cores * count * 10, oom_kills=0)  # fmt: skip
    return evidence(
        count, devices, nodes or [one], made or job(cpus=cpus, mem=limit, gpus=len(devices)), **rest
    )


def with_facts(this, **facts):
    """The run, with these facts of its first node."""
    this.nodes[0].header = this.nodes[0].header._replace(facts=facts)
    return this


# -- the arithmetic --------------------------------------------------------------------------------


@pytest.mark.parametrize(("used", "asked"), [(9, 11), (26, 35), (90, 110), (900, 1100), (0.1, 1)])
def test_memory_is_rounded_as_jobstats_does(used, asked):
    assert round_memory(1.2 * used * GIB) == asked * GIB


@given(st.floats(1, 2**50))
def test_rounding_is_up_and_never_by_much(size):
    assert size <= round_memory(size) + 64
    assert round_memory(size) <= max(GIB, 1.34 * size + GIB)
    assert parse_size(size_text(round_memory(size))) == round_memory(size)


def test_time_is_rounded_to_a_quarter_of_an_hour():
    assert round_time(1.25 * 32 * 60) == 45 * 60
    assert round_time(1.25 * 52 * 60) == 75 * 60
    assert round_time(1) == 900


def test_cpus_of_a_peak():
    assert cpus_for(3.1, 0) == 4
    assert cpus_for(1.1, 0) == 2
    assert cpus_for(0.5, 4) == 6  # one and one per GPU, even


def test_two_nodes_need_what_the_larger_one_needs():
    """jobstats prints 65 G here, from the mean."""
    two = [node(360, f"gpu{n:02d}", limit=256 * GIB, mem_peak_bytes=mem * GIB, oom_kills=0)
           for n, mem in ((1, 100), (2, 2))]  # fmt: skip
    answer = lines(run(nodes=two, made=job(mem=256 * GIB, nodes=2)))
    assert answer["--mem"] == ("256G", "120G")


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


def test_memory_per_gpu_becomes_memory_where_the_gpus_go():
    made = job(mem=64 * GIB, gpus=2, form="gpu", gres="gpu:a100:2", gres_form="node")
    never = Finding("gpu-never-used", "critical", "", "two GPUs never worked")
    gpus = [device(360, n, busy_percent=0) for n in (0, 1)]
    answer = lines(run(mem=5 * GIB, cores=4, peak=7, devices=gpus, made=made), never)
    assert answer["--gres"] == ("gpu:a100:2", "")
    assert answer["--mem"] == ("--mem-per-gpu=32G", "6G")


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


def test_another_model_and_fewer_of_them_are_one_line():
    gpus = [device(360, n, busy_percent=busy) for n, busy in enumerate((97, 0))]
    idle = Finding("gpus-partly-idle", "critical", "", "")
    smaller = Finding("smaller-gpu", "info", "", "", actions=(
        Action("sbatch", Line("#SBATCH --gres=gpu:a40:2"), Line("#SBATCH --gres=gpu:a100:2")),
        Action("sbatch", Line("#SBATCH --partition=small"), Line("#SBATCH --partition=gpu")),
    ))  # fmt: skip
    answer = lines(run(devices=gpus, made=job(gpus=2, gres="gpu:a100:2")), idle, smaller)
    assert answer["--gres"] == ("gpu:a100:2", "gpu:a40:1")
    assert answer["--partition"] == ("gpu", "small")


def test_a_folded_finding_gives_no_line():
    smaller = Finding("smaller-gpu", "info", "", "", suppressed_by="alloc-all-tf", actions=(
        Action("sbatch", Line("#SBATCH --gres=gpu:a40:2"), Line("#SBATCH --gres=gpu:a100:2")),
    ))  # fmt: skip
    assert lines(run(made=job(gpus=2, gres="gpu:a100:2")), smaller) == {}


def test_more_cpus_only_where_the_gpus_wait_and_within_the_share():
    site = Site(nodes=(NodeType("A100", 8, 128, 2000 * GIB),))
    gpus = [device(360, busy_percent=38)]
    waits = Finding("input-bound", "warning", "", "")
    made = job(cpus=4, gpus=1, gres="gpu:1", cpus_per_task=4)
    answer = lines(run(cores=3.9, peak=4, cpus=4, devices=gpus, site=site, made=made), waits)
    assert answer["--cpus-per-task"] == ("4", "10")
    tight = Site(nodes=(NodeType("A100", 8, 48, 2000 * GIB),))
    answer = lines(run(cores=3.9, peak=4, cpus=4, devices=gpus, site=tight, made=made), waits)
    assert answer["--cpus-per-task"] == ("4", "6")
    assert lines(run(cores=3.9, peak=4, cpus=4, devices=gpus, made=made), waits) == {}


def test_tasks_are_changed_where_the_cpus_are_theirs():
    made = job(cpus=16, tasks=16, cpus_per_task=1)
    assert lines(run(cores=0.99, peak=1.1, cpus=16, made=made))["--ntasks"] == ("16", "1")
    made = job(cpus=16, tasks=4, cpus_per_task=4)
    assert lines(run(cores=2, peak=3.2, cpus=16, made=made))["--cpus-per-task"] == ("4", "1")


def test_cpus_per_gpu_become_cpus_where_the_gpus_go():
    made = job(gpus=1, gres="gpu:1", submit_line="sbatch --cpus-per-gpu=8 --gres=gpu:1 job.sh")
    never = Finding("gpu-never-used", "critical", "", "")
    answer = lines(run(cores=4, peak=7, devices=[device(360, busy_percent=0)], made=made), never)
    assert answer["--cpus-per-task"] == ("--cpus-per-gpu=8", "8")


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
        (Coverage("recording", 100.0, 10.0, from_start=True, to_end=True), "13G"),
        (Coverage("recording", 85.0, 1.0, from_start=True), "13G"),
        (Coverage("live", 60.0, 1.0), "15G"),
        (Coverage("recording", 30.0, 1.0, from_start=True), None),
    ],
)
def test_the_margin_hangs_on_how_much_was_seen(coverage, after):
    answer = lines(run(mem=10 * GIB, coverage=coverage))
    assert answer.get("--mem", (None, None))[1] == after


def test_too_few_samples_give_no_advice():
    thin = Coverage("recording", 100.0, 1800.0, from_start=True)
    assert lines(run(cores=1, peak=1, mem=GIB, coverage=thin)) == {}


def test_a_node_that_was_not_recorded_forbids_advice():
    assert lines(run(mem=7 * GIB, peak=1, cores=1, made=job(state="RUNNING", nodes=2))) == {}


def test_time_lines():
    done = run(count=192, made=job(limit=18_000, elapsed=1920))
    assert lines(done)["--time"] == ("05:00:00", "00:45:00")
    killed = run(made=job("TIMEOUT", limit=43_200, elapsed=43_210))
    assert lines(killed)["--time"] == ("12:00:00", "1-00:00:00")
    assert lines(run(made=job("RUNNING", limit=43_200), live=True)) == {}


def test_an_idle_end_shortens_the_limit_where_nothing_else_does():
    tail = Finding("idle-tail", "warning", "", "", actions=(
        Action("sbatch", Line("#SBATCH --time=02:45:00"), Line("#SBATCH --time=08:00:00")),
    ))  # fmt: skip
    made = job("CANCELLED", limit=28_800, elapsed=26_040)
    assert lines(run(count=2604, made=made), tail) == {"--time": ("08:00:00", "02:45:00")}
    made = job("TIMEOUT", limit=3600, elapsed=3600)
    assert "--time" not in lines(run(made=made), tail)


def test_nodes_that_did_nothing():
    idle = Finding("nodes-idle", "critical", "", "", actions=(
        Action("sbatch", Line("#SBATCH --nodes=1"), Line("#SBATCH --nodes=2")),))  # fmt: skip
    assert lines(run(made=job(nodes=2, tasks=2)), idle) == {
        "--nodes": ("2", "1"), "--ntasks": ("2", "1"),
    }  # fmt: skip
    assert lines(run(made=job(nodes=2, tasks=16)), idle) == {}


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
    made = job(nodes=4, gpus=1, gres="gpu:a100:1", gres_form="node")
    answer = lines(run(nodes=four, devices=gpus, made=made, site=site))
    assert answer["--nodes"] == ("4", "1")
    assert answer["--gres"] == ("gpu:a100:1", "gpu:a100:4")
    assert answer["--mem"] == ("64G", "100G")  # 4 × 20 × 1.2


def test_accounting_alone_lowers_only_by_its_upper_bound():
    step = Step("batch", max_rss_bytes=10 * GIB, usage=Usage(maximum={"mem": 10.0 * GIB}))
    made = job(elapsed=3600, steps=(step,), slurm_version="24.11.7", acct_gather="cgroup/v2")
    bare = evidence(360, [], [node(360)], made)
    bare.nodes.clear()
    found = recommend(bare, findings_of(bare))
    assert [(each.directive, each.after, each.confidence) for each in found] == [
        ("--mem", "12G", "medium")
    ]
    assert "page cache included" in found[0].basis


def test_jobstats_gives_the_maximum_node():
    comment = js1(gpu01=js1_node(100 * GIB, 256 * GIB), gpu02=js1_node(2 * GIB, 256 * GIB))
    made = job(elapsed=3600, nodes=2, mem=256 * GIB, admin_comment=comment)
    bare = evidence(360, [], [node(360)], made)
    bare.nodes.clear()
    assert lines(bare)["--mem"] == ("256G", "150G")


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
    directives = [each.directive for each in found if each.directive]
    assert len(set(directives)) == len(directives)
    assert sum(each.startswith("--mem") for each in directives) <= 1
    assert sum(each.startswith(("--cpus", "--ntasks")) for each in directives) <= 1
    by_name = {each.directive: each for each in found}
    new = {
        name: (1 if line.directive == "--nodes" else line.after) for name, line in by_name.items()
    }
    cpus = facts["cpus"]
    for name, line in by_name.items():
        if line.after:
            assert options_of_submit_line(f"sbatch {name}={line.after} x.sh") == {
                name[2:]: line.after
            }
        assert line.before != line.after
        assert line.confidence in ("high", "medium", "low")
    if "--cpus-per-task" in by_name and "--nodes" not in by_name:
        per_node = request.tasks_per_node or -(-(request.tasks or request.nodes) // request.nodes)
        cpus = int(new["--cpus-per-task"]) * per_node
    elif "--ntasks" in by_name and "--nodes" not in by_name:
        cpus = int(new["--ntasks"]) / request.nodes
    for name, units in (("--mem", 1), ("--mem-per-cpu", cpus)):
        if name in by_name and "--nodes" not in by_name:
            in_all = parse_size(new[name]) * units
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
    return Recommendation(directive, Line(before), Line(after), "")


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
        "mem": "4G", "cpus-per-task": "3",
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
    assert (line.before, line.after) == ("3073M", "2G")
    assert re.fullmatch(r"\d+[MG]", line.after)
    assert gpus_line(request, 1, 1) is None


def test_gpu_processes_keep_their_cores():
    workers = [process(360, GIB, pid=n) for n in range(5)]
    gpu = device(360, busy_percent=90, processes=workers)
    made = job(cpus=32, gpus=1, gres="gpu:1", cpus_per_task=32)
    answer = lines(run(cores=1, peak=1.0, cpus=32, devices=[gpu], made=made))
    assert answer["--cpus-per-task"] == ("32", "6")
