"""The driver fails and comes back in every way it can: gpumon is well again within 10 s.

The cases run side by side, since they mostly wait; each test looks at one of them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.model.reading import LOST, Missing
from tests.collect.collected import Collected, Ticked, collect
from tests.nvml.emulator import Emulated, Scenario, library_dir

pytestmark = pytest.mark.slow

A100 = "A100-SXM4-80GB"
INTERVAL_S = 0.5
FAULT, HEALED = 2, 8  # ticks at whose end that happens
TICKS = HEALED + 1 + int(10 / INTERVAL_S)  # the last one lies 10 s after the healing
_UTIL = (10, 20, 30, 40)


def four(model: str = A100) -> Scenario:
    scenario = Scenario()
    for index, util in enumerate(_UTIL):
        scenario.gpu(index, model=model, uuid=f"GPU-{index}", util=util, memutil=util)
    return scenario


class Case(NamedTuple):
    """What happens to a driver, as texts that win from the end of a tick on."""

    scenario: Scenario
    after: dict[int, list[str]] = {}
    ticks: int = TICKS
    deadline_s: float = 20.0
    prepare: Callable[[Emulated, Path], dict[str, Any]] | None = None  # gives arguments


def _system(text: str) -> list[str]:
    return [f"[system]\n{text}\n"]


def _sticky(code: int, where: str = "") -> dict[int, list[str]]:
    """Fails from the fault on; a session that began before the healing stays broken."""
    rule = f"rule = nvmlDevice* fail {code} {where} from=0 to={{}} sticky=1"
    return {FAULT: _system(rule.format("1e6")), HEALED: _system(rule.format("NOW"))}


LIBRARY = "libnvidia-ml.so.1"
#: as package managers replace a file: a new one takes its name
_REPLACE = f"cp {library_dir()}/{LIBRARY} new && echo 580 > version && mv new {LIBRARY}"


def _library(gpus: Emulated, folder: Path, version: str) -> dict[str, Any]:
    """A library of its own, of a version."""
    gpus.env["LD_LIBRARY_PATH"] = str(folder)
    if version:
        shutil.copy(library_dir() / LIBRARY, folder / LIBRARY)
        (folder / "version").write_text(version)
    return {}


def _from_the_start(texts: list[str]) -> Callable[[Emulated, Path], dict[str, Any]]:
    def prepare(gpus: Emulated, folder: Path) -> dict[str, Any]:
        gpus.override(texts[0])
        return {}

    return prepare


def _listed(gpus: Emulated, folder: Path) -> dict[str, Any]:
    for number in range(3):
        (folder / f"driver/nvidia/gpus/0000:0{number}:00.0").mkdir(parents=True)
    return {"proc": str(folder)}


def _uuids(*order: int) -> str:
    return "\n".join(f"[gpu {place}]\nuuid = GPU-{number}" for place, number in enumerate(order))


_BACK = {HEALED: ["[system]\n"]}
CASES = {
    "restarted": Case(four(), _sticky(999)),
    "unloaded and loaded": Case(
        four(),
        {
            FAULT: _system(
                "rule = nvmlInit* fail 9\nrule = nvmlDevice* fail 1 from=0 to=1e6 sticky=1"
            ),
            HEALED: _system("rule = nvmlDevice* fail 1 from=0 to=NOW sticky=1"),
        },
    ),
    "sessions begin but are broken": Case(
        four(), {HEALED: _sticky(999)[HEALED]}, prepare=_from_the_start(_sticky(999)[FAULT])
    ),
    "all lost": Case(four(), _sticky(15)),
    "one reset": Case(four(), _sticky(16, "gpu=1")),
    "one lost": Case(four(), _sticky(15, "gpu=1")),
    "one unknown": Case(four(), _sticky(999, "gpu=1")),
    "one hangs, the others are gone": Case(
        four(),
        {
            FAULT: _system(
                "rule = nvmlDevice* hang gpu=1 from=0 to=1e6\n"
                "rule = nvmlDevice* fail 999 from=0 to=1e6 sticky=1"
            ),
            HEALED: _system("rule = nvmlDevice* fail 999 from=0 to=NOW sticky=1"),
        },
        deadline_s=0.4,
    ),
    "no device": Case(Scenario(system={"gpus": 0}), {HEALED: [four().text()]}),
    "unplugged": Case(
        four(), {0: ["[gpu 1]\nabsent = 1\n"], TICKS - 3: ["[system]\n"]}, ticks=2 * TICKS - 2
    ),
    "unplugged for good": Case(four(), {HEALED: ["[gpu 1]\nabsent = 1\n"]}),
    "plugged in": Case(four().gpu(3, absent=1), {HEALED: ["[gpu 3]\nabsent = 0\n"]}),
    "plugged in, for new sessions": Case(
        Scenario(system={"enumerate_once": 1}, _gpus=four().gpu(3, absent=1)._gpus),
        {HEALED: ["[gpu 3]\nabsent = 0\n", "$ mkdir driver/nvidia/gpus/0000:03:00.0"]},
        prepare=_listed,
    ),
    "back under another index": Case(four(), {HEALED: [_uuids(3, 0, 1, 2)]}),
    "MIG on": Case(four(), {HEALED: ["[gpu 1]\nmig = 1 0 3g.40gb\nmig = 2 0 3g.40gb\n"]}),
    "MIG off": Case(
        four().gpu(1, mig=["1 0 3g.40gb", "2 0 3g.40gb"]), {HEALED: ["[gpu 1]\nmig = 0\n"]}
    ),
    "MIG off without instances": Case(
        four().gpu(1, migmode=1), {HEALED: ["[gpu 1]\nmigmode = 0\n"]}
    ),
    "a new instance": Case(
        four().gpu(1, mig=["1 0 3g.40gb"]), {HEALED: ["[gpu 1]\nmig = 2 0 3g.40gb\n"]}
    ),
    "facts fail at the start": Case(
        four().rule("nvmlDeviceGetHandle*", allow=True),
        _BACK,
        prepare=_from_the_start(_system("rule = nvmlDeviceGet* fail 10 gpu=1")),
    ),
    "GPM fails": Case(four("H200"), {FAULT: _system("rule = nvmlGpm* fail 999"), **_BACK}),
    "not supported for a while": Case(
        four(), {FAULT: _system("rule = nvmlDeviceGetMemory* fail 3 gpu=1"), **_BACK}
    ),
    "a library appears": Case(
        four(), {HEALED: ["$ " + _REPLACE]}, prepare=lambda gpus, folder: _library(gpus, folder, "")
    ),
    "module loaded anew": Case(
        Scenario(system={"module": "580"}, _gpus=four()._gpus), {HEALED: _system("module =")}
    ),
    "library and module replaced": Case(
        Scenario(system={"module": "535"}, _gpus=four()._gpus),
        {
            FAULT: _system("module = 580\nrule = nvmlDevice* fail 999 from=0 to=1e6 sticky=1"),
            HEALED: [
                "$ " + _REPLACE,
                *_system("module = 580\nrule = nvmlDevice* fail 999 from=0 to=NOW sticky=1"),
            ],
        },
        prepare=lambda gpus, folder: _library(gpus, folder, "535"),
    ),
}


def _run(case: Case) -> Collected:
    with tempfile.TemporaryDirectory() as folder, Emulated(case.scenario) as gpus:
        arguments = case.prepare(gpus, Path(folder)) if case.prepare else {}
        after = {
            tick: [text.replace("$ ", f"$ cd {folder} && ", 1) for text in texts]
            for tick, texts in case.after.items()
        }
        return collect(
            gpus,
            case.ticks,
            INTERVAL_S,
            after=after,
            start_s=3.0,
            deadline_s=case.deadline_s,
            **arguments,
        )


@pytest.fixture(scope="module")
def outcome() -> Callable[[str], Collected]:
    with ThreadPoolExecutor(len(CASES)) as pool:
        running = {name: pool.submit(_run, case) for name, case in CASES.items()}
        return lambda name: running[name].result()


def busy(got: Collected, tick: int = -1) -> dict[int, Any]:
    """Newest busy_percent by device key, of the last second before a tick."""
    end = tick % len(got.ticks) + 1
    rows: dict[int, Any] = {}
    for one in got.ticks[max(0, end - 3) : end]:
        rows.update({key: row.get("busy_percent") for key, row in one.device.items()})
    return rows


def states(tick: Ticked) -> dict[int, str]:
    return {key: state.state for key, state in tick.states.items()}


def news(got: Collected) -> list[tuple[int | None, str]]:
    return [(e.device, e.text) for tick in got.ticks for e in tick.events if e.kind == "device"]


ALL = dict(enumerate(_UTIL))


@pytest.mark.parametrize(
    "name",
    [
        "restarted", "unloaded and loaded", "sessions begin but are broken", "all lost",
        "one reset", "one lost", "one unknown", "no device", "unplugged", "plugged in",
        "plugged in, for new sessions", "facts fail at the start", "GPM fails",
        "not supported for a while", "a library appears", "module loaded anew",
        "library and module replaced",
    ],
)  # fmt: skip
def test_all_is_well_again_within_10_s(name, outcome):
    got = outcome(name)
    last = got.ticks[-1]
    assert states(last) == {}
    assert busy(got) == ALL
    devices = last.told["devices"]
    assert [device["index"] for device in devices] == [0, 1, 2, 3]
    assert len({device["uuid"] for device in devices} - {""}) == 4
    passing = {"error", "timeout", "lost", "no-driver"}
    assert not any(
        isinstance(fact, Missing) and fact.reason in passing
        for device in devices
        for fact in device["facts"].values()
    )
    newest = got.latest()
    for key in ALL:
        assert not [
            reading for reading in newest[key].values()
            if isinstance(reading, Missing) and reading.reason in passing
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("restarted", "was lost (Unknown Error)"),
        ("unloaded and loaded", "its kernel module is not loaded"),
        ("sessions begin but are broken", "cannot be used (Unknown Error)"),
        ("no device", "No NVIDIA device is visible here."),
        ("a library appears", "No NVIDIA driver on this node."),
        ("module loaded anew", "The driver was updated without a reboot"),
        ("library and module replaced", "was lost (Unknown Error)"),
    ],
)
def test_what_happened_is_told(name, text, outcome):
    notes = [" ".join(tick.told["notes"]) for tick in outcome(name).ticks]
    assert any(text in note for note in notes[: HEALED + 1])
    assert notes[-1] == "" or "reopened" in notes[-1]


@pytest.mark.parametrize("name", ["one reset", "one lost", "one unknown", "unplugged"])
def test_other_devices_miss_no_tick(name, outcome):
    for tick in outcome(name).ticks:
        for key in (0, 2, 3):
            assert tick.device[key]["busy_percent"] == _UTIL[key]
            assert tick.device[key]["mem_used_bytes"] >= 0


@pytest.mark.parametrize("name", CASES)
def test_no_value_is_another_devices(name, outcome):
    got = outcome(name)
    uuids = {d["key"]: d["uuid"] for tick in got.ticks for d in tick.told["devices"]}
    for number, tick in enumerate(got.ticks):
        if name == "back under another index" and HEALED < number < TICKS - 1:
            continue  # nothing but a look at the UUIDs can tell
        for key, row in tick.device.items():
            value = row.get("busy_percent")
            if value is None or isinstance(value, Missing):
                continue
            place = int(uuids[key].partition("-")[2])
            if name == "back under another index" and number > HEALED:
                place = (place + 1) % 4  # the emulator's boards stay where they are
            assert value == _UTIL[place]


def test_one_that_hangs_does_not_keep_the_others_away(outcome):
    got = outcome("one hangs, the others are gone")
    assert states(got.ticks[-1]) == {1: "hung"}
    assert {key: value for key, value in busy(got).items() if key != 1} == {0: 10, 2: 30, 3: 40}


def test_a_gpu_that_is_unplugged_keeps_its_row(outcome):
    got = outcome("unplugged for good")
    last = got.ticks[-1]
    assert states(last) == {1: "lost"}
    assert last.states[1].detail == "no longer reported by the driver"
    assert {d["key"]: d["uuid"] for d in last.told["devices"]} == {
        d["key"]: d["uuid"] for d in got.told["devices"]
    }
    assert got.latest()[1] == dict.fromkeys(got.latest()[1], LOST)
    assert (1, "no longer reported by the driver") in news(got)
    assert (2, "GPU 1 now, 2 before") in news(got)


def test_a_gpu_that_is_plugged_in_again_is_the_same(outcome):
    got = outcome("unplugged")
    assert [d["uuid"] for d in got.ticks[-1].told["devices"]] == [
        d["uuid"] for d in got.told["devices"]
    ]
    assert (1, "reported by the driver again") in news(got)
    assert (3, "new") in news(outcome("plugged in"))


def test_a_gpu_under_another_index_keeps_its_number(outcome):
    got = outcome("back under another index")
    last = got.ticks[-1]
    assert {d["uuid"]: (d["key"], d["index"]) for d in last.told["devices"]} == {
        "GPU-0": (0, 1), "GPU-1": (1, 2), "GPU-2": (2, 3), "GPU-3": (3, 0)
    }  # fmt: skip
    assert busy(got) == {0: 20, 1: 30, 2: 40, 3: 10}


@pytest.mark.parametrize(
    ("name", "mig"), [("MIG on", 2), ("MIG off", 0), ("MIG off without instances", 0)]
)
def test_mig_switched(name, mig, outcome):
    got = outcome(name)
    last = got.ticks[-1]
    assert states(last) == {}
    assert sum(device["mig"] is not None for device in last.told["devices"]) == mig
    assert len(last.told["devices"]) == 4 + mig
    if mig:
        assert isinstance(busy(got)[1], Missing)
        instances = [d for d in last.told["devices"] if d["mig"]]
        for device in instances:
            assert 0 < device["facts"]["mem_total_bytes"] < 45 << 30
            assert device["key"] in last.device
    else:
        assert busy(got)[1] == 20


def test_a_new_instance_is_found(outcome):
    devices = outcome("a new instance").ticks[-1].told["devices"]
    assert [d["mig"]["gi"] for d in devices if d["mig"]] == [1, 2]
