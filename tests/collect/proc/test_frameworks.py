import re
import shutil
import subprocess
import sys

import pytest

from gpumon.collect.proc.frameworks import (
    VERDICTS,
    environment_hints,
    find_frameworks,
    find_purposes,
    parse_environ,
)
from gpumon.collect.procfs import ProcFs

SITE = "/home/u/my env/lib/python3.11/site-packages"


def maps(*paths):
    lines = ["7ffd1000-7ffd2000 rw-p 00000000 00:00 0      [stack]", "7f01-7f02 rw-p 0 00:00 0"]
    for path in paths:  # mapped in pieces, as the linker does
        lines += [
            f"7f00-7f01 {flags} 00001000 08:01 1234      {path}" for flags in ("r--p", "r-xp")
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("path", "tag"),
    [
        (f"{SITE}/tensorflow/libtensorflow_framework.so.2", "tf"),
        (f"{SITE}/tensorflow/libtensorflow_cc.so.2", "tf"),
        (f"{SITE}/tensorflow/python/lib_pywrap_tensorflow_common.so", "tf"),
        (f"{SITE}/tensorflow/python/_pywrap_tensorflow_internal.so", "tf"),
        (f"{SITE}/jax_plugins/xla_cuda12/xla_cuda_plugin.so", "jax"),
        (f"{SITE}/jax_cuda12_plugin/_versions.so", "jax"),
        (f"{SITE}/jaxlib/xla_extension.so", "jax"),
        (f"{SITE}/torch/lib/libtorch_cuda.so", "torch"),
        (f"{SITE}/torch/lib/libc10_cuda.so", "torch"),
        (f"{SITE}/torch/lib/libtorch_cuda_linalg.so (deleted)", "torch"),
        (f"{SITE}/vllm/_C.abi3.so", "vllm"),
        (f"{SITE}/vllm/_moe_C.abi3.so", "vllm"),
        (f"{SITE}/vllm/_C_stable_libtorch.abi3.so", "vllm"),
        (f"{SITE}/vllm/_flashmla_C.abi3.so", "vllm"),
        (f"{SITE}/librmm/lib64/librmm.so", "rmm"),
        (f"{SITE}/rmm/librmm/_torch_allocator.so", "rmm"),
        ("/usr/lib/ollama/cuda_v12/libggml-cuda.so", "llama"),
        ("/opt/llama/libllama.so", "llama"),
        (f"{SITE}/cupy_backends/cuda/api/driver.cpython-311-x86_64-linux-gnu.so", "cuda-other"),
        ("/usr/local/cuda/lib64/libcudart.so.12.4.127", "cuda-other"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03", "cuda-other"),
        # not a GPU side, or not that library
        (f"{SITE}/torch/lib/libtorch_cpu.so", ""),
        (f"{SITE}/jaxlib/libjax_common.so", ""),
        (f"{SITE}/jaxlib/_jax.so", ""),
        ("/data/libtorch_cuda.so/results.csv", ""),
        ("/data/libtorch_cuda.so.txt", ""),
        ("/data/mylibtorch_cuda.so", ""),
    ],
)
def test_tag_of_a_library(path, tag):
    assert find_frameworks(maps(path), "") == ([tag] if tag else [])


def test_several_frameworks_in_one_process():
    both = maps(
        "/usr/lib/libcuda.so.1",
        f"{SITE}/rmm/librmm.so",
        f"{SITE}/tensorflow/libtensorflow_framework.so.2",
        f"{SITE}/torch/lib/libtorch_cuda.so",
    )
    assert find_frameworks(both, "") == ["torch", "tf", "rmm"]
    assert find_frameworks(both, "VLLM::EngineCore")[0] == "vllm"


@pytest.mark.parametrize(
    ("command", "tag"),
    [
        ("VLLM::Worker_TP0", "vllm"),
        ("vllm serve meta/Llama", "vllm"),
        ("/env/bin/python3.11 /env/bin/vllm serve x", "vllm"),
        ("python3 -m vllm.entrypoints.openai.api_server", "vllm"),
        ("/usr/bin/ollama serve", "llama"),
        ("./llama-server -m x.gguf", "llama"),
        ("vim vllm_serve.py", ""),
        ("less ollama.log", ""),
        ("", ""),
    ],
)
def test_tag_of_a_command(command, tag):
    assert find_frameworks("", command) == ([tag] if tag else [])


@pytest.mark.parametrize(
    ("path", "purpose"),
    [
        ("/env/mujoco/libmujoco.so.3.2.4", "environments"),
        ("/env/ale_py/_ale_py.cpython-311-x86_64-linux-gnu.so", "environments"),
        ("/env/lib/libOpenMM.so.8.1", "dynamics"),
        ("/opt/gromacs/lib/libgromacs_mpi.so.9", "dynamics"),
        ("/opt/petsc/libpetsc.so.3.21", "solver"),
        ("/data/libmujoco.so/train.bin", None),
        ("/x/mylibmujoco.so", None),
    ],
)
def test_purpose_of_a_library(path, purpose):
    assert find_purposes(maps(path)) == ([purpose] if purpose else [])


def test_maps_of_a_real_process(tmp_path):
    """A library under a framework's name, loaded by a real process."""
    library = shutil.copy(_some_library(), tmp_path / "libtorch_cuda.so")
    code = f"import ctypes; ctypes.CDLL({str(library)!r}); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        content = ProcFs().content(child.pid, "maps")
        child.communicate(b"\n")
    assert find_frameworks(content.decode(), "") == ["torch"]


def _some_library():
    """One that this Python has loaded and that another may load a copy of."""
    with open("/proc/self/maps") as file:
        paths = [line.split()[-1] for line in file if ".so" in line]
    return next(path for path in paths if re.search(r"/lib(?:m|ffi|z)[.-]", path))


# -- environment -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true", "true"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "0", "false"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "my secret", "set"),
        ("TF_GPU_ALLOCATOR", "cuda_malloc_async", "cuda_malloc_async"),
        ("TF_GPU_ALLOCATOR", "other text", "set"),
        ("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "2048", "2048"),
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "False", "false"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", ".5", "0.5"),
        ("XLA_CLIENT_MEM_FRACTION", "0.75+", "0.75"),
        ("XLA_CLIENT_MEM_FRACTION", "0.75-0.85", "0.75"),
        ("XLA_CLIENT_MEM_FRACTION", "nan", "set"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "Platform", "platform"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "x", "set"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "set"),
        ("OMP_NUM_THREADS", "8", "8"),
        ("OMP_NUM_THREADS", "8,4", "set"),
        ("OMP_NUM_THREADS", "٣", "set"),
        ("CUDA_VISIBLE_DEVICES", "0,1", "2"),
        ("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "1"),
        ("CUDA_VISIBLE_DEVICES", "", "0"),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles", "0"),
        ("CUDA_VISIBLE_DEVICES", "-1", "0"),
    ],
)
def test_verdicts(name, value, verdict):
    assert environment_hints({name: value}) == {name: verdict}


def test_no_text_of_the_environment_passes():
    environ = dict.fromkeys(VERDICTS, "s3cr3t s3cr3t") | {"HF_TOKEN": "s3cr3t", "HOME": "s3cr3t"}
    hints = environment_hints(environ)
    assert set(hints) == set(VERDICTS)
    assert "s3cr3t" not in str(hints)


def test_environment_of_a_real_process():
    environ = {"OMP_NUM_THREADS": "3", "EMPTY": "", "SPACED": "a b=c"}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
    ) as child:
        child.stdout.readline()
        content = ProcFs().content(child.pid, "environ")
        child.communicate(b"\n")
    assert parse_environ(content).items() >= environ.items()


def test_an_environment_that_a_title_overwrote():
    assert parse_environ(b"\0" * 300) is None
    assert parse_environ(b"VLLM::EngineCore\0\0\0") is None
    assert parse_environ(b"") is None
