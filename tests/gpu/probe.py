"""The driver itself, through gpumon's own calls and NVIDIA's binding: `python -m tests.gpu.probe`.

Prints JSON: the cost of every NVML call that gpumon makes, depth and period of the driver's sample
buffers, and what memory info of both versions says.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from gpumon.collect.base import Schedule
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.gpm import MIN_PERIOD_S
from gpumon.collect.nvml.gpu import Gpu
from gpumon.collect.nvml.library import Library

#: nvmlSamplingType_t
_BUFFERS = {"power": 0, "gpu": 1, "memory": 2, "sm clock": 5, "mem clock": 6}


#: (µs, code) of each call, by function
Calls = dict[str, list[tuple[float, int]]]


def timed(calls: Calls) -> Callable[[str], Any]:
    """How the binding gets a function of NVML, with a clock around every call."""
    pointer_of = nv._nvmlGetFunctionPointer

    def timed_pointer(name: str) -> Any:
        pointer = pointer_of(name)
        if name == "nvmlErrorString":  # whose type the binding sets
            return pointer

        def call(*args: Any) -> int:
            began = time.perf_counter_ns()
            code = pointer(*args)
            took_us = (time.perf_counter_ns() - began) / 1e3
            # what field values cost depends on how many are asked for
            what = f"{name} of {args[1]}" if name.endswith("FieldValues") else name
            calls.setdefault(what, []).append((took_us, code))
            return code

        return call

    return timed_pointer


def call_costs(rounds: int) -> list[dict[str, Any]]:
    """Read everything of the first GPU `rounds` times; the dearest call comes first."""
    Schedule.everything = True
    made: Calls = {}
    nv._nvmlGetFunctionPointer = timed(made)
    gpu = Gpu(Library(), 0, "/sys", str)
    gpu.open()
    for _ in range(rounds):
        gpu.read(time.monotonic())
        time.sleep(MIN_PERIOD_S)  # or GPM would be left out
    table = [
        {
            "call": name,
            "calls": len(calls),
            "median_us": round(statistics.median(us for us, _ in calls), 1),
            "max_us": round(max(us for us, _ in calls), 1),
            "codes": sorted({code for _, code in calls}),
        }
        for name, calls in made.items()
    ]
    return sorted(table, key=lambda row: -float(row["median_us"]))


def buffer(handle: Any, kind: int) -> dict[str, Any] | str:
    """How many samples a buffer holds, over how long, and how far apart: least, median, most."""
    try:
        _, samples = nv.nvmlDeviceGetSamples(handle, kind, 0)
    except nv.NVMLError as error:
        return str(error)
    times_s = sorted(sample.timeStamp / 1e6 for sample in samples)
    steps_s = [b - a for a, b in zip(times_s, times_s[1:])] or [0.0]
    return {
        "samples": len(times_s),
        "span_s": round(times_s[-1] - times_s[0], 3),
        "newest_s_ago": round(time.time() - times_s[-1], 3),
        "steps_s": [round(f(steps_s), 4) for f in (min, statistics.median, max)],
    }


def memory(handle: Any) -> dict[str, int] | str:
    """Bytes, by both versions of memory info."""
    try:
        first = nv.nvmlDeviceGetMemoryInfo(handle)
        second = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    except nv.NVMLError as error:
        return str(error)
    return {
        "total": first.total,
        "used_v1": first.used,
        "used_v2": second.used,
        "reserved_v2": second.reserved,
        "v1_less_v2": first.used - second.used,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.probe", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    calls = call_costs(parser.parse_args().rounds)
    nv.nvmlInit()
    handle = nv.nvmlDeviceGetHandleByIndex(0)
    buffers = {name: buffer(handle, kind) for name, kind in _BUFFERS.items()}
    print(json.dumps({"buffers": buffers, "memory": memory(handle), "calls": calls}))


if __name__ == "__main__":
    main()
