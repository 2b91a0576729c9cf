"""Device memory, the choice of GPU, and processes on it (findings, 3.4)."""

import os

from gpumon.analysis.rundata import Queue
from gpumon.site.read import load_site
from tests.corpus.cases import case
from tests.corpus.generator import START, Gpu, Node, Proc
from tests.corpus.hardware import A100, CONTEXT, GIB, H100, P100_8, doubling, jax, tensorflow, torch
from tests.corpus.jobs import run
from tests.corpus.signals import ramp, steps, wave


def on(mem, busy=92, seconds=1500, model=A100, framework="torch", live=False, gpu=None, **rest):
    """One process on one GPU."""
    proc = Proc(mem=mem, framework=framework, **rest.pop("proc", {}))
    node = Node([Gpu(busy, [proc], model, **(gpu or {}))], **rest.pop("node", {}))
    return run(seconds, node, live=live, **rest)


# -- gpu-oom-suspect -------------------------------------------------------------------------------


@case("gpu-oom-suspect:warning ended-badly:warning", near="gpu-mem-full alloc-all-tf")
def out_of_memory_at_the_start():
    """BERT-large on a card of 7.4 GiB: 417 MiB, 1.7 GiB, then gone after 40 s; the log says why."""
    mem = steps(CONTEXT, (8, 1.7 * GIB), (20, 0.93 * P100_8.total))
    return on(mem, steps(60, (50, 0)), 70, P100_8, proc={"until": 50}, interval=1,
              log_tail="torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB",
              job={"state": "FAILED"})  # fmt: skip


@case("gpu-oom-suspect:info")
def out_of_memory_and_on():
    """A process with 91 % left after 10 min, the job goes on with another one."""
    procs = [Proc(4312, torch(0.91 * A100.total), until=610),
             Proc(4500, torch(0.6 * A100.total), since=640)]  # fmt: skip
    return run(1300, Node([Gpu(90, procs)]), live=True)


@case("gpu-health:critical", near="gpu-oom-suspect")
def gone_with_its_gpu():
    """A process with 91 % leaves the list as its GPU is lost."""
    lost = Gpu(90, [Proc(4312, torch(0.91 * A100.total), until=610)], lost_at=620)
    return run(1300, Node([Gpu(90), lost]), live=True)


@case("alloc-all-tf:info", near="gpu-oom-suspect", unknown="gpu-mem-full")
def reservation_leaves():
    """TensorFlow ends with 98 %: it always does."""
    procs = [Proc(4312, tensorflow(A100), "tf", until=610),
             Proc(4500, torch(0.6 * A100.total), since=640)]  # fmt: skip
    return run(1300, Node([Gpu(90, procs)]), live=True, interval=1)


@case(near="gpu-oom-suspect")
def leaves_with_room():
    """A process leaves with 80 %."""
    procs = [Proc(4312, torch(0.8 * A100.total), until=610),
             Proc(4500, torch(0.6 * A100.total), since=640)]  # fmt: skip
    return run(1300, Node([Gpu(90, procs)]), live=True)


@case(near="gpu-oom-suspect gpu-mem-full")
def completes_with_little_room():
    """A process with 91 % ends 20 s before its job completes: done, not dead."""
    return on(torch(0.91 * A100.total), steps(92, (1190, 0)), 1210, proc={"until": 1190})


# -- gpu-mem-headroom, smaller-gpu, gpu-type-scarce ------------------------------------------------


@case("gpu-mem-headroom:info", truth="upper-bound", near="low-busy gpu-mem-full")
def room_for_a_larger_batch():
    """31 of 80 GiB at 96 % busy, live."""
    return on(torch(31 * GIB), 96, live=True)


@case(near="gpu-mem-headroom")
def little_room():
    """37 of 80 GiB: 46 %."""
    return on(torch(37 * GIB), 96, live=True)


@case(near="gpu-mem-headroom low-busy")
def room_but_not_busy():
    """31 of 80 GiB at 52 % busy: a larger batch is not what it lacks."""
    return on(torch(31 * GIB), 52, live=True)


@case("alloc-all-jax:info", unknown="gpu-mem-headroom")
def room_is_not_known():
    """JAX told to take 0.4 of it: 32 of 80 GiB say nothing."""
    return on(jax(A100, 0.4), 96, framework="jax", live=True,
              proc={"hints": {"XLA_CLIENT_MEM_FRACTION": "0.4"}}, interval=1)  # fmt: skip


@case("smaller-gpu:info", truth="upper-bound", near="gpu-mem-headroom")
def fits_an_a40():
    """Peak 38 GiB: needs 44.7, an A40 has 45.0."""
    return on(torch(38 * GIB))


@case(near="smaller-gpu gpu-mem-headroom")
def does_not_fit_an_a40():
    """Peak 38.6 GiB: needs 45.4."""
    return on(torch(38.6 * GIB))


@case("smaller-gpu:warning low-busy:warning", near="gpu-mem-headroom")
def fits_a_slice():
    """Peak 5.5 GiB at 12 % busy, 26 GiB of host memory: a slice would do."""
    busy = wave(3, 45, 35, 0.2)
    return on(torch(5.5 * GIB), busy, node={"mem": 32 * GIB})


@case(near="smaller-gpu")
def as_large_by_another_name():
    """Peak 56 GiB on an A100 where the site says nothing: an H100 of 79.6 GiB is no smaller GPU."""
    return on(torch(56 * GIB), site=load_site(os.devnull))


@case("alloc-all-tf:info", unknown="smaller-gpu gpu-mem-full")
def reservation_does_not_tell():
    """TensorFlow: nobody knows what it needs."""
    return on(tensorflow(A100), framework="tf", interval=1)


@case("smaller-gpu:info", folds="gpu-mem-headroom")
def no_bf16_on_older_ones():
    """bf16 on the command line, peak 9 GiB: an RTX 3090, never an RTX 2080 Ti."""
    return on(torch(9 * GIB), 80, proc={"command": "python train.py --bf16"})


@case(near="smaller-gpu")
def fp64_needs_it():
    """FP64 code with 30 GiB on an H100: an A40 would hold it, and be 59 times slower."""
    gpu = {"fp64": 30}
    return on(torch(30 * GIB), 55, model=H100, gpu=gpu, framework="cuda-other")


@case("smaller-gpu:info gpu-type-scarce:info")
def others_wait_for_it():
    """Peak 38 GiB; 14 jobs wait for an A100 while nine A40 are idle."""
    made = on(torch(38 * GIB))
    made.queue = Queue(START + 1500, {"gpu:a100": 14}, {"gpu:a40": 9})
    return made


@case("smaller-gpu:info", near="gpu-type-scarce")
def nobody_waits():
    """The same, but nobody waits."""
    made = on(torch(38 * GIB))
    made.queue = Queue(START + 1500, {"gpu:a100": 0}, {"gpu:a40": 9})
    return made


@case("smaller-gpu:info", near="gpu-type-scarce")
def the_others_are_taken():
    """14 jobs wait, but no A40 is idle either."""
    made = on(torch(38 * GIB))
    made.queue = Queue(START + 1500, {"gpu:a100": 14}, {"gpu:a40": 0})
    return made


# -- gpu-leak --------------------------------------------------------------------------------------


def for_long(mem, seconds=4500, **rest):
    return on(mem, seconds=seconds, interval=5, **rest)


@case("gpu-leak:warning", near="gpu-mem-full gpu-oom-suspect")
def leak():
    """+24 GiB/h on 40 GiB, for 75 min."""
    return for_long(ramp(42 * GIB, 72 * GIB, 4500))


@case(near="gpu-leak")
def slow_growth():
    """+2 GiB/h: below 5 % of the device in that time."""
    return for_long(ramp(42 * GIB, 44.5 * GIB, 4500))


@case(near="gpu-leak")
def epoch_spikes():
    """The evaluation of each epoch takes 12 GiB more for 2 min."""
    return for_long(wave(42 * GIB, 54 * GIB, 900, 0.13))


@case(near="gpu-leak")
def rare_steps():
    """Two longer sequences raise the high-water mark by 3 GiB each."""
    return for_long(steps(42 * GIB, (1500, 45 * GIB), (2600, 48 * GIB)))


@case(near="gpu-leak")
def growth_that_ends():
    """A cache fills in the first 35 min."""
    return for_long(ramp(42 * GIB, 54 * GIB, 2100))


@case(near="gpu-leak alloc-all-tf")
def staircase():
    """TensorFlow's regions double slowly, over 40 min."""
    return for_long(doubling(45 * GIB, every_s=420), framework="tf")


@case(unknown="gpu-leak")
def leak_not_yet():
    """+8 GiB/h for 40 min: too short to tell."""
    return for_long(ramp(42 * GIB, 48 * GIB, 2400), seconds=2400)


@case("gpu-mem-full:info", near="gpu-leak")
def full_and_flat():
    """98 % for an hour, no growth."""
    return for_long(torch(0.985 * A100.total - A100.reserved), seconds=3900)


# -- leftover-procs, foreign-proc ------------------------------------------------------------------


def beside(other, main_until=1e12, busy=90, seconds=1200, **rest):
    """The job's process, and another one on its GPU."""
    main = Proc(4312, torch(45 * GIB), until=main_until)
    return run(seconds, Node([Gpu(busy, [main, other])], **rest), live=True)


@case("leftover-procs:warning", near="foreign-proc")
def left_over_from_before():
    """The user's own process of no job holds 20 GiB."""
    return beside(Proc(900, lambda _: 20 * GIB, in_job=False, job="", sm=0, cpu=0, since=0))


@case("leftover-procs:warning", near="foreign-proc gpu-oom-suspect")
def orphan_after_a_crash():
    """One rank died after 10 min; another one is orphaned, holds 30 GiB and does nothing."""
    made = beside(
        Proc(4313, lambda _: 30 * GIB, ppid=1, sm=steps(50, (590, 0)), cpu=steps(90, (590, 0)))
    )
    other = Proc(4500, torch(20 * GIB), since=620)
    gpu = made.nodes[0].gpus[0]
    gpu.procs = [Proc(4312, torch(25 * GIB), until=590), gpu.procs[1], other]
    return made


@case(near="leftover-procs foreign-proc")
def orphan_that_works():
    """The same orphan, but it computes: a daemon of the launcher's."""
    made = beside(Proc(4313, lambda _: 30 * GIB, ppid=1, sm=40, cpu=80))
    gpu = made.nodes[0].gpus[0]
    gpu.procs = [Proc(4312, torch(25 * GIB), until=590), gpu.procs[1]]
    return made


@case(near="leftover-procs foreign-proc")
def a_context_of_its_own():
    """A process of no job with 20 MiB: too small to matter."""
    return beside(Proc(900, lambda _: 20 * (1 << 20), in_job=False, job="", sm=0, since=0))


@case("foreign-proc:warning", near="leftover-procs")
def another_user():
    """Another user's process holds 11 GiB on the job's GPU."""
    return beside(Proc(9921, lambda _: 11 * GIB, own=False, in_job=False, job="", since=0, sm=5))


@case("foreign-proc:warning", near="leftover-procs gpus-partly-idle")
def astray():
    """A process of the job runs on a GPU that the job does not hold."""
    gpus = [Gpu(90), Gpu(80, [Proc(4400, torch(30 * GIB))], visible=False)]
    return run(1200, Node(gpus, gpus_held=1), live=True)


@case(near="foreign-proc leftover-procs")
def services():
    """MPS and DCGM have their own processes there."""
    made = beside(Proc(800, lambda _: 300 * (1 << 20), name="nvidia-cuda-mps-server", own=False,
                       in_job=False, job="", since=0, sm=0))  # fmt: skip
    dcgm = Proc(801, lambda _: 300 * (1 << 20), name="nv-hostengine", own=False, in_job=False,
                job="", since=0, sm=0)  # fmt: skip
    gpu = made.nodes[0].gpus[0]
    gpu.procs = [*gpu.procs, dcgm]
    return made
