"""The agent of a node: its collectors, and what their samples look like to others."""

from __future__ import annotations

import os
import sys
import time
from binascii import crc32
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from gpumon import __version__
from gpumon.collect.base import Collector, Schedule, Tick, node_name
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import own_job
from gpumon.collect.cgroup.room import Room
from gpumon.collect.host import Host
from gpumon.collect.job.context import cuda_order, cuda_order_note, job_context
from gpumon.collect.job.devices import JobDevices
from gpumon.collect.job.guard import Standing, Target, stand
from gpumon.collect.network import Network
from gpumon.collect.nvml.collector import DeviceCollector
from gpumon.collect.nvml.numbers import node_numbers
from gpumon.collect.proc.probed import VARIABLE as PROBE_VARIABLE
from gpumon.collect.proc.probed import Probed
from gpumon.collect.proc.processes import Processes
from gpumon.collect.procfs import cpu_list_text
from gpumon.collect.storage import Storage
from gpumon.model.fields import GROUP_BY_KEY
from gpumon.model.plausible import node_ceilings, refuse_above
from gpumon.model.reading import Reading
from gpumon.model.sample import Device, Header, JobContext, Sample
from gpumon.model.text import clean

if TYPE_CHECKING:
    from gpumon.collect.stacks.stacks import Stacks

_START_DEADLINE_S = 2.0  # for the driver to answer before the first sample goes out without it
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Agent:
    """The collectors of one node, and what their samples look like to others."""

    def __init__(
        self,
        interval_s: float,
        environ: Mapping[str, str] | None = None,
        target: Target | None = None,
    ) -> None:
        """`target`: the job to speak for; without one, the job around this process, if any."""
        environ = os.environ if environ is None else environ
        self.interval_s = interval_s
        self._environ = environ
        self._target = target
        self.standing = (
            Standing(own_job(environ), True) if target is None else stand(target, environ)
        )
        self.devices = DeviceCollector(interval_s, environ)
        self.cgroup = JobCgroup(self.standing.path)
        self._stood_in_job = self.cgroup.exists
        self.room = Room()
        self._job_devices: JobDevices | None = None
        self._host = Host()
        self.collectors: list[Collector] = [self.devices]
        # a shell that Slurm did not start, be it adopted, may see the GPUs of others
        if target is not None and "CUDA_VISIBLE_DEVICES" not in environ:
            self._job_devices = JobDevices(self.devices, self.cgroup, target.gpus)
            self.collectors.append(self._job_devices)
        self._probed = Probed(self._cuda_numbers, environ.get(PROBE_VARIABLE, ""))
        self._processes = Processes(self.cgroup, probed=self._probed)
        self.collectors += [self._processes, self.cgroup, self._host, Network(), Storage(environ)]
        self._schedule = Schedule()
        self._late_s = 0.0
        self._cpu_count = os.cpu_count() or 1  # which opens a file of /sys
        self.node = node_name(environ)

    def start(self, deadline_s: float = _START_DEADLINE_S) -> None:
        self.devices.start(deadline_s)
        if self._job_devices is not None:
            self._job_devices.learn_at_start()

    def header(self) -> Header:
        """Everything that does not change, as known now; `devices.changed` is then false."""
        self.devices.changed = False
        facts = self._host.facts()
        devices, notes = self.devices.devices, list(self.devices.notes)
        if self._job_devices is not None:
            devices = self._job_devices.of(devices)
            notes += [self._job_devices.note] if self._job_devices.note else []
        job = self._job(devices)
        if job is not None:
            facts["job_cpus"] = self._job_cpus(job.cpus)
        visible = (
            self._environ.get("CUDA_VISIBLE_DEVICES"),
            devices,
            self._environ.get("CUDA_DEVICE_ORDER"),
            self.cgroup.device_minors() if job else None,
        )
        order = cuda_order(*visible) if self._numbers_known else {}
        unclear = cuda_order_note(*visible) if job and self._numbers_known else ""
        numbers = node_numbers(devices)
        return Header(
            node=self.node,
            boot_id=str(facts.get("boot_id", "")),
            time=time.time(),
            mono=time.monotonic(),
            interval_s=self.interval_s,
            gpumon=__version__,
            devices=[
                each._replace(index=numbers[each.key], cuda_index=order.get(each.key))
                for each in devices
            ],
            driver=self.devices.driver,
            nvml=self.devices.nvml,
            cuda=self.devices.cuda,
            job=job,
            facts=facts,
            notes=[*notes, *([unclear] if unclear else [])],
            agent_uid=os.getuid(),
            agent_pid=os.getpid(),
        )

    def _job(self, devices: list[Device]) -> JobContext | None:
        job = job_context(self._environ if self.standing.inside else {}, self.cgroup)
        if job is None or self._job_devices is None or job.gpus is not None:
            return job
        known = self._target.gpus if self._target is not None else None
        return job._replace(gpus=len(devices) or None if known is None else known)

    def _job_cpus(self, count: int | None) -> Reading:
        """`0-7,16`: the CPUs that the job may use here, by its cgroup, else by our own affinity.

        It may be that of a single task, so it counts only if it is not less than the job's.
        """
        cpus = self.cgroup.cpus()
        if isinstance(cpus, list):
            return cpu_list_text(cpus)
        own = os.sched_getaffinity(0) if self.standing.inside else frozenset()
        if not own or count is None or len(own) < count:
            return cpus
        return cpu_list_text(own)

    def _cuda_numbers(self, visible: str | None, order: str | None) -> dict[int, int]:
        """CUDA's numbers for a process of the job, by its variables -> keys of the devices."""
        devices = self.devices.devices
        if self._job_devices is not None:
            devices = self._job_devices.of(devices)
        minors = self.cgroup.device_minors() if self.cgroup.exists else None
        found = cuda_order(visible, devices, order, minors) if self._numbers_known else {}
        return {number: key for key, number in found.items()}

    @property
    def _numbers_known(self) -> bool:
        """CUDA counts the job's GPUs from 0; for a part of them the numbers are unknown."""
        return self._job_devices is None or not self._job_devices.note

    def sample(self, *, whole: bool = False) -> Sample:
        """One tick of every collector; one that fails is data and does not end the others.

        `whole`: with all groups, and what is otherwise sent once, for a reader who came later.
        """
        if not whole:
            return self._tick()
        was, Schedule.everything = Schedule.everything, True
        self._processes.tell_again()
        try:
            return self._tick()
        finally:
            Schedule.everything = was

    def _tick(self) -> Sample:
        tick = Tick(time.time(), time.monotonic())
        for collector in self.collectors:
            began = time.perf_counter()
            ok, detail = 1, ""
            try:
                collector.collect(tick)
            except Exception as error:
                ok, detail = 0, clean(f"{type(error).__name__}: {error}", 200)
            took_ms = (time.perf_counter() - began) * 1e3
            if not ok or self._schedule.due(collector.name, 5, tick.mono):
                row: dict[str, Reading] = {"ok": ok, "ms": round(took_ms, 3), "detail": detail}
                tick.put("collector", collector.name, row)
        refuse_above(tick.rows, node_ceilings(self._cpu_count, self._host.mem_total))
        group = GROUP_BY_KEY["agent.agent"]
        if self._schedule.due(group.key, group.period_s, tick.mono):
            tick.put("agent", "", self._cost())
        return Sample(tick.time, tick.mono, tick.rows, tick.states, tick.events)

    def last_words(self) -> Sample:
        """What probes wrote as their processes ended, which no tick may see any more."""
        tick = Tick(time.time(), time.monotonic())
        self._probed.put_all(tick)
        return Sample(tick.time, tick.mono, tick.rows)

    def stacks(self) -> Stacks:
        """Of the job, or of this user's processes on GPUs, as they are now."""
        from gpumon.collect.stacks.stacks import Stacks  # not before somebody asks

        names = self._target.names if self._target is not None else self._own_names()
        return Stacks(self._probed, self._processes, self.cgroup, names)

    def _own_names(self) -> frozenset[str]:
        own = self._environ.get("SLURM_JOB_ID", "") if self.standing.inside else ""
        return frozenset({own} - {""})

    def late(self, seconds: float) -> None:
        """Note by how much a tick began late."""
        self._late_s = max(self._late_s, seconds)

    def close(self) -> None:
        self.devices.close()

    @property
    def job_ended(self) -> bool:
        """The agent stood in a job's cgroup, and that is gone."""
        return self._stood_in_job and not self.cgroup.exists

    def _cost(self) -> dict[str, Reading]:
        with open("/proc/self/statm", "rb") as file:
            rss_bytes = int(file.read().split()[1]) * _PAGE_BYTES
        late_s, self._late_s = self._late_s, 0.0
        return {"cpu_s": time.process_time(), "rss_bytes": rss_bytes, "late_s": max(0.0, late_s)}


def phase_of(node: str, interval_s: float) -> float:
    """Whole seconds of the interval after which this node ticks, where many share it out."""
    return float(crc32(node.encode()) % max(int(interval_s), 1))


def next_tick(interval_s: float, phase_s: float = 0.0) -> float:
    """When to tick next, in monotonic seconds: `phase_s` after a multiple of the interval on the
    wall clock, so that nodes of the same phase tick together.

    One that is less than a tenth of the interval away is left out: the tick before came late. So
    the next tick is 0.1 to 1.1 intervals away, even if the wall clock is set meanwhile.
    """
    wait_s = interval_s - (time.time() - phase_s) % interval_s
    return time.monotonic() + (wait_s if wait_s >= interval_s / 10 else wait_s + interval_s)


def leave(code: int) -> NoReturn:
    """End at once: a worker that hangs in the driver must not hold up the exit."""
    sys.stdout.flush()
    os._exit(code)
