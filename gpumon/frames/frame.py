"""What one node did between two bucket borders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import floor, inf
from typing import Any, Optional

from gpumon.frames.counting import Coverage, Growth, MinutePeak, greatest, optional
from gpumon.frames.device import ROLLUPS_A_DEVICE, DeviceFrame
from gpumon.frames.program import MAX_PROGRAMS, ProgramFrame
from gpumon.model.bounded import Allowance, Recent
from gpumon.model.fields import KEPT, SHOWN
from gpumon.model.plausible import most_cpu_per_s
from gpumon.model.reading import Reading, number
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Device, Event, Header, Key, Process

MAX_DEVICES = 256  # of one node
MAX_PROCESSES = 1024  # on all its devices together, over a run
#: that processes ended, and as many others
MAX_EVENTS, EVENTS_BYTES = 2000, 2 << 20
#: those in which anything but the time is new
MAX_HEADERS, HEADERS_BYTES = 1000, 8 << 20
MAX_ROLLUPS = 512  # of a node's own readings
MAX_ON_CPU = 256  # processes of which CPU use is kept
MAX_LEFT_OUT = 32  # kinds of things that there was no room for
_ROLLUPS_A_PROGRAM = 5  # its three, and two sets of looks

#: of a rollup: its entity, whose it is, and the name of its field. Devices by their places in the
#: frame, processes on them by these and their own places
Name = tuple[str, Key, str]
#: of an entity, a field and its rollup: what is to take its place, None: nothing
Pick = Callable[[str, str, Rollup], Optional[Rollup]]


class JobFrame:
    """The job's cgroup, beside its rollups. Memory in bytes; None where it never was read."""

    def __init__(self) -> None:
        self.cores = MinutePeak()
        self.cpu_s, self.oom_kills = Growth(), Growth()
        self.mem_limit_bytes: Optional[float] = None  # the newest
        self.mem_peak_bytes: Optional[float] = None  # without page cache
        self.mem_charged_peak_bytes: Optional[float] = None  # the kernel's own, page cache included
        self.last: dict[str, Reading] = {}  # the newest reading or reason of each field

    def add(self, time: float, row: Mapping[str, Reading]) -> None:
        """The row of one sample."""
        self.last.update(row)
        cores = row.get("cpu_cores_used")
        if cores is not None:
            self.cores.add(time, number(cores))
        for name, growth in (("cpu_s", self.cpu_s), ("oom_kills", self.oom_kills)):
            if (value := number(row.get(name))) is not None:
                growth.add(value, time)
        self.mem_peak_bytes = greatest(self.mem_peak_bytes, number(row.get("mem_used_bytes")))
        charged = number(row.get("mem_peak_bytes"))
        self.mem_charged_peak_bytes = greatest(self.mem_charged_peak_bytes, charged)
        limit = number(row.get("mem_limit_bytes"))
        self.mem_limit_bytes = self.mem_limit_bytes if limit is None else limit

    def successor(self) -> JobFrame:
        found = JobFrame()
        found.cores.interval_s = self.cores.interval_s
        found.cpu_s, found.oom_kills = self.cpu_s.successor(), self.oom_kills.successor()
        found.mem_limit_bytes, found.last = self.mem_limit_bytes, dict(self.last)
        return found

    def extend(self, later: JobFrame) -> None:
        self.cores.extend(later.cores)
        self.cpu_s.extend(later.cpu_s)
        self.oom_kills.extend(later.oom_kills)
        if later.mem_limit_bytes is not None:
            self.mem_limit_bytes = later.mem_limit_bytes
        self.mem_peak_bytes = greatest(self.mem_peak_bytes, later.mem_peak_bytes)
        charged = greatest(self.mem_charged_peak_bytes, later.mem_charged_peak_bytes)
        self.mem_charged_peak_bytes = charged
        self.last.update(later.last)

    def told(self) -> dict[str, Any]:
        """As a file holds it; `last` apart."""
        return {
            "cores": self.cores.told(),
            "cpu_s": self.cpu_s.told(),
            "oom_kills": self.oom_kills.told(),
            "memory": [self.mem_limit_bytes, self.mem_peak_bytes, self.mem_charged_peak_bytes],
        }

    def take(self, told: Mapping[str, Any]) -> None:
        """Raises what Python does on what `told` never gives."""
        self.cores.take(told["cores"])
        self.cpu_s.take(told["cpu_s"], "job", "cpu_s")
        self.oom_kills.take(told["oom_kills"], "job", "oom_kills")
        limit, peak, charged = told["memory"]
        self.mem_limit_bytes = optional(limit, "job", "mem_limit_bytes")
        self.mem_peak_bytes = optional(peak, "job", "mem_used_bytes")
        self.mem_charged_peak_bytes = optional(charged, "job", "mem_peak_bytes")


class Frame:
    """One node's frame, or several joined. Rollups lie on a grid of `step_s`.

    `is_lean`: few of the processes that ended are kept; without `with_shown` no rollups of readings
    that only screens show: both for one that grows beside a screen.
    """

    def __init__(self, *, is_lean: bool = False, with_shown: bool = True) -> None:
        self.step_s = STEP_S
        self._is_lean, self._with_shown = is_lean, with_shown
        self.headers: Recent[Header] = Recent(MAX_HEADERS, HEADERS_BYTES)
        self.keep_events(())
        self.samples = Coverage()
        self.extent: Optional[tuple[int, int]] = None  # the first and the newest bucket
        self.devices: list[DeviceFrame] = []
        self.rollups: dict[Name, Rollup] = {}  # of all but devices and programs
        self.paths: dict[str, str] = {}  # of disks, by label
        self.facts: dict[int, Process] = {}  # of processes with rollups, and of programs
        self.job = JobFrame()
        self.programs: dict[int, ProgramFrame] = {}
        self.room = Allowance(MAX_PROCESSES)
        self._left_out: Counter[str] = Counter()

    @property
    def header(self) -> Optional[Header]:
        """The newest."""
        return self.headers.newest

    def add_header(self, header: Header) -> None:
        """Devices keep their places; what only says again what is known is not kept."""
        newest = self.headers.newest
        if newest is None or header._replace(time=newest.time, mono=newest.mono) != newest:
            self.headers.append(header)
        self.job.cores.interval_s = header.interval_s
        self.job.cpu_s.most_per_s = most_cpu_per_s(header.facts.get("cpus_online"))

    def add_event(self, event: Event) -> None:
        (self._ends if event.kind == "process-end" else self._events).append(event)

    @property
    def events(self) -> list[Event]:
        """In order of time, but those that describe a process."""
        return sorted((*self._events, *self._ends), key=lambda event: event.time)

    def keep_events(self, events: Iterable[Event]) -> None:
        """Have these alone."""
        #: that processes ended, of thousands, take no room from others
        self._events, self._ends = (Recent[Event](MAX_EVENTS, EVENTS_BYTES) for _ in range(2))
        for event in events:
            self.add_event(event)

    def place_of(self, event: Event) -> Optional[int]:
        """Of the device that an event names by its number in the header of then; None: of none."""
        if event.device is None:
            return None
        headers = [each for each in self.headers if each.time <= event.time] or [*self.headers]
        devices = (each for header in reversed(headers) for each in header.devices)
        listed = next((each for each in devices if each.key == event.device), None)
        known = None if listed is None else self._known(listed)
        return None if known is None else self.devices.index(known)

    def find_device(self, device: Device, taken: Iterable[DeviceFrame]) -> Optional[DeviceFrame]:
        """The device's frame, a new one where there is none; None: there is no room. `taken`: those
        of others of the same header.
        """
        found = self._known(device, taken)
        if found is None and len(self.devices) < MAX_DEVICES:
            found = DeviceFrame(device)
            self.devices.append(found)
        if found is None:
            self.leave_out("devices")
        return found

    def _known(self, device: Device, taken: Iterable[DeviceFrame] = ()) -> Optional[DeviceFrame]:
        """Whatever its number now is."""
        others = {id(each) for each in taken}
        found = (each for each in self.devices if each.device.is_same(device))
        return next((each for each in found if id(each) not in others), None)

    def rollup(self, name: Name) -> Optional[Rollup]:
        """To put something in; None: there is no room for another."""
        found = self.rollups.get(name)
        if found is None and self._has_room(name[0]):
            found = self.rollups[name] = Rollup(self.step_s)
        if found is None:
            self.leave_out("readings of new names")
        return found

    def _has_room(self, entity: str) -> bool:
        if len(self.rollups) < MAX_ROLLUPS:  # mostly
            return True
        is_process = entity == "process"  # of which each has two
        own = sum((each[0] == "process") == is_process for each in self.rollups)
        return own < (2 * MAX_ON_CPU if is_process else MAX_ROLLUPS)

    def named(self) -> Iterator[tuple[Name, Rollup]]:
        """All rollups, those of devices, of processes on them and of programs too."""
        yield from self.rollups.items()
        for pid, program in self.programs.items():
            yield from ((("program", pid, field), own) for field, own in program.rollups.items())
        for place, device in enumerate(self.devices):
            for entity, table in (("device", device.rollups), ("throttle", device.throttle)):
                yield from (((entity, place, field), own) for field, own in table.items())
            for nth, process in enumerate(device.processes):
                for (entity, field), own in process.rollups.items():
                    yield (entity, (place, nth), field), own

    def put(self, name: Name, rollup: Rollup) -> None:
        """One of them. Raises what Python does where there can be no such rollup, or is one."""
        key: Any
        own: Any = name
        table: dict[Any, Rollup] = self.rollups
        entity, key, field = name
        if isinstance(key, tuple):
            table, own = self.devices[key[0]].processes[key[1]].rollups, (entity, field)
        elif entity == "program":
            table, own = self.programs[key].rollups, field
        elif entity in ("device", "throttle"):
            device = self.devices[key]
            table, own = device.rollups if entity == "device" else device.throttle, field
        elif not self._has_room(entity):
            raise ValueError("a rollup that there is no room for")
        if len(table.get(own, ())):
            raise ValueError("a duplicate rollup")
        table[own] = rollup

    def program(self, pid: int, first: float) -> Optional[ProgramFrame]:
        """None: there is no room for another."""
        found = self.programs.get(pid)
        if found is None and len(self.programs) < MAX_PROGRAMS:
            found = self.programs[pid] = ProgramFrame(first)
        if found is None:
            self.leave_out("readings of probed processes")
        return found

    def leave_out(self, what: str, count: int = 1) -> None:
        if what in self._left_out or len(self._left_out) < MAX_LEFT_OUT:
            self._left_out[what] += count

    def add_path(self, label: str, path: str) -> None:
        """Of a disk."""
        if label in self.paths or len(self.paths) < MAX_ROLLUPS:
            self.paths[label] = path

    def left_out(self) -> dict[str, int]:
        """What there was no room for, and how often."""
        return {
            **self._left_out,
            "processes on devices": self.room.left_out + sum(d.left_out for d in self.devices),
            "events": self._events.left_out,
            "headers": self.headers.left_out,
        }

    @property
    def rollup_count(self) -> int:
        """How many rollups it has, about."""
        own = len(self.rollups) + _ROLLUPS_A_PROGRAM * len(self.programs)
        return own + ROLLUPS_A_DEVICE * len(self.devices) + 2 * self.room.used

    def cover(self, first: int, last: int) -> None:
        """These buckets hold something."""
        old_first, old_last = self.extent or (first, last)
        self.extent = min(old_first, first), max(old_last, last)

    def would_span(self, later: Frame, most: int) -> bool:
        """Whether it would have more buckets than these with another frame."""
        if self.extent is None or later.extent is None:
            return False
        (first, last), (begin, end) = self.extent, later.extent
        return max(last, end) - min(first, begin) >= most

    # -- the next frame

    def successor(self) -> Frame:
        """What is known at its begin."""
        found = Frame()
        found.step_s = self.step_s
        if (header := self.headers.newest) is not None:
            found.add_header(header)
        found.devices = [each.successor() for each in self.devices]
        found.paths = dict(self.paths)
        found.job = self.job.successor()
        found.programs = {pid: each.successor() for pid, each in self.programs.items()}
        found.facts = {pid: facts for pid, facts in self.facts.items() if pid in self.programs}
        found._left_out = Counter(self._left_out)
        return found

    def extend(self, later: Frame) -> None:
        """Join the next frame, of the same grid or a finer one; `later` stays as it is."""
        ratio = round(self.step_s / later.step_s)
        if ratio < 1:
            self.coarsen(round(later.step_s / self.step_s))
        if ratio > 1:
            finer, later = later, Frame()
            later.step_s = finer.step_s
            later.extend(finer)
            later.coarsen(ratio)
        for header in later.headers:
            self.add_header(header)
        for event in (*later._events, *later._ends):
            self.add_event(event)
        self.samples.extend(later.samples)
        if later.extent is not None:
            self.cover(*later.extent)
        taken: list[DeviceFrame] = []
        for device in later.devices:
            known = self.find_device(device.device, taken)
            if known is not None:
                taken.append(known)
                known.extend(device, self.room, is_lean=self._is_lean, with_shown=self._with_shown)
        for name, rollup in later.rollups.items():
            is_kept = self._with_shown or KEPT.get(name[0], {}).get(name[2]) != SHOWN
            if is_kept and (own := self.rollup(name)) is not None:
                own.extend(rollup)
        for label, path in later.paths.items():
            self.add_path(label, path)
        self.job.extend(later.job)
        for pid, program in later.programs.items():
            if (mine := self.program(pid, program.first)) is not None:
                mine.extend(program)
        for pid, facts in later.facts.items():
            if pid in self.programs or self._has_rollup(pid):
                self.facts[pid] = facts
        for what, count in later._left_out.items():
            self.leave_out(what, max(count - self._left_out[what], 0))

    def _has_rollup(self, pid: int) -> bool:
        return any(("process", pid, field) in self.rollups for field in KEPT["process"])

    # -- parts

    def of_events(self, end: float = inf) -> Frame:
        """The same without what was measured, and without what was not before `end`, epoch s."""
        found = Frame()
        found.step_s = self.step_s
        for header in self.headers:
            if header.time < end:
                found.add_header(header)
        found.keep_events(each for each in (*self._events, *self._ends) if each.time < end)
        return found

    def picked(self, pick: Pick, end: float = inf) -> Frame:
        """The same with other rollups or fewer, and without counters and the newest readings."""
        found = self.of_events(end)
        found.samples, found.extent, found.facts = self.samples, self.extent, self.facts
        found.devices = [each.bare() for each in self.devices]
        for name, rollup in self.named():
            if (own := pick(name[0], name[2], rollup)) is not None:
                found.put(name, own)
        return found

    def until(self, end: float) -> Frame:
        """What was before `end`, epoch s: whole buckets."""
        stop = floor(end / self.step_s)

        def sliced(entity: str, field: str, rollup: Rollup) -> Optional[Rollup]:
            return rollup.slice(rollup.first, stop) if rollup.first < stop else None

        found = self.picked(sliced, end)
        if self.extent is not None:
            found.extent = self.extent[0], stop - 1
        return found

    # -- the grid

    def coarsen(self, ratio: int) -> None:
        """Take a grid whose step is so many times as long."""
        if ratio == 1:
            return
        self.step_s *= ratio
        for _, rollup in self.named():
            rollup.coarsen(ratio)
        for program in self.programs.values():
            program.coarsen(ratio)
        if self.extent is not None:
            self.extent = self.extent[0] // ratio, self.extent[1] // ratio
