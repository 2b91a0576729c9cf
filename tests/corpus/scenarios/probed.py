"""What a probe tells of the memory that programs need (findings, 7 and 8)."""

from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node, Pool, Proc
from tests.corpus.hardware import A100, CONTEXT, GIB, MIG_10, jax, tensorflow, torch, vllm
from tests.corpus.jobs import run
from tests.corpus.signals import ramp, steps

_BY_NEED = "alloc-all-tf:info smaller-gpu:info"


def probed(*procs, model=A100, mig="", seconds=1800, busy=55, interval=2, **rest):
    """A GPU at work, whose processes a probe is in."""
    return run(seconds, Node([Gpu(busy, list(procs), model, mig=mig)]), interval=interval, **rest)


def pooled(peak, kept=1.3):
    """PyTorch: what is in use in its pool, and what that reserves."""
    return Pool(
        lambda second: max(0.0, torch(peak)(second) - CONTEXT) * 0.8,
        lambda second: torch(kept * peak)(second) - CONTEXT,
        0.2 * peak,
    )


def of_torch(peak, kept=1.3, pid=4312, **rest):
    return Proc(pid, torch(kept * peak), pool=pooled(peak, kept), **rest)


def of_tf(used, model=A100, pid=4312, **rest):
    return Proc(pid, tensorflow(model), "tf", pool=Pool(used), **rest)


@case(_BY_NEED, truth="measured", near="gpu-mem-full gpu-mem-retries")
def tensorflow_that_needs_nine():
    """TensorFlow took 78 of 80 GiB and used 9."""
    return probed(of_tf(steps(0, (8, 9 * GIB))))


@case("alloc-all-tf:info", truth="measured", near="smaller-gpu gpu-mem-headroom")
def tensorflow_that_needs_it():
    """TensorFlow took 78 of 80 GiB and used 60."""
    return probed(of_tf(60 * GIB))


@case("alloc-all-tf:info gpu-mem-full:warning", truth="measured", near="smaller-gpu")
def tensorflow_that_fills_it():
    """TensorFlow used all that it took."""
    return probed(of_tf(77.3 * GIB))


@case(
    "alloc-all-tf:info gpu-unreadable:info", truth={"gpu01:0/gi3": "measured"}, near="smaller-gpu"
)
def tensorflow_on_a_slice():
    """TensorFlow took 8 of 9.5 GiB of 1g.10gb and used 4."""
    return probed(of_tf(4 * GIB, MIG_10), model=MIG_10, mig="1g.10gb", interval=1)


@case("alloc-all-jax:info smaller-gpu:info", truth="measured", near="gpu-mem-retries")
def jax_that_needs_nine():
    """JAX took 60 GiB and used 9."""
    pool = Pool(9 * GIB, 60 * GIB, limit=60 * GIB)
    return probed(Proc(4312, jax(A100), "jax", pool=pool))


@case("smaller-gpu:info", truth="measured", near="gpu-mem-headroom gpu-mem-retries")
def pytorch_whose_cache_is_larger():
    """PyTorch reserved 49 GiB and used 33: an A40 holds that."""
    return probed(of_torch(33 * GIB, 1.5))


@case("gpu-mem-retries:info", truth="measured", near="smaller-gpu gpu-mem-headroom")
def pytorch_whose_cache_had_gaps():
    """The same, but it had to free its cache again and again: all of it counts."""
    proc = of_torch(33 * GIB, 1.5)
    proc.pool.retries = ramp(0, 200, 1500)
    return probed(proc)


@case("smaller-gpu:info", truth="measured")
def a_probe_silent_in_the_middle():
    """A long call of a library let nobody look for ten minutes; peaks are told later."""
    proc = of_torch(33 * GIB, 1.5)
    proc.pool.gaps = [(300, 900)]
    return probed(proc)


@case(truth="upper-bound", near="smaller-gpu")
def a_probe_that_fell_silent():
    """The disk was full after ten minutes: the rest of the run may have used more."""
    proc = of_torch(33 * GIB, 1.5)
    proc.pool.until = 600
    return probed(proc)


@case("alloc-all-tf:info", truth="unknown", unknown="smaller-gpu gpu-mem-headroom")
def a_reservation_whose_probe_fell_silent():
    """The same of TensorFlow: nobody knows what it needs."""
    proc = of_tf(9 * GIB)
    proc.pool.until = 600
    return probed(proc)


@case("alloc-all-kv:info", truth="unknown", unknown="smaller-gpu gpu-mem-full")
def a_probe_in_vllm():
    """Its cache is in use in PyTorch's pool, and no need."""
    used = lambda second: max(0.0, vllm(A100)(second) - CONTEXT)  # noqa: E731
    return probed(Proc(4312, vllm(A100), "vllm", "vllm serve", pool=Pool(used, used)))


@case("smaller-gpu:info", truth="measured", near="gpu-mem-headroom")
def two_probed_processes():
    """12 and 18 GiB in use at a time, of 24 and 36 reserved."""
    return probed(of_torch(12 * GIB, 2), of_torch(18 * GIB, 2, 4313))


@case(truth="upper-bound", near="smaller-gpu")
def a_probed_process_beside_another():
    """12 GiB in use in one; of the other only the 36 GiB that it holds are known."""
    return probed(of_torch(12 * GIB, 2), Proc(4313, torch(36 * GIB)))


@case("smaller-gpu:info", truth="measured", near="gpu-mem-headroom gpu-oom-suspect")
def one_probed_process_after_another():
    """30 GiB each, one after another: they never add up."""
    return probed(
        of_torch(30 * GIB, 1.4, until=900), of_torch(30 * GIB, 1.4, 4313, since=905), seconds=1800
    )


@case("smaller-gpu:info input-bound:warning", truth="measured", near="gpu-mem-full")
def a_forked_child_of_jax():
    """It repeats its parent's figures, but the driver lists no such process."""
    made = probed(of_torch(33 * GIB, 1.5))
    child = Proc(4400, framework="jax", pool=Pool(70 * GIB, 75 * GIB))
    made.nodes[0].procs = [child]
    return made


@case("gpu-leak:warning", truth="measured", near="gpu-mem-full")
def a_leak_within_a_reserve():
    """What is in use grows by 26 GiB an hour while all is reserved."""
    pool = Pool(ramp(4 * GIB, 56 * GIB, 7200), 60 * GIB)
    return probed(Proc(4312, steps(CONTEXT, (6, 60.5 * GIB)), pool=pool), seconds=7200, interval=5)


@case(truth="measured", near="gpu-leak")
def a_reserve_that_grows():
    """Gaps make PyTorch reserve 8 GiB more an hour; what is in use stays the same."""
    kept = ramp(44 * GIB, 60 * GIB, 7200)
    pool = Pool(42 * GIB, kept)
    held = lambda second: CONTEXT + kept(second)  # noqa: E731
    return probed(Proc(4312, held, pool=pool), seconds=7200, interval=5)


@case("gpu-oom-suspect:info", truth="measured", folds="gpu-mem-headroom")
def tries_how_large_a_batch_may_be():
    """Three allocations failed at the start, were caught, and it went on with less."""
    proc = of_torch(30 * GIB, 1.5)
    proc.pool.ooms = steps(0, (20, 3))
    return probed(proc, busy=80)
