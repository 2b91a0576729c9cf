"""Cores asked for and used (findings, 3.5)."""

from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node, Proc
from tests.corpus.hardware import GIB
from tests.corpus.jobs import run
from tests.corpus.signals import steps, wave


def cores(used, cpus=32, seconds=1200, threads=None, gpus=(), mem=64 * GIB, **rest):
    """A job on one node that uses so many of its cores."""
    procs = None if threads is None else [Proc(5000, framework="", threads=threads)]
    of_node = ("cpu_pressure", "io_pressure", "throttled", "load", "facts", "read", "write")
    known = {name: rest.pop(name) for name in of_node if name in rest}
    node = Node(gpus, cpus=cpus, cores=used, mem=mem, procs=procs, **known)
    return run(seconds, node, **rest)


# -- cpu-never-used, cpu-low -----------------------------------------------------------------------


@case("cpu-never-used:critical", near="cpu-low")
def nothing_runs():
    """A job that waits: no CPU time in 10 min."""
    return cores(0.002, 8, 600, read=0, write=0)


@case(near="cpu-never-used", unknown="cpu-underused")
def nothing_runs_but_the_gpu():
    """No CPU time to speak of, but the GPU works."""
    return cores(0.005, 8, 600, gpus=[Gpu(95)])


@case(unknown="cpu-never-used cpu-low cpu-underused")
def nothing_runs_yet():
    """The same for 290 s."""
    return cores(0.002, 8, 290, read=0, write=0)


@case(near="cpu-never-used")
def something_is_copied():
    """No CPU time to speak of in 10 min, while 20 MB/s are read: it copies data."""
    return cores(0.005, 8, 600, read=20e6)


@case("cpu-low:warning", folds="cpu-underused", near="cpu-never-used")
def hardly_anything_runs():
    """A tenth of a core of 8: little, but not nothing."""
    return cores(0.1, 8)


@case("cpu-low:warning", folds="cpu-underused", near="serial-many-cores cpu-never-used")
def low_efficiency():
    """41 % of 32 cores."""
    return cores(13.1)


@case("cpu-low:info", near="cpu-underused")
def middling_efficiency():
    """72 % of 32 cores."""
    return cores(23.0)


@case(near="cpu-low cpu-underused")
def good_efficiency():
    """82 % of 32 cores."""
    return cores(26.4)


@case("cpu-underused:info", near="cpu-low")
def low_efficiency_beside_a_gpu():
    """Half of the cores beside a GPU: no business of this rule."""
    return cores(4.4, 8, gpus=[Gpu()])


# -- cpu-idle-time ---------------------------------------------------------------------------------


@case("cpu-idle-time:warning", near="cpu-low cpu-never-used")
def nothing_after_the_work():
    """31 of 32 cores for an hour, then nothing for another until the script ends."""
    return cores(steps(31.0, (3600, 0.0)), seconds=7200, read=0, write=0)


@case("cpu-low:info", near="cpu-idle-time")
def data_come_after_the_work():
    """The same, while 20 MB/s are read in the second hour."""
    return cores(steps(31.0, (3600, 0.0)), seconds=7200, read=20e6, write=0)


# -- cpu-mostly-idle -------------------------------------------------------------------------------


def late(used, **rest):
    """16 cores beside a GPU, recorded from the middle of half an hour on."""
    return run(1800, Node([Gpu()], cpus=16, cores=used, since=900, **rest))


@case("cpu-mostly-idle:info low-coverage:info", unknown="cpu-underused serial-many-cores")
def recorded_late_and_idle():
    """2 of 16 cores by the kernel's counter; the peak of the first half is not known."""
    return late(2.0)


@case("low-coverage:info", near="cpu-mostly-idle")
def recorded_late_and_used():
    """6 of 16 cores by the kernel's counter."""
    return late(6.0)


# -- cpu-underused, serial-many-cores --------------------------------------------------------------


@case("cpu-underused:info", near="serial-many-cores cpu-never-used")
def far_too_many_cores():
    """Peak 3.1 of 16 cores beside a GPU."""
    return cores(3.1, 16, gpus=[Gpu()])


@case(near="cpu-underused")
def a_preprocessing_needs_them():
    """Two minutes at 11 of 16 cores, else 1.5: they are needed."""
    return cores(steps(1.5, (300, 11.0), (420, 1.5)), 16, gpus=[Gpu()])


@case(near="cpu-underused serial-many-cores")
def just_enough_cores():
    """Peak 5.4 of 8."""
    return cores(5.4, 8, gpus=[Gpu()])


@case(unknown="cpu-underused serial-many-cores")
def too_short_to_know_the_peak():
    """1.5 of 16 cores for 14 min."""
    return cores(1.5, 16, 840, gpus=[Gpu()])


@case("serial-many-cores:warning", near="cpu-low cpu-underused")
def serial():
    """Exactly one of 16 cores works."""
    return cores(0.99, 16)


@case("serial-many-cores:info", near="cpu-underused host-stall")
def serial_beside_a_gpu():
    """One of 8 cores feeds the GPU."""
    return cores(0.95, 8, gpus=[Gpu()])


@case("cpu-low:warning", folds="cpu-underused", near="serial-many-cores")
def serial_with_a_parallel_minute():
    """One core in the mean, but 1.5 for two minutes."""
    return cores(steps(0.9, (300, 1.5), (420, 0.9)), 16)


@case("cpu-low:warning", folds="cpu-underused", near="serial-many-cores")
def a_little_more_than_serial():
    """1.1 cores."""
    return cores(1.1, 16)


# -- cpu-starved, cpu-oversubscribed ---------------------------------------------------------------


@case("cpu-starved:warning", folds="cpu-oversubscribed", near="cpu-low")
def starved():
    """8 of 8 cores, 34 threads, throttled in 12 % of the periods, pressure 45."""
    return cores(7.95, 8, threads=34, throttled=12, cpu_pressure=45)


@case("cpu-starved:warning", near="cpu-oversubscribed")
def starved_by_its_quota():
    """9 threads on 8 cores: the quota is hit in 3 % of the periods."""
    return cores(7.9, 8, threads=9, throttled=3, cpu_pressure=9)


@case("cpu-binding:warning", near="serial-many-cores cpu-low cpu-underused cpu-starved")
def pinned_to_one_cpu():
    """16 cores allocated, and all 16 threads on one CPU."""
    return cores(0.99, 16, threads=16, facts={"cpus": 1}, cpu_pressure=93)


@case("cpu-binding:warning", near="serial-many-cores cpu-low input-bound cores-per-gpu-high")
def ranks_pinned_to_two_cpus():
    """32 ranks share both hardware threads of a core beside a GPU that waits for them."""
    return cores(1.98, 32, threads=32, cpu_pressure=97, gpus=[Gpu(30)])


@case("cpu-low:warning", near="cpu-binding cpu-starved serial-many-cores")
def bursts_of_threads():
    """Every 40 s all of 16 threads work at once on 8 cores, and some wait; else one."""
    return cores(wave(0.9, 7.2, 40, 0.3), 8, threads=16, cpu_pressure=wave(0, 80, 40, 0.3))


@case("cpu-low:warning swap-io:warning", near="cpu-binding serial-many-cores cpu-underused")
def blocked_on_io():
    """16 workers wait for a slow file system: one core's worth of work, nothing serial."""
    return cores(0.95, 16, threads=16, cpu_pressure=1, io_pressure=85, read=2e6)


@case(near="cpu-starved cpu-oversubscribed cpu-low")
def fully_used():
    """8 of 8 cores with 8 threads: well used."""
    return cores(7.95, 8, threads=8, cpu_pressure=3)


@case(near="cpu-starved cpu-oversubscribed")
def many_threads_that_sleep():
    """64 threads on 8 cores, all but 8 of them asleep: nobody waits."""
    return cores(7.9, 8, threads=64, cpu_pressure=4)


@case(near="cpu-starved cpu-oversubscribed")
def starved_for_three_minutes():
    """9 threads on all of 8 cores, some wait 45 % of the time, for 3 min of 20."""
    used = steps(6.6, (300, 7.95), (480, 6.6))
    return cores(used, 8, threads=9, cpu_pressure=steps(2, (300, 45), (480, 2)))


@case("cpu-oversubscribed:info", near="cpu-starved")
def oversubscribed():
    """64 threads on 8 cores, 15 % of the time some wait; 7 cores busy in the mean."""
    return cores(7.2, 8, threads=64, cpu_pressure=15)


@case(near="cpu-oversubscribed")
def slightly_more_threads():
    """9 threads on 8 cores."""
    return cores(7.2, 8, threads=9, cpu_pressure=15)


@case(near="cpu-oversubscribed")
def oversubscribed_for_five_minutes():
    """64 threads that wait, for 5 min of 20."""
    pressure = steps(1, (300, 15), (600, 1))
    return cores(7.2, 8, threads=64, cpu_pressure=pressure)


# -- cores-per-gpu-high, numa-mismatch -------------------------------------------------------------


@case("cores-per-gpu-high:info")
def more_than_the_share():
    """20 cores for one GPU (share 16), peak 12."""
    return cores(12.0, 20, gpus=[Gpu()])


@case(near="cores-per-gpu-high cpu-underused")
def more_than_the_share_and_needed():
    """24 cores for one GPU, peak 17."""
    return cores(wave(12, 17, 200), 24, gpus=[Gpu()])


@case(near="cores-per-gpu-high")
def the_share():
    """16 cores for one GPU."""
    return cores(12.0, 16, gpus=[Gpu()])


@case(near="cores-per-gpu-high mem-over cpu-underused")
def whole_node():
    """All 128 cores of a node with 4 GPUs: nobody else could use them."""
    gpus = [Gpu(model=Gpu().model) for _ in range(4)]
    return cores(90.0, 128, gpus=gpus, mem=512 * GIB, seconds=960)


def _placed(near, held):
    facts = {"numa_node": 1, "cpu_affinity": near}
    return cores(6.0, 8, 300, gpus=[Gpu(facts=facts)], facts={"job_cpus": held}, live=True)


@case("numa-mismatch:info")
def far_from_its_gpu():
    """GPU on NUMA node 1, all CPUs on node 0."""
    return _placed("64-127", "0-7")


@case(near="numa-mismatch")
def one_cpu_near_its_gpu():
    """One of the CPUs is next to the GPU."""
    return _placed("64-127", "57-64")


@case(unknown="numa-mismatch")
def no_numa_node():
    """The GPU has no NUMA node."""
    facts = {"numa_node": -1, "cpu_affinity": "64-127"}
    return cores(6.0, 8, 300, gpus=[Gpu(facts=facts)], facts={"job_cpus": "0-7"}, live=True)
