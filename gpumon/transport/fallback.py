"""The transports to a node, tried from the best on, and why each was taken or failed.

local, ssh, openssh, srun: the later ones need less of the node and cost the job or the user more.
The last ones, srun-host and sstat, show no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.transport.local import LocalTransport
from gpumon.transport.srun import SrunTransport
from gpumon.transport.stream import Attempt, Failure, Transport

#: both land in the same place: what one does not see the other does not
_TWINS = {"ssh": "openssh", "openssh": "ssh"}

#: which transport to try first for this node, and why; None for the usual order
Preference = Callable[[str], Attempt | None]


class Transports:
    """The transports that all nodes share, in their usual order."""

    def __init__(self, transports: Sequence[Transport], prefer: Preference | None = None) -> None:
        self._transports = list(transports)
        self._prefer = prefer

    def fallback(self, node: str) -> Fallback:
        return Fallback(node, self._transports, self._prefer)

    def expect(self, nodes: Sequence[str]) -> None:
        """These nodes will be tried; srun waits for those that may still come to it."""
        for transport in self._transports:
            if isinstance(transport, SrunTransport):
                transport.expect(nodes)

    def settle(self, node: str) -> None:
        """This node needs no other transport any more."""
        for transport in self._transports:
            if isinstance(transport, SrunTransport):
                transport.settle(node)

    @property
    def steps(self) -> int:
        """That were started in the job."""
        return sum(each.steps for each in self._transports if isinstance(each, SrunTransport))

    def close(self) -> None:
        for transport in self._transports:
            transport.close()


class Fallback:
    """The attempts for one node. A round ends with a transport that works, or with none left."""

    def __init__(
        self, node: str, transports: Sequence[Transport], prefer: Preference | None = None
    ) -> None:
        self.node = node
        self._transports = [each for each in transports if _reaches(each, node)]
        self._prefer = prefer
        self._preferred: Attempt | None = None
        self._refused: dict[str, Failure] = {}
        self._lesser: list[Transport] = []  # work, but show only a part
        self._stopped = False  # no other transport would help in this round
        self.taken: Transport | None = None

    def next(self, trying: Sequence[Transport] = ()) -> Transport | None:
        """What to try now, beside those that are being tried; None when nothing is left in this
        round. May ask `ssh -G`.
        """
        if self._prefer is not None:
            self._preferred, self._prefer = self._prefer(self.node), None
            self._put_first(self._preferred.name if self._preferred else "")
        if self._stopped:
            return None
        left = [
            each
            for each in self._transports
            if each.name not in self._refused and each not in trying
        ]
        if left and not left[0].lacks:
            return left[0]
        if trying:
            return None  # what may show all the GPUs is waited for
        return next(iter([*self._lesser, *left]), None)  # a part of the GPUs is better than none

    def refuse(self, transport: Transport, failure: Failure) -> None:
        self._refused[transport.name] = failure
        self._stopped = not failure.try_next
        if transport in self._lesser:
            self._lesser.remove(transport)

    def set_aside(self, transport: Transport, why: str) -> bool:
        """It works, but shows only a part: False where it must do, as there is nothing else left.

        Else it comes back when the others have been refused.
        """
        twin = _TWINS.get(transport.name, "")
        others = any(
            each.name not in (*self._refused, twin) and not each.lacks
            for each in self._transports
            if each != transport
        )
        if transport in self._lesser or not others:
            return False
        self._lesser.append(transport)
        self._refused[transport.name] = Failure(why)
        if any(each.name == twin for each in self._transports):
            self._refused.setdefault(twin, Failure(f"same path as {transport.name}"))
        return True

    def take(self, transport: Transport) -> None:
        """It works: after a loss it is the first to be tried again, if it shows all."""
        self.taken = transport
        self._refused.pop(transport.name, None)
        if not transport.lacks:
            self._put_first(transport.name)

    def again(self) -> bool:
        """Begin another round; False where nothing may be different in it."""
        self._stopped, self._lesser = False, []
        self._refused = {name: each for name, each in self._refused.items() if each.final}
        return len(self._refused) < len(self._transports)

    @property
    def attempts(self) -> list[Attempt]:
        """The transport that was taken, then those that failed, each with its reason."""
        found = []
        if self.taken is not None:
            why = self.taken.lacks or "it works"
            if self._preferred is not None and self._preferred.name == self.taken.name:
                why = self._preferred.why
            found.append(Attempt(self.taken.name, why))
        return found + [Attempt(name, failure.text) for name, failure in self._refused.items()]

    @property
    def refusals(self) -> str:
        """`ssh: no route to host; srun, srun-host: …`."""
        return why_not([Attempt(name, failure.text) for name, failure in self._refused.items()])

    @property
    def commands(self) -> list[str]:
        """What people may run to see or mend it."""
        return [failure.command for failure in self._refused.values() if failure.command]

    def _put_first(self, name: str) -> None:
        """Behind local, which costs nothing where it works."""
        self._transports.sort(key=lambda transport: transport.name not in ("local", name))


def why_not(attempts: Sequence[Attempt]) -> str:
    """What kept each from the node; one that several have in common is told once."""
    names: dict[str, list[str]] = {}
    for attempt in attempts:
        names.setdefault(attempt.why, []).append(attempt.name)
    return "; ".join(f"{', '.join(each)}: {why}" for why, each in names.items())


def has_twin(transport: Transport, others: Sequence[Transport]) -> bool:
    """Whether one of the others leads to the same place, and so is as slow."""
    return any(each.name == _TWINS.get(transport.name) for each in others)


def _reaches(transport: Transport, node: str) -> bool:
    """Whether it can reach the node at all: local reaches only its own."""
    return not isinstance(transport, LocalTransport) or transport.node == node
