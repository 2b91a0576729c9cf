"""Stores with one node, made by hand."""

from gpumon.model.sample import Device, Event, Header, Sample
from gpumon.model.view import Status
from gpumon.store import Store
from tests.tui.looking import Looking

NOW = 1_795_200_000.0


def one_node(count=2, job=None, notes=(), facts=None):
    """A store with one node of `count` devices of 80 GiB, and its state."""
    store = Store()
    mem = {"mem_total_bytes": 80 << 30} if facts is None else facts
    devices = [
        Device(n, n, f"GPU-{n}", "NVIDIA A100", n if job else None, None, mem) for n in range(count)
    ]
    header = Header(
        "gpu01", "b", NOW, 0.0, 1.0, "0", devices, driver="580", job=job,
        facts={"cpus": 64, "mem_total_bytes": 256 << 30}, notes=list(notes),
    )  # fmt: skip
    store.header("gpu01", header)
    store.status("gpu01", Status("live", NOW, "", "local"))
    return store


def shown(store, now=NOW, width=120, height=38):
    looking = Looking(store.nodes(), now)
    return looking, looking.text("job", width, height)


def device_row(**readings):
    return {"busy_percent": 50, "mem_used_bytes": 40 << 30, "power_w": 200.0, **readings}


def process(pid, user="ada", framework="", hints=None, ppid=1, command="python a.py", **facts):
    data = {
        "user": user, "command": command, "name": "python", "ppid": ppid, "uid": 1000,
        "start": NOW - 100, "own": True, "framework": framework, "hints": hints or {}, **facts,
    }  # fmt: skip
    return Event(NOW, "process", pid=pid, data=data)


def with_processes(*events, usage):
    store = one_node(2)
    rows = {
        "device": {0: device_row(), 1: device_row()},
        "usage": {
            key: {"type": "C", "mem_bytes": mem, "sm_percent": 10} for key, mem in usage.items()
        },
        "process": {
            event.pid: {"cpu_percent": float(event.pid), "rss_bytes": 1 << 30} for event in events
        },
    }
    store.add("gpu01", Sample(NOW, 0, rows, {}, list(events)))
    return store
