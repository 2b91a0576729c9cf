"""Claims: which process records which node, so that only one of several dashboards does.

A process's claims are the line in its files (`sharing`), to which marks come. On this machine a
lock shows whether the process lives. Locks and processes of other machines cannot be seen over NFS:
in the shared folder each process makes one call in `TURN_S`, which renews its own file's time of
change or, of who would take over, looks for others. A claim is given up while no samples come, so
that one with samples of the node takes over.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from gpumon import private
from gpumon.model.sample import Header
from gpumon.recording import sharing
from gpumon.recording.sharing import NO_JOB, Mark, Spool, SpoolFile, mark_of, safe

#: between two calls in the shared folder
TURN_S = 10.0
#: a lease of another machine that was not renewed for so long has ended: who looks for others
#: renews its own in every second turn
LEASE_S = 35.0
#: of so many looks one is at processes that seem dead, too; killed ones stay there for a day
_RARELY = 16
#: how often claims of this machine are looked at
LOOK_S = 2.0
#: samples that do not come for so long, or for three intervals
_SILENT_S = 6.0
#: clocks of machines that share a folder are not further apart
_APART_S = 60.0
#: how long the end waits for a renewal that hangs
_BEAT_S = 1.0
#: s; of many nodes that are connected at once not each looks for itself
_FRESH_S = 0.2


class Claim(NamedTuple):
    """That a process records a node."""

    job: str
    node: str
    lease: str
    devices: frozenset[str]  # UUIDs
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


class _Other(NamedTuple):
    """A process of another machine, as its file in the shared folder shows it."""

    changed_ns: int
    seen: float  # when we saw it change
    path: str  # from which its claims are
    claims: list[Claim]


class Claims:
    """Of one process: what it claims, and what others claim. Until it has files it has nobody to
    tell, and knows of nobody. Thread-safe.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = ""
        self.local: str | None = None
        self.lease = f"{os.getpid()}-{os.urandom(6).hex()}@{sharing.machine()}"  # which process
        self._clock = clock
        self._line = sharing.NOTHING
        self._own: dict[str, Claim] = {}  # by node, those that hold
        self._seen: dict[str, tuple[float, float]] = {}  # node -> when a sample came, and patience
        self._arrived: deque[Mark] = deque()
        # for the file of this machine, for the shared one, and for what is known of others
        self._locking, self._beating, self._lock = (threading.Lock() for _ in range(3))
        self._others: dict[str, _Other] = {}  # by lease
        self._beside: list[Claim] = []  # of this machine
        self._elsewhere: list[Claim] | None = None  # of other machines; None: never looked
        self._known: frozenset[str] = frozenset()  # leases of this machine, dead ones too
        self._dead: frozenset[str] = frozenset()  # of other machines, as far as is known
        self._turns = 0
        self._looked = -_FRESH_S - 1.0  # on this machine
        self._turned = clock()
        self._look: Callable[[], None] | None = None
        self._stopping = threading.Event()
        self._here: SpoolFile | None = None
        self._there: SpoolFile | None = None

    def open(self, folder: str, job: str, node: str, *, local: str | None = None) -> Claims:
        """Have files from now on until `close`. Raises OSError where the folder cannot be written,
        or is not the user's alone.

        `local`: the folder of this machine; by default the user's, where there is one.
        """
        self.folder, self.local = folder, local or private.local_folder()
        name = f"{safe(job, NO_JOB)},{safe(node)},{self.lease}"
        here: SpoolFile | None = None
        # that of this machine first: who finds it locked leaves the other one alone
        with suppress(OSError):
            if self.local:
                here = SpoolFile(self.local, sharing.key(folder) + name, is_here=True)
        try:
            self._there = SpoolFile(folder, name, is_here=False)
        except BaseException:
            if here is not None:
                here.close()
            raise
        self._here = here
        return self

    @property
    def path(self) -> str:
        """Of the file in the shared folder; "" without one."""
        return self._there.path if self._there is not None else ""

    def start(self, look: Callable[[], None] | None = None) -> None:
        """Renew the lease from now on. `look`: is called where other processes may have changed;
        None: they do not matter.
        """
        self._look = look
        threading.Thread(target=self._run, daemon=True, name="claims").start()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self.tick()

    def tick(self) -> None:
        """What is due; to be called every `LOOK_S`."""
        for node in filter(self.is_silent, list(self._own)):
            self.release(node)
        if self._clock() - self._turned >= TURN_S:
            self._turned = self._clock()
            self._take_turn()
        if self._look is not None:
            self._look()

    def _take_turn(self) -> None:
        """The one call in the shared folder."""
        self._turns += 1
        if self._look is None or self._turns % 2:
            self.beat()
            return
        passed_over = self._dead if self._turns // 2 % _RARELY else frozenset()
        with suppress(OSError):
            there = self.others(self._known | passed_over)
            with self._lock:
                self._note(there, passed_over)

    def close(self) -> list[Mark]:
        """End all claims, remove the files, and look for others no longer; gives the last marks."""
        with self._locking:
            was_closed = self._stopping.is_set()
            self._stopping.set()
            if self._here is not None and not was_closed:
                self._keep(self._here.close())
        if self._there is not None and not was_closed and self._beating.acquire(timeout=_BEAT_S):
            self._keep(self._there.close())
            self._beating.release()
        return self._taken()

    # -- our own

    def made(self, node: str, header: Header, *, is_asked_for: bool) -> Claim:
        """The claim for a node, as it stands or would stand from now on."""
        job = header.job.id if header.job else ""
        held = self._own.get(node)
        since = held.since if held is not None else round(time.time(), 3)
        devices = frozenset(device.uuid for device in header.devices if device.uuid)
        return Claim(safe(job, NO_JOB), safe(header.node), self.lease, devices, is_asked_for, since)

    def hold(self, node: str, claim: Claim) -> None:
        """Publish it to all others."""
        if self._own.get(node) != claim:
            self._own[node] = claim
            self._publish()

    def release(self, node: str) -> None:
        if self._own.pop(node, None) is not None:
            self._publish()

    def _publish(self) -> None:
        """To other machines, after the first time, from the next beat on."""
        with self._locking:
            self._line = _line(list(self._own.values()))
            self._tell(self._here)
        if self._there is not None and self._there.told == sharing.NOTHING:
            self.beat()

    def beat(self) -> None:
        """Show other machines that this process lives, and take their marks; a file system that
        hangs may take long.
        """
        with self._beating:
            self._tell(self._there)

    def _tell(self, file: SpoolFile | None) -> None:
        if file is not None and not self._stopping.is_set():
            with suppress(OSError):
                self._keep(file.tell(self._line))

    def seen(self, node: str, interval_s: float) -> None:
        """A sample came."""
        self._seen[node] = self._clock(), max(_SILENT_S, 3 * interval_s)

    def is_silent(self, node: str) -> bool:
        """Whether its samples fail to come."""
        now = self._clock()
        at, patience_s = self._seen.get(node, (now, _SILENT_S))
        return now - at > patience_s

    # -- marks

    def marks(self) -> list[Mark]:
        """Those that came since the last call; what is not a mark is passed over."""
        with self._locking:
            if self._here is not None and not self._stopping.is_set():
                self._keep(self._here.take())
                if self._here.is_gone:
                    try:
                        self._here = self._here.made_again()
                    except OSError:
                        self._here = None
                    self._tell(self._here)
        return self._taken()

    def _keep(self, lines: bytes) -> None:
        self._arrived.extend(mark for line in lines.splitlines() if (mark := mark_of(line)))

    def _taken(self) -> list[Mark]:
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    # -- others'

    def is_needless(self, claim: Claim) -> bool:
        """Whether others record all that this one would. Raises OSError."""
        if self._there is None:
            return False
        with self._lock:
            if self._clock() - self._looked > _FRESH_S:
                found = list(sharing.here(self.folder, self.local))
                self._known = frozenset(each.lease for each in found)
                living = [each for each in found if each.line and each.lease != self.lease]
                self._beside = [
                    claim for each in living for claim in _claims_in(each.line, each.lease) or ()
                ]
                self._looked = self._clock()
            if self._elsewhere is None:
                self._note(self.others(self._known), frozenset())
            there = [each for each in self._elsewhere or () if each.lease not in self._known]
            return is_needless(claim, [*self._beside, *there])

    def others(self, but: frozenset[str]) -> list[Spool]:
        """Files of others in the shared folder but for some leases; who of them lives must be seen
        by their time. Raises OSError.
        """
        with self._beating:
            if self._there is None or self._stopping.is_set():
                return []
            found = sharing.listed(self.folder, self._there.within)
            if all(each.lease != self.lease for each in found):  # somebody emptied or moved it
                self._keep(self._there.take())
                self._there = self._there.made_again()
                found = sharing.listed(self.folder, self._there.within)
            return list(sharing.there(self._there.within, found, {*but, self.lease}))

    def _note(self, there: list[Spool], passed_over: frozenset[str]) -> None:
        """What a look into the shared folder found."""
        now = self._clock()
        others = {lease: kept for lease, kept in self._others.items() if lease in passed_over}
        self._elsewhere = []
        for each in there:
            before = self._others.get(each.lease, _Other(0, now, "", []))
            path, claims = before.path, before.claims
            if now - before.seen > LEASE_S and each.changed_ns == before.changed_ns:
                each = self._read(each) or each  # a cache may have answered
            is_old = not before.changed_ns and abs(time.time() - each.changed_ns / 1e9) > _APART_S
            seen = now - LEASE_S - 1 if is_old else now
            seen = seen if each.changed_ns != before.changed_ns else before.seen
            if now - seen <= LEASE_S:
                if path != each.path:  # it has another one with each line
                    read = self._read(each)
                    found = None if read is None else _claims_in(read.line, each.lease)
                    if found is not None:  # else it may just be being written
                        path, claims = each.path, found
                self._elsewhere += claims
            others[each.lease] = _Other(each.changed_ns, seen, path, claims)
        self._others = others
        self._dead = frozenset(lease for lease, each in others.items() if now - each.seen > LEASE_S)

    def _read(self, spool: Spool) -> Spool | None:
        """Another's file afresh, with its line; None where it is gone."""
        return sharing.read(self._there.within, spool) if self._there is not None else None


def _line(claims: Iterable[Claim]) -> bytes:
    told = [[c.job, c.node, sorted(c.devices), c.is_asked_for, c.since] for c in claims]
    return json.dumps({"claims": told} if told else {}).encode("ascii") + b"\n"


def _claims_in(line: bytes, lease: str) -> list[Claim] | None:
    """None where it is not a line of ours."""
    try:
        told = json.loads(line).get("claims", [])
        return [
            Claim(str(job), str(node), lease, frozenset(map(str, gpus)), asked is True, float(at))
            for job, node, gpus, asked, at in told
        ]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
