"""Work for a GPU, each kind in a process of its own: `python -m tests.gpu.loads NAME --seconds N`.

Prints one line of JSON, {"backend":, "pid":}, when the device is in use, and ends after N seconds.
Without torch, and for what no framework does on request, CUDA's driver interface is called
directly. Memory is only ever taken by plain allocations.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import json
import os
import sys
import time
from typing import Any

_GIB = 2**30
_OUT_OF_MEMORY = 2
_THREADS = 256
#: clock cycles of one kernel: about 25 ms, so that the gaps between kernels do not count
_CYCLES = 50_000_000

#: every thread spins until the SM's clock has moved on by `cycles`; Turing or later
PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
again:
    mov.u64 %rd3, %clock64;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra again;
    ret;
}
"""


class CudaError(Exception):
    """A call of the driver interface that failed; `code` is its CUresult."""

    def __init__(self, name: str, code: int, text: str) -> None:
        super().__init__(f"{name}: {text} ({code})")
        self.code = code


class Cuda:
    """The first device, through libcuda.so.1: memory and one kernel."""

    def __init__(self) -> None:
        self._dll = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        module, self._spin = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self._spin), module, b"spin")

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self._dll, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._dll.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(name, code, (text.value or b"unknown error").decode())

    def allocate(self, size_bytes: int) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        return pointer

    def fill(self, pointer: ctypes.c_uint64, size_bytes: int) -> None:
        """Write the memory once, at the speed of the memory."""
        self.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(size_bytes))

    def spin(self, blocks: int) -> None:
        """Keep `blocks` blocks busy for one kernel, and wait for it."""
        cycles = ctypes.c_uint64(_CYCLES)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(cycles))
        self.call(
            "cuLaunchKernel", self._spin, blocks, 1, 1, _THREADS, 1, 1, 0, None, arguments, None
        )
        self.call("cuCtxSynchronize")


def ready(backend: str) -> None:
    print(json.dumps({"backend": backend, "pid": os.getpid()}), flush=True)


def train_torch(end: float, device: str) -> None:
    """A small network in bf16 that learns noise; on the processor a tiny one, to try the code."""
    torch: Any = importlib.import_module("torch")
    width = 4096 if device == "cuda" else 32
    layers = [torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs = torch.randn(2 * width, width, device=device)
    steps = 0
    while steps == 0 or time.monotonic() < end:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(inputs), inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()  # waits for the device
        if steps == 0:
            ready("torch")
        steps += 1


def train(end: float, dry: bool) -> None:
    """PyTorch, where there is one; else every SM busy, and memory traffic, but no tensor cores."""
    if importlib.util.find_spec("torch") is not None:
        train_torch(end, "cpu" if dry else "cuda")
    elif dry:
        raise ImportError("torch is not installed")
    else:
        _spin(end, blocks=4096, size_bytes=8 * _GIB, fill=True)


def jax(end: float, dry: bool) -> None:
    """A matrix product in JAX, which takes three quarters of the memory at its first use."""
    module: Any = importlib.import_module("jax")
    if module.default_backend() != "gpu" and not dry:
        raise OSError(f"JAX runs on {module.default_backend()} here, not on the GPU")
    matrix = module.numpy.ones((256, 256) if dry else (8192, 8192), "bfloat16")
    product = module.jit(lambda a: a @ a / a.shape[0])
    product(matrix).block_until_ready()
    ready("jax")
    while time.monotonic() < end:
        product(matrix).block_until_ready()


def tiny(end: float, dry: bool) -> None:
    """One block at a time: always a kernel running, nearly every SM idle."""
    _spin(end, blocks=1, size_bytes=_GIB // 16)


def share(end: float, dry: bool) -> None:
    """A few GiB and kernels over some of the SMs: one of two processes on a device."""
    _spin(end, blocks=64, size_bytes=3 * _GIB)


def _spin(end: float, blocks: int, size_bytes: int, fill: bool = False) -> None:
    cuda = Cuda()
    memory = cuda.allocate(size_bytes)
    ready("cuda")
    while time.monotonic() < end:
        cuda.spin(blocks)
        if fill:
            cuda.fill(memory, size_bytes)


def oom(end: float, dry: bool) -> None:
    """Take memory until there is none, hold it to the end, then die of the error."""
    cuda = Cuda()
    ready("cuda")
    size_bytes = _GIB
    while True:
        try:
            cuda.allocate(size_bytes)
        except CudaError as error:
            if error.code != _OUT_OF_MEMORY:
                raise
            size_bytes //= 4
            if size_bytes < _GIB // 64:
                time.sleep(max(0.0, end - time.monotonic()))
                raise


LOADS = {"train": train, "jax": jax, "tiny": tiny, "share": share, "oom": oom}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.loads", description=__doc__)
    parser.add_argument("name", choices=LOADS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--dry", action="store_true", help="train, jax: tiny, on the processor")
    args = parser.parse_args()
    try:
        LOADS[args.name](time.monotonic() + args.seconds, args.dry)
    except (CudaError, ImportError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
