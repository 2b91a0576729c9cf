"""What works on this node and what does not, and why: the checks of `gpumon doctor`."""

from __future__ import annotations

import os
import sys
import time

import psutil

from gpumon.collect.cgroup.room import START_BYTES, Room
from gpumon.collect.stacks import pyspy
from gpumon.model.fields import FIELDS
from gpumon.model.reading import Missing
from gpumon.model.sample import Header, Sample
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, of_bytes_text
from gpumon.services import connectivity
from gpumon.services.connectivity import ABSENT, LIMITED, OK, Check
from gpumon.services.once import take
from gpumon.terminal import can_show_screen, colours


def examine() -> list[Check]:
    """Everything, in the order in which one thing stands on another."""
    header, sample, _ = take()
    checks = [_python(), _host(), *_driver(header), *_devices(header, sample)]
    checks += [*_job(header, sample), _cost(), *connectivity.checks(os.environ)]
    return [*checks, *_collectors(sample), *_system(), _stacks(), *_terminal()]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", OK, f"{version} ({sys.executable})")


def _host() -> Check:
    """How much of the machine this process may use, and what runs on it."""
    usable, cores = len(psutil.Process().cpu_affinity()), psutil.cpu_count()
    memory = psutil.virtual_memory()
    share = f"{usable} of {cores}" if cores and usable < cores else f"{usable}"
    available = of_bytes_text(memory.available, memory.total)
    up = age_text(time.time() - psutil.boot_time())
    return Check("host", OK, f"{share} cores, memory available {available}, up {up}")


def _driver(header: Header) -> list[Check]:
    if header.driver:
        detail = f"{header.driver}, CUDA {header.cuda or '?'}, NVML {header.nvml or '?'}"
        checks = [Check("NVIDIA driver", OK, detail)]
    else:
        checks = [Check("NVIDIA driver", ABSENT, " ".join(header.notes) or "not found")]
    notes = header.notes if header.driver else []
    return checks + [Check("note", LIMITED, note) for note in notes]


def _devices(header: Header, sample: Sample) -> list[Check]:
    """Per device: how many readings there are, and the reasons for those that are not."""
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


def _job(header: Header, sample: Sample) -> list[Check]:
    job = header.job
    if job is None:
        return [Check("Slurm job", ABSENT, "not inside a job; the whole node is shown")]
    visible = [device for device in header.devices if device.cuda_index is not None]
    detail = f"{job.id} (from its {job.source}), {len(visible)} GPUs visible to CUDA"
    checks = [Check("Slurm job", OK, detail)]
    row = sample.rows.get("job", {}).get("", {})
    absent = [name for name, value in row.items() if isinstance(value, Missing)]
    known = len(row) - len(absent)
    result = OK if known else LIMITED
    detail = f"{known} of {len(row)} readings" + (f"; not: {' '.join(absent)}" if absent else "")
    checks.append(Check("job's cgroup", result, detail if row else "not found"))
    return checks


#: measured: the most that a step's cgroup held (docs/reliability.md), and benchmarks/README.md
_COST = "1 step at most, 13 MB and 0.2 % of a core on each node"


def _cost() -> Check:
    """To a job that is watched, and whether this shell's has room for that."""
    free = Room().to_start_bytes()
    room = "no memory limit here" if free is None else f"{bytes_text(max(0, free))} free here"
    told = f"{_COST}; starts only where {bytes_text(START_BYTES)} are free ({room})"
    lacks = free is not None and free < START_BYTES
    return Check("gpumon's cost to a job", LIMITED if lacks else OK, told)


def _collectors(sample: Sample) -> list[Check]:
    checks = []
    for name, row in sample.rows.get("collector", {}).items():
        ok = row["ok"] == 1
        detail = f"{row['ms']:.1f} ms" if ok else str(row["detail"])
        checks.append(Check(f"collector {name}", OK if ok else LIMITED, detail))
    return checks


def _system() -> list[Check]:
    """What decides whether other users' processes and GPM counters can be read."""
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


def _stacks() -> Check:
    """How `gpumon stack` may see where a program is."""
    program, scope = pyspy.find(pyspy.beside_python()), pyspy.ptrace_scope()
    probed = "only programs started with 'gpumon record --probe --'"
    if not program:
        detail = f"{probed}; for others pip install 'gpumon-slurm[stacks]' (py-spy)"
        return Check("stacks", ABSENT, detail)
    if scope > (2 if os.getuid() == 0 else 0):
        return Check("stacks", LIMITED, f"{probed}: ptrace_scope is {scope}, so py-spy reads none")
    whose = "every user's" if os.getuid() == 0 else "your"
    return Check("stacks", OK, f"{whose} Python programs, by py-spy ({clean(program, 200)})")


def _terminal() -> list[Check]:
    if not sys.stdout.isatty():
        return [Check("terminal", ABSENT, "not checked: the output is not a terminal")]
    reason = can_show_screen()
    depth = {1 << 24: "true colour", 256: "256 colours", 16: "16 colours", 0: "no colour"}
    return [Check("terminal", LIMITED if reason else OK, reason or depth[colours()])]
