"""Where the threads of a process stand, as the probe or py-spy reports it."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

#: how a stack may be had: by the probe alone, by whatever works, of all threads
PROBE, ANY, THREADS = "probe", "any", "threads"

#: bounds of one stack, at the node and here
MAX_THREADS, MAX_FRAMES, MAX_NAME = 64, 64, 120
MAX_TOGETHER = 1024  # frames of all its threads


class Frame(NamedTuple):
    """A call that has not returned. `file`: within its library, else without its folder."""

    file: str
    line: int
    function: str
    own: bool  # neither Python's nor an installed package's


class ThreadStack(NamedTuple):
    """`frames`: the deepest call first."""

    name: str
    is_main: bool
    frames: Tuple[Frame, ...]


class Stack(NamedTuple):
    """A process, and its threads, the main one first; or why there are none.

    `why`: `ended`, `other-user`, `not-python`, `silent` (its probe has not written for `age_s`),
    `no-probe`, `no-py-spy`, `ptrace` (`detail`: what ptrace_scope is), `refused`, `timeout`,
    `failed` (`detail`: what py-spy printed).
    """

    pid: int
    name: str = ""
    rank: Optional[int] = None
    local_rank: Optional[int] = None
    by: str = ""  # probe or py-spy
    age_s: float = 0.0
    threads: Tuple[ThreadStack, ...] = ()
    why: str = ""
    detail: str = ""

    @property
    def main(self) -> Tuple[Frame, ...]:
        """The frames of the main thread."""
        return next((each.frames for each in self.threads if each.is_main), ())


class Told(NamedTuple):
    """One answer of a node: a process, and how many follow. Without a process there is none."""

    stack: Optional[Stack]
    more: int


class Place(NamedTuple):
    """Where a stack stands: the deepest line of the user's own files, and the deepest call."""

    file: str
    line: int
    call: str  # "" where that is the own line's


def place_of(frames: Sequence[Frame]) -> Optional[Place]:
    """Of a thread; None if it has no frame."""
    if not frames:
        return None
    own = next((frame for frame in frames if frame.own), None)
    if own is None:
        return Place("", 0, frames[0].function)
    return Place(own.file, own.line, "" if own is frames[0] else frames[0].function)


class Fold(NamedTuple):
    """Processes that stand at one place, by their nodes. `differ`: not in all their calls."""

    members: List[Tuple[str, Stack]]
    place: Optional[Place]  # None: no stack is known, for the same reason
    differ: bool


def folded(stacks: Sequence[Tuple[str, Stack]]) -> List[Fold]:
    """All of them, those that stand at the same place together, in the order of the first."""
    groups: dict[object, List[Tuple[str, Stack]]] = {}
    for node, stack in stacks:
        place = place_of(stack.main)
        key = place if place is not None else (stack.why, stack.detail)
        groups.setdefault(key, []).append((node, stack))
    return [
        Fold(
            members,
            place_of(members[0][1].main),
            any(stack.main != members[0][1].main for _, stack in members),
        )
        for members in groups.values()
    ]
