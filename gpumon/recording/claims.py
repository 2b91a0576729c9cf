"""Claims: which process records which node, so that only one of several dashboards does.

A process's claims are the line in its files (`sharing`). On this machine a lock shows whether the
process lives. Locks and processes of other machines cannot be seen over NFS: in the shared folder
each process makes one call in `TURN_S`, which renews its own file's time of change or, of who would
take over, looks for others. A claim is given up while no samples come, so that one with samples of
the node takes over.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gpumon.model.sample import Header
from gpumon.recording import sharing
from gpumon.recording.marks import MarkSpool, job_name

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


class Claims:
    """Of one process: its own claims, and those of others. Thread-safe."""

    def __init__(self, mine: MarkSpool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._mine = mine
        self._clock = clock
        self._lock = threading.Lock()
        self._own: dict[str, Claim] = {}  # by node, those that hold
        self._publishing = threading.Lock()
        self._seen: dict[str, tuple[float, float]] = {}  # node -> when a sample came, and patience
        #: lease -> its line, or the path of its file, which has another one with each line
        self._parsed: dict[str, tuple[bytes | str, list[Claim]]] = {}
        self._beats: dict[str, tuple[int, float]] = {}  # lease -> its change, and when we saw it
        self._here: list[Claim] = []
        self._there: list[Claim] | None = None  # of other machines; None: never looked
        self._known: frozenset[str] = frozenset()  # leases of this machine, dead ones too
        self._dead: frozenset[str] = frozenset()  # of other machines, as far as is known
        self._looks = 0
        self._looked = -_FRESH_S - 1.0  # on this machine
        self._turned = clock()
        self._look: Callable[[], None] | None = None
        self._is_looking_next = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, look: Callable[[], None] | None = None) -> None:
        """Renew the lease from now on. `look`: is called where other processes may have changed;
        None: they do not matter.
        """
        self._look = look
        self._thread = threading.Thread(target=self._run, daemon=True, name="claims")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self.tick()

    def tick(self) -> None:
        """What is due; to be called every `LOOK_S`."""
        self._give_up_silent()
        if self._clock() - self._turned >= TURN_S:
            self._turned = self._clock()
            self._take_turn()
        if self._look is not None:
            self._look()

    def _take_turn(self) -> None:
        """The one call in the shared folder."""
        is_looking = self._is_looking_next
        self._is_looking_next = self._look is not None and not is_looking
        if not is_looking:
            self._mine.beat()
            return
        self._looks += 1
        passed_over = self._dead if self._looks % _RARELY else frozenset()
        try:
            there = self._mine.look(self._known | passed_over)
        except OSError:
            return
        with self._lock:
            self._note(there, passed_over)

    def stop(self) -> None:
        """Renew no longer; the claims end when the spool is closed."""
        self._stopping.set()

    # -- our own

    def made(self, node: str, header: Header, *, is_asked_for: bool) -> Claim:
        """The claim for a node, as it stands or would stand from now on."""
        job = header.job.id if header.job else ""
        held = self._own.get(node)
        return Claim(
            job_name(job),
            sharing.safe(header.node),
            self._mine.lease,
            frozenset(device.uuid for device in header.devices if device.uuid),
            is_asked_for,
            held.since if held is not None else round(time.time(), 3),
        )

    def hold(self, node: str, claim: Claim) -> None:
        """Publish it to all others."""
        if self._own.get(node) != claim:
            self._own[node] = claim
            self._publish()

    def release(self, node: str) -> None:
        if self._own.pop(node, None) is not None:
            self._publish()

    def _publish(self) -> None:
        with self._publishing:
            self._mine.publish(_line(list(self._own.values())))

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
                self._look_here()
                self._looked = self._clock()
            if self._there is None:
                self._note(self._mine.look(self._known), frozenset())
            there = [each for each in self._there or () if each.lease not in self._known]
            return is_needless(claim, [*self._here, *there])

    def _look_here(self) -> None:
        mine = self._mine
        found = list(sharing.here(mine.folder, mine.local))
        self._known = frozenset(each.lease for each in found)
        living = [each for each in found if each.line and each.lease != mine.lease]
        self._here = [claim for each in living for claim in self._claims(each)]

    def _note(self, there: list[sharing.Spool], passed_over: frozenset[str]) -> None:
        """What a look into the shared folder found."""
        now = self._clock()
        beats = {lease: beat for lease, beat in self._beats.items() if lease in passed_over}
        claims = []
        for each in there:
            before, at = self._beats.get(each.lease, (0, now))
            if now - at > LEASE_S and each.changed_ns == before:  # a cache may have answered
                each = self._mine.read(each) or each
            if each.changed_ns != before:
                is_old = not before and abs(time.time() - each.changed_ns / 1e9) > _APART_S
                at = now - LEASE_S - 1 if is_old else now
            beats[each.lease] = each.changed_ns, at
            if now - at <= LEASE_S:
                claims += self._claims(each)
        self._beats, self._there = beats, claims
        self._dead = frozenset(lease for lease, (_, at) in beats.items() if now - at > LEASE_S)
        leases = {*self._known, *beats}
        self._parsed = {lease: kept for lease, kept in self._parsed.items() if lease in leases}

    def _claims(self, of: sharing.Spool) -> list[Claim]:
        version, claims = self._parsed.get(of.lease, (b"", []))
        if version != (of.line or of.path):
            read = of if of.line else self._mine.read(of)
            found = None if read is None else _claims_in(read.line, of.lease)
            if found is None:  # it may just be being written
                return claims
            claims = found
            self._parsed[of.lease] = of.line or of.path, claims
        return claims


def _line(claims: Iterable[Claim]) -> bytes:
    told = [[c.job, c.node, sorted(c.devices), c.is_asked_for, c.since] for c in claims]
    return json.dumps({"claims": told} if told else {}).encode("ascii") + b"\n"


def _claims_in(line: bytes, lease: str) -> list[Claim] | None:
    """None where it is not a line of ours."""
    try:
        return [
            Claim(
                str(job), str(node), lease, frozenset(map(str, devices)), asked is True, float(at)
            )
            for job, node, devices, asked, at in json.loads(line).get("claims", [])
        ]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
