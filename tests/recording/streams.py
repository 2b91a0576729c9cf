"""Small streams in which anything may happen, and recordings of them with rollup lines."""

from __future__ import annotations

import random
import time

from gpumon.analysis.run import run_of
from gpumon.model.fields import GROUP_BY_KEY
from gpumon.model.reading import LOST, UNSUPPORTED, Missing
from gpumon.model.sample import Device, Event, Header, JobContext, Sample, State
from gpumon.recording import Recording
from gpumon.recording.reader import frames_of
from tests.frames.alike import differences
from tests.frames.framing import FramedRecorder, gather
from tests.recording import made

JOB = JobContext("4711", cpus=8, mem_limit_bytes=64 << 30)
KINDS = (
    "comes", "leaves", "vanishes", "xid", "lost", "well", "back", "gap", "header", "slower", "mark",
    "missing", "told", "grows", "probe",
)  # fmt: skip


def header(devices=2, interval_s=1.0):
    facts = {"mem_total_bytes": 80 << 30, "gpm": Missing("unsupported", "needs Hopper")}
    return made.header(job=JOB)._replace(
        devices=[Device(n, n, f"GPU-{n}", "NVIDIA A100", n, None, facts) for n in range(devices)],
        interval_s=interval_s,
    )


def stream(seed, ticks, happenings, interval_s=1.0):
    """Headers and samples; `happenings`: (tick, kind) of what happens when."""
    rng = random.Random(seed)
    now, mono, devices, starts = made.START, 100.0, 2, 0
    here: dict[int, Event] = {}
    lost = missing = False
    probed = True
    words = []  # of processes that end
    counters = {"energy_j": 5e6, "cpu_s": 100.0}
    yield header(devices, interval_s)
    for tick in range(ticks):
        now, mono = now + interval_s, mono + interval_s
        events = []
        for kind in [kind for at, kind in happenings if at == tick]:
            pid = rng.choice((10, 11, 12))
            if kind in ("comes", "told"):
                starts += kind == "comes"
                facts = {"user": "ada", "command": f"train\x1b[2J {starts}", "name": "python",
                         "own": True, "in_job": True, "start": made.START + starts,
                         "framework": rng.choice(("torch", "jax", ""))}  # fmt: skip
                here[pid] = Event(now, "process", pid=pid, data=facts)
                events.append(here[pid])
            elif kind in ("leaves", "vanishes") and here:
                pid = rng.choice(list(here))
                del here[pid]
                words.append(pid)
                if kind == "leaves":
                    events.append(Event(now, "process-end", pid=pid, text="done"))
            elif kind == "xid":
                events.append(Event(now, "xid", rng.randrange(3), text="79"))
            elif kind in ("lost", "well"):
                lost = kind == "lost"
            elif kind == "back":
                now -= rng.choice((3.0, 25.0, 700.0))
            elif kind == "gap":
                skipped_s = interval_s * rng.randrange(3, 90)
                now, mono = now + skipped_s, mono + skipped_s
            elif kind in ("header", "slower"):
                devices = rng.choice((1, 2, 3)) if kind == "header" else devices
                interval_s *= 3 if kind == "slower" else 1
                yield header(devices, interval_s)._replace(time=now, mono=mono)
            elif kind == "mark":
                events.append(Event(now, "mark", text="epoch \x1b[31m2"))
            elif kind == "missing":
                missing = not missing
            elif kind == "probe":
                probed = not probed
            elif kind == "grows":
                counters["energy_j"] = 0.0
        counters["energy_j"] += rng.randrange(300)
        counters["cpu_s"] += rng.random()
        rows = _rows(rng, tick, devices, here, counters, missing)
        rows.update(_pools(rng, tick, devices, here if probed else (), words))
        words = []
        states = {}
        if lost:
            states = {0: State("lost", now, "Xid 79")}
            rows["device"][0] = dict.fromkeys(rows["device"][0], LOST)
        yield Sample(now, mono, rows, states, events)


def _rows(rng, tick, devices, here, counters, missing):
    def row(group, **values):
        return {f.name: values.get(f.name, UNSUPPORTED) for f in GROUP_BY_KEY[group].fields}

    used = 2 << 30
    rows = {"device": {}, "usage": {}, "process": {}}
    for n in range(devices):
        busy = UNSUPPORTED if missing else rng.choice((0, 0, rng.randrange(101)))
        own = rows["device"][n] = row(
            "device.fast", busy_percent=busy, mem_controller_percent=0, mem_used_bytes=used,
            mem_reserved_bytes=1 << 28, power_w=Missing("error", "\x1bbad") if missing else 71.3,
        )  # fmt: skip
        if tick % 2 == 0:
            own.update(row("device.clocks", sm_clock_mhz=1410, mem_clock_mhz=1215,
                           throttle_mask=rng.choice((0, 1, 4, 1 << 40))))  # fmt: skip
            own.update(row("device.links", energy_j=counters["energy_j"]))
            own.update(row("device.processes", processes=len(here)))
        for pid in here if tick % 2 == 0 else ():
            rows["usage"][n, pid] = row(
                "usage.usage", mem_bytes=(1 << 30) + rng.choice((0, 1 << 20)), sm_percent=3
            )
    rows["program"] = {
        pid: row("program.program", steps=3 * tick, step_us=rng.randrange(1, 9) * 1000, rank=pid,
                 place=f"a\x1b.py:{rng.randrange(9)} f", waits_for=rng.choice(("", "data")),
                 data_wait_percent=rng.randrange(100))
        for pid in here
        if tick % 2 == 0
    }  # fmt: skip
    for pid in here:
        rows["process"][pid] = row("process.process", cpu_percent=rng.randrange(90), threads=4)
    rows["host"] = {"": row("host.host", cpu_percent=rng.randrange(100))}
    rows["job"] = {"": row("job.cgroup", cpu_cores_used=rng.choice((3.5, 2.25)),
                           cpu_s=counters["cpu_s"], mem_used_bytes=5 << 30)}  # fmt: skip
    rows["disk"] = {"scratch": row("disk.disk", path="/scratch\x07", used_bytes=tick << 20)}
    return {entity: table for entity, table in rows.items() if table}


def _pools(rng, tick, devices, here, words):
    """Of the processes that are here, every few seconds; what ends tells its last, too."""
    told = [*(here if tick % 2 == 0 else ()), *words, 99]
    rows = {(n, pid): _pool(rng, tick, pid) for n in range(devices) for pid in told if pid != 11}
    return {"pool": rows} if len(told) > 1 else {}


def _pool(rng, tick, pid):
    told = {
        "used_bytes": rng.randrange(1 << 30),
        "peak_bytes": (1 << 30) + tick,
        "ooms": tick // 99,
    }
    if pid == 10:
        told.update(reserved_bytes=rng.randrange(2 << 30), reserved_peak_bytes=2 << 30, retries=3)
    return {f.name: told.get(f.name, UNSUPPORTED) for f in GROUP_BY_KEY["pool.pool"].fields}


def record(path, items, *, frame_s=120.0, in_haste=False, phase=0.0, framer=None):
    """With frames; `framer`: what makes these."""
    clock = [0.0]
    recorder = FramedRecorder(str(path), clock=lambda: clock[0], frame_s=frame_s, phase=phase)
    recorder.framer = framer or recorder.framer
    for item in items:
        clock[0] = item.mono
        recorder.header(item) if isinstance(item, Header) else recorder.add(item)
    while in_haste and recorder.pending_bytes:
        time.sleep(0.01)
    recorder.close("that is all", in_haste=in_haste)
    assert not recorder.failed
    return path


def by_frames(path, *, shown=False):
    """The run data by the frames of a recording, and how many of them were read, not built."""
    with Recording(str(path)) as recording:
        stretches = list(recording.stretches(shown=shown))
        run = run_of([("gpu01", frames_of(stretches))])
        return run.data(), sum(each.opened() is not None for each in stretches)


def same_data(path):
    """Frames and samples give the same; gives the number of frames that were read."""
    data, count = by_frames(path)
    with Recording(str(path)) as recording:
        assert differences(gather([("gpu01", recording.items())]), data) == []
    return count
