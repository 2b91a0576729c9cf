"""Rules on what GPUs wait for, and on GPUs of one job that do unequal work."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules import balance, bottleneck, host_stall
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.host_limit import swap_io
from gpumon.model.sample import Process
from gpumon.site import NodeType, Site
from gpumon.slurm.job import Job, Request, Resources
from tests.analysis.build import GIB, device, evidence, node, process, track
from tests.analysis.rules.test_gpu_idle import only

COUNT = 60


#: four cores per GPU
SHARE = Site(nodes=(NodeType("A100", 16, 64, 2000 * GIB),))


def fed(busy=38, cpus=4, cores=3.96, job=None, processes=None, name="train", framework="torch",
        command="python train.py", site=None, live=False, count=COUNT, **host):  # fmt: skip
    """A run of one GPU whose host does something; `job`: more of its cgroup's tracks."""
    own = {} if cores is None else {"cpu_cores_used": cores}
    nodes = [node(count, cpus=cpus, job={**own, **(job or {})}, host=host,
                  processes=processes or {})]  # fmt: skip
    nodes[0].header = nodes[0].header._replace(facts={"cpus_online": 64})
    request = Request(Resources(cpus=cpus, gpus=1), cpus_per_task=cpus, gres="gpu:1")
    known = Job(raw_id="1", name=name, state="COMPLETED", requested=request)
    on_gpu = process(count, mem=GIB, framework=framework, command=command)
    devices = [device(count, busy_percent=busy, processes=[on_gpu])]
    return evidence(count, devices, nodes, job=known, site=site, live=live)


# -- input-bound -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("busy", "told"), [(30, False), (65, True)])
def test_a_wait_for_storage_is_told_once(busy, told):
    this = fed(busy=busy, cores=1, job={"io_pressure_percent": 60})
    assert only(bottleneck.input_bound(this)).level == ("info" if told else "warning")
    found = swap_io(this)
    assert isinstance(found, list)
    assert bool(found) is told


ALTERNATING = [10, 80] * 30


@pytest.mark.parametrize(
    ("cpus", "site", "text"),
    [
        (4, SHARE, "The job already has its fair share of cores (4 per GPU). Prepare"),
        (8, SHARE, "The job already has more than its fair share of cores (4 per GPU). Prepare"),
        (64, None, "The job already has all cores of its node. Prepare"),
        (64, SHARE, "The job already has all cores of its node. Prepare"),
    ],
)
def test_why_there_are_no_more_cores(cpus, site, text):
    run = fed(cpus=cpus, cores=0.99 * cpus, site=site)
    assert only(bottleneck.input_bound(run)).actions[0].text.startswith(text)


# -- by the kind of program


@pytest.mark.parametrize("command", ["gmx_mpi mdrun", "vasp_std"])
def test_ranks_that_poll_are_asked_about_and_get_no_line(command):
    run = fed(framework="cuda-other", command=command)
    found = only(bottleneck.input_bound(run))
    assert (found.level, [each.changes for each in found.actions]) == ("info", [()])
    waits = fed(framework="cuda-other", command=command, job={"cpu_pressure_percent": 60})
    assert only(bottleneck.input_bound(waits)).level == "warning"


def test_one_busy_thread_of_a_simulation_may_wait_for_the_gpu():
    run = fed(45, 16, 1.05, processes=one_thread(), framework="cuda-other", command="gmx mdrun")
    found = only(host_stall.host_stall(run))
    assert found.level == "info"
    assert "batch" not in found.actions[0].text


def test_cores_that_are_as_full_beside_a_busy_gpu_are_no_cause():
    """One GPU evaluates for minutes while the others wait for it: a phase, and no input."""
    phases = ([95] * 40 + [20] * 40) * 3

    def run(cores):
        held = process(240, framework="torch")
        return evidence(
            240, [device(240, busy_percent=phases, processes=[held])],
            [node(240, cpus=4, job={"cpu_cores_used": cores})], job=Job(state="COMPLETED"),
        )  # fmt: skip

    assert bottleneck.input_bound(run(3.9)) == []
    assert only(bottleneck.input_bound(run([2 if at > 90 else 3.9 for at in phases])))


# -- host-stall ------------------------------------------------------------------------------------


def one_thread(percent=99, count=COUNT):
    return {4312: (Process(4312, "ada", "python", "python"), track(percent, count))}


@pytest.mark.parametrize(
    ("framework", "word", "absent"),
    [
        ("torch", ".item()", "JAX"),
        ("jax", "JAX compiles anew", "torch"),
        ("tf", "Profile", "torch"),
    ],
)
def test_one_busy_thread_is_advised_by_its_framework(framework, word, absent):
    run = fed(45, 16, 1.05, processes=one_thread(), framework=framework)
    (action,) = only(host_stall.host_stall(run)).actions
    assert word in action.text
    assert absent not in action.text


@pytest.mark.parametrize(("percents", "busy", "says"), [
    ([99] * 4, [45] * 4, "4 processes use 100 % of a core each"),
    ([300, 100, 30, 30], [45, 95, 95, 95], ""),  # that of another GPU
])  # fmt: skip
def test_each_process_on_a_gpu_may_use_one_core(percents, busy, says):
    on = [process(COUNT, pid=n, framework="torch") for n in range(1, 5)]
    ranks = [device(COUNT, n, busy_percent=each, processes=[on[n]]) for n, each in enumerate(busy)]
    used = {n: (Process(n, "ada", "python", "python"), track(each, COUNT))
            for n, each in enumerate(percents, 1)}  # fmt: skip
    host = node(COUNT, cpus=16, job={"cpu_cores_used": sum(percents) / 100}, processes=used)
    found = host_stall.host_stall(evidence(COUNT, ranks, [host]))
    assert [each.title.split(": ")[1].split(",")[0] for each in found] == ([says] if says else [])


def test_one_process_that_reads_the_data_itself():
    reads = {"read_bytes_per_s": 5e7}
    run = fed(45, 16, 1.05, processes=one_thread(), job=reads)
    found = only(host_stall.host_stall(run))
    assert found.actions[0].after.startswith("DataLoader(..., num_workers=2")
    assert found.uses_more
    assert not [e for e in evaluate(run).recommendations if e.change.option == "--cpus-per-task"]
    (few,) = only(
        host_stall.host_stall(fed(45, 2, 1.05, processes=one_thread(), job=reads))
    ).actions
    assert ".item()" in few.text


def test_how_many_cores_there_are_decides_between_fetching_and_computing():
    cores = [12, 2] * 30
    for rule in bottleneck.input_bound, host_stall.host_stall:
        assert isinstance(rule(fed(ALTERNATING, None, cores)), NotEvaluable)
    assert only(bottleneck.input_bound(fed(ALTERNATING, None, [3, 1] * 30)))


# -- gpu-imbalance ---------------------------------------------------------------------------------


def uneven(busies=(97, 96, 58, 95), count=200, **values):
    return evidence(count, [device(count, n, busy_percent=busy, **values)
                            for n, busy in enumerate(busies)])  # fmt: skip


def test_one_gpu_does_less():
    found = only(balance.imbalance(uneven()))
    assert "busy 97/96/58/95 % for" in found.evidence
    assert "least on GPU 2" in found.evidence


def test_memory_of_equally_busy_gpus_differs_by_chance():
    one = process(200, pid=7)  # drives both
    run = evidence(200, [
        device(200, n, busy_percent=busy, mem_used_bytes=gib * GIB, processes=[one])
        for n, (busy, gib) in enumerate(((99, 70), (80, 50)))
    ])  # fmt: skip
    run.devices[1].tracks["busy_percent"] = track(98, 200)
    assert balance.imbalance(run) == []


def test_a_server_is_told_of_its_requests():
    run = ranks(("vllm serve",) * 2, framework="vllm")
    assert "requests" in only(balance.imbalance(run)).actions[0].text


def ranks(commands, busies=(95, 40), pids=(1, 2), framework="torch", **values):
    count = 200
    return evidence(count, [
        device(count, n, busy_percent=busy,
               processes=[process(count, pid=pid, command=command, framework=framework)], **values)
        for n, (command, busy, pid) in enumerate(zip(commands, busies, pids))
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("values", "sizes"),
    [({"pids": (1, 1)}, (40, 40)), ({"framework": "cuda-other"}, (40, 40)), ({}, (60, 20))],
)
def test_what_may_be_uneven_by_design_is_information(values, sizes):
    run = ranks(("run",) * 2, **values)
    for each, size in zip(run.devices, sizes):
        each.tracks["mem_used_bytes"] = track(size * GIB, 200)
    assert only(balance.imbalance(run)).level == "info"
