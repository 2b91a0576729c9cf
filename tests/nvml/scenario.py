"""Scenarios, written from Python; the text form is described in README.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

FOLDER = Path(__file__).parent / "scenarios"

#: a number, or a wave such as "sine 60 30 40" or "na"
Wave = Union[float, str]

#: names with units -> the scenario's keys
_KEYS = {"mem_mib": "mem", "total_mib": "total", "reserved_mib": "reserved", "power_w": "power"}


@dataclass(frozen=True)
class Proc:
    """One process on a device; `pid` is a number, `self`, `ppid` or a stand-in's `@name`."""

    pid: int | str
    mem_mib: Wave = 0
    sm: Wave | None = None
    type: str = "C"
    gi: int | None = None
    ci: int | None = None
    from_s: float | None = None
    to_s: float | None = None

    def text(self) -> str:
        options = {
            "mem": self.mem_mib,
            "sm": self.sm,
            "type": self.type,
            "gi": self.gi,
            "ci": self.ci,
            "from": self.from_s,
            "to": self.to_s,
        }
        return f"{self.pid}{_options(options)}"


def _options(options: dict[str, Any]) -> str:
    """` key=value` for each that is set; commas in waves, since blanks separate options."""
    return "".join(
        f" {key}={str(value).replace(' ', ',')}"
        for key, value in options.items()
        if value is not None
    )


@dataclass
class Scenario:
    """What the emulated driver is to say.

    >>> print(Scenario().gpu(0, model="T4", util=37).rule("nvml*Power*", fail=4).text())
    [system]
    driver = 580.159.03
    rule = nvml*Power* fail 4
    [gpu 0]
    model = T4
    util = 37
    """

    driver: str = "580.159.03"
    system: dict[str, Any] = field(default_factory=dict)  # the other keys of [system]
    _rules: list[str] = field(default_factory=list)
    _gpus: list[str] = field(default_factory=list)

    def gpu(
        self,
        which: int | str,
        *,
        procs: Iterable[Proc] = (),
        mig: Iterable[str] = (),
        **metrics: Wave,
    ) -> Scenario:
        """Describe a device, or several ("0-7", "0,2", "*"); later lines win.

        `mig` holds instances as "GI CI PROFILE"; `metrics` are the scenario's keys
        (`model`, `util`, `temp`, ...) and `mem_mib`, `total_mib`, `reserved_mib`, `power_w`.
        """
        lines = [f"[gpu {which}]"]
        if "model" in metrics:  # slices are cut from the model: it comes first
            lines.append(f"model = {metrics.pop('model')}")
        lines += [f"{_KEYS.get(key, key)} = {value}" for key, value in metrics.items()]
        lines += [f"mig = {instance}" for instance in mig]
        lines += [f"proc = {proc.text()}" for proc in procs]
        self._gpus += lines
        return self

    def rule(
        self,
        pattern: str,
        *,
        fail: int | None = None,
        delay_s: float | None = None,
        hang: bool = False,
        allow: bool = False,
        claim: int | None = None,
        claim_code: int = 0,
        garbage: bool = False,
        gpu: int | None = None,
        level: str | None = None,
        from_s: float | None = None,
        to_s: float | None = None,
        probability: float | None = None,
        sticky: bool = False,
    ) -> Scenario:
        """Let the functions that match `pattern` fail with a code, take long or never return.

        `claim`: answer that there are so many, with `claim_code`; `garbage`: answer OK with bytes
        that mean nothing. The first rule that does more than delay a call decides; delays add up.
        `level` is "board" or "slice"; `sticky` keeps sessions broken that began before `to_s`.
        """
        actions = [
            "allow" if allow else "",
            "hang" if hang else "",
            f"fail {fail}" if fail is not None else "",
            f"delay {delay_s * 1e6:.0f}" if delay_s is not None else "",
            f"claim {claim} code={claim_code}" if claim is not None else "",
            "garbage" if garbage else "",
        ]
        chosen = [action for action in actions if action]
        if len(chosen) != 1:
            raise ValueError("a rule has one of: allow, hang, fail, delay_s, claim, garbage")
        options = {"gpu": gpu, "level": level, "from": from_s, "to": to_s, "prob": probability}
        options["sticky"] = 1 if sticky else None
        self._rules.append(f"rule = {pattern} {chosen[0]}{_options(options)}")
        return self

    def xid(self, code: int, *, gpu: int, at_s: float) -> Scenario:
        """An Xid error on a device."""
        self._rules.append(f"event = {at_s} {gpu} xid {code}")
        return self

    def text(self) -> str:
        system = [f"{key} = {value}" for key, value in self.system.items()]
        return "\n".join(
            ["[system]", f"driver = {self.driver}", *system, *self._rules, *self._gpus]
        )

    def write(self, path: Path) -> Path:
        path.write_text(self.text() + "\n")
        return path


def scenario_path(name: str | Path) -> Path:
    """A scenario of this folder by its name, or the path as given."""
    path = Path(name)
    return FOLDER / f"{name}.scn" if path.suffix != ".scn" else path
