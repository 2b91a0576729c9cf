"""The host of the demo's job: files of /proc that say what a node of 32 CPUs would.

They are mounted over the real ones, in a mount namespace of their own. The job has the first 16
CPUs and hardly uses them; other jobs work on the rest.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
from pathlib import Path

CPUS, JOB_CPUS = 32, 16
_MEM_KIB, _SWAP_KIB = 256 << 20, 0
_TICKS_PER_S = 100
_SECTORS_PER_MIB = 2048
_CALM = "".join(f"{who} avg10=0.00 avg60=0.00 avg300=0.00 total=0\n" for who in ("some", "full"))
#: of the time: the two ranks, and their four data loaders
_JOB_SHARES = (0.14, 0.14, 0.07, 0.07, 0.06, 0.06)


class DemoHost:
    """The files in `folder`, and how they move."""

    def __init__(self, folder: Path, user: str, uid: int) -> None:
        self._random = random.Random(32)
        self._folder = folder
        self._busy, self._idle = [0.0] * CPUS, [0.0] * CPUS  # s
        self._read_mib = self._written_mib = 0.0
        self._t = 0.0
        stat = Path("/proc/stat").read_text().splitlines()
        self._boot = next(line for line in stat if line.startswith("btime"))  # ages count from it
        self.move(0.0)
        passwd = Path("/etc/passwd").read_text()
        (folder / "passwd").write_text(f"{passwd}{user}:x:{uid}:{uid}::/tmp:/bin/sh\n")

    def mount(self) -> None:
        """Over the real ones; raises RuntimeError in the namespace of whoever started this."""
        ours, theirs = (os.stat(f"/proc/{pid}/ns/mnt").st_ino for pid in ("self", os.getppid()))
        if ours == theirs:
            raise RuntimeError("start this in a mount namespace: unshare --mount")
        places = {
            "stat": "/proc/stat", "meminfo": "/proc/meminfo", "loadavg": "/proc/loadavg",
            "diskstats": "/proc/diskstats", "online": "/sys/devices/system/cpu/online",
            "passwd": "/etc/passwd",
            **{name: f"/proc/pressure/{name}" for name in ("cpu", "memory", "io")},
        }  # fmt: skip
        for name, place in places.items():
            subprocess.run(["mount", "--bind", str(self._folder / name), place], check=True)

    def move(self, t: float) -> None:
        """To second t, in place: what is mounted must stay the same file."""
        past_s, self._t = max(0.0, t - self._t), t
        for cpu in range(CPUS):
            share = self._share(cpu, t)
            self._busy[cpu] += share * past_s
            self._idle[cpu] += (1 - share) * past_s
        staging = (t % 230) < 40
        self._read_mib += (310 if staging else 18) * self._random.uniform(0.8, 1.2) * past_s
        self._written_mib += (42 if t % 90 < 12 else 3) * self._random.uniform(0.7, 1.3) * past_s
        self._write(t)

    def _share(self, cpu: int, t: float) -> float:
        """Of this CPU that is busy now: the job's processes move every half minute."""
        if cpu < JOB_CPUS:
            place = (cpu * 5 + int(t / 30)) % JOB_CPUS
            return _JOB_SHARES[place] if place < len(_JOB_SHARES) else 0.01
        other = cpu - JOB_CPUS
        if other < 8:  # simulations, a core each
            return 0.985
        if other < 12:  # a pipeline with pauses
            return 0.65 if (t + 7 * other) % 300 < 190 else 0.04
        return max(0.0, 0.12 + 0.1 * math.sin(t / 70 + other))

    def _write(self, t: float) -> None:
        lines = []
        for cpu, (busy_s, idle_s) in enumerate(zip(self._busy, self._idle)):
            busy, idle = int(busy_s * _TICKS_PER_S), int(idle_s * _TICKS_PER_S)
            lines.append(f"cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0")
        busy, idle = (int(sum(each) * _TICKS_PER_S) for each in (self._busy, self._idle))
        lines.insert(0, f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0")
        lines.append(self._boot)
        used_kib = int((88 + 3 * math.sin(t / 200)) * (1 << 20))
        cache_kib = int((61 + min(40.0, t / 30)) * (1 << 20))
        load = 11 + 1.5 * math.sin(t / 120)
        sectors = [int(mib * _SECTORS_PER_MIB) for mib in (self._read_mib, self._written_mib)]
        files = {
            "stat": "\n".join(lines) + "\n",
            "meminfo": (
                f"MemTotal: {_MEM_KIB} kB\nMemAvailable: {_MEM_KIB - used_kib} kB\n"
                f"Cached: {cache_kib} kB\nShmem: {1 << 20} kB\n"
                f"SwapTotal: {_SWAP_KIB} kB\nSwapFree: {_SWAP_KIB} kB\n"
            ),
            "loadavg": f"{load:.2f} {11.2:.2f} {11.1:.2f} 12/900 4711\n",
            "diskstats": f" 254 0 vda 0 0 {sectors[0]} 0 0 0 {sectors[1]} 0 0 0 0\n",
            "online": f"0-{CPUS - 1}\n",
            **dict.fromkeys(("cpu", "memory", "io"), _CALM),
        }
        for name, text in files.items():
            (self._folder / name).write_text(text)
