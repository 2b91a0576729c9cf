"""Runs the device collector in a process of its own, over an emulated driver."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from gpumon.model.reading import Missing
from gpumon.model.sample import Event, State
from tests.nvml.emulator import Emulated

ROOT = Path(__file__).parents[2]

#: reads options (JSON) from its arguments, writes one JSON line
_PROGRAM = """
import json, os, struct, subprocess, sys, time
from gpumon.collect.base import Schedule, Tick
from gpumon.collect.nvml.collector import DeviceCollector
from gpumon.model.reading import Missing
options = json.loads(sys.argv[1])
Schedule.everything = options["everything"]
collector = DeviceCollector(options["interval_s"], **options["arguments"])
began = time.monotonic()
collector.start(options["start_s"])
out = {"start_s": time.monotonic() - began, "ticks": []}

def plain(reading):
    return [reading.reason, reading.detail] if isinstance(reading, Missing) else reading

def told():
    return {
        "driver": collector.driver, "nvml": collector.nvml, "cuda": collector.cuda,
        "notes": collector.notes, "changed": collector.changed,
        "devices": [
            {**device._asdict(), "mig": device.mig and device.mig._asdict(),
             "label": device.label,
             "facts": {name: plain(fact) for name, fact in device.facts.items()}}
            for device in collector.devices
        ],
    }

clock_s = time.monotonic()

def one(number):
    tick = Tick(time.time(), clock_s + number * options["interval_s"])
    collector.changed = False
    began = time.monotonic()
    collector.collect(tick)
    took_s = time.monotonic() - began
    rows = [
        [entity, key, {name: plain(value) for name, value in row.items()}]
        for entity, found in tick.rows.items() for key, row in found.items()
    ]
    out["ticks"].append({
        "time": tick.time, "took_s": took_s, "rows": rows, "states": list(tick.states.items()),
        "events": tick.events, "told": told(),
    })
    return took_s

out["told"] = told()
cpu_s = time.process_time()
for number in range(options["ticks"]):
    took_s = one(number)
    for text in options["after"].get(str(number), []):
        if text.startswith("$ "):
            subprocess.run(text[2:], shell=True, check=True)
            continue
        with open(options["override"] + ".new", "w") as file:
            now = time.time() - float(os.environ["FAKE_NVML_EPOCH"])
            file.write(text.replace("NOW", repr(now)))
        os.replace(options["override"] + ".new", options["override"])
        time.sleep(0.05)  # the driver looks for changes every 20 ms
    if str(number) in options["clock"]:
        with open(os.environ["FAKE_WALL_CLOCK"], "r+b") as file:
            file.write(struct.pack("d", options["clock"][str(number)]))
    if number + 1 < options["ticks"] and not options["hurry"]:
        time.sleep(max(0, options["interval_s"] - took_s))
# not ru_maxrss: that begins with what the parent held when it forked
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
out["rss_bytes"] = int(status["VmHWM"].split()[0]) * 1024
out["cpu_s"] = time.process_time() - cpu_s
collector.close()
print(json.dumps(out))
"""


class Ticked(NamedTuple):
    """One tick: rows as the collector put them, and what it told of the devices then."""

    time: float
    took_s: float
    device: dict[int, dict[str, Any]]
    usage: dict[tuple[int, int], dict[str, Any]]
    states: dict[int, State]
    events: list[Event]
    told: dict[str, Any]


class Collected(NamedTuple):
    told: dict[str, Any]  # after `start`
    start_s: float
    cpu_s: float
    ticks: list[Ticked]
    rss_bytes: int = 0  # most memory ever held

    def latest(self) -> dict[int, dict[str, Any]]:
        """Device key -> its newest readings over all ticks."""
        rows: dict[int, dict[str, Any]] = {}
        for tick in self.ticks:
            for key, row in tick.device.items():
                rows.setdefault(key, {}).update(row)
        return rows


def collect(
    gpus: Emulated,
    ticks: int = 1,
    interval_s: float = 0.3,
    *,
    start_s: float = 30.0,
    everything: bool = False,
    hurry: bool = False,
    after: dict[int, list[str]] | None = None,
    clock: dict[int, float] | None = None,
    **arguments: Any,
) -> Collected:
    """Start a collector, take ticks, close it.

    `hurry`: ticks follow each other at once, though their clocks are an interval apart.
    `after`: scenario texts that win from the end of a tick on; NOW is the scenario's time then.
    A text `$ COMMAND` is run by the shell instead.
    `clock`: seconds added to the wall clock from the end of a tick on (with a settable clock).

    Unless said otherwise a tick waits long for its answers, so that a slow machine sees what
    a fast one sees; tests of deadlines set `deadline_s`.
    """
    arguments.setdefault("deadline_s", 20.0)
    options = {
        "ticks": ticks,
        "interval_s": interval_s,
        "start_s": start_s,
        "everything": everything,
        "hurry": hurry,
        "after": {str(number): texts for number, texts in (after or {}).items()},
        "clock": {str(number): added_s for number, added_s in (clock or {}).items()},
        "override": gpus.env["FAKE_NVML_OVERRIDE"],
        "arguments": arguments,
    }
    done = gpus.run([sys.executable, "-c", _PROGRAM, json.dumps(options)], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    return Collected(
        _told(out["told"]),
        out["start_s"],
        out["cpu_s"],
        [_tick(one) for one in out["ticks"]],
        out["rss_bytes"],
    )


def busy(got: Collected, key: int) -> list[Any]:
    """busy_percent of one device, tick by tick; None where a tick has none."""
    return [tick.device.get(key, {}).get("busy_percent") for tick in got.ticks]


def _tick(one: dict[str, Any]) -> Ticked:
    rows: dict[str, dict[Any, dict[str, Any]]] = {"device": {}, "usage": {}}
    for entity, key, row in one["rows"]:
        rows[entity][tuple(key) if isinstance(key, list) else key] = _readings(row)
    return Ticked(
        one["time"],
        one["took_s"],
        rows["device"],
        rows["usage"],
        {key: State(*state) for key, state in one["states"]},
        [Event(*event) for event in one["events"]],
        _told(one["told"]),
    )


def _told(told: dict[str, Any]) -> dict[str, Any]:
    for device in told["devices"]:
        device["facts"] = _readings(device["facts"])
    return told


def _readings(row: dict[str, Any]) -> dict[str, Any]:
    return {name: Missing(*v) if isinstance(v, list) else v for name, v in row.items()}
