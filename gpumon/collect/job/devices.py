"""Which of the node's GPUs are the job's, seen by a process that is not confined to them."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.collect.base import Schedule, Tick
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.job.context import allowed
from gpumon.collect.nvml.collector import DeviceCollector
from gpumon.collect.proc.frameworks import parse_environ
from gpumon.collect.procfs import ProcFs
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, leaves

_LOOK_PERIOD_S = 5.0
_MAX_ENVIRONMENTS = 64


class JobDevices:
    """Removes from each tick the devices that are not known to be the job's.

    Runs right after the collector of devices. The job's are those that its device cgroup allows
    (v1, by minor number), those that its processes' CUDA_VISIBLE_DEVICES names by UUID, and those
    that its processes hold; all, where there are as many as the job has. An index is never
    believed: Slurm, CUDA and NVML count differently. What was the job's once stays so.
    """

    name = "job-devices"

    def __init__(
        self, devices: DeviceCollector, cgroup: JobCgroup, gpus: int | None, proc: str = "/proc"
    ) -> None:
        """`gpus`: how many the job has on this node; None when that is not known."""
        self._devices = devices
        self._cgroup = cgroup
        self._gpus = gpus
        self._proc = ProcFs(proc)
        self._schedule = Schedule()
        self._kept: set[int] = set()

    def collect(self, tick: Tick) -> None:
        self._learn(tick)
        rows = tick.rows.get("device", {})
        for key in [key for key in rows if key not in self._kept]:
            del rows[key]
        usage = tick.rows.get("usage", {})
        for key in [key for key in usage if isinstance(key, tuple) and key[0] not in self._kept]:
            del usage[key]
        for number in tick.states.keys() - self._kept:
            del tick.states[number]
        tick.events[:] = [e for e in tick.events if e.device is None or e.device in self._kept]

    def of(self, devices: Iterable[Device]) -> list[Device]:
        """Those of the job."""
        return [device for device in devices if device.key in self._kept]

    @property
    def note(self) -> str:
        """A sentence for people while not all of the job's GPUs are known."""
        known = len(leaves(self.of(self._devices.devices)))
        if self._gpus is None and not known and self._devices.devices:
            return "It is unknown which GPUs belong to the job until its processes use them."
        if self._gpus is None or known >= self._gpus or not self._devices.devices:
            return ""
        return f"Only {known} of the job's {self._gpus} GPUs are known: those its processes use."

    def learn_at_start(self) -> None:
        """What is known before the first tick, for the first header."""
        self._keep(self._given())

    def _learn(self, tick: Tick) -> None:
        pids = set(self._cgroup.pids())
        usage = tick.rows.get("usage", {})
        found = {key[0] for key in usage if isinstance(key, tuple) and key[1] in pids}
        if self._schedule.due("look", _LOOK_PERIOD_S, tick.mono):
            found |= self._given() | named(self._proc, pids, self._devices.devices)
        self._keep(found)

    def _keep(self, keys: set[int]) -> None:
        """Take these as the job's, with the whole GPUs of which they are instances."""
        if self._gpus == 0:
            return
        parents = {d.mig.parent for d in self._devices.devices if d.mig and d.key in keys}
        keys = keys | {d.key for d in self._devices.devices if d.uuid and d.uuid in parents}
        if keys - self._kept:
            self._kept |= keys
            self._devices.changed = True

    def _given(self) -> set[int]:
        devices = self._devices.devices
        if self._gpus is not None and len(leaves(devices)) == self._gpus:
            return {device.key for device in devices}
        return given(self._cgroup, devices)


def given(cgroup: JobCgroup, devices: list[Device]) -> set[int]:
    """The devices that the job's device cgroup allows (v1), by key."""
    minors = cgroup.device_minors()
    return set() if minors is None else {device.key for device in allowed(devices, minors)}


def named(proc: ProcFs, pids: Iterable[int], devices: list[Device]) -> set[int]:
    """Those that the environment of the job's processes names by UUID, as far as this user may
    read it.
    """
    names: set[str] = set()
    for pid in sorted(pids)[:_MAX_ENVIRONMENTS]:
        content = proc.content(pid, "environ")
        environ = None if isinstance(content, Missing) else parse_environ(content)
        visible = (environ or {}).get("CUDA_VISIBLE_DEVICES", "")
        names.update(name.strip() for name in visible.split(","))
    wanted = tuple(name for name in names if name.startswith(("GPU-", "MIG-")))
    return {d.key for d in devices if wanted and d.uuid.startswith(wanted)}
