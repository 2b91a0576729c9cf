"""What device memory says about need (findings, 4, 7 and 8): one case per allocator."""

from tests.corpus.cases import case
from tests.corpus.generator import Gpu, Node, Proc
from tests.corpus.hardware import (
    A100,
    CONTEXT,
    GIB,
    H100,
    H200,
    MIB,
    MIG_5,
    MIG_10,
    P100_8,
    RTX3090,
    V100,
    doubling,
    jax,
    llama,
    pool,
    tensorflow,
    tensorflow_refused,
    torch,
    vllm,
)
from tests.corpus.jobs import run
from tests.corpus.signals import ramp, steps

_CLEAR = "alloc-all-tf alloc-all-jax alloc-all-kv alloc-all-pool"


def held(mem, framework="torch", model=A100, seconds=900, mig="", live=True, busy=70, **rest):
    """A GPU at work, watched every second."""
    proc = Proc(mem=mem, framework=framework, **rest)
    return run(seconds, Node([Gpu(busy, [proc], model, mig=mig)]), live=live, interval=1)


# -- reserved ahead --------------------------------------------------------------------------------


@case("alloc-all-tf:info", truth="unknown", near="alloc-all-jax alloc-all-pool")
def tensorflow_a100():
    """TensorFlow on an A100 80 GB: 98.1 %."""
    return held(tensorflow(A100), "tf")


@case("alloc-all-tf:info gpu-unreadable:info", truth={"gpu01:0/gi3": "unknown"})
def tensorflow_smallest_slice():
    """TensorFlow on 1g.5gb: 68.4 %, and nothing left all the same."""
    return held(tensorflow(MIG_5), "tf", MIG_5, mig="1g.5gb")


@case("alloc-all-tf:info gpu-unreadable:info", truth={"gpu01:0/gi3": "unknown"})
def tensorflow_slice():
    """TensorFlow on 1g.10gb: 84.2 %."""
    return held(tensorflow(MIG_10), "tf", MIG_10, mig="1g.10gb")


@case("alloc-all-tf:info", truth="unknown")
def tensorflow_3090():
    """TensorFlow on an RTX 3090: 93.8 %."""
    return held(tensorflow(RTX3090), "tf", RTX3090)


@case("alloc-all-tf:info", truth="unknown")
def tensorflow_v100():
    """TensorFlow on a V100: 96.8 %."""
    return held(tensorflow(V100), "tf", V100)


@case("alloc-all-tf:info", truth="unknown")
def tensorflow_h100():
    """TensorFlow on an H100 leaves 1800 MiB."""
    return held(tensorflow(H100), "tf", H100)


@case("alloc-all-tf:info", truth="unknown")
def tensorflow_refused_twice():
    """The driver refused two chunks: 0.81 of the first."""
    return held(tensorflow_refused(A100, 2), "tf")


@case("alloc-all-tf:info", truth="unknown")
def tensorflow_beside_another():
    """Another user's process holds 10 GiB: TensorFlow takes the rest."""
    other = Proc(9000, lambda _: 10 * GIB, "cuda-other", own=False, in_job=True, since=0)
    mine = Proc(mem=tensorflow(A100, 10 * GIB), framework="tf")
    return run(900, Node([Gpu(70, [other, mine])]), live=True, interval=1)


@case("alloc-all-tf:info", truth="unknown")
def torch_mapped_beside_tensorflow():
    """PyTorch's libraries mapped in a process that stands on TensorFlow's plateau."""
    return held(tensorflow(A100), "tf", hints={"also": "torch"})


@case("alloc-all-jax:info", truth="unknown", near="alloc-all-tf alloc-all-pool")
def jax_a100():
    """JAX on an A100: 75 % and a context."""
    return held(jax(A100), "jax")


@case("alloc-all-jax:info", truth="unknown")
def jax_told_a_fraction():
    """JAX with XLA_CLIENT_MEM_FRACTION=.5 on an H200."""
    return held(jax(H200, 0.5), "jax", H200, hints={"XLA_CLIENT_MEM_FRACTION": ".5"})


@case("alloc-all-kv:info", truth="unknown", near="alloc-all-pool alloc-all-tf")
def vllm_a100():
    """vLLM at 0.9 of an A100."""
    return held(vllm(A100), "vllm", command="vllm serve m")


@case("alloc-all-kv:info", truth="unknown")
def vllm_told_half():
    """vLLM told --gpu-memory-utilization 0.5."""
    command = "vllm serve m --gpu-memory-utilization 0.5"
    return held(vllm(A100, 0.5), "vllm", command=command)


@case("alloc-all-pool:info", truth="unknown", near="alloc-all-tf alloc-all-jax alloc-all-kv")
def pool_of_half():
    """No library known; one jump to half of the device, flat for 14 min."""
    return held(pool(A100), "", name="sim", command="./sim")


@case("alloc-all-pool:info", truth="unknown", unknown="gpu-mem-headroom gpu-mem-full")
def rmm_pool():
    """RMM's pool takes half: need unknown."""
    return held(pool(A100), "rmm", name="python", command="python cudf.py", seconds=700)


# -- grown by need ---------------------------------------------------------------------------------


@case(truth="upper-bound", near=_CLEAR)
def tensorflow_growing():
    """TensorFlow with growth: doublings."""
    return held(doubling(40 * GIB), "tf", hints={"TF_FORCE_GPU_ALLOW_GROWTH": "true"})


@case(truth="upper-bound", near=_CLEAR)
def tensorflow_growing_unseen():
    """The same with growth set in Python: the environment does not tell."""
    return held(doubling(40 * GIB), "tf")


@case(truth="upper-bound", near=_CLEAR)
def jax_growing():
    """JAX without preallocation."""
    return held(doubling(40 * GIB), "jax", hints={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})


@case(truth="upper-bound", near=_CLEAR + " gpu-mem-full")
def torch_large_batch():
    """PyTorch at 92.9 % of a card of 7611 MiB, 42 MiB from TensorFlow's plateau there."""
    return held(torch(7069 * MIB - 3 * MIB), "torch", P100_8)


@case(truth="upper-bound", near=_CLEAR)
def torch_three_quarters():
    """PyTorch that happens to stand at JAX's 75 %."""
    return held(torch(0.755 * A100.total), "torch")


@case("gpu-mem-full:info", truth="upper-bound", near=_CLEAR)
def torch_genuinely_full():
    """PyTorch at 98.5 %: full, reserved, and no failure."""
    return held(torch(0.985 * A100.total - A100.reserved), "torch")


@case("gpu-mem-full:warning", truth="real", near=_CLEAR)
def llama_full():
    """llama.cpp at 98 % of an RTX 3090: weights and context, needed."""
    mem = llama(0.985 * RTX3090.total - RTX3090.reserved)
    return held(mem, "llama", RTX3090, command="llama-server")


@case(truth="upper-bound", near="gpu-mem-full " + _CLEAR)
def torch_nearly_full():
    """PyTorch at 96 %."""
    return held(torch(0.96 * A100.total - A100.reserved), "torch")


@case(truth="upper-bound", near=_CLEAR)
def cupy():
    """CuPy's pool grows and keeps."""
    return held(torch(50 * GIB), "cuda-other", command="python sim.py")


@case(near="alloc-all-pool", truth="upper-bound")
def plain_cuda_four_tenths():
    """No library known, one jump to 42 %: no round share."""
    return held(pool(A100, 0.42), "", name="sim", command="./sim", busy=50)


@case(near="alloc-all-pool", truth="upper-bound")
def plain_cuda_that_moves():
    """No library known, one jump to half, but it moves by 2 % afterwards."""
    mem = steps(CONTEXT, (3, ramp(0.49 * A100.total, 0.51 * A100.total, 600)))
    return held(mem, "", name="sim", command="./sim", busy=50)
