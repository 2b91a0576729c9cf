"""Rules on what GPUs wait for, and on GPUs of one job that do unequal work."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules import balance, bottleneck, communication, host_stall
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.host_limit import swap_io
from gpumon.model.sample import Process
from gpumon.site import NodeType, Site
from gpumon.slurm.job import Job, Request, Resources
from tests.analysis.build import GIB, START, device, evidence, node, process, track
from tests.analysis.rules.test_gpu_idle import only

A100 = {"power_limit_default_w": 400.0, "pcie_gen_max": 4, "pcie_width_max": 16,
        "nvlink_links": 12}  # fmt: skip
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


def test_cores_are_the_limit():
    found = only(bottleneck.input_bound(fed(job={"cpu_pressure_percent": 43})))
    assert "GPU busy 38 %, 4.0 of 4 cores are busy, CPU pressure 43 %" in found.evidence
    assert found.title.startswith("GPU 0 waits for data (CPU cores): ")
    line, loader = found.actions
    assert (line.before, line.after) == ("#SBATCH --cpus-per-task=4", "#SBATCH --cpus-per-task=10")
    assert "num_workers=10" in loader.after


@pytest.mark.parametrize("busy", [9.9, 70.5])
def test_busy_outside_the_range_is_clear(busy):
    assert bottleneck.input_bound(fed(busy=busy)) == []


def test_input_bound_near_misses():
    assert bottleneck.input_bound(fed(cores=3.5)) == []
    assert bottleneck.input_bound(fed(cores=2, job={"cpu_pressure_percent": 19})) == []
    assert bottleneck.input_bound(fed(cores=2, iowait_percent=19)) == []


def test_pressure_alone_is_enough():
    found = only(bottleneck.input_bound(fed(cores=None, job={"cpu_pressure_percent": 20})))
    assert "waits for data (CPU cores)" in found.title


def loaders(*percents):
    return {
        5000 + n: (Process(5000 + n, "ada", "python", "python", ppid=4312), track(value, COUNT))
        for n, value in enumerate(percents)
    }


def test_loaders_that_are_all_at_their_limit():
    assert only(bottleneck.input_bound(fed(cpus=16, cores=4, processes=loaders(98, 97, 95, 99))))
    assert bottleneck.input_bound(fed(cpus=16, cores=4, processes=loaders(98, 97, 40, 99))) == []


@pytest.mark.parametrize(
    "run",
    [
        fed(cores=1, iowait_percent=25, job={"read_bytes_per_s": 4e8}),
        fed(cores=1, job={"io_pressure_percent": 40}),
    ],
)
def test_storage_variant(run):
    found = only(bottleneck.input_bound(run))
    assert "waits for data (storage)" in found.title
    assert "TMPDIR" in found.actions[0].after


@pytest.mark.parametrize(("busy", "told"), [(30, False), (65, True)])
def test_a_wait_for_storage_is_told_once(busy, told):
    this = fed(busy=busy, cores=1, job={"io_pressure_percent": 60})
    assert only(bottleneck.input_bound(this)).level == ("info" if told else "warning")
    found = swap_io(this)
    assert isinstance(found, list)
    assert bool(found) is told


ALTERNATING = [10, 80] * 30


def test_host_work_in_turns_with_the_gpus_is_information():
    cores = [2, 0.3] * 30
    found = only(bottleneck.input_bound(fed(busy=ALTERNATING, cpus=32, cores=cores)))
    assert (found.level, found.confidence) == ("info", "low")
    quiet = fed(busy=ALTERNATING, cpus=32, cores=cores, job={"read_bytes_per_s": 1e3})
    assert bottleneck.input_bound(quiet) == []


def test_forks_with_the_same_command_are_workers_whoever_their_parent_is():
    forks = {
        5000 + n: (Process(5000 + n, "ada", "python train.py", "python", ppid=1),
                   track(97, COUNT))
        for n in range(4)
    }  # fmt: skip
    assert only(bottleneck.input_bound(fed(cpus=16, cores=4, processes=forks)))
    others = {pid: (facts._replace(command="tar x"), cpu) for pid, (facts, cpu) in forks.items()}
    assert bottleneck.input_bound(fed(cpus=16, cores=4, processes=others)) == []


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


def test_cores_that_the_program_itself_uses_are_no_loaders():
    alone = {4312: (Process(4312, "ada", "python train.py", "python"), track(395, COUNT))}
    found = only(bottleneck.input_bound(fed(processes=alone)))
    assert found.title.startswith("GPU 0 waits for the CPU cores: ")
    assert [each.kind for each in found.actions] == ["sbatch"]
    assert "optimizer" in found.actions[0].text


def test_workers_at_their_limit_beside_idle_cores_need_no_more_cores():
    run = fed(cpus=16, cores=4, processes=loaders(98, 97, 95, 99))
    (more,) = only(bottleneck.input_bound(run)).actions
    assert more.text == "Start more workers: 12 cores are idle."
    assert "num_workers=10" in more.after  # 4 × 0.9 ÷ 0.38
    assert not {"cpu-underused", "cores-per-gpu-high"} & {each.id for each in evaluate(run).raised}
    tight = fed(cpus=5, cores=4, processes=loaders(98, 97, 95, 99))
    assert only(bottleneck.input_bound(tight)).actions[0].changes


def test_workers_are_counted_for_each_process():
    run = fed()
    run.devices.append(device(COUNT, 1, busy_percent=38, processes=run.devices[0].processes))
    _, loader = only(bottleneck.input_bound(run)).actions
    assert "num_workers=5" in loader.after  # 10 cores for two GPUs


def test_what_holds_for_minutes_of_a_running_job_may_be_its_start():
    assert only(bottleneck.input_bound(fed(live=True))).level == "info"
    assert only(bottleneck.input_bound(fed(live=True, count=180))).level == "warning"
    stalled = {"busy": 45, "cpus": 16, "cores": 1.05, "processes": one_thread()}
    assert only(host_stall.host_stall(fed(live=True, **stalled))).level == "info"


def test_one_wait_has_one_cause():
    """One thread at its limit, on the job's only core: the core is what is short."""
    run = fed(cpus=1, cores=0.99, processes=one_thread())
    assert bottleneck.input_bound(run)
    assert host_stall.host_stall(run)
    assert ("host-stall", "input-bound") in folded(run)


def folded(run):
    return [(each.id, each.suppressed_by) for each in evaluate(run).suppressed]


def test_rests_of_a_gpu_that_waits_are_not_told_beside_it():
    seldom = ([70] * 10 + [0] * 14) * 10
    assert ("idle-time", "input-bound") in folded(fed(seldom, count=240))


def test_a_wait_for_minutes_explains_no_idle_hours():
    """The cores are full for half an hour, in two parts; GPUs idle for most of the time between."""
    busy = [40] * 90 + ([0] * 80 + [95] * 10) * 3 + [40] * 90
    cores = [3.96] * 90 + [0.5] * 270 + [3.96] * 90
    run = fed(busy, cores=cores, count=450)
    assert {"input-bound", "idle-time"} <= {each.id for each in evaluate(run).raised}


# -- by the kind of program


def test_environments_are_not_data_loaders():
    workers = {
        pid: (Process(pid, "ada", "python train_ppo.py", "python", ppid=4312), track(97, COUNT))
        for pid in range(5000, 5016)
    }
    run = fed(cpus=16, cores=15.8, processes=workers, command="python train_ppo.py")
    assert bottleneck.input_bound(run) == []
    found = only(bottleneck.cpu_environments(run))
    assert found.level == "info"
    low = fed(8, cpus=16, cores=15.8, processes=workers, command="python train_ppo.py")
    assert only(bottleneck.cpu_environments(low)).level == "warning"
    assert found.title.startswith("GPU 0 waits for the CPU cores")
    assert not any("num_workers" in each.after for each in found.actions)
    assert "environments" in found.actions[0].text
    assert found.actions[0].changes


@pytest.mark.parametrize("command", ["gmx_mpi mdrun", "vasp_std"])
def test_ranks_that_poll_are_asked_about_and_get_no_line(command):
    run = fed(framework="cuda-other", command=command)
    found = only(bottleneck.input_bound(run))
    assert (found.level, [each.changes for each in found.actions]) == ("info", [()])
    waits = fed(framework="cuda-other", command=command, job={"cpu_pressure_percent": 60})
    assert only(bottleneck.input_bound(waits)).level == "warning"


def test_full_cores_for_which_no_thread_waits_get_no_line():
    found = only(bottleneck.input_bound(fed(framework="", job={"cpu_pressure_percent": 0})))
    assert (found.level, [each.changes for each in found.actions]) == ("info", [()])
    assert "waits for the CPU cores" in found.title
    assert found.actions[0].text.startswith("No thread waited for a core")
    learns = fed(command="python train_ppo.py", job={"cpu_pressure_percent": 0})
    (action,) = only(bottleneck.cpu_environments(learns)).actions
    assert not action.changes
    assert action.text.startswith("Simulate on the GPU")
    waits = fed(framework="", job={"cpu_pressure_percent": 8})
    assert only(bottleneck.input_bound(waits)).actions[0].changes


@pytest.mark.parametrize(
    ("check", "made"),
    [
        (bottleneck.input_bound, lambda: fed(job={"cpu_pressure_percent": 43})),
        (host_stall.host_stall, lambda: fed(45, 16, 1.05, processes=one_thread())),
    ],
)
def test_how_busy_a_job_kept_a_shared_gpu_is_unknown(check, made):
    assert only(check(made()))
    run = made()
    run.devices[0].processes.append(process(COUNT, GIB, pid=99, own=False, in_job=False))
    assert check(run).detail == "another user's process used it as well"


def test_one_busy_thread_of_a_simulation_may_wait_for_the_gpu():
    run = fed(45, 16, 1.05, processes=one_thread(), framework="cuda-other", command="gmx mdrun")
    found = only(host_stall.host_stall(run))
    assert found.level == "info"
    assert "batch" not in found.actions[0].text


def test_what_others_do_to_the_disks_is_no_cause():
    assert bottleneck.input_bound(fed(cores=1, iowait_percent=25)) == []


def test_pressure_without_which_the_gpu_is_no_busier_is_no_cause():
    pressure = [40] * 60 + [1] * 80 + [40] * 40

    def long(busy):
        held = process(180, framework="torch")
        return evidence(
            180, [device(180, busy_percent=busy, processes=[held])],
            [node(180, job={"cpu_cores_used": 2, "io_pressure_percent": pressure})],
            job=Job(state="COMPLETED"),
        )  # fmt: skip

    assert bottleneck.input_bound(long(38)) == []
    assert only(bottleneck.input_bound(long([38 if at > 20 else 90 for at in pressure])))


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


def test_checkpoints_are_not_staged():
    rates = {"io_pressure_percent": 40, "write_bytes_per_s": 2e9, "read_bytes_per_s": 1e6}
    found = only(bottleneck.input_bound(fed(cores=1, job=rates)))
    assert "checkpoints" in found.actions[0].text
    assert not found.actions[0].after


def test_processes_pinned_to_few_cores_are_said_once():
    run = fed(cpus=32, cores=1.0, job={"cpu_pressure_percent": 95})
    assert bottleneck.input_bound(run) == []


def test_input_bound_needs_the_host():
    assert isinstance(bottleneck.input_bound(fed(cores=None)), NotEvaluable)
    assert isinstance(bottleneck.input_bound(fed(busy=None)), NotEvaluable)


def test_servers_and_notebooks_wait_for_others():
    assert bottleneck.input_bound(fed(name="interactive")) == []
    run = fed()
    run.devices[0].processes = [process(COUNT, mem=GIB, framework="vllm")]
    assert bottleneck.input_bound(run) == []


def test_waiting_folds_low_busy():
    count = 180
    request = Request(Resources(cpus=4, gpus=1))
    run = evidence(
        count, [device(count, busy_percent=12)],
        [node(count, cpus=4, job={"cpu_cores_used": 3.9})],
        job=Job(raw_id="1", requested=request),
    )  # fmt: skip
    assert ("low-busy", "input-bound") in folded(run)


# -- host-stall ------------------------------------------------------------------------------------


def one_thread(percent=99, count=COUNT):
    return {4312: (Process(4312, "ada", "python", "python"), track(percent, count))}


def test_one_process_at_a_core():
    found = only(host_stall.host_stall(fed(busy=45, cpus=16, cores=1.05, processes=one_thread())))
    assert "one process uses 100 % of a core, GPU busy 45 %" in found.title


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


def test_host_stall_near_misses():
    assert host_stall.host_stall(fed(45, 16, 1.3, processes=one_thread())) == []
    assert host_stall.host_stall(fed(45, 16, 1.05, processes=one_thread(94))) == []
    assert host_stall.host_stall(fed(70, 16, 1.05, processes=one_thread())) == []
    assert host_stall.host_stall(fed(4, 16, 1.05, processes=one_thread())) == []


def test_a_checkpoint_is_no_stall():
    """Every 10 min one process writes for 3 min, at 100 % of a core as always."""
    saves = ([95] * 42 + [0] * 18) * 3
    run = fed(saves, 16, 1.05, processes=one_thread(count=180), count=180)
    assert host_stall.host_stall(run) == []


def test_cpu_offload_shows_in_the_dips():
    found = only(host_stall.host_stall(fed(ALTERNATING, 32, [30, 2] * 30, processes=one_thread(9))))
    assert "GPU busy 45 %; between GPU work, 30.0 of 32 cores are busy" in found.title
    assert "optimizer" in found.actions[0].text
    assert bottleneck.input_bound(fed(ALTERNATING, 32, [30, 2] * 30)) == []


def test_how_many_cores_there_are_decides_between_fetching_and_computing():
    cores = [12, 2] * 30
    assert "works in turns" in only(bottleneck.input_bound(fed(ALTERNATING, 64, cores))).title
    for rule in bottleneck.input_bound, host_stall.host_stall:
        assert isinstance(rule(fed(ALTERNATING, None, cores)), NotEvaluable)
    few = only(bottleneck.input_bound(fed(ALTERNATING, None, [3, 1] * 30)))
    assert "works in turns" in few.title


def test_host_stall_needs_the_host():
    assert isinstance(host_stall.host_stall(fed(45, cores=None)), NotEvaluable)
    assert isinstance(host_stall.host_stall(fed(45, 16, 1.05)), NotEvaluable)


# -- comm-bound ------------------------------------------------------------------------------------


def talking(count=90, gpus=4, busy=99, power=200, rx=20e9, **values):
    values = {"facts": A100, "pcie_rx_bytes_per_s": rx, "mem_used_bytes": GIB, **values}
    return evidence(count, [device(count, n, busy_percent=busy, power_w=power, **values)
                            for n in range(gpus)])  # fmt: skip


def test_links_at_their_peak():
    found = only(communication.comm_bound(talking()))
    assert found.title.startswith("4 GPUs mostly exchange data: busy 99 %, links at 63 %")
    nvlink = talking(rx=None, nvlink_tx_bytes_per_s=120e9)
    assert "links at 40 %" in only(communication.comm_bound(nvlink)).evidence


def test_comm_bound_near_misses():
    assert communication.comm_bound(talking(gpus=1)) == []
    assert communication.comm_bound(talking(rx=9e9)) == []
    assert communication.comm_bound(talking(pcie_tx_bytes_per_s=1e9)) == []  # it loads
    assert communication.comm_bound(talking(power=300)) == []
    assert communication.comm_bound(talking(busy=89)) == []
    assert communication.comm_bound(talking(count=71)) == []


def test_tensor_parallel_serving_is_chatty_by_nature():
    server = process(90, mem=GIB, framework="vllm")
    assert only(communication.comm_bound(talking(processes=[server]))).level == "info"


def test_comm_bound_needs_its_signals():
    assert isinstance(communication.comm_bound(talking(rx=None)), NotEvaluable)
    small = talking(rx=None, sm_active_percent=40)  # kernels of its own, or waiting: nobody knows
    assert isinstance(communication.comm_bound(small), NotEvaluable)
    assert isinstance(communication.comm_bound(talking(power=None)), NotEvaluable)
    assert isinstance(communication.comm_bound(talking(busy=None)), NotEvaluable)


# -- gpu-imbalance ---------------------------------------------------------------------------------


def uneven(busies=(97, 96, 58, 95), count=200, **values):
    return evidence(count, [device(count, n, busy_percent=busy, **values)
                            for n, busy in enumerate(busies)])  # fmt: skip


def test_one_gpu_does_less():
    found = only(balance.imbalance(uneven()))
    assert "busy 97/96/58/95 % for" in found.evidence
    assert "least on GPU 2" in found.evidence


def test_separate_runs_are_not_told_of_ranks():
    run = uneven()
    for n, each in enumerate(run.devices):
        each.tracks["mem_used_bytes"] = track((8 + 16 * n) * GIB, 200)
        each.processes.append(process(200, pid=4312 + n, framework="torch"))
    found = only(balance.imbalance(run))
    assert found.level == "info"
    assert "separate runs may differ" in found.actions[0].text


def test_a_gpu_that_idles_meanwhile_is_not_compared():
    """It is `gpus-partly-idle`: others do not wait for it, and its memory shows no unequal work."""
    run = uneven(([90] * 90 + [0] * 110, 92, 91))
    held = [10 * GIB] * 90 + [3 << 20] * 110
    for each, bytes_ in zip(run.devices, (held, 10 * GIB, 10 * GIB)):
        each.tracks["mem_used_bytes"] = track(bytes_, 200)
    assert balance.imbalance(run) == []
    assert "gpus-partly-idle" in {each.id for each in evaluate(run).raised}


def test_an_idle_node_is_said_once():
    """Its GPUs work for the first minutes."""
    worked = [90] * 60 + [0] * 300
    devices = [device(360, 0, busy_percent=90), device(360, 0, "gpu02", busy_percent=worked)]
    cores = [10, [0.02 if at == 0 else 10 for at in worked]]
    nodes = [node(360, f"gpu0{n}", job={"cpu_cores_used": used}) for n, used in enumerate(cores, 1)]
    ids = {each.id for each in evaluate(evidence(360, devices, nodes)).raised}
    assert ids & {"gpu-imbalance", "gpus-partly-idle", "nodes-idle"} == {"nodes-idle"}


def test_what_gpus_do_that_exchange_data_is_its_consequence():
    drawn = talking(power=90)
    assert ("low-power-high-busy", "comm-bound") in folded(drawn)


def test_gpus_with_nvlink_are_not_advised_to_those_that_have_it():
    assert only(communication.comm_bound(talking())).actions[0].text == "Use fewer GPUs."
    slow = talking(facts={**A100, "nvlink_links": 0}, pcie_tx_bytes_per_s=20e9)
    assert "NVLink" in only(communication.comm_bound(slow)).actions[0].text


def test_imbalance_near_misses():
    assert balance.imbalance(uneven((97, 96, 75, 95))) == []
    assert balance.imbalance(uneven((97, 0))) == []  # one never worked: `gpus-partly-idle`
    assert balance.imbalance(uneven(count=71)) == []
    turns = [[97, 40] * 100, [40, 97] * 100]  # in turns is no imbalance
    assert balance.imbalance(uneven(turns)) == []


def test_power_and_memory_can_be_uneven():
    power = uneven((97, 97))
    power.devices[0].tracks["power_w"] = track(390, 200)
    power.devices[1].tracks["power_w"] = track(250, 200)
    assert "power 390/250 W" in only(balance.imbalance(power)).evidence
    memory = uneven((97, 80))
    memory.devices[0].tracks["mem_used_bytes"] = track(30 * GIB, 200)
    memory.devices[1].tracks["mem_used_bytes"] = track(20 * GIB, 200)
    assert only(balance.imbalance(memory)).level == "info"
    memory.devices[1].tracks["mem_used_bytes"] = track(29.2 * GIB, 200)
    assert balance.imbalance(memory) == []


def test_memory_of_equally_busy_gpus_differs_by_chance():
    one = process(200, pid=7)  # drives both
    run = evidence(200, [
        device(200, n, busy_percent=busy, mem_used_bytes=gib * GIB, processes=[one])
        for n, (busy, gib) in enumerate(((99, 70), (80, 50)))
    ])  # fmt: skip
    assert "; busy 99/80 %" in only(balance.imbalance(run)).evidence
    run.devices[1].tracks["busy_percent"] = track(98, 200)
    assert balance.imbalance(run) == []


def test_simulations_divide_their_work_as_they_like():
    run = uneven((92, 92, 92, 38))
    for each in run.devices:
        each.processes[:] = [process(200, command="gmx mdrun -npme 1", pid=each.device.index)]
    found = only(balance.imbalance(run))
    assert found.level == "info"
    assert "batch" not in found.actions[0].text


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
    ("commands", "compared"),
    [
        (("python train.py", "python train.py"), True),  # torchrun
        (("python train.py --lr 1 --rank 0", "python train.py --lr 1 --rank 1"), True),
        (("python train.py --local_rank=0", "python train.py --local_rank=1"), True),
        (("python train.py --gpu-id 0", "python train.py --gpu-id 1"), True),
        (("python train.py --device cuda:0", "python train.py --device cuda:1"), True),
        (("python train.py --lr 0.1", "python train.py --lr 0.2"), False),  # a sweep
        (("python train.py --rank 0", "python evaluate.py"), False),
    ],
)
def test_only_ranks_of_one_program_are_compared(commands, compared):
    assert bool(balance.imbalance(ranks(commands))) == compared


def test_gpus_are_compared_while_all_ranks_run():
    """One of two, each by itself, ends early: until then both did the same."""
    run = ranks(("python train.py",) * 2, ([95] * 200, [95] * 30 + [40] * 170))
    run.devices[1].processes = [process(30, pid=2, last=START + 300, framework="torch",
                                        command="python train.py")]  # fmt: skip
    assert balance.imbalance(run) == []
    run.devices[1].processes[0].ended = False
    assert only(balance.imbalance(run))


@pytest.mark.parametrize(
    ("values", "sizes"),
    [({"pids": (1, 1)}, (40, 40)), ({"framework": "cuda-other"}, (40, 40)), ({}, (60, 20))],
)
def test_what_may_be_uneven_by_design_is_information(values, sizes):
    run = ranks(("run",) * 2, **values)
    for each, size in zip(run.devices, sizes):
        each.tracks["mem_used_bytes"] = track(size * GIB, 200)
    assert only(balance.imbalance(run)).level == "info"


def test_imbalance_needs_busy():
    assert isinstance(balance.imbalance(uneven((97, None))), NotEvaluable)
    assert isinstance(balance.imbalance(uneven((None, None))), NotEvaluable)


# -- straggler -------------------------------------------------------------------------------------


def slow(clock=1095, busy=58, throttle=None, width=None, count=200):
    run = uneven((97, 96, 95, busy), count)
    for n, each in enumerate(run.devices):
        each.tracks["sm_clock_mhz"] = track(clock if n == 3 else 1410, count)
        each.tracks["pcie_width"] = track(width if n == 3 and width else 16, count)
    if throttle:
        run.devices[3].throttle["sw_thermal"] = track(throttle, count)
    return run


def test_a_slow_clock_is_a_straggler():
    found = only(balance.straggler(slow(throttle=0.41)))
    assert found.devices == ("gpu01:3",)
    assert "1095 MHz (others 1410), too hot (software) 41 % of the time" in found.title
    assert found.actions[0].kind == "staff"
    assert found.actions[1].after == "#SBATCH --exclude=gpu01"


def test_what_hardware_holds_back_is_no_imbalance():
    assert balance.imbalance(slow()) == []
    assert only(balance.imbalance(slow(clock=1410)))
    assert balance.straggler(slow(clock=1410)) == []


def test_straggler_by_clock_or_link_alone():
    assert only(balance.straggler(slow(busy=97)))  # others wait at 97 % too
    assert "PCIe x8 (others x16)" in only(balance.straggler(slow(clock=1410, width=8))).title


def test_straggler_near_misses():
    assert balance.straggler(slow(clock=1350, busy=58)) == []
    assert balance.straggler(slow(busy=80, clock=1200)) == []
    assert balance.straggler(slow(count=71)) == []
    assert balance.straggler(uneven((97, 58))) == []


def test_a_gpu_that_does_little_is_slow_by_design():
    assert balance.straggler(slow(busy=29)) == []
    assert only(balance.straggler(slow(busy=31)))


def test_straggler_needs_busy():
    assert isinstance(balance.straggler(uneven((97, None, None))), NotEvaluable)
