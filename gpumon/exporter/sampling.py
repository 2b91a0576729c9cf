"""The one loop that reads this node, however many servers scrape it and however slow they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpumon.collect.agent import Agent
from gpumon.collect.base import Tick
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import jobs_here, mounts_of
from gpumon.collect.procfs import ProcFs
from gpumon.exporter.owners import gpus_of
from gpumon.model.fields import PERIODS_S
from gpumon.model.reading import Reading
from gpumon.model.sample import Header, Key, Process, Sample, State

#: periods after which a reading is no longer given
_OLD_PERIODS = 2.5
_LOOK_S = 5.0  # for jobs that came or left
_MAX_JOBS = 1024
#: (entity, key) -> name -> (value, when it was read by the monotonic clock)
Latest = dict[tuple[str, Key], dict[str, tuple[Reading, float]]]


@dataclass(frozen=True)
class Snapshot:
    """What is known of the node at one moment; nobody changes it."""

    header: Header
    rows: Mapping[tuple[str, Key], Mapping[str, Reading]]
    states: Mapping[int, State]
    processes: Mapping[int, Process]
    jobs: Mapping[str, Mapping[str, Reading]]  # by number, or SLUID: readings of its cgroup
    held: Mapping[int, frozenset[str]]  # device key -> jobs that were given it, or use it
    time: float
    cost_s: float  # of the last tick
    generation: int = 0


@dataclass
class NodeSampler:
    """Reads the node every `interval_s` in a thread of its own."""

    interval_s: float
    _latest: Latest = field(default_factory=dict)
    _processes: dict[int, Process] = field(default_factory=dict)
    _jobs: dict[str, JobCgroup] = field(default_factory=dict)
    _given: dict[str, set[int]] = field(default_factory=dict)  # job's directory -> device keys
    _looked: float = -1e9
    _generation: int = 0

    def __post_init__(self) -> None:
        self._agent = Agent(self.interval_s, environ={})
        self._stopping = threading.Event()
        self._snapshot: Snapshot | None = None

    def start(self, when_failed: Callable[[Exception], None]) -> None:
        """Begin; the first snapshot is there when this returns."""
        self._agent.start()
        self._take()
        self._when_failed = when_failed
        threading.Thread(target=self._run, daemon=True, name="sampling").start()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def snapshot(self) -> Snapshot:
        """The newest; only after `start`."""
        assert self._snapshot is not None
        return self._snapshot

    def _run(self) -> None:
        due = time.monotonic() + self.interval_s
        try:
            while not self._stopping.wait(max(0.0, due - time.monotonic())):
                self._take()
                due = max(due + self.interval_s, time.monotonic())
        except Exception as error:  # a mistake of ours: the process ends and is started again
            self._when_failed(error)

    def _take(self) -> None:
        began = time.monotonic()
        sample = self._agent.sample()
        self._merge(sample)
        self._know(sample)
        header = self._agent.header()
        jobs = self._job_rows(sample.time, sample.mono)
        self._generation += 1
        self._snapshot = Snapshot(
            header,
            self._fresh(sample.mono),
            dict(sample.states),
            dict(self._processes),
            jobs,
            self._held(),
            sample.time,
            time.monotonic() - began,
            self._generation,
        )

    # -- rows

    def _merge(self, sample: Sample) -> None:
        for entity, rows in sample.rows.items():
            for key, row in rows.items():
                known = self._latest.setdefault((entity, key), {})
                known.update({name: (value, sample.mono) for name, value in row.items()})

    def _fresh(self, now: float) -> dict[tuple[str, Key], dict[str, Reading]]:
        """What is not too old; what has nothing left is forgotten."""
        found = {}
        for place, row in list(self._latest.items()):
            fresh = {
                name: value
                for name, (value, at) in row.items()
                if now - at <= self._old_s(place, name)
            }
            if fresh:
                found[place] = fresh
            else:
                del self._latest[place]
        return found

    def _old_s(self, place: tuple[str, Key], name: str) -> float:
        period_s = max(PERIODS_S.get((place[0], name), 5.0), self.interval_s)
        return _OLD_PERIODS * period_s

    # -- processes and jobs

    def _know(self, sample: Sample) -> None:
        for event in sample.events:
            if event.pid is None:
                continue
            if event.kind == "process":
                self._processes[event.pid] = Process.of(event)
            elif event.kind == "process-end":
                self._processes.pop(event.pid, None)

    def _held(self) -> dict[int, frozenset[str]]:
        found: dict[int, set[str]] = {}
        for name, keys in self._given.items():
            path = self._jobs[name].job
            for device in keys:
                found.setdefault(device, set()).add(path.job or path.name if path else name)
        for entity, key in self._latest:
            if entity == "usage" and isinstance(key, tuple):
                process = self._processes.get(key[1])
                if process is not None and process.job:
                    found.setdefault(key[0], set()).add(process.job)
        return {key: frozenset(jobs) for key, jobs in found.items()}

    def _job_rows(self, now: float, mono: float) -> dict[str, dict[str, Reading]]:
        if mono - self._looked >= _LOOK_S:
            self._looked = mono
            mounts = mounts_of()
            here = jobs_here(mounts)
            kept = {name: each for name, each in self._jobs.items() if name in here}
            for name in list(here)[:_MAX_JOBS]:
                kept.setdefault(name, JobCgroup(here[name], mounts=mounts))
            self._jobs = kept
            devices, proc = self._agent.devices.devices, ProcFs("/proc")
            self._given = {name: gpus_of(each, devices, proc) for name, each in kept.items()}
        found = {}
        for cgroup in self._jobs.values():
            if cgroup.job is None or not cgroup.exists:
                continue
            tick = Tick(now, mono)
            cgroup.collect(tick)
            cpus = cgroup.cpus()
            row = dict(tick.rows.get("job", {}).get("", {}))
            found[cgroup.job.job or cgroup.job.name] = row | (
                {"cpus": len(cpus)} if isinstance(cpus, list) else {}
            )
        return found
