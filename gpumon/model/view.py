"""What the store answers: readings with their age, devices, processes, and aggregates over them."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional

from gpumon.model.reading import Reading
from gpumon.model.sample import Device, Event, Process, State


class Latest(NamedTuple):
    """A reading and how old it is. `fresh`: young enough to stand for now."""

    reading: Reading
    time: float  # epoch s of the sample it came in, by the node's clock; 0 when never sampled
    age_s: float
    fresh: bool


#: the state of a former node of a job that is still running
LEFT = "left"


class Status(NamedTuple):
    """Of a stream: `connecting`, `live`, `stale`, `lost`, `ended` or LEFT, since when, and why."""

    state: str
    since: float  # epoch s
    detail: str = ""
    source: str = ""  # local, ssh, …


class NotRecorded(NamedTuple):
    """Why a node that should be recorded is not, and the file where there is one."""

    why: str
    where: str = ""


class Silence(NamedTuple):
    """Slurm does not answer: what is known of the job is as of `since`."""

    since: float  # epoch s of its last answer
    why: str


class DeviceView(NamedTuple):
    """A device in the store. Its key and its place never change."""

    key: int
    device: Device
    state: Optional[State]  # None: well
    gone: bool  # the node's latest header no longer names it
    left: bool  # it is the job's no more, and nothing is wrong with it
    xid: Optional[Event]  # the latest

    @property
    def is_silent(self) -> bool:
        """Nothing that was read of it stands for now."""
        is_stuck = self.state is not None and self.state.state in ("lost", "hung")
        return self.left or self.gone or is_stuck


class ProcessView(NamedTuple):
    """A process: what does not change, its readings, and its usage by device key."""

    facts: Process
    ended: Optional[float]  # epoch s
    readings: Dict[str, Latest]
    usage: Dict[int, Dict[str, Latest]]
