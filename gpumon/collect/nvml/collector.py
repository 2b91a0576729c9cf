"""The device collector: all GPUs and MIG instances of the node, each GPU read by its own worker."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from gpumon.collect.base import Schedule, Tick, WallClock
from gpumon.collect.nvml.answers import DEVICE_FIELDS, Answer, Opened, Result, Unit
from gpumon.collect.nvml.roster import NOT_REPORTED, News, Roster
from gpumon.collect.nvml.session import Session
from gpumon.collect.nvml.slot import Slot
from gpumon.collect.nvml.workers import Crew, Worker
from gpumon.model.reading import LOST, Missing
from gpumon.model.sample import Device, Event, State

#: share of the interval that a tick waits for its devices, and the most that it ever waits
_DEADLINE_SHARE = 0.4
_DEADLINE_MAX_S = 0.5
#: bounds for a driver that claims more than a node can have: each GPU costs a thread, and a
#: sample must fit into one line of the stream
MAX_GPUS = 64
MAX_USAGE_ROWS = 2048
_MAX_NOTES = 16
#: one device after the other shows its UUID
_VERIFY_S = 7.5
#: a device is hung once it has not answered for this many intervals
_HUNG_INTERVALS = 1.5


class DeviceCollector:
    """Readings of every NVIDIA device that this process can see.

    Gives the entities `device` (key: `Device.key`) and `usage` (key: (device, pid)), the states
    of devices that are not well, and Xids as events.
    """

    name = "nvml"

    def __init__(
        self,
        interval_s: float,
        environ: Mapping[str, str] | None = None,
        sysfs: str = "/sys",
        proc: str = "/proc",
        deadline_s: float | None = None,
    ) -> None:
        """`deadline_s`: how long a tick may wait for answers; by default from the interval."""
        self.interval_s = interval_s
        self.deadline_s = (
            min(_DEADLINE_SHARE * interval_s, _DEADLINE_MAX_S) if deadline_s is None else deadline_s
        )
        self.devices: list[Device] = []
        self.driver = ""
        self.nvml = ""
        self.cuda = ""
        self.notes: list[str] = []
        self.changed = False  # devices, notes or driver; cleared by the agent
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._sysfs, self._proc = sysfs, proc
        self._crew = Crew("gpumon-nvml")
        self._session = Session(self._crew, proc)
        self._slots: list[Slot] = []
        self._active: list[Slot] = []  # those whose device the driver reports
        self._roster = Roster()
        self._apart = False  # whether devices of one UUID were looked for in this session
        self._schedule = Schedule()
        self._verified = 0  # number of the slot whose identity was looked at last
        self._instances_added = False
        self._states: dict[int, State] = {}
        self._xids: dict[int, int] = {}  # device key -> its last Xid
        self._unwatched: list[tuple[int, Any]] = []  # index and handle, not yet watched for Xids
        self._stale = True  # devices are to be reported anew
        self._wall_clock = WallClock()
        self._crowded = False  # there were more processes on the devices than a sample holds

    def start(self, deadline_s: float) -> None:
        """Load the library and open the devices; what takes longer continues in its thread."""
        with suppress(ImportError):  # the session's note gives the reason
            from gpumon.collect.nvml import driver, gpu  # noqa: F401  (not the driver's time)
        end = time.monotonic() + deadline_s
        self._crew.begin()
        self._session.begin()
        if not self._crew.wait(deadline_s):
            self._session.silent()
        self._take_session()
        self._open_slots(end)
        self._add_instances()
        self._open_slots(end)
        self._watch()
        self._compare()
        self._announce()

    def collect(self, tick: Tick) -> None:
        """Start a round of all devices, and put what has come back by the deadline."""
        self._follow_clock()
        self._take_session()  # before the round: nobody waits for a session to open
        self._crew.begin()
        end = time.monotonic() + self.deadline_s
        if self._session.opened is not None:
            verified = self._to_verify(tick)
            for slot in self._active:
                verify = slot is verified or slot.unwell
                if slot.worker.ask(partial(slot.gpu.read, tick.mono, verify, slot.afresh)):
                    slot.afresh = False
        self._crew.wait(end - time.monotonic())
        self._take_xids(tick)
        self._absorb_all(tick)
        if not self._instances_added:
            self._add_instances()
        self._watch()
        self._check_session()
        for key, text in self._compare():
            tick.events.append(Event(tick.time, "device", device=key, text=text))
            if text == NOT_REPORTED:
                self._set_state(key, "", tick)
            if key in self._roster.absent:
                self._set_state(key, "lost", tick, NOT_REPORTED)
                tick.put("device", key, dict.fromkeys(DEVICE_FIELDS, LOST))
        tick.states.update(self._states)
        self._announce()

    def close(self) -> None:
        """Let the threads end; one that hangs is left to the end of the process."""
        self._session.close()
        self._crew.close()

    # -- the session and the devices' handles -----------------------------------------------

    def _take_session(self) -> None:
        opened = self._session.poll()
        if opened is None:
            return
        self.driver, self.nvml = opened.library.driver, opened.library.version
        self.cuda = opened.cuda
        self._unwatched = []  # handles of the last session
        self._apart = False
        count = min(opened.counted.devices, MAX_GPUS)
        places = [slot for slot in self._slots if not slot.gpu.uuid]
        for slot in self._slots:
            slot.restart(opened.library, bool(slot.gpu.uuid) or slot.gpu.index < count)
        self._add_slots(opened, [""] * (count - len(places)))

    def _add_slots(self, opened: Opened, uuids: list[str]) -> None:
        from gpumon.collect.nvml.gpu import Gpu  # late, since it imports NVIDIA's binding

        places = sum(not slot.gpu.uuid for slot in self._slots)
        for number, uuid in enumerate(uuids, places):
            index = 0 if uuid else number
            gpu = Gpu(opened.library, index, self._sysfs, self._driver_params, uuid)
            self._slots.append(Slot(gpu, Worker(self._crew), time.time()))
        self._active = [slot for slot in self._slots if slot.active]
        self._stale = True

    def _open_slots(self, end: float) -> None:
        """Open what is not open yet, in start-up: so that the first header names the devices."""
        self._crew.begin()
        for slot in self._active:
            if not slot.gpu.opened:
                slot.worker.ask(slot.gpu.open)
        self._crew.wait(max(0.0, end - time.monotonic()))
        for slot in self._active:
            for answer in slot.worker.take():
                if isinstance(answer, Answer):
                    self._take_opened(slot, answer)

    def _add_instances(self) -> None:
        """MIG instances that the job is given but that no visible GPU lists."""
        opened = self._session.opened
        if opened is None or not all(slot.settled or slot.hung for slot in self._active):
            return
        self._instances_added = True
        known = {unit.uuid for slot in self._slots for unit in slot.units}
        wanted = [uuid for uuid in wanted_instances(self._environ) if uuid not in known]
        self._add_slots(opened, wanted)

    def _take_opened(self, slot: Slot, answer: Answer) -> None:
        if answer.opened is None:
            return
        slot.units, slot.settled, self._stale = answer.opened, True, True
        if not self._apart and all(each.settled for each in self._active):
            self._apart = True  # later on, one that took another's place looks like a twin
            self._roster.tell_apart(self._units())
        whole = [unit for unit in slot.units if unit.mig is None and unit.handle is not None]
        self._unwatched += [(unit.device_index, unit.handle) for unit in whole]

    def _watch(self) -> None:
        """Have all new devices watched for Xids at once: adding in turn would cost a wait each."""
        if self._unwatched and self._session.opened is not None:
            self._session.opened.watch.add(self._unwatched)
            self._unwatched = []

    def _check_session(self) -> None:
        """Open the session anew once every device that answers fails as if it were gone.

        Where only some are not well, a new session may find them; but not while a call hangs,
        which a new session might wait for.
        """
        answering = [slot for slot in self._active if slot.answered and not slot.hung]
        unwell = [slot for slot in answering if slot.unwell]
        if unwell and all(slot.session_error for slot in answering):
            self._session.lose(answering[0].session_error)
        elif unwell:
            if len(answering) == len(self._active):
                self._session.unwell()
        elif answering:
            self._session.well()
        self._session.go_on()

    def _to_verify(self, tick: Tick) -> Slot | None:
        """The slot whose turn it is to show that its handles are still those of its devices."""
        active = self._active
        if not active or not self._schedule.due("verify", _VERIFY_S, tick.mono):
            return None
        self._verified = (self._verified + 1) % len(active)
        return active[self._verified]

    def _driver_params(self) -> str:
        try:
            with open(f"{self._proc}/driver/nvidia/params", encoding="utf-8") as file:
                return file.read(65536)
        except OSError:
            return ""

    # -- one tick ---------------------------------------------------------------------------

    def _absorb_all(self, tick: Tick) -> None:
        """Put the answers of this session's handles."""
        opened = self._session.opened
        library = opened.library if opened is not None else None
        found, moved = [], False
        for slot in self._active:
            answers = slot.worker.take()
            answers = [
                one for one in answers if isinstance(one, Exception) or one.library is library
            ]
            moved = moved or any([isinstance(one, Answer) and one.moved for one in answers])
            found.append((slot, answers))
        if moved:
            self._session.begin()  # until all are found again, no value has a name
            return
        for slot, answers in found:
            for answer in answers:
                self._absorb(slot, answer, tick)
            if not answers:
                self._miss(slot, tick)

    def _absorb(self, slot: Slot, answer: Answer | Exception, tick: Tick) -> None:
        if isinstance(answer, Exception):  # an internal error: reported, and the others continue
            for key in self._slot_keys(slot):
                self._set_state(key, "error", tick, f"{type(answer).__name__}: {answer}")
            return
        self._take_opened(slot, answer)
        slot.afresh |= slot.silent  # silence stands in all its readings
        slot.answered, slot.silent, slot.hung = True, False, False
        slot.session_error, slot.cut = answer.session_error, answer.cut
        slot.unwell = not answer.well
        for unit, result in answer.results:
            key = self._roster.key(unit)
            self._put(key, result, tick)
            if result.lost:
                xid = self._xids.get(key)
                detail = result.lost if xid is None else f"Xid {xid}"
                self._set_state(key, "lost", tick, detail)
            elif result.error:
                self._set_state(key, "error", tick, result.error)
            else:
                slot.answered_at = tick.time
                self._set_state(key, "", tick)

    def _put(self, key: int, result: Result, tick: Tick) -> None:
        if result.row:
            tick.put("device", key, result.row)
        left = MAX_USAGE_ROWS - len(tick.rows.get("usage", ()))
        self._crowded |= len(result.usage) > left
        for pid, line in list(result.usage.items())[:left]:
            tick.put("usage", (key, pid), line)

    def _miss(self, slot: Slot, tick: Tick) -> None:
        """No answer in this tick: a value that is not there, or stands for too long, is missing."""
        waited_s = time.monotonic() - slot.worker.asked_at
        hung = slot.worker.busy and waited_s > _HUNG_INTERVALS * self.interval_s
        slot.hung = hung
        call = slot.gpu.calling
        if not slot.silent and (hung or not slot.answered):
            slot.silent = True
            silence = Missing("timeout", f"no answer to {call}" if call else "no answer")
            for key in self._slot_keys(slot):
                tick.put("device", key, dict.fromkeys(DEVICE_FIELDS, silence))
        if hung:
            for key in self._slot_keys(slot):
                self._set_state(key, "hung", tick, call, slot.answered_at)

    def _take_xids(self, tick: Tick) -> None:
        opened = self._session.opened
        for xid in opened.watch.drain() if opened is not None else ():
            units = [slot.units for slot in self._active if slot.gpu.index == xid.device_index]
            key = next((self._roster.key(found[0]) for found in units if found), None)
            if key is not None:
                self._xids[key] = xid.code
            tick.events.append(Event(xid.time, "xid", device=key, text=str(xid.code)))

    def _set_state(
        self, key: int, state: str, tick: Tick, detail: str = "", since: float | None = None
    ) -> None:
        """Remember a device's state and when it began; "" is well."""
        before = self._states.get(key)
        if not state:
            self._states.pop(key, None)
            return
        if before is not None and before.state == state:
            since = before.since
        self._states[key] = State(state, tick.time if since is None else since, detail)

    def _follow_clock(self) -> None:
        """Once the wall clock was set, state what began before in its new time."""
        step_s = self._wall_clock.step_s()
        if not step_s:
            return
        for slot in self._slots:
            slot.answered_at += step_s
        for key, state in self._states.items():
            self._states[key] = state._replace(since=state.since + step_s)

    # -- what the header lists --------------------------------------------------------------

    def _slot_keys(self, slot: Slot) -> list[int]:
        return [self._roster.key(unit) for unit in slot.units]

    def _units(self) -> list[Unit]:
        return [unit for slot in self._active for unit in slot.units]

    def _compare(self) -> list[News]:
        """Once all devices have answered: which came and which went."""
        if not self._stale or not all(slot.settled for slot in self._active):
            return []
        return self._roster.compare(self._units())

    def _announce(self) -> None:
        """Bring devices and notes up to date, and note whether they changed."""
        notes = self._notes()
        if notes != self.notes:
            self.notes, self.changed = notes, True
        if not self._stale:
            return
        self._stale = False
        devices = self._roster.reported(self._units())
        if devices != self.devices:
            self.devices, self.changed = devices, True

    def _notes(self) -> list[str]:
        notes = [self._session.note] if self._session.note else []
        opened = self._session.opened
        if opened is not None and opened.counted.devices > MAX_GPUS:
            claimed = f"The NVIDIA driver reports {opened.counted.devices} devices"
            notes.append(f"{claimed}; gpumon reads the first {MAX_GPUS}.")
        if self._crowded:
            notes.append(f"More than {MAX_USAGE_ROWS} processes on the GPUs: not all are shown.")
        notes += [
            f"GPUs {other} and {index} report the same UUID, {uuid}; "
            f"GPU {index} is shown without it."
            for (index, uuid), other in self._roster.twins.items()
        ]
        notes += [f"GPU {slot.gpu.index}: {slot.cut}." for slot in self._slots if slot.cut]
        return notes[:_MAX_NOTES]


def wanted_instances(environ: Mapping[str, str]) -> list[str]:
    """UUIDs of the MIG instances that CUDA_VISIBLE_DEVICES names, `MAX_GPUS` at most."""
    entries = (entry.strip() for entry in environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
    return [entry for entry in entries if entry.startswith("MIG-")][:MAX_GPUS]
