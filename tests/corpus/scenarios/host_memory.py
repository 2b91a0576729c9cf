"""Host memory asked for, used, run out of (findings, 3.6)."""

from gpumon.slurm.job import ExitCode, Step
from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node
from tests.corpus.hardware import GIB, MIB
from tests.corpus.jobs import run
from tests.corpus.signals import filling, ramp, steps, wave


def uses(anon, mem=64 * GIB, seconds=960, live=False, job=None, interval=2.0, **rest):
    """A job with one GPU, at work, and this much anonymous memory."""
    node = Node([Gpu()], mem=mem, anon=anon, **rest)
    return run(seconds, node, live=live, job=job, interval=interval)


# -- mem-over, mem-per-gpu-high --------------------------------------------------------------------


@case("mem-over:info", near="mem-per-gpu-high oom-killed")
def far_more_than_needed():
    """Peak 7.4 of 64 GiB."""
    return uses(7.4 * GIB, cache=0)


@case("mem-over:info")
def page_cache_is_no_need():
    """Peak 7.4 of 64 GiB, and 48 GiB of page cache."""
    return uses(7.4 * GIB, cache=48 * GIB)


@case("mem-over:warning", near="mem-per-gpu-high")
def much_wasted():
    """40 of 128 GiB: 88 GiB that nobody could use."""
    return uses(40 * GIB, 128 * GIB)


@case(near="mem-over")
def nearly_needed():
    """46 of 64 GiB: 72 %."""
    return uses(46 * GIB)


@case(near="mem-over")
def in_shared_memory():
    """8 GiB of its own and 40 GiB in /dev/shm, which no process shows: 75 %."""
    return uses(8 * GIB, shmem=40 * GIB)


@case(unknown="mem-over")
def too_short_to_judge():
    """7.4 of 64 GiB for 4 min 50 s."""
    return uses(7.4 * GIB, seconds=290)


@case(near="mem-over")
def default_of_the_site():
    """Peak 20 of 72 GB, the site's default for 8 cores."""
    node = Node(cpus=8, cores=7.0, mem=72e9, anon=20 * GIB)
    return run(960, node)


@case("oom-killed:warning", near="mem-over")
def peak_low_but_killed():
    """A peak of 7.4 of 64 GiB was seen, then the kernel killed a process."""
    return uses(7.4 * GIB, oom_kills=steps(0, (700, 1)))


@case("mem-per-gpu-high:info", near="mem-over")
def more_than_a_share():
    """300 GiB for one GPU (share 233), 80 % of it used."""
    return uses(240 * GIB, 300 * GIB)


@case(near="mem-per-gpu-high mem-over")
def more_than_a_share_and_used():
    """300 GiB for one GPU, 90 % used."""
    return uses(270 * GIB, 300 * GIB)


@case(near="mem-per-gpu-high mem-over")
def a_share():
    """230 GiB for one GPU, 75 % used."""
    return uses(172 * GIB, 230 * GIB)


# -- mem-near-limit, oom-killed --------------------------------------------------------------------


@case("mem-near-limit:warning", near="host-leak oom-killed")
def near_its_limit():
    """59 of 64 GiB."""
    return uses(59 * GIB, live=True)


@case("mem-near-limit:critical")
def at_its_limit():
    """62.5 of 64 GiB, and growing."""
    return uses(ramp(56 * GIB, 62.5 * GIB, 900), live=True)


@case(near="mem-near-limit")
def cache_at_the_limit():
    """56 of 64 GiB, the rest is page cache."""
    return uses(56 * GIB, cache=8 * GIB, live=True)


@case(near="mem-near-limit")
def was_near_its_limit():
    """60 GiB ten minutes ago, 30 now."""
    return uses(steps(60 * GIB, (400, 47 * GIB)), live=True)


@case("oom-killed:critical", folds="mem-near-limit")
def killed_just_now():
    """At the limit, and a process was killed: one finding."""
    return uses(63.5 * GIB, live=True, oom_kills=steps(0, (700, 1)))


@case("oom-killed:critical")
def killed_by_slurms_word():
    """State OUT_OF_MEMORY 0:125."""
    return uses(55 * GIB, job={"state": "OUT_OF_MEMORY", "exit_code": ExitCode(0, 125)})


@case("oom-killed:critical")
def killed_in_a_step():
    """FAILED 1:0, a step OUT_OF_MEMORY with MaxRSS 0, derived exit code 0:125."""
    step = Step("0", state="OUT_OF_MEMORY", exit_code=ExitCode(0, 125), max_rss_bytes=0)
    return uses(55 * GIB, job={"state": "FAILED", "exit_code": ExitCode(1), "steps": (step,),
                               "derived_exit_code": ExitCode(0, 125)})  # fmt: skip


@case("oom-killed:warning ended-badly:warning")
def killed_by_exit_code():
    """FAILED 137:0 at 94 % of its memory, no counter."""
    return uses(60 * GIB, job={"state": "FAILED", "exit_code": ExitCode(137)})


@case("ended-badly:warning", near="oom-killed")
def killed_by_somebody():
    """FAILED 137:0 at three quarters of its memory: kill -9."""
    return uses(48 * GIB, job={"state": "FAILED", "exit_code": ExitCode(137)})


@case("ended-badly:warning", near="oom-killed")
def failed_otherwise():
    """FAILED 1:0 at 95 % of its memory."""
    return uses(61 * GIB, job={"state": "FAILED", "exit_code": ExitCode(1)})


@case(near="oom-killed")
def killed_before_this_job():
    """The counter stood at 2 all along: of another step, before the recording."""
    return uses(55 * GIB, oom_kills=2.0)


# -- host-leak, swap-io ----------------------------------------------------------------------------


def for_long(anon, seconds=4500, **rest):
    return uses(anon, seconds=seconds, interval=5, **rest)


@case("host-leak:warning", near="gpu-leak mem-over")
def leak_on_the_host():
    """+14 GiB/h of anonymous memory, for 75 min."""
    return for_long(ramp(42 * GIB, 59.5 * GIB, 4500))


@case(near="host-leak")
def page_cache_is_no_leak():
    """Page cache fills for 75 min, anonymous memory stands."""
    return for_long(48 * GIB, cache=filling(15 * GIB, 3000))


@case(near="host-leak")
def garbage_collection():
    """A sawtooth of 8 GiB every 5 min."""
    return for_long(lambda second: 44 * GIB + 8 * GIB * (second % 300) / 300)


@case(near="host-leak")
def a_cache_of_its_own():
    """Grows by 8 GiB in the first 25 min, then stands."""
    return for_long(ramp(42 * GIB, 50 * GIB, 1500))


@case(near="host-leak")
def slow_growth_on_the_host():
    """+1.5 GiB/h: below 5 % of the limit in that time."""
    return for_long(ramp(46 * GIB, 47.9 * GIB, 4500))


@case("swap-io:warning")
def swaps():
    """200 MiB of swap a minute."""
    return uses(55 * GIB, swap=ramp(0, 3 * GIB, 900))


@case("swap-io:warning", near="input-bound")
def waits_for_io():
    """Some of its processes wait for I/O 52 % of the time; the GPU stays busy."""
    return uses(50 * GIB, io_pressure=52)


@case(near="swap-io")
def swapped_out_once():
    """500 MiB went to swap before the start, and stay there."""
    return uses(50 * GIB, swap=500 * MIB)


@case(near="swap-io input-bound")
def waits_a_little():
    """I/O pressure of 30 beside a busy GPU."""
    return uses(50 * GIB, io_pressure=30)


@case(near="swap-io")
def loads_at_its_start():
    """I/O pressure of 60 in the first 2 min, and in short waves later."""
    return uses(50 * GIB, io_pressure=steps(60, (120, wave(5, 60, 100, 0.2))))
