"""One GPU as a worker sees it: opened by index or UUID, with the MIG instances on it."""

from __future__ import annotations

import time
from typing import Any, Callable

from gpumon.collect.base import Backoff
from gpumon.collect.nvml.answers import DEVICE_FIELDS, Answer, Result, Row, Unit
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.facts import device_facts, instance_facts
from gpumon.collect.nvml.gpm import Gpm
from gpumon.collect.nvml.library import SESSION_CODES, Library, error_text
from gpumon.collect.nvml.query import Query, passing
from gpumon.collect.nvml.reader import Reader
from gpumon.model.plausible import checked_facts
from gpumon.model.reading import UNSUPPORTED, Missing, Reading
from gpumon.model.sample import Mig

#: a device that could not be opened, or has only errors, is opened again this often
_RETRY_S = 5.0
#: facts that failed when it was opened are asked again, in the end this often
_FACTS_MAX_S = 600.0
#: most MIG instances of one GPU; today's have up to 7
MAX_INSTANCES = 8
#: how often new instances of a GPU in MIG mode are looked for
_INSTANCES_S = 7.0
#: ... and whether those are still there that fail
_FAILING_S = 2.0


class Gpu:
    """One GPU and its MIG instances, or one instance alone; `open` and `read` run in a worker."""

    def __init__(
        self, library: Library, index: int, sysfs: str, params: Callable[[], str], uuid: str = ""
    ) -> None:
        """`uuid`: a MIG instance whose GPU does not list its instances."""
        self.library = library
        self._session = library  # from the next read on; written by the collector's thread
        self.index = index
        self.uuid = uuid
        self.opened = False
        self._sysfs = sysfs
        self._params = params
        self._queries: list[Query] = []
        self._units: list[Unit] = []
        self._cut = ""  # instances that are left out
        self._told = False  # that it could not be opened
        self._retry_at = 0.0
        self._instances_at = 0.0
        self._free_slots: list[int] = []  # numbers of instances that were not there
        self._bad_since: float | None = None
        self._worked: set[Any] = set()  # what the whole GPU has answered, in any session
        self._incomplete = False  # facts could not be read for the moment
        self._facts = Backoff(_RETRY_S, _FACTS_MAX_S)
        self._doubtful = False  # readings do not fit the facts: either may be wrong
        self._doubt = Backoff(_RETRY_S, _FACTS_MAX_S)

    @property
    def calling(self) -> str:
        """The NVML call that has not come back, "" when there is none; for other threads."""
        for query in self._queries:
            if query.calling:
                return query.calling
        return ""

    def restart(self, library: Library) -> None:
        """Use a new session with the driver from the next read on; a late one does not notice."""
        self._session = library

    def open(self) -> Answer:
        """Get the handle, and all that does not change."""
        self._free()
        self._queries, self._units, self._told = [], [], False
        self._retry_at = time.monotonic() + _RETRY_S
        self._instances_at = time.monotonic() + _INSTANCES_S
        self._bad_since = None
        self._units = self._open_instance() if self.uuid else self._open_whole()
        self.opened = all(unit.missing is None for unit in self._units)
        self._incomplete = self.opened and any(map(_unfinished, self._units))
        if self.opened and not self._incomplete:
            self._facts.reset()
        return Answer(list(self._units), [], self._cut, self.library)

    def read(self, mono: float, verify: bool = False, afresh: bool = False) -> Answer:
        """Read what is due; opens what is not open, or is not what it was.

        `verify`: see first whether the handles still belong to the same devices. `afresh`: all
        is due, since the readings before were replaced by silence.
        """
        opened: list[Unit] | None = None
        now = time.monotonic()
        if self._session is not self.library:
            self.library, self.opened, self._retry_at = self._session, False, 0.0
        if not self.opened and now >= self._retry_at:
            opened = self.open().opened
        exchanged = self._exchanged() if verify and self.opened else None
        if exchanged is not None and exchanged.mig is None:
            return Answer(None, [], library=self.library, moved=True)
        incomplete = self._incomplete and self._facts.due(now)
        if exchanged is not None or incomplete or (self._doubtful and self._doubt.due(now)):
            opened = self.open().opened
        for unit in self._units if afresh else ():
            if unit.reader is not None:
                unit.reader.read_all()
        results = [(unit, self._read(unit, mono)) for unit in self._units]
        if self.opened and self._changed(results):
            opened = self.open().opened
            results = [(unit, self._read(unit, mono)) for unit in self._units]
        self._doubtful, well, cut = False, True, self._cut
        for unit, result in results:
            self._doubtful = self._doubtful or result.doubtful
            well = well and result.well
            cut = cut or (unit.reader.cut if unit.reader is not None else "")
        self._give_up(well, now)
        return Answer(opened, results, cut, self.library, well=well)

    def _give_up(self, well: bool, now: float) -> None:
        """A handle that has given only errors for a while is got anew."""
        if well or not self.opened:
            self._bad_since = None
        elif self._bad_since is None:
            self._bad_since = now
        elif now >= self._bad_since + _RETRY_S:
            self.opened = False

    def _read(self, unit: Unit, mono: float) -> Result:
        if unit.reader is not None:
            return unit.reader.read(mono)
        missing = Missing("error") if unit.missing is None else unit.missing
        row: Row = {} if self._told else dict.fromkeys(DEVICE_FIELDS, missing)
        self._told = True
        text = error_text(unit.code)
        if missing.reason == "lost":
            return Result(row, {}, lost=text)
        return Result(row, {}, text, unit.code in SESSION_CODES)

    def _query(self, handle: Any, worked: set[Any] | None = None) -> Query:
        query = Query(self.library, handle, worked)
        self._queries.append(query)
        return query

    def _free(self) -> None:
        """Give GPM's samples back."""
        for unit in self._units:
            reader = unit.reader
            if reader is None or reader.gpm is None:
                continue
            if reader.query.library.same_file(self.library):
                reader.gpm.close(self.library)

    # -- is it still what was opened? -------------------------------------------------------

    def _exchanged(self) -> Unit | None:
        """The first unit whose handle leads to another device than the one it was got for."""
        for unit in self._units:
            if unit.reader is None or not unit.uuid:
                continue
            if _uuid(unit.reader.query) not in ("", unit.uuid):
                return unit
        return None

    def _changed(self, results: list[tuple[Unit, Result]]) -> bool:
        """Whether MIG was switched, or instances were made or destroyed."""
        whole = self._units[0].reader if self._units else None
        if whole is None or self.uuid:
            return False
        if not whole.mig_on:
            return whole.mig_suspected and whole.query.first(nv.nvmlDeviceGetMigMode) == 1
        now = time.monotonic()
        failing = any(result.error or result.lost for unit, result in results if unit.mig)
        if now < self._instances_at - (_INSTANCES_S - _FAILING_S if failing else 0):
            return False
        self._instances_at = now + _INSTANCES_S
        if failing:
            switched_off = whole.query.first(nv.nvmlDeviceGetMigMode) == 0
            return switched_off or self._instance_gone(whole.query)
        return self._instance_new(whole.query)

    def _instance_gone(self, query: Query) -> bool:
        handles = self._instance_handles(query)
        uuids = {_uuid(Query(self.library, found)) for found in handles}
        return uuids != {unit.uuid for unit in self._units if unit.mig is not None}

    def _instance_new(self, query: Query) -> bool:
        """Whether there is one where there was none, or there can be none any more."""
        for number in self._free_slots:
            found = query.get(nv.nvmlDeviceGetMigDeviceHandleByIndex, number)
            if not isinstance(found, Missing) or found.reason == "unsupported":
                return True
            if query.code != nv.NVML_ERROR_NOT_FOUND:
                return False
        return False

    # -- opening ----------------------------------------------------------------------------

    def _open_whole(self) -> list[Unit]:
        query = self._query(None, self._worked)
        query.handle = handle = query.ask(nv.nvmlDeviceGetHandleByIndex, self.index)
        if isinstance(handle, Missing):
            return [Unit(self.index, missing=handle, code=query.code)]
        mig_mode = query.first(nv.nvmlDeviceGetMigMode)
        mig_on = mig_mode == 1
        gpm = None if mig_on else Gpm(query, params=self._params)
        reader = Reader(query, mig_mode=mig_mode, gpm=gpm)
        name = _text(query.text(nv.nvmlDeviceGetName))
        facts = checked_facts(name, device_facts(query, self._sysfs))
        reader.know(facts)
        facts["power_kind"] = reader.power_kind(facts)
        facts["gpm"] = _gpm_fact(gpm)
        uuid = _uuid(query)
        whole = Unit(self.index, uuid, name, None, facts, reader, handle, query.lost)
        if not mig_on:
            return [whole]
        instances = [
            self._instance(self._query(found), whole, handle)
            for found in self._instance_handles(query)
        ]
        return [whole, *instances]

    def _instance_handles(self, query: Query) -> list[Any]:
        reading = query.get(nv.nvmlDeviceGetMaxMigDeviceCount)
        count = reading if isinstance(reading, int) else 0
        self._cut = ""
        if count > MAX_INSTANCES:
            self._cut = f"{count} MIG instances are reported, at most {MAX_INSTANCES} are read"
        handles = []
        self._free_slots = list(range(min(count, MAX_INSTANCES)))
        for i in range(min(count, MAX_INSTANCES)):
            handle = query.get(nv.nvmlDeviceGetMigDeviceHandleByIndex, i)
            if not isinstance(handle, Missing):
                handles.append(handle)
                self._free_slots.remove(i)
            elif query.code != nv.NVML_ERROR_NOT_FOUND:
                break
        return handles

    def _instance(self, query: Query, parent: Unit, parent_handle: Any) -> Unit:
        gi = query.get(nv.nvmlDeviceGetGpuInstanceId)
        ci = query.get(nv.nvmlDeviceGetComputeInstanceId)
        name, uuid = _text(query.text(nv.nvmlDeviceGetName)), _uuid(query)
        gi_number = gi if isinstance(gi, int) else 0
        gpm = Gpm(query, parent_handle, gi_number, self._params)
        facts = checked_facts(name, instance_facts(query, parent.facts))
        facts["gpm"] = _gpm_fact(gpm)
        mig = Mig(parent.uuid, gi_number, ci if isinstance(ci, int) else 0, profile(name))
        reader = Reader(query, instance=True, gpm=gpm)
        reader.know(facts)
        return Unit(parent.device_index, uuid, name, mig, facts, reader, query.handle, query.lost)

    def _open_instance(self) -> list[Unit]:
        """An instance by UUID alone: its GPU may not be readable, or not even be listed."""
        query = self._query(None)
        query.handle = handle = query.ask(nv.nvmlDeviceGetHandleByUUID, self.uuid)
        if isinstance(handle, Missing):
            return [Unit(self.index, self.uuid, missing=handle, code=query.code)]
        parent = query.get(nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle)
        if isinstance(parent, Missing):
            return [self._instance(query, Unit(self.index), None)]
        of_parent = self._query(parent)
        index = of_parent.get(nv.nvmlDeviceGetIndex)
        self.index = index if isinstance(index, int) else self.index
        uuid = _uuid(of_parent)
        return [self._instance(query, Unit(self.index, uuid), parent)]


def profile(name: str) -> str:
    """The MIG profile in a device's name: "NVIDIA A100 MIG 3g.40gb" -> "3g.40gb"."""
    return name.rpartition(" MIG ")[2] if " MIG " in name else ""


def _gpm_fact(gpm: Gpm | None) -> Reading:
    if gpm is None:
        return Missing("mig")
    refused = gpm.probe()
    return 1 if refused is None else refused


def _uuid(query: Query) -> str:
    """What makes a device the same one later; "" where there is none, or nothing like one."""
    uuid = _text(query.text(nv.nvmlDeviceGetUUID))
    return uuid if uuid.startswith(("GPU-", "MIG-")) else ""


def _unfinished(unit: Unit) -> bool:
    """Whether something that does not change could not be read for the moment."""
    mig_mode = UNSUPPORTED if unit.reader is None else unit.reader.mig_mode
    return not (unit.uuid and unit.name) or any(map(passing, (mig_mode, *unit.facts.values())))


def _text(reading: Reading) -> str:
    return reading if isinstance(reading, str) else ""
