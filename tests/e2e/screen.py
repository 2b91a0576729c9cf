"""The dashboard in a real terminal, and what its screen should say of each device."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import psutil

from gpumon.model.reading import Missing
from screenshots.terminal_png import Session
from tests.e2e.program import GPUMON, environment
from tests.nvml.emulator import Emulated
from tests.support.waiting import HANGS_S

USER = pwd.getpwuid(os.getuid()).pw_name

_BARS_AND_SPARKS = re.compile(r"[·▁-█]{2,}|[━╍─]+|▌")
_LABEL = 17  # cells of a lane's words, left of its plot


class Lane(NamedTuple):
    """The newest value, the highest, and where the scale ends."""

    value: str
    peak: str
    top: str


class Dashboard(Session):
    """`gpumon` in a tmux of its own, over an emulated driver."""

    def __init__(
        self,
        gpus: Emulated,
        *arguments: str,
        size: tuple[int, int] = (120, 40),
        program: Sequence[str] = GPUMON,
        **more: str,
    ) -> None:
        env = environment(gpus.env, **more)
        foreign = [f"--unset={name}" for name in os.environ if name not in env]
        super().__init__(["env", *foreign, *program, *arguments], size, env)

    @property
    def pid(self) -> int:
        return int(self.ask("#{pane_pid}"))

    def plain(self) -> str:
        """The screen's text without bars, sparks and second blanks: columns do not matter."""
        lines = (_BARS_AND_SPARKS.sub(" ", line).split() for line in self.text().splitlines())
        return "\n".join(map(" ".join, lines))

    def wait_until(self, holds: Callable[[str], object], timeout_s: float = HANGS_S) -> str:
        """Wait until something holds of `plain()`; returns that."""
        deadline = time.monotonic() + timeout_s
        while not holds(shown := self.plain()):
            assert self.ask("#{pane_dead}") != "1", f"the program has ended:\n{self.text()}"
            assert time.monotonic() < deadline, f"not within {timeout_s} s on:\n{self.text()}"
            time.sleep(0.1)
        return shown

    def lanes(self) -> dict[str, Lane]:
        """By name: what stands left of each plot of the Device screen, where that has three rows.

        `power      700│`, `512 W           │`, `peak 667 W      │`
        """
        found = {}
        lines = self.text().splitlines()
        for three in zip(lines, lines[1:], lines[2:]):
            for edge in re.finditer("│", three[0]):
                start, end = max(0, edge.start() - _LABEL), edge.start()
                head, value, peak = (line[start:end].strip() for line in three)
                if peak.startswith("peak "):
                    name, top = head.rsplit(maxsplit=1)
                    found[name] = Lane(value, peak.removeprefix("peak "), top)
        return found

    def wait_for_all(self, texts: Iterable[str]) -> str:
        """Wait until `plain()` holds every one of the texts at once; returns it."""
        missing = list(texts)
        wanted = tuple(missing)

        def shows(shown: str) -> bool:
            missing[:] = [text for text in wanted if text not in shown]
            return not missing

        try:
            return self.wait_until(shows)
        except AssertionError as error:
            raise AssertionError(f"no {missing}; {error}") from None


def agents(pid: int) -> list[psutil.Process]:
    """The collectors' processes that a dashboard has started."""
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if "gpumon/collect/" in " ".join(child.cmdline())]


def agent(pid: int) -> psutil.Process:
    """The one that runs."""
    (found,) = agents(pid)
    return found


def wait_gone(processes: Iterable[psutil.Process], timeout_s: float = HANGS_S) -> None:
    _, alive = psutil.wait_procs(list(processes), timeout_s)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


# -- what the screen should say, from the oracle ------------------------------------------------


def name(device: dict[str, Any]) -> str:
    if device["mig"] is None:
        return f"GPU {device['index']}"
    return f"GPU {device['index']}/gi{device['mig']['gi']} {device['mig']['profile']}"


def titles(devices: list[dict[str, Any]]) -> list[str]:
    """`GPU 0 busy 94 % mem 98 % 312 W 61 °C`: above each plot."""
    return [_title(device) for device in devices]


def rows(devices: list[dict[str, Any]]) -> list[str]:
    """`GPU 0 94 % 98 % 312 61`: one line for each where plots have no room."""
    return [_row(device) for device in devices]


def rows_with_processes(devices: list[dict[str, Any]], *, wide: bool = False) -> list[str]:
    """`GPU 0 94 % 98 % 312 61 2: ada python`: where processes have no table of their own; from 110
    columns `GPU 0 94 % 98 % 78.4 GiB 312/400 61 2: ada python`.
    """
    return [f"{_row(device, wide=wide).rstrip()} {_processes(device)}" for device in devices]


def processes(devices: list[dict[str, Any]]) -> list[str]:
    """`4711 ada 0,1 60.5 GiB`: of each process, on all its devices; most memory comes first."""
    used: dict[int, int] = {}
    where: dict[int, list[str]] = {}
    for device in devices:
        if device["processes"] == Missing("lost"):
            continue
        for process in device["processes"]:
            pid = process["pid"]
            used[pid] = used.get(pid, 0) + process["mem_bytes"]
            where.setdefault(pid, []).append(str(device["index"]))
    pids = sorted(used, key=lambda pid: -used[pid])
    return [f"{pid} {USER} {','.join(where[pid])} {gib(used[pid])} GiB" for pid in pids]


def gib(size: int) -> str:
    """Three digits: `43`, `21.5`, `2.44`."""
    text = f"{size / 2**30:.{1 if size > 10 * 2**30 else 2}f}"
    return text.rstrip("0").rstrip(".")


def _title(device: dict[str, Any]) -> str:
    readings = device["readings"]
    if readings["busy_percent"] == Missing("lost"):
        return f"{name(device)} ● lost · "
    words = [name(device), "busy", _word(readings["busy_percent"], " %")]
    if not isinstance(sm := readings.get("sm_active_percent"), (Missing, type(None))):
        words += ["SM", _word(sm, " %")]
    words += ["mem", _mem(device)]
    for field, unit in (("power_w", " W"), ("temperature_c", " °C")):
        if not isinstance(value := readings.get(field), (Missing, type(None))):
            words.append(_word(value, unit))
    return " ".join(words)


def _row(device: dict[str, Any], *, wide: bool = False) -> str:
    readings = device["readings"]
    if readings["busy_percent"] == Missing("lost"):
        return f"{name(device)} ● lost · "
    values = [_word(readings["busy_percent"], " %"), _mem(device)]
    values += [f"{gib(readings['mem_used_bytes'])} GiB"] if wide else []
    power = _word(readings["power_w"], "")
    values += [f"{power}/{_word(readings['power_limit_w'], '')}" if wide else power]
    values += [_word(readings["temperature_c"], "")]
    return " ".join([name(device), *values]) + "\n"


def _processes(device: dict[str, Any]) -> str:
    count = len(device["processes"])
    return f"{count}: {USER} " if count > 1 else f"{USER} " if count else "no process"


def _mem(device: dict[str, Any]) -> str:
    used = device["readings"]["mem_used_bytes"]
    if isinstance(used, Missing):
        return _word(used, "")
    return f"{used / device['mem_total_bytes'] * 100:.0f} %"


def _word(reading: Any, unit: str) -> str:
    if isinstance(reading, Missing):
        return {"mig": "n/a MIG", "unsupported": "n/a"}[reading.reason]
    return f"{reading:.0f}{unit}"
