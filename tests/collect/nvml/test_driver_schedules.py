"""Schedules of faults of the driver, drawn by a seed: any call, any code, any delay, any time.

A schedule is reproduced by its seed. GPUMON_DRIVER_SCHEDULES=A-B runs those from A to B; they
mostly wait, so several run side by side.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from gpumon.model.fields import FIELDS
from gpumon.model.reading import Missing
from tests.collect.collected import Collected, collect
from tests.nvml.emulator import Emulated, Proc, Scenario

pytestmark = pytest.mark.slow

_FIRST, _LAST = map(int, os.environ.get("GPUMON_DRIVER_SCHEDULES", "0-15").split("-"))
SEEDS = range(_FIRST, _LAST + 1)
_SIDE_BY_SIDE = 8
INTERVAL_S = 0.5
HEALED = 8  # tick at whose end everything is repaired
TICKS = HEALED + 1 + int(10 / INTERVAL_S)
_MEMORY_BYTES = 128 << 20
_GPUS = 4
_MODELS = ("A100-SXM4-80GB", "H200", "T4", "L40S")

_CALLS = (
    "nvmlDeviceGetHandleByIndex*", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMemoryInfo*", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetComputeRunning*", "nvmlDeviceGet*Processes*", "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetSamples", "nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPciInfo*", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGet*",
    "nvmlDeviceGetAccounting*", "nvmlGpm*", "nvmlGpmSampleAlloc", "nvmlDevice*",
)  # fmt: skip
_SYSTEM_CALLS = (
    "nvmlInit*", "nvmlDeviceGetCount*", "nvmlSystem*", "nvmlEventSet*", "nvmlShutdown", "nvml*",
)  # fmt: skip
#: what a device lacks is asked again after 10 minutes, so those three come after it has answered
_LASTING = (3, 4, 13)
_CODES = (1, 2, 6, 7, 8, 9, 10, 11, 14, 15, 16, 17, 18, 20, 23, 25, 27, 777, 999, -1)
_COUNTED = (
    "nvmlDeviceGetComputeRunning*", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples",
    "nvmlDeviceGetMaxMigDeviceCount", "nvmlGpmMetricsGet",
)  # fmt: skip


class Fault(NamedTuple):
    """A rule, from the end of one tick to the end of another (-1: from before the start)."""

    text: str
    gpu: int | None  # None: all of them
    begins: int
    ends: int
    garbage: bool = False


class Schedule(NamedTuple):
    scenario: Scenario
    faults: list[Fault]
    boards: list[Fault]  # lines of sections of GPUs: unplugged, MIG switched

    @property
    def touched(self) -> set[int]:
        hit = {fault.gpu for fault in self.faults + self.boards}
        return set(range(_GPUS)) if None in hit else {gpu for gpu in hit if gpu is not None}

    def at(self, tick: int) -> str:
        """What holds from the end of a tick on."""
        rules = []
        for fault in self.faults:
            if fault.begins <= tick < fault.ends:
                rules.append(fault.text.format("1e6"))
            elif "sticky" in fault.text and tick >= fault.ends:
                rules.append(fault.text.format("NOW"))
        boards = [fault.text for fault in self.boards if fault.begins <= tick < fault.ends]
        return "\n".join(["[system]", *rules, *boards]) + "\n"


def draw(seed: int) -> Schedule:
    chance = random.Random(seed)
    scenario = Scenario()
    model = chance.choice(_MODELS)
    for index in range(_GPUS):
        scenario.gpu(
            index, model=model, uuid=f"GPU-{index}", util=10 + 20 * index, memutil=10 + 20 * index,
            mem_mib=1000 + 1000 * index, power_w=70, procs=[Proc("self", 500)],
        )  # fmt: skip
    faults, boards = [], []
    for _ in range(chance.randint(1, 4)):
        begins = chance.choice((-1, 0, 1, 2, 3))
        ends = chance.randint(begins + 1, HEALED)
        kind = chance.random()
        if kind < 0.1:
            gpu = chance.randrange(1, _GPUS)
            mig = "mig = 1 0 3g.40gb\nmig = 2 0 3g.40gb"
            switched = mig if model in ("A100-SXM4-80GB", "H200") and begins >= 0 else "absent = 1"
            boards.append(Fault(f"[gpu {gpu}]\n{switched}", None, begins, ends))
            continue
        faults.append(_fault(chance, begins, ends))
    return Schedule(scenario, faults, boards)


def _fault(chance: random.Random, begins: int, ends: int) -> Fault:
    system = chance.random() < 0.25
    gpu = None if system else chance.choice((None, 1, 2, 3, 1, 2, 3))
    where = "" if gpu is None else f" gpu={gpu}"
    kind = chance.choice(("fail", "fail", "fail", "sticky", "delay", "claim", "garbage"))
    call = chance.choice(_SYSTEM_CALLS if system else _CALLS)
    if kind == "sticky":  # the device is gone for the session, or all are
        call, gpu = "nvml[DG]*", None if system else gpu
    elif chance.random() < 0.3:
        where += " prob=0.5"
    if kind == "claim":
        call = "nvmlDeviceGetCount*" if system else chance.choice(_COUNTED)
        count = chance.choice((0, 5, 300, 5000, 10**6, 2**32 - 1))
        text = f"{call} claim {count} code={chance.choice((0, 7))}"
    elif kind == "garbage" and not system:
        text = f"{call} garbage"
    elif kind == "delay":
        text = f"{call} delay {chance.choice((1e4, 2e5, 1e6, 2e6)):.0f}"
    else:
        code = chance.choice(_CODES + (_LASTING if begins >= 1 else ()))
        text = f"{call} fail {code}"
    sticky = " from=0 to={} sticky=1" if kind == "sticky" else ""
    return Fault(f"rule = {text}{where}{sticky}", gpu, begins, ends, "garbage" in text)


class Outcome(NamedTuple):
    schedule: Schedule
    got: Collected
    ideal: list[dict[str, Any]]  # after the healing

    def told(self) -> str:
        """The schedule, for a failing test."""
        faults = self.schedule.faults + self.schedule.boards
        return "\n".join(f"{f.begins:3}..{f.ends} {f.text}" for f in faults)


def run(seed: int) -> Outcome:
    schedule = draw(seed)
    with Emulated(schedule.scenario) as gpus:
        gpus.override(schedule.at(-1))
        after = {tick: [schedule.at(tick)] for tick in range(HEALED + 1)}
        got = collect(gpus, TICKS, INTERVAL_S, after=after, start_s=2.0, deadline_s=0.4)
        return Outcome(schedule, got, gpus.expected())


@pytest.fixture(scope="module")
def outcome() -> Callable[[int], Outcome]:
    pool = ThreadPoolExecutor(_SIDE_BY_SIDE)
    running = {seed: pool.submit(run, seed) for seed in SEEDS}
    return lambda seed: running[seed].result()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_of_faults(seed, outcome):
    one = outcome(seed)
    try:
        _check_stream(one)
        _check_values(one)
        _check_untouched(one)
        _check_told(one)
        _check_well_again(one)
    except AssertionError as error:
        raise AssertionError(f"{error}\n\nschedule {seed}:\n{one.told()}") from error


def _check_stream(one: Outcome) -> None:
    """It goes on at its pace, in bounded memory, and no mistake of ours is behind a state."""
    assert len(one.got.ticks) == TICKS
    assert max(tick.took_s for tick in one.got.ticks) < 5
    assert one.got.rss_bytes < _MEMORY_BYTES
    details = {state.detail for tick in one.got.ticks for state in tick.states.values()}
    assert not [text for text in details if re.match(r"\w+(Error|Exception|Warning): ", text)]


def _check_values(one: Outcome) -> None:
    """A reading is in its range, and what stands still is never anything else."""
    garbage = {fault.gpu for fault in one.schedule.faults if fault.garbage}
    uuids = {d["key"]: d["uuid"] for tick in one.got.ticks for d in tick.told["devices"]}
    for tick in one.got.ticks:
        for entity, rows in (("device", tick.device), ("usage", tick.usage)):
            for row in rows.values():
                for name, value in row.items():
                    field = FIELDS[entity][name]
                    if not field.text and not isinstance(value, Missing):
                        assert field.low <= value <= field.high, (name, value)
        for key, row in tick.device.items():
            place = uuids.get(key, "").partition("-")[2]
            if not place.isdigit() or None in garbage or int(place) in garbage:
                continue
            for name, truth in _constants(int(place)).items():
                value = row.get(name)
                assert value is None or isinstance(value, Missing) or value == truth, (key, name)


def _constants(place: int) -> dict[str, float]:
    return {"busy_percent": 10 + 20 * place, "mem_used_bytes": (1000 + 1000 * place) << 20}


def _check_untouched(one: Outcome) -> None:
    """Devices that no fault touches are well in every tick."""
    for key in set(range(_GPUS)) - one.schedule.touched:
        for tick in one.got.ticks:
            assert key not in tick.states
            assert tick.device[key]["busy_percent"] == _constants(key)["busy_percent"]


def _check_told(one: Outcome) -> None:
    """A device that gives nothing at all is named as lost, hung or failing, or a note says why."""
    for tick in one.got.ticks:
        for key, row in tick.device.items():
            reasons = {v.reason if isinstance(v, Missing) else "" for v in row.values()}
            if len(row) > 10 and reasons <= {"error", "lost", "no-driver"}:
                assert key in tick.states or tick.told["notes"], (key, reasons)


#: counters, rates and what follows from the reader's own clock
_MOVING = re.compile(r"energy_j|.*_per_s|throttle_(power|thermal)_s")


def _check_well_again(one: Outcome) -> None:
    """10 s after the healing everything is as the scenario has it."""
    last = one.got.ticks[-1]
    assert last.states == {}
    notes = [note for note in last.told["notes"] if "reopened" not in note]
    assert notes == []
    known = {device["uuid"]: device for device in last.told["devices"]}
    assert sorted(known) == sorted(device["uuid"] for device in one.ideal)
    newest = one.got.latest()
    for ideal in one.ideal:
        device = known[ideal["uuid"]]
        assert (device["index"], device["name"]) == (ideal["index"], ideal["name"])
        assert device["facts"]["mem_total_bytes"] == ideal["mem_total_bytes"]
        row = newest[device["key"]]
        for name, truth in ideal["readings"].items():
            if not _MOVING.fullmatch(name):
                value = row[name]
                same = value == truth or (
                    isinstance(value, (int, float))
                    and not isinstance(truth, Missing)
                    and value == pytest.approx(truth, rel=0.01, abs=0.02)
                )
                assert same, f"{name} of {device['uuid']}: {value!r}, {truth!r}"
        assert row["processes"] == len(ideal["processes"])
