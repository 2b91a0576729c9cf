"""Stacks as text and as JSON, those of ranks that stand at the same place together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpumon.model.stack import Fold, Frame, Place, Stack, ThreadStack, folded
from gpumon.model.units import age_text, plural

_NODES_SHOWN = 4
_RECORD = "start it under 'gpumon record --probe --'"
_INSTALL = "pip install 'gpumon-slurm[stacks]'"
_WHY = {
    "ended": "the process has ended",
    "other-user": "it belongs to another user: only they can read its stack",
    "not-python": "it is not a Python program",
    "no-probe": "no probe is inside, or it has seen neither a GPU nor a step yet",
    "no-py-spy": f"py-spy is not installed there: {_INSTALL}, or {_RECORD}",
    "refused": "the kernel does not permit it, as for programs in some containers; " + _RECORD,
    "timeout": "py-spy did not answer within 3 s",
}


def why_text(stack: Stack) -> str:
    """Why there is no stack, or no more than the main thread's, and what to do."""
    if stack.why == "silent":
        return (
            f"its probe has not written for {age_text(stack.age_s)}: the program is stopped, or "
            f"holds Python's lock in a library's call; py-spy would show where ({_INSTALL})"
        )
    if stack.why == "ptrace":
        scope = f"ptrace_scope {stack.detail}"
        return f"this node lets only a program's parents read its stack ({scope}); {_RECORD}"
    if stack.why == "failed":
        return f"py-spy could not read it: {stack.detail}"
    return _WHY.get(stack.why, "no reason was given")


def place_text(place: Place) -> str:
    """`train.py:88 → DataLoader.__next__`."""
    if not place.file:
        return place.call
    line = f"{place.file}:{place.line}"
    return f"{line} → {place.call}" if place.call else line


def frame_texts(frames: Sequence[Frame]) -> list[tuple[str, str, bool]]:
    """`train.py:88`, the function, and whether it is the user's own; the deepest call first."""
    return [
        (f"{frame.file}:{frame.line}" if frame.line else frame.file, frame.function, frame.own)
        for frame in frames
    ]


def stacks_text(stacks: Sequence[tuple[str, Stack]]) -> str:
    """For each place who stands there, and the stack."""
    ranks = Counter(stack.rank for _, stack in stacks)
    several = len({node for node, _ in stacks}) > 1
    folds = folded(stacks)
    return "\n\n".join("\n".join(_fold(fold, ranks, several=several)) for fold in folds)


def _fold(fold: Fold, ranks: Mapping[int | None, int], *, several: bool) -> Iterator[str]:
    first = fold.members[0][1]
    who = _who(fold, ranks, several=several)
    if fold.place is None:
        yield f"{who}: no stack: {why_text(first)}"
        return
    by = first.by if not first.age_s >= 1 else f"{first.by}, {age_text(first.age_s)} ago"
    yield f"{who}: {place_text(fold.place)}  ({by})"
    if fold.differ:
        yield f"  the stack of {_label(first, ranks)}; others differ in calls between"
    for thread in first.threads:
        yield from _thread(thread, named=len(first.threads) > 1)
    if first.why:
        yield f"  main thread only: {why_text(first)}"


def _thread(thread: ThreadStack, *, named: bool) -> Iterator[str]:
    if named:
        yield f"  thread {thread.name or '?'}"
    texts = frame_texts(thread.frames)
    width = max(len(place) for place, _, _ in texts) if texts else 0
    for place, function, own in texts:
        yield f"{'>' if own else ' '} {place:<{width}}  {function}"


def _who(fold: Fold, ranks: Mapping[int | None, int], *, several: bool) -> str:
    """`ranks 0–2, 4–7 on gpu01, gpu02`."""
    alone = [stack.rank for _, stack in fold.members if stack.rank is not None]
    unique = [rank for rank in alone if ranks[rank] == 1]
    others = [stack for _, stack in fold.members if stack.rank is None or ranks[stack.rank] > 1]
    words = [("rank " if len(unique) == 1 else "ranks ") + ranges_text(unique)] if unique else []
    words += [_label(stack, ranks) for stack in others]
    nodes = sorted({node for node, _ in fold.members})
    if not several:
        return ", ".join(words)
    shown = ", ".join(nodes[:_NODES_SHOWN])
    more = len(nodes) - _NODES_SHOWN
    return f"{', '.join(words)} on {shown}" + (f" and {plural(more, 'more node')}" * (more > 0))


def _label(stack: Stack, ranks: Mapping[int | None, int]) -> str:
    if stack.rank is None:
        return f"PID {stack.pid}"
    return f"rank {stack.rank}" + (f" (PID {stack.pid})" if ranks[stack.rank] > 1 else "")


def ranges_text(numbers: Collection[int]) -> str:
    """[0, 1, 2, 4] -> `0–2, 4`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in runs)


def stacks_json(stacks: Sequence[tuple[str, Stack]], why: Mapping[str, str]) -> dict[str, Any]:
    """All of them, and the nodes that did not answer."""
    return {
        "version": 1,
        "stacks": [_stack(node, stack) for node, stack in stacks],
        "missing_nodes": dict(why),
    }


def _stack(node: str, stack: Stack) -> dict[str, Any]:
    told = bool(stack.threads)
    return {
        "node": node,
        "pid": stack.pid,
        "name": stack.name,
        "rank": stack.rank,
        "local_rank": stack.local_rank,
        "by": stack.by if told else None,
        "age_s": stack.age_s if told else None,
        "threads": [
            {
                "name": thread.name,
                "main": thread.is_main,
                "frames": [frame._asdict() for frame in thread.frames],
            }
            for thread in stack.threads
        ],
        "missing": {"reason": stack.why, "text": why_text(stack)} if stack.why else None,
    }
