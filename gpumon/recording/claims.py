"""Claims: which process records which node, so that only one of several dashboards does.

A claim is a file in the folder of the marks, `<job>,<node>,<lease>.claim`. The lease is the spool
that its process holds (`marks`). On this machine a lock on the spool shows whether the process
lives. Locks and processes of other machines cannot be seen over NFS; they renew the spool's time of
change every `BEAT_S`. A claim is given up while no samples come, so that one with samples of the
node takes over.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Callable, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Tuple

from gpumon.model.sample import Header
from gpumon.recording import shared
from gpumon.recording.marks import SUFFIX as SPOOL
from gpumon.recording.marks import MarkSpool, is_held, job_name

#: how often a lease is renewed, and others' are looked at
BEAT_S = 2.0
#: a lease of another machine that was not renewed for so long has ended
LEASE_S = 8.0
#: samples that do not come for so long, or for three intervals
_SILENT_S = 6.0
#: clocks of machines that share a folder are not further apart
_APART_S = 60.0
#: s; of many nodes that are connected at once not each looks for itself
_FRESH_S = 0.2
_SUFFIX = ".claim"
_MAX_READ = 1 << 16
_ABANDONED_S = 86_400.0


class Claim(NamedTuple):
    """That a process records a node."""

    job: str
    node: str
    lease: str
    devices: FrozenSet[str]  # UUIDs
    is_asked_for: bool  # by `gpumon record`; a dashboard records by the way
    since: float  # epoch s

    def outranks(self, other: Claim) -> bool:
        """Whether of two dashboards the other one need not record what this one does."""
        if self.devices != other.devices:
            return self.devices > other.devices
        return (self.since, self.lease) < (other.since, other.lease)


def is_needless(claim: Claim, others: Iterable[Claim]) -> bool:
    """Whether others record all that this one would: all recorders together, or a dashboard.

    Dashboards do not add up: of three, each might then leave its part to the other two.
    """
    if claim.is_asked_for:
        return False
    place = claim.job, claim.node
    here = [each for each in others if (each.job, each.node) == place]
    asked_for = [each.devices for each in here if each.is_asked_for]
    if asked_for and claim.devices <= frozenset().union(*asked_for):
        return True
    return any(each.outranks(claim) for each in here if not each.is_asked_for)


class Claims:
    """Of one process: its own claims, and those of others. Thread-safe."""

    def __init__(
        self, folder: str, spool: MarkSpool, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._spool = spool
        self._clock = clock
        self._lock = threading.Lock()
        self._own: Dict[str, Claim] = {}  # by node, those that hold
        self._seen: Dict[str, Tuple[float, float]] = {}  # node -> when a sample came, and patience
        self._read: Dict[str, Optional[Claim]] = {}  # by name of the file; None: not a claim
        self._beats: Dict[str, Tuple[int, float]] = {}  # lease -> its change, and when we saw it
        self._others: List[Claim] = []
        self._looked = -_FRESH_S - 1.0  # for them
        self._stopping = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self, look: Callable[[], None] = lambda: None) -> None:
        """Renew the lease from now on, and call `look` after each time."""
        self._thread = threading.Thread(target=self._run, args=(look,), daemon=True, name="claims")
        self._thread.start()

    def _run(self, look: Callable[[], None]) -> None:
        while not self._stopping.wait(BEAT_S):
            self._spool.beat()
            self._give_up_silent()
            look()

    def stop(self) -> None:
        """Give up all claims."""
        self._stopping.set()
        for node in list(self._own):
            self.release(node)

    # -- our own

    def made(self, node: str, header: Header, *, is_asked_for: bool) -> Claim:
        """The claim for a node, as it stands or would stand from now on."""
        job = header.job.id if header.job else ""
        held = self._own.get(node)
        return Claim(
            job_name(job),
            shared.safe(header.node),
            self._spool.lease,
            frozenset(device.uuid for device in header.devices if device.uuid),
            is_asked_for,
            held.since if held is not None else round(time.time(), 3),
        )

    def hold(self, node: str, claim: Claim) -> None:
        """Publish it to all others. Raises OSError."""
        if self._own.get(node) == claim:
            return
        body = {
            "devices": sorted(claim.devices),
            "asked_for": claim.is_asked_for,
            "since": claim.since,
        }
        shared.replace_own(self._folder, _name(claim), json.dumps(body).encode("ascii"))
        self._own[node] = claim

    def release(self, node: str) -> None:
        claim = self._own.pop(node, None)
        if claim is not None:
            try:
                os.unlink(os.path.join(self._folder, _name(claim)))
            except OSError:
                pass

    def seen(self, node: str, interval_s: float) -> None:
        """A sample came."""
        self._seen[node] = self._clock(), max(_SILENT_S, 3 * interval_s)

    def is_silent(self, node: str) -> bool:
        """Whether its samples fail to come."""
        now = self._clock()
        at, patience_s = self._seen.get(node, (now, _SILENT_S))
        return now - at > patience_s

    def _give_up_silent(self) -> None:
        for node in filter(self.is_silent, list(self._own)):
            self.release(node)

    # -- others'

    def is_needless(self, claim: Claim) -> bool:
        """Whether others record all that this one would. Raises OSError."""
        with self._lock:
            if self._clock() - self._looked > _FRESH_S:
                self._others = self._found()
                self._looked = self._clock()
            return is_needless(claim, self._others)

    def _found(self) -> List[Claim]:
        """The claims of other processes that live."""
        names = shared.names(self._folder)
        spools = {
            name[: -len(SPOOL)].rsplit(",", 1)[-1]: name for name in names if name.endswith(SPOOL)
        }
        found = [name for name in names if name.endswith(_SUFFIX)]
        self._read = {name: self._read[name] for name in found if name in self._read}
        self._beats = {lease: beat for lease, beat in self._beats.items() if lease in spools}
        claims = []
        lives: Dict[str, bool] = {}
        for name in found:
            lease = name[: -len(_SUFFIX)].rsplit(",", 1)[-1]
            if lease == self._spool.lease:
                continue
            if lease not in lives:
                lives[lease] = lease in spools and self._lives(lease, spools[lease])
            if not lives[lease]:
                self._tidy(name, lease)
            elif (claim := self._claim(name)) is not None:
                claims.append(claim)
        return claims

    def _claim(self, name: str) -> Optional[Claim]:
        if self._read.get(name) is None:
            self._read[name] = _parsed(name, shared.read_own(self._folder, name, _MAX_READ))
        return self._read[name]

    def _lives(self, lease: str, spool: str) -> bool:
        """Whether the process that holds the spool lives."""
        if shared.is_of_this_machine(lease):
            return is_held(self._folder, spool)
        changed = shared.changed_ns(self._folder, spool)
        if changed is None:
            return False
        now = self._clock()
        before, at = self._beats.get(lease, (0, now))
        if changed != before:
            is_old = not before and abs(time.time() - changed / 1e9) > _APART_S
            at = now - LEASE_S - 1 if is_old else now
            self._beats[lease] = changed, at
        return now - at <= LEASE_S

    def _tidy(self, name: str, lease: str) -> None:
        """Remove what a dead process left; another machine's only if that is sure."""
        changed = shared.changed_ns(self._folder, name)
        is_old = changed is not None and time.time() - changed / 1e9 > _ABANDONED_S
        if is_old or shared.is_of_this_machine(lease):
            try:
                os.unlink(os.path.join(self._folder, name))
            except OSError:
                pass


def _name(claim: Claim) -> str:
    return f"{claim.job},{claim.node},{claim.lease}{_SUFFIX}"


def _parsed(name: str, data: bytes) -> Optional[Claim]:
    try:
        job, node, lease = name[: -len(_SUFFIX)].rsplit(",", 2)
        body = json.loads(data)
        return Claim(
            job,
            node,
            lease,
            frozenset(map(str, body["devices"])),
            body["asked_for"] is True,
            float(body["since"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
