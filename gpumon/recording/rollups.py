"""Rollup lines: what a report needs of a frame, made of its samples while it is recorded.

The recorder supplies a `Roller`; readers get its results (`model.rolled`). The lines of a
frame stand at the beginning of the next one, behind its header, so that a reader of them unpacks no
sample; behind a recording's last frame comes one that holds nothing else. Each line begins with its
kind, the number of its frame, its own number and how many there are: a `head` with what happened,
the `state` from which the next frame continues, then `series`, and `shown` that no report needs.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Tuple,
    Union,
)

from gpumon.errors import WireError
from gpumon.model.batch import CELL_S
from gpumon.model.rolled import Columns, Rolled
from gpumon.model.rollup import STEP_S
from gpumon.model.sample import Event, Header, Sample
from gpumon.recording.batches import Item, Tabulator
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder

_PREFIX = b'{"rollup":'
_BEGINNING = re.compile(
    rb'\{"rollup":\["(head|state|series|shown)",([0-9]{1,9}),([0-9]{1,3}),([0-9]{1,3})\],'
)
_LEAST = 120  # samples that are worth rollup lines at the end; fewer are read as quickly
#: samples that are rolled up at once: more cost less, and wait as 140 KB of lines
_BATCH = 40
MAX_LINES = 250  # of one frame
_EVENTS_PER_LINE = 100
_EVENTS = ("facts", "xids", "states")  # in a device's news


class Roller(Protocol):
    """Makes rollups of a stream as it is written. Used by one thread at a time."""

    def add(self, item: Item) -> None:
        """The next item, as a reader of the lines gets it."""

    def rolled(self) -> Optional[Rolled]:
        """What came since the last time; None when from now on there can be none."""


class Rolling:
    """Has a roller take the lines of a recording, and gives the rollup lines of each frame.

    The roller is made when it gets the first samples: to import one takes a tenth of a second, for
    which neither the first screen nor a command of a few seconds shall wait.
    """

    def __init__(self, make: Optional[Callable[[], Roller]], phase: float = 0.0) -> None:
        """`phase`: as of a recorder."""
        self._make = make
        self._roller: Optional[Roller] = None
        self._decoder = Decoder()
        self._tabulator = Tabulator(self._decoder, self._decode, _BATCH)
        self._shift_s = phase * CELL_S // STEP_S * STEP_S
        self._samples = 0
        self._is_over = make is None  # those behind a gap would be of no use

    def header(self, line: bytes, interval_s: float) -> None:
        """The line of a header."""
        self._take(line)
        # recorders that are fed at the same time roll up one after another
        self._tabulator.shift_s = self._shift_s if interval_s <= STEP_S else 0.0

    def sample(self, line: bytes) -> None:
        """The line of the next sample."""
        self._samples += 1
        self._take(line)

    def _take(self, line: bytes) -> None:
        if not self._is_over:
            self._guarded(lambda: self._add(self._tabulator.take(line)))

    def restate(self, line: bytes) -> None:
        """A line that repeats earlier information, where a frame begins."""
        if not self._is_over:
            self._decode(line)

    def lines(self, frame: int, *, is_last: bool = False) -> List[str]:
        """Of the frame that ended, by its number."""
        if self._is_over or (is_last and self._samples < _LEAST):
            return []
        made: List[str] = self._guarded(lambda: self._lines(frame)) or []
        if not 0 < len(made) <= MAX_LINES or max(map(len, made)) >= MAX_LINE_BYTES:
            self._end()
            return []
        return made

    def _lines(self, frame: int) -> List[str]:
        roller = self._add(self._tabulator.rest(is_whole=True))
        rolled = roller.rolled()
        return [] if rolled is None else _lines_of(rolled, frame)

    def _add(self, items: Iterable[Item]) -> Roller:
        assert self._make is not None
        for item in items:
            if self._roller is None:
                self._roller = self._make()
            self._roller.add(item)
        return self._roller or self._make()

    def _decode(self, line: bytes) -> Union[Header, Sample, None]:
        try:
            return self._decoder.line(line)
        except WireError:  # a reader will say so
            return None

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception:  # the samples are what counts, and they hold all that rollups would
            self._end()
            return None

    def _end(self) -> None:
        self._is_over, self._roller = True, None
        self._tabulator.drop()


# -- writing ---------------------------------------------------------------------------------------


def _lines_of(rolled: Rolled, frame: int) -> List[str]:
    state = dict(rolled.state())
    state["rows"] = _line(Sample(0.0, 0.0, state["rows"]))
    head = {
        "step_s": rolled.step_s,
        "buckets": [rolled.first, rolled.last],
        "lines": [Encoder().header(header) for header in rolled.headers]
        + _event_lines(rolled.events),
        "devices": [
            [place, {name: _event_lines(told) if name in _EVENTS else told
                     for name, told in news.items()}]
            for place, news in rolled.devices
        ],
        **({"looks": rolled.looks} if rolled.looks else {}),
    }  # fmt: skip
    needed = [("head", head), ("state", state)]
    shown: List[Tuple[str, Dict[str, Any]]] = []
    for columns in rolled.columns:
        body = columns._asdict()
        body["values"] = columns.values.hex()  # which packs better than other digits of theirs
        (shown if body.pop("are_shown") else needed).append(("series", body))
    return [
        _rollup_line([kind, frame, n, len(bodies)], body)
        for bodies in (needed, [("shown", body) for _, body in shown])
        for n, (kind, body) in enumerate(bodies)
    ]


def _rollup_line(place: List[Any], body: Mapping[str, Any]) -> str:
    return json.dumps({"rollup": place, **body}, separators=(",", ":"), allow_nan=False)


def _line(sample: Sample) -> str:
    return Encoder().sample(sample)


def _event_lines(events: List[Event]) -> List[str]:
    return [
        _line(Sample(0.0, 0.0, {}, {}, events[at : at + _EVENTS_PER_LINE]))
        for at in range(0, len(events), _EVENTS_PER_LINE)
    ]


# -- reading ---------------------------------------------------------------------------------------


def is_rollup(line: bytes) -> bool:
    return line.startswith(_PREFIX)


def at_beginning(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The rollup lines behind a frame's first line, and the line that follows them."""
    next(lines, None)
    for line in lines:
        yield line
        if not is_rollup(line):
            return


def rolled_of(lines: Iterable[bytes], frame: int, *, shown: bool) -> Optional[Callable[[], Rolled]]:
    """What a frame's lines hold; None where they are not all there.

    `shown`: also the series that no report needs. What is given raises what Python does, or
    WireError, on lines that no recorder wrote.
    """
    found: List[bytes] = []
    left = (0, 0)  # the next of its part, and how many there are
    is_whole = not shown  # else a part may be cut off: something must follow
    for line in lines:
        if not is_rollup(line):
            is_whole = True
            break
        beginning = _BEGINNING.match(line)
        if beginning is None or int(beginning[2]) != frame or len(found) >= MAX_LINES:
            return None
        kind, n, count = beginning[1], int(beginning[3]), int(beginning[4])
        if kind == b"shown" and not shown:
            break
        if (n, count) != left and not (n == 0 and left[0] == left[1]):
            return None
        left = (n + 1, count)
        found.append(line)
    return partial(_rolled, found) if is_whole and len(found) > 1 and left[0] == left[1] else None


def _rolled(lines: List[bytes]) -> Rolled:
    head = json.loads(lines[0])
    items = list(map(_decoder().line, head["lines"])) if head["lines"] else []
    first, last = head["buckets"]
    return Rolled(
        float(head["step_s"]),
        int(first),
        int(last),
        [each for each in items if isinstance(each, Header)],
        _events_in(items),
        [[place, {name: _events(told) if name in _EVENTS else told for name, told in news.items()}]
         for place, news in head["devices"]],
        head.get("looks", []),
        list(map(_columns, lines[2:])),
        partial(_state, lines[1]),
    )  # fmt: skip


def _columns(line: bytes) -> Columns:
    body = json.loads(line)
    body["values"] = bytes.fromhex(body["values"])
    return Columns(*(body[name] for name in Columns._fields[:-1]))


def _state(line: bytes) -> Dict[str, Any]:
    state: Dict[str, Any] = json.loads(line)
    rows = _decoder().line(state["rows"])
    if not isinstance(rows, Sample):
        raise TypeError("expected readings")
    return {**state, "rows": rows.rows}


def _decoder() -> Decoder:
    """One that takes samples of any device."""
    decoder = Decoder()
    decoder.line(_HEADER)
    return decoder


_HEADER = Encoder().header(Header("", "", 0.0, 0.0, 1.0, ""))


def _events(lines: List[str]) -> List[Event]:
    return _events_in(map(_decoder().line, lines))


def _events_in(items: Iterable[Any]) -> List[Event]:
    return [event for each in items if isinstance(each, Sample) for event in each.events]
