"""A job on many nodes, as its streams tell it: one node idle with a lost GPU, one that is slow.

Seeded: the same each time. As a store for views, and as recordings for the whole program.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from gpumon.model.sample import Device, Event, Header, JobContext, Rows, Sample, State
from gpumon.model.view import Status
from gpumon.recording import Recorder
from gpumon.recording.runs import SUFFIX
from gpumon.store import Store

NOW = 1_795_200_000.0
GIB = 1 << 30
IDLE, SLOW = 2, 1  # numbers of the nodes that stand out
LOST_AFTER_S = 40


def name(number: int) -> str:
    return f"gpu{number + 1:02d}"


def header(number: int, nodes: int, devices: int) -> Header:
    job = JobContext(
        "4711", "train-llama", "ada", "lab", "gpu-a100", nodes=f"gpu[01-{nodes:02d}]",
        node_count=nodes, cpus=32, mem_limit_bytes=128 * GIB, gpus=devices,
        start=NOW - 8000, end=NOW + 78400,
    )  # fmt: skip
    facts = {
        "mem_total_bytes": 80 * GIB,
        "temperature_slowdown_c": 89,
        "power_limit_default_w": 400.0,
    }
    found = [
        Device(n, n, f"GPU-{number}-{n}", "NVIDIA A100-SXM4-80GB", n, None, facts)
        for n in range(devices)
    ]
    about = {"cpus": 64, "mem_total_bytes": 512 * GIB}
    return Header(
        name(number), "b", NOW, 0.0, 1.0, "0.1.0", found,
        driver="580", cuda="13.0", job=job, facts=about,
    )  # fmt: skip


def samples(number: int, devices: int, seconds: int) -> Iterator[Sample]:
    dice = random.Random(number)
    idle, level = number == IDLE, 64 if number == SLOW else 94
    for second in range(seconds):
        rows: Rows = {"device": {}, "usage": {}, "process": {}}
        rows["host"] = {"": {
            "cpu_percent": 1.0 if idle else 61 + dice.uniform(-3, 3),
            "mem_used_bytes": (12 if idle else 180) * GIB, "load1": 30.5, "iowait_percent": 0.2,
        }}  # fmt: skip
        rows["job"] = {"": {
            "cpu_cores_used": 0.1 if idle else 19.0, "mem_used_bytes": (2 if idle else 100) * GIB,
            "mem_cache_bytes": 20 * GIB,
        }}  # fmt: skip
        traffic = 0.0 if idle else 9.8e9
        rows["net"] = {"ib0": {"rx_bytes_per_s": traffic, "tx_bytes_per_s": traffic * 1.01}}
        rows["disk"] = {"scratch": {"total_bytes": 1 << 40, "used_bytes": 400 * GIB}}
        events, states = [], {}
        for n in range(devices):
            busy = 0 if idle else level + dice.uniform(-5, 5)
            rows["device"][n] = {
                "busy_percent": busy, "mem_used_bytes": (0 if idle else 70) * GIB,
                "power_w": 60.0 if idle else 300 + dice.uniform(-9, 9),
                "temperature_c": 31 if idle else 61, "throttle_mask": 0,
                "processes": 0 if idle else 1,
            }  # fmt: skip
            if idle:
                continue
            rows["usage"][n, 100 + n] = {"type": "C", "mem_bytes": 70 * GIB, "sm_percent": 90}
            rows["process"][100 + n] = {"cpu_percent": 99.0, "rss_bytes": 9 * GIB}
            if second == 0:
                facts = {"user": "ada", "command": "python train.py", "name": "python",
                         "framework": "torch", "start": NOW - 7900}  # fmt: skip
                events.append(Event(NOW, "process", pid=100 + n, data=facts))
        if idle and second > LOST_AFTER_S:
            states[devices - 1] = State("lost", NOW + LOST_AFTER_S, "Xid 79")
            del rows["device"][devices - 1]
        yield Sample(NOW + second, second, rows, states, events)


def fill(nodes: int, devices: int = 8, seconds: int = 121) -> tuple[Store, float]:
    """The store after so many seconds, and the time then."""
    store = Store()
    for number in range(nodes):
        store.header(name(number), header(number, nodes, devices))
        store.status(name(number), Status("live", NOW, "", "ssh"))
        for sample in samples(number, devices, seconds):
            store.add(name(number), sample)
    return store, NOW + seconds - 1


def record(folder: Path, nodes: int, devices: int = 8, seconds: int = 121) -> None:
    """The same as recordings, a file for each node."""
    for number in range(nodes):
        recorder = Recorder(str(folder / f"{name(number)}{SUFFIX}"))
        recorder.header(header(number, nodes, devices))
        for sample in samples(number, devices, seconds):
            recorder.add(sample)
        recorder.close()
