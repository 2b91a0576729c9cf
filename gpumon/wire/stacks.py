"""Stacks on the stream: asked for by a line on the agent's input, answered by lines of their own.

They stand beside samples and in no recording; readers that do not know them skip them.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import quote, unquote

from gpumon.errors import WireError
from gpumon.model.stack import (
    ANY,
    MAX_FRAMES,
    MAX_NAME,
    MAX_THREADS,
    MAX_TOGETHER,
    PROBE,
    THREADS,
    Frame,
    Stack,
    ThreadStack,
    Told,
)
from gpumon.model.text import clean
from gpumon.model.untrusted import dict_of, finite_of, int_of, list_of, optional_int_of, text_of
from gpumon.wire import MAX_LINE_BYTES

#: how the line of an answer begins, and how a request does
ANSWER, REQUEST = b'{"stack"', b"stack"
_MAX_RANK = 1 << 20


def request_line(pid: int, how: str, py_spy: str) -> bytes:
    """Asks for the stack of a process, with 0 of each rank. `py_spy`: where it may lie, or ""."""
    return b"%s %d %s %s\n" % (REQUEST, pid, how.encode(), quote(py_spy).encode())


def parse_request(line: bytes) -> Optional[Tuple[int, str, str]]:
    """Process, how, and where py-spy may lie; None for anything else."""
    words = line.decode("utf-8", "replace").split(" ")
    if len(words) != 4 or words[0] != REQUEST.decode():
        return None
    _, pid, how, path = words
    if not (pid.isascii() and pid.isdigit() and len(pid) <= 10) or how not in (PROBE, ANY, THREADS):
        return None
    return int(pid), how, unquote(path)


def answer_line(told: Told) -> str:
    """One line of the stream."""
    body = None if told.stack is None else _body(told.stack)
    return json.dumps({"stack": body, "more": told.more}, separators=(",", ":"))


def _body(stack: Stack) -> Dict[str, Any]:
    body = stack._asdict()
    body["threads"] = [
        [each.name, each.is_main, [list(frame) for frame in each.frames]] for each in stack.threads
    ]
    return body


def parse_answer(line: bytes) -> Told:
    """What a node answered, checked, cut and cleaned. Raises WireError."""
    if len(line) > MAX_LINE_BYTES:
        raise WireError(f"a line of {len(line)} bytes; the limit is {MAX_LINE_BYTES}")
    try:
        body = dict_of(json.loads(line.decode("utf-8")))
        stack = body["stack"]
        more = min(max(int_of(body["more"]), 0), _MAX_RANK)
        return Told(None if stack is None else _stack(dict_of(stack)), more)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise WireError(f"a malformed line: {clean(str(error), 80)}") from None


def _stack(body: Dict[str, Any]) -> Stack:
    threads: List[ThreadStack] = []
    room = MAX_TOGETHER
    for name, is_main, frames in list_of(body.get("threads", []))[:MAX_THREADS]:
        kept = tuple(_frame(each) for each in list_of(frames)[: min(MAX_FRAMES, room)])
        room -= len(kept)
        threads.append(ThreadStack(text_of(name, MAX_NAME), is_main is True, kept))
    return Stack(
        pid=int_of(body["pid"]),
        name=text_of(body.get("name", ""), 64),
        rank=_rank(body.get("rank")),
        local_rank=_rank(body.get("local_rank")),
        by=text_of(body.get("by", ""), 20),
        age_s=max(0.0, finite_of(body.get("age_s", 0))),
        threads=tuple(threads),
        why=text_of(body.get("why", ""), 20),
        detail=text_of(body.get("detail", ""), 200),
    )


def _frame(value: Any) -> Frame:
    file, line, function, own = value
    return Frame(text_of(file, MAX_NAME), int_of(line), text_of(function, MAX_NAME), own is True)


def _rank(value: Any) -> Optional[int]:
    found = optional_int_of(value)
    return found if found is not None and 0 <= found < _MAX_RANK else None
