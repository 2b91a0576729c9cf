"""The ways to a node, tried from the best on, and why each was taken or refused.

local, ssh, openssh, srun: the later ones need less of the node and cost the job or the user more.
The last ones, srun-host and sstat, show no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.sources.local import LocalLauncher
from gpumon.sources.srun import SrunLauncher
from gpumon.sources.stream import Failure, Launcher, Rung

#: both land in the same place: what one does not see the other does not
_TWINS = {"ssh": "openssh", "openssh": "ssh"}

#: which way should be tried before the others for this node, and why; None for the usual order
Preference = Callable[[str], Rung | None]


class Ladder:
    """The launchers that all nodes share, in their usual order."""

    def __init__(self, launchers: Sequence[Launcher], prefer: Preference | None = None) -> None:
        self._launchers = list(launchers)
        self._prefer = prefer

    def climb(self, node: str) -> Climb:
        return Climb(node, self._launchers, self._prefer)

    def expect(self, nodes: Sequence[str]) -> None:
        """These nodes will climb; srun waits for those that may still come to it."""
        for launcher in self._launchers:
            if isinstance(launcher, SrunLauncher):
                launcher.expect(nodes)

    def settle(self, node: str) -> None:
        """This node needs no other way any more."""
        for launcher in self._launchers:
            if isinstance(launcher, SrunLauncher):
                launcher.settle(node)

    def close(self) -> None:
        for launcher in self._launchers:
            launcher.close()


class Climb:
    """One node's way up. A round ends with a way that works, or with none left."""

    def __init__(
        self, node: str, launchers: Sequence[Launcher], prefer: Preference | None = None
    ) -> None:
        self.node = node
        self._launchers = [each for each in launchers if _leads_to(each, node)]
        self._prefer = prefer
        self._preferred: Rung | None = None
        self._refused: dict[str, Failure] = {}
        self._lesser: list[Launcher] = []  # work, but show only a part
        self._stopped = False  # no other way would help in this round
        self.taken: Launcher | None = None

    def next(self) -> Launcher | None:
        """The way to try now; None when none is left in this round. May ask `ssh -G`."""
        if self._prefer is not None:
            self._preferred, self._prefer = self._prefer(self.node), None
            self._put_first(self._preferred.name if self._preferred else "")
        if self._stopped:
            return None
        left = [each for each in self._launchers if each.name not in self._refused]
        if left and not left[0].lacks:
            return left[0]
        return next(iter([*self._lesser, *left]), None)  # a part of the GPUs is better than none

    def refuse(self, launcher: Launcher, failure: Failure) -> None:
        self._refused[launcher.name] = failure
        self._stopped = not failure.next_rung
        if launcher in self._lesser:
            self._lesser.remove(launcher)

    def set_aside(self, launcher: Launcher, why: str) -> bool:
        """It works, but shows only a part: False where it must do, as there is no other way left.

        Else it comes back when the others have been refused.
        """
        twin = _TWINS.get(launcher.name, "")
        others = any(
            each.name not in (*self._refused, twin) and not each.lacks
            for each in self._launchers
            if each != launcher
        )
        if launcher in self._lesser or not others:
            return False
        self._lesser.append(launcher)
        self._refused[launcher.name] = Failure(why)
        if any(each.name == twin for each in self._launchers):
            self._refused.setdefault(twin, Failure(f"leads where {launcher.name} does"))
        return True

    def take(self, launcher: Launcher) -> None:
        """It works: after a loss it is the first to be tried again, if it shows all."""
        self.taken = launcher
        self._refused.pop(launcher.name, None)
        if not launcher.lacks:
            self._put_first(launcher.name)

    def again(self) -> bool:
        """Begin another round; False where nothing may be different in it."""
        self._stopped, self._lesser = False, []
        self._refused = {name: each for name, each in self._refused.items() if each.final}
        return len(self._refused) < len(self._launchers)

    @property
    def rungs(self) -> list[Rung]:
        """The way that was taken, then those that were refused, each with its reason."""
        found = []
        if self.taken is not None:
            why = self.taken.lacks or "it works"
            if self._preferred is not None and self._preferred.name == self.taken.name:
                why = self._preferred.why
            found.append(Rung(self.taken.name, why))
        return found + [Rung(name, failure.text) for name, failure in self._refused.items()]

    @property
    def refusals(self) -> str:
        """`ssh: no route to host; srun: …`."""
        return "; ".join(f"{name}: {failure.text}" for name, failure in self._refused.items())

    @property
    def commands(self) -> list[str]:
        """What people may run to see or mend it."""
        return [failure.command for failure in self._refused.values() if failure.command]

    def _put_first(self, name: str) -> None:
        """Behind local, which where it leads costs nothing."""
        self._launchers.sort(key=lambda launcher: launcher.name not in ("local", name))


def _leads_to(launcher: Launcher, node: str) -> bool:
    """Not to every node leads every way: of other nodes, local is not worth a word."""
    return not isinstance(launcher, LocalLauncher) or launcher.node == node
