"""What the threads that call the driver answer: sessions, opened devices, readings. Plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpumon.model.fields import FIELDS
from gpumon.model.reading import Missing, Reading
from gpumon.model.sample import Mig

if TYPE_CHECKING:  # which import the binding, and that comes late
    from gpumon.collect.nvml.events import XidWatch
    from gpumon.collect.nvml.library import Library
    from gpumon.collect.nvml.reader import Reader

Row = dict[str, Reading]
DEVICE_FIELDS = tuple(FIELDS["device"])


class Counted(NamedTuple):
    """The devices of a running session: a new session is due when they change."""

    devices: int
    listed: tuple[str, ...]  # GPUs by the kernel module's own list


class Opened(NamedTuple):
    """A session that has begun."""

    library: Library
    watch: XidWatch
    cuda: str
    counted: Counted


class NoSession(Exception):
    """Why there is none, for people."""


class Unit(NamedTuple):
    """A whole GPU or one MIG instance; `reader` is None where it could not be opened."""

    device_index: int
    uuid: str = ""
    name: str = ""
    mig: Mig | None = None
    facts: Row = {}
    reader: Reader | None = None
    handle: Any = None
    missing: Missing | None = None  # why it could not be opened, or not completely
    code: int = 0  # NVML's, of the same


class Result(NamedTuple):
    """One read of one device: its row, its processes, and how the device fares."""

    row: Row
    usage: dict[int, Row]
    error: str = ""  # every call failed, for a reason other than the device's absence
    session_error: bool = False  # … and so that the session itself may be gone
    lost: str = ""  # NVML's words for the absence of the device
    blind: bool = False  # all that is read in each tick failed, though other calls work
    doubtful: bool = False  # readings do not fit the device's facts

    @property
    def well(self) -> bool:
        return not (self.error or self.lost or self.blind)


class Answer(NamedTuple):
    """What one job of a worker gave: the units if they were (re)opened, and their readings."""

    opened: list[Unit] | None
    results: list[tuple[Unit, Result]]
    cut: str = ""  # what the driver claimed beyond our bounds; for people
    library: Library | None = None  # the session that it comes from
    moved: bool = False  # the handle is another GPU's by now: there are no results
    well: bool = True  # no unit has only errors, or is absent

    @property
    def session_error(self) -> str:
        """The error's text, if every unit failed in a way that the whole session may be gone."""
        gone = self.results and all(result.session_error for _, result in self.results)
        return self.results[0][1].error if gone else ""
