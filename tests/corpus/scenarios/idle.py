"""GPUs that are held and not used (findings, 3.1)."""

from gpumon.model.reading import Missing
from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node, Proc
from tests.corpus.hardware import A100, GIB, MIB, MIG_5, tensorflow, torch
from tests.corpus.jobs import run, with_policy
from tests.corpus.signals import steps, wave

_H = 3600.0


def idle(count=1, **rest):
    return [Gpu(0, [], **rest) for _ in range(count)]


def working_then_idle(at_s, count=1, **rest):
    return [Gpu(steps(94, (at_s, 0)), **rest) for _ in range(count)]


# -- gpu-never-used --------------------------------------------------------------------------------


@case("gpu-never-used:critical", folds="gpu-allocated-no-process",
      devices={"gpu-never-used": "gpu01:0,1"}, near="gpus-partly-idle idle-tail")  # fmt: skip
def never_used():
    """Two GPUs without a process for 14 min 20 s."""
    return run(860, Node(idle(2)))


@case("gpu-never-used:warning alloc-all-tf:info", truth="unknown", near="gpu-allocated-no-process")
def never_used_but_held():
    """TensorFlow was imported and reserved the GPU 20 min ago; nothing was computed."""
    return run(1200, Node([Gpu(0, [Proc(framework="tf", mem=tensorflow(A100))])]), live=True)


@case("gpu-never-used:warning alloc-all-tf:info", truth="unknown", near="low-busy")
def never_used_but_held_for_long():
    """The same after 50 min: the cores are busy, so it may still be preparing."""
    return run(3000, Node([Gpu(0, [Proc(framework="tf", mem=tensorflow(A100))])]), live=True)


@case("gpu-never-used:warning", folds="gpu-allocated-no-process")
def never_used_polled():
    """No sample buffer and no use by process: only polls say 0."""
    return run(900, Node(idle(polled=True)))


@case(near="gpu-never-used gpus-partly-idle gpu-allocated-no-process")
def never_used_for_less_than_five_minutes():
    """290 s without GPU use."""
    return run(290, Node(idle()), live=True)


@case("low-busy:warning", near="gpu-never-used gpu-allocated-no-process input-bound host-stall")
def bursts_between_polls():
    """50 ms of work every 30 s, which only the driver's sample buffer shows."""
    gpu = Gpu(0.0, [Proc(mem=torch(50 * GIB), sm=0)], burst=wave(0, 30, 30, 0.07))
    return run(1500, Node([gpu]), interval=1)


# -- gpu-allocated-no-process ----------------------------------------------------------------------


@case("gpu-allocated-no-process:warning gpu-unreadable:info", unknown="gpu-never-used")
def slice_without_process():
    """A MIG slice without a process for 42 min, while the cores are busy."""
    return run(2520, Node(idle(model=MIG_5, mig="1g.5gb")), live=True, interval=5)


@case("gpu-unreadable:info", near="gpu-allocated-no-process",
      unknown="gpu-never-used gpus-partly-idle low-busy")  # fmt: skip
def slice_with_process():
    """A MIG slice, a process that holds 3.1 GiB, no utilization."""
    gpu = Gpu(0, [Proc(mem=torch(3.1 * GIB))], MIG_5, mig="1g.5gb")
    return run(1200, Node([gpu]), live=True)


@case("gpu-unreadable:info", near="gpu-allocated-no-process")
def slice_without_process_yet():
    """The same slice, empty for 9 min 50 s."""
    return run(590, Node(idle(model=MIG_5, mig="1g.5gb")), live=True)


@case("gpu-unreadable:info", near="gpu-allocated-no-process")
def slice_with_hidden_process():
    """A slice whose processes cannot be listed; its memory rose by 2 GiB, so somebody is there."""
    gpu = Gpu(0, [], MIG_5, mig="1g.5gb", base=steps(3 * MIB, (120, 2 * GIB)),
              refused={"processes": Missing("no-permission")})  # fmt: skip
    return run(900, Node([gpu]), live=True)


# -- gpus-partly-idle ------------------------------------------------------------------------------


@case("gpus-partly-idle:critical", folds="gpu-allocated-no-process",
      devices={"gpus-partly-idle": "gpu01:1,2,3"}, near="gpu-never-used gpu-imbalance")  # fmt: skip
def one_device_script():
    """A script for one device on four GPUs, for 20 min."""
    return run(1200, Node([Gpu(97), *idle(3)], cpus=32, mem=256 * GIB))


@case("gpus-partly-idle:critical alloc-all-tf:info", near="gpu-allocated-no-process",
      devices={"gpus-partly-idle": "gpu01:1"})  # fmt: skip
def reserved_but_idle():
    """TensorFlow reserves both GPUs and computes on one: memory is no use."""
    first, second = (Proc(4312, tensorflow(A100), "tf"), Proc(4312, tensorflow(A100), "tf", sm=0))
    return run(1200, Node([Gpu(90, [first]), Gpu(0, [second])], cpus=16))


@case(near="gpus-partly-idle gpu-never-used")
def one_device_script_short():
    """The same four GPUs for 200 s, as in the course's notes."""
    return run(200, Node([Gpu(97), *idle(3)], cpus=32, mem=256 * GIB))


@case(near="gpus-partly-idle")
def one_gpu_not_yet():
    """Live, 9 min: the second stage of a pipeline has not started."""
    procs = [Proc(4313, torch(4 * GIB))]
    return run(540, Node([Gpu(97), Gpu(0, procs)]), live=True)


@case(near="gpus-partly-idle low-busy", finds="gpu-imbalance:warning")
def one_gpu_rarely():
    """The second of two works in 4 % of the bins: little, but not idle."""
    return run(900, Node([Gpu(96), Gpu(wave(0, 30, 250, 0.04))]))


# -- gpu-idle-now, policy-kill-soon ----------------------------------------------------------------


@case("gpu-idle-now:warning", near="policy-kill-soon gpu-never-used jupyter-idle")
def idle_for_eleven_minutes():
    """Worked for 10 min, then nothing for 11 min 40 s."""
    return run(1300, Node(working_then_idle(600, 2)), live=True)


@case("gpu-idle-now:warning", near="policy-kill-soon")
def idle_while_the_host_works():
    """Idle for 15 min while 7 of 8 cores prepare data: said as such, never critical."""
    return run(1500, Node(working_then_idle(600), cores=7.0), live=True)


@case(near="gpu-idle-now")
def idle_for_nine_minutes():
    """Worked for 10 min, then nothing for 9."""
    return run(1140, Node(working_then_idle(600)), live=True)


@case("policy-kill-soon:critical", folds="gpu-idle-now")
def site_ends_it_soon():
    """Idle for 4 h 22 of the site's 5 h."""
    return run(5.37 * _H, Node(working_then_idle(_H)), live=True, interval=30)


@case("gpu-idle-now:warning", near="policy-kill-soon")
def site_does_not_end_it_yet():
    """Idle for 3 h 41 of 5 h: 1 h 19 left."""
    return run(4.68 * _H, Node(working_then_idle(_H)), live=True, interval=30)


@case("policy-kill-soon:critical gpu-never-used:warning", folds="gpu-allocated-no-process")
def site_ends_what_never_worked():
    """No GPU use for 1 h 45 where the site cancels after 2 h."""
    site = with_policy(zero_start_h=2.0, zero_run_h=None, exempt_walltime_below_h=None)
    return run(1.75 * _H, Node(idle()), live=True, interval=15, site=site)


@case("jupyter-idle:warning", folds="gpu-idle-now", near="policy-kill-soon low-busy")
def exempt_partition():
    """The same idle time in a partition that the site's rule leaves alone: people work there."""
    return run(5.37 * _H, Node(working_then_idle(_H)), live=True, interval=30,
               job={"partition": "interactive"})  # fmt: skip


@case("gpu-idle-now:warning", near="policy-kill-soon")
def limit_comes_first():
    """Idle for 4 h 22 of 5 h, but the time limit ends the job in 36 min."""
    return run(5.37 * _H, Node(working_then_idle(_H)), live=True, interval=30,
               job={"time_limit_s": 5.97 * _H})  # fmt: skip


# -- idle-tail -------------------------------------------------------------------------------------


@case("idle-tail:warning", devices={"idle-tail": "gpu01:0,1,2,3"},
      near="gpu-never-used gpus-partly-idle")  # fmt: skip
def kept_after_the_last_work():
    """Four GPUs at 94 % for 2 h 04, then idle for 5 h 10."""
    busy_s, idle_s = 7440, 18600
    return run(busy_s + idle_s, Node(working_then_idle(busy_s, 4), cpus=64, mem=256 * GIB),
               interval=30)  # fmt: skip


@case("idle-tail:warning timed-out:warning")
def idle_until_the_limit():
    """The same until the time limit: the limit is not the cause."""
    return run(3600, Node(working_then_idle(2400)), interval=5,
               job={"state": "TIMEOUT", "time_limit_s": 3600})  # fmt: skip


@case(near="idle-tail low-busy")
def short_tail():
    """Nine idle minutes at the end of 50."""
    return run(3000, Node(working_then_idle(2460)), interval=5)


@case("idle-tail:info", near="low-busy")
def tail_of_a_long_job():
    """15 idle minutes at the end of 3 h: less than a tenth."""
    return run(3 * _H, Node(working_then_idle(3 * _H - 900)), interval=10)


# -- idle-time -------------------------------------------------------------------------------------


@case("idle-time:warning", near="idle-tail gpu-never-used low-busy",
      devices={"idle-time": "gpu01:0,1"})  # fmt: skip
def staged_before_the_work():
    """40 min of unpacking, then two GPUs work for 80 min."""
    gpus = [Gpu(steps(0, (2400, 94))) for _ in range(2)]
    node = Node(gpus, cpus=16, cores=steps(1.2, (2400, 12)), read=steps(300e6, (2400, 20e6)))
    return run(7200, node, interval=10)


@case("idle-time:warning cpu-underused:info", near="idle-tail gpu-imbalance")
def evaluated_on_the_cpu():
    """Every half hour the GPUs wait 10 min for an evaluation on the CPU."""
    gpus = [Gpu(wave(0, 94, 1800, 1 / 3, 600)) for _ in range(2)]
    return run(7200, Node(gpus, cpus=16, cores=6), interval=10)


@case("gpus-in-turns:warning", near="gpus-partly-idle idle-tail idle-time")
def one_gpu_after_the_other():
    """A script trains four models, each on its own GPU, one after another."""
    gpus = [Gpu(steps(0, (n * 1800, 94), ((n + 1) * 1800, 0)), [Proc(4312 + n, torch(50 * GIB))])
            for n in range(4)]  # fmt: skip
    return run(7200, Node(gpus, cpus=16), interval=10)


@case(near="idle-time idle-tail gpus-in-turns")
def short_start():
    """Five minutes of loading before 55 min of work."""
    return run(3600, Node([Gpu(steps(0, (300, 94)))]), interval=10)


# -- jupyter-idle ----------------------------------------------------------------------------------


def _notebook(size=21 * GIB, command="python -m ipykernel_launcher -f k.json"):
    return Proc(mem=torch(size), command=command)


@case("jupyter-idle:warning", folds="gpu-idle-now", near="low-busy leftover-procs")
def notebook_left_alone():
    """A kernel holds 21 GiB and does nothing for 47 min."""
    gpus = [Gpu(steps(80, (900, 0)), [_notebook()])]
    return run(3720, Node(gpus), live=True, interval=5, job={"name": "sys/dashboard/sys/jupyter"})


@case("idle-tail:warning", folds="jupyter-idle", near="low-busy")
def notebook_left_alone_until_the_end():
    """The same in a report, the job named by its kernel alone."""
    gpus = [Gpu(steps(80, (900, 0)), [_notebook(45 * GIB)])]
    return run(3720, Node(gpus), interval=5)


@case("gpu-idle-now:info", near="jupyter-idle")
def notebook_in_a_pause():
    """Idle for 25 min."""
    gpus = [Gpu(steps(80, (900, 0)), [_notebook()])]
    return run(2400, Node(gpus), live=True, interval=5)


@case("gpu-idle-now:warning", near="jupyter-idle low-busy")
def batch_job_in_a_pause():
    """Idle for 47 min, but no notebook."""
    return run(3720, Node(working_then_idle(900)), live=True, interval=5, job={"name": "good"})


@case("gpu-idle-now:warning", near="jupyter-idle")
def notebook_that_gave_its_memory_back():
    """Idle for 47 min, kernel shut down: no memory is held."""
    proc = Proc(mem=torch(21 * GIB), command="python -m ipykernel_launcher -f k.json", until=960)
    return run(3720, Node([Gpu(steps(80, (900, 0)), [proc])]), live=True, interval=5)


# -- nodes-idle ------------------------------------------------------------------------------------


def _two(second_cores, second_busy, second_procs=None, seconds=1320, **rest):
    first = Node([Gpu(95), Gpu(95)], "gpu06", cpus=16)
    second = Node([Gpu(second_busy, second_procs), Gpu(second_busy, second_procs)], "gpu07",
                  cpus=16, cores=second_cores)  # fmt: skip
    return run(seconds, first, second, **rest)


@case("nodes-idle:critical", near="gpus-partly-idle", folds="gpu-allocated-no-process",
      devices={"nodes-idle": "gpu07:0,1"})  # fmt: skip
def a_node_does_nothing():
    """One of two nodes: 0.2 % CPU, two GPUs idle, no memory held, for 22 min."""
    made = _two(0.03, 0, [])
    made.nodes[1].anon, made.nodes[1].read, made.nodes[1].write = 0.1 * GIB, 0.0, 0.0
    return made


@case(near="nodes-idle gpus-partly-idle")
def a_node_starts_late():
    """The second node begins after 9 min."""
    return _two(steps(0.03, (540, 12.8)), steps(0, (540, 95)), seconds=1500)


@case("gpus-partly-idle:critical", near="nodes-idle", folds="gpu-allocated-no-process")
def a_node_works_without_its_gpus():
    """The second node's cores work, its GPUs do not."""
    return _two(9.0, 0, [])


@case("data-stale:warning", near="gpus-partly-idle")
def a_node_is_not_reached():
    """The second node stopped sending 11 min ago: not reached is not idle."""
    made = _two(12.8, 95, live=True)
    made.nodes[1].until = 660
    return made
