"""`gpumon doctor`: what works here and what does not, and why."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, NamedTuple

from gpumon.errors import EXIT_OK

OK, LIMITED, ABSENT = "ok", "limited", "absent"
_SIGNS = {OK: "ok", LIMITED: "!!", ABSENT: "--"}


class Check(NamedTuple):
    """One thing looked at. `absent` is a state of the machine, `limited` worth a word to staff."""

    name: str
    result: str
    detail: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    from gpumon.collect.agent import leave

    checks = examine()
    if args.json:
        body: dict[str, Any] = {"version": 1, "checks": [check._asdict() for check in checks]}
        print(json.dumps(body))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{_SIGNS[check.result]}  {check.name:<{width}}  {check.detail}")
    leave(EXIT_OK)


def examine() -> list[Check]:
    """Everything, in the order in which one thing stands on another."""
    import os

    from gpumon.cli import reaching
    from gpumon.cli.once import take

    header, sample = take()
    checks = [_python(), *_driver(header), *_devices(header, sample)]
    checks += [*_job(header, sample), *reaching.checks(os.environ)]
    return [*checks, *_collectors(sample), *_system(), *_terminal()]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", OK, f"{version} ({sys.executable})")


def _driver(header: Any) -> list[Check]:
    if header.driver:
        detail = f"{header.driver}, CUDA {header.cuda or '?'}, NVML {header.nvml or '?'}"
        checks = [Check("NVIDIA driver", OK, detail)]
    else:
        checks = [Check("NVIDIA driver", ABSENT, " ".join(header.notes) or "not found")]
    notes = header.notes if header.driver else []
    return checks + [Check("note", LIMITED, note) for note in notes]


def _devices(header: Any, sample: Any) -> list[Check]:
    """Per device: how many readings there are, and the reasons for those that are not."""
    from gpumon.model.fields import FIELDS
    from gpumon.model.reading import Missing

    checks = []
    for device in header.devices:
        state = sample.states.get(device.key)
        name = f"GPU {device.label}"
        if state is not None:
            checks.append(Check(name, LIMITED, f"{state.state}: {state.detail}"))
            continue
        rows = sample.rows.get("device", {}).get(device.key, {})
        reasons: dict[str, list[str]] = {}
        for field in FIELDS["device"]:
            reading = rows.get(field, Missing("not-sampled"))
            if isinstance(reading, Missing) and reading.reason != "measuring":
                why = f"{reading.reason} ({reading.detail})" if reading.detail else reading.reason
                reasons.setdefault(why, []).append(field)
        there = len(FIELDS["device"]) - sum(map(len, reasons.values()))
        detail = f"{device.name}: {there} of {len(FIELDS['device'])} readings"
        checks.append(Check(name, OK if there else LIMITED, detail))
        for why, fields in reasons.items():
            checks.append(Check(f"  {why}", ABSENT, " ".join(fields)))
    return checks


def _job(header: Any, sample: Any) -> list[Check]:
    job = header.job
    if job is None:
        return [Check("Slurm job", ABSENT, "not inside a job; the whole node is shown")]
    visible = [device for device in header.devices if device.cuda_index is not None]
    detail = f"{job.id} (from its {job.source}), {len(visible)} GPUs visible to CUDA"
    checks = [Check("Slurm job", OK, detail)]
    from gpumon.model.reading import Missing

    row = sample.rows.get("job", {}).get("", {})
    absent = [name for name, value in row.items() if isinstance(value, Missing)]
    known = len(row) - len(absent)
    result = OK if known else LIMITED
    detail = f"{known} of {len(row)} readings" + (f"; not: {' '.join(absent)}" if absent else "")
    checks.append(Check("job's cgroup", result, detail if row else "not found"))
    return checks


def _collectors(sample: Any) -> list[Check]:
    checks = []
    for name, row in sample.rows.get("collector", {}).items():
        ok = row["ok"] == 1
        detail = f"{row['ms']:.1f} ms" if ok else str(row["detail"])
        checks.append(Check(f"collector {name}", OK if ok else LIMITED, detail))
    return checks


def _system() -> list[Check]:
    """What decides whether other users' processes and GPM counters can be read."""
    import os

    checks = []
    root = os.path.exists("/proc/1/stat")
    checks.append(
        Check("/proc", OK if root else LIMITED, "all processes" if root else "hidepid: own only")
    )
    psi = os.path.exists("/proc/pressure/cpu")
    checks.append(
        Check(
            "pressure (PSI)", OK if psi else ABSENT, "yes" if psi else "off in this kernel (psi=1)"
        )
    )
    try:
        with open("/proc/driver/nvidia/params") as file:
            admin_only = "RmProfilingAdminOnly: 1" in file.read()
        text = "administrators only" if admin_only else "every user"
        checks.append(Check("profiling counters", LIMITED if admin_only else OK, text))
    except OSError:
        checks.append(Check("profiling counters", ABSENT, "no NVIDIA kernel module"))
    return checks


def _terminal() -> list[Check]:
    from gpumon.terminal import can_show_screen, colours

    reason = can_show_screen()
    depth = {1 << 24: "true colour", 256: "256 colours", 16: "16 colours", 0: "no colour"}
    return [Check("terminal", LIMITED if reason else OK, reason or depth[colours()])]
