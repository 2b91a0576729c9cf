"""A frame as lines of a recording, and such lines as a frame.

Each line begins with its kind, the number of its frame, its own number and how many there are: a
`head` with what happened, `facts` of processes, then `series`, and apart from these `shown`, of
readings that no rule asks for. Rollups are packed as columns: their names, and of each where it
begins, its buckets, the values in a bucket, and how many numbers it has. The numbers are float32,
little-endian: means, lows and highs; means alone where these are the same; a single one where it is
constant.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate, chain, groupby
from math import isnan
from operator import gt
from typing import Any, Callable, Optional, Union

from gpumon.errors import WireError
from gpumon.frames.device import DeviceFrame
from gpumon.frames.frame import MAX_DEVICES, Frame, Name
from gpumon.frames.program import MAX_PROGRAMS, ProgramFrame
from gpumon.model.fields import OF_BOTH, SHOWN, kept_field
from gpumon.model.rollup import STEP_S, Rollup
from gpumon.model.sample import Event, Header, Key, Process, Rows, Sample
from gpumon.model.text import clean
from gpumon.model.untrusted import int_of
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder

_PREFIX = b'{"rollups":'
_BEGINNING = re.compile(
    rb'\{"rollups":\["(head|facts|series|shown)",([0-9]{1,9}),([0-9]{1,3}),([0-9]{1,3})\],'
)
MAX_LINES = 250  # of one frame
#: buckets of one frame; ten minutes have 60
MAX_BUCKETS = 4096
_EVENTS_A_LINE = 100
#: so few that a line of them is one block of a recording, of which a reader unpacks no other
_SERIES_A_LINE = 28
_MAX_INDEX = 10**14
_STEPS_S = frozenset(STEP_S * 2**doublings for doublings in range(16))
_BYTES = 4  # of a number
_HAIR = 1e-6  # what float32 may add to a bound
_NAN = "\u7fc0"  # the upper half of one
_MAYBE_NAN = re.compile("[\u7f80-\u7fff\uff80-\uffff]")

#: what opening a frame raises of lines that no recorder wrote
MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    WireError,
)


# -- writing ---------------------------------------------------------------------------------------


def lines_of(frame: Frame, number: int) -> list[str]:
    """The lines of a frame with this number; none where it has too much for lines."""
    named = [(name, rollup) for name, rollup in frame.named() if len(rollup)]
    first = min((rollup.first for _, rollup in named), default=0)
    last = max((rollup.last for _, rollup in named), default=-1)
    if frame.header is None or last - first >= MAX_BUCKETS:
        return []
    series, shown = (
        [each for each in named if _is_shown(each[0]) == is_shown] for is_shown in (False, True)
    )
    facts = _event_lines(_process_event(facts, None) for facts in frame.facts.values())
    # one after another: of hundreds of processes each takes some KB until it is text
    needed = chain(
        [("head", _head(frame, first, last))],
        (("facts", _dumped({"events": [line]})) for line in facts),
        (("series", body) for body in _packed(series, first)),
    )
    more = (("shown", body) for body in _packed(shown, first))
    parts = (1 + len(facts) + _lines_for(series), needed), (_lines_for(shown), more)
    found = [
        f'{{"rollups":["{kind}",{number},{n},{count}],{body[1:]}'
        for count, bodies in parts
        for n, (kind, body) in enumerate(bodies)
    ]
    is_small = len(found) <= MAX_LINES and max(map(len, found)) < MAX_LINE_BYTES
    return found if is_small else []


def _dumped(body: Mapping[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), allow_nan=False)


def _lines_for(named: Sequence[object]) -> int:
    return -(-len(named) // _SERIES_A_LINE)


def _is_shown(name: Name) -> bool:
    """Whether no rule asks for it."""
    return kept_field(name[0], name[2]).kept == SHOWN


def _head(frame: Frame, first: int, last: int) -> str:
    devices = [each.device._replace(key=place) for place, each in enumerate(frame.devices)]
    rows: Rows = {"device": {place: each.last for place, each in enumerate(frame.devices)}}
    rows["job"] = {"": frame.job.last}
    of_all = _dumped({
        "step_s": frame.step_s,
        "buckets": [first, last],
        "extent": frame.extent,
        "samples": frame.samples.told(),
        "headers": [Encoder().header(each) for each in frame.headers],
        "events": _event_lines(frame.events),
        "devices": Encoder().header(_NOBODY._replace(devices=devices)),
        "rows": Encoder().sample(Sample(0.0, 0.0, rows)),
        "paths": frame.paths,
        "job": frame.job.told(),
        "programs": [[pid, each.told()] for pid, each in frame.programs.items()],
        "left_out": frame.left_out(),
    })  # fmt: skip
    of_each = ",".join(_dumped(_told(device)) for device in frame.devices)
    return f'{of_all[:-1]},"of_devices":[{of_each}]}}'


def _told(device: DeviceFrame) -> dict[str, Any]:
    return {
        **device.told(),
        "facts": _event_lines(_process_event(p.facts, None) for p in device.processes),
        "xids": _event_lines(device.xids),
        "states": _event_lines(device.states),
    }


_NOBODY = Header("", "", 0.0, 0.0, 1.0, "")


def _process_event(facts: Process, device: Optional[int]) -> Event:
    data = facts._asdict()
    del data["pid"]
    return Event(0.0, "process", device, facts.pid, data=data)


def _event_lines(events: Iterable[Event]) -> list[str]:
    told = list(events)
    return [
        Encoder().sample(Sample(0.0, 0.0, {}, {}, told[at : at + _EVENTS_A_LINE]))
        for at in range(0, len(told), _EVENTS_A_LINE)
    ]


def _packed(named: Sequence[tuple[Name, Rollup]], first: int) -> Iterator[str]:
    """The rollups as columns. `first`: the frame's first bucket."""
    # the values of one field of many devices resemble each other
    ordered = sorted(named, key=lambda each: (*_field(each), str(each[0][1])))
    for at in range(0, len(ordered), _SERIES_A_LINE):
        some = ordered[at : at + _SERIES_A_LINE]
        names = [
            [*field, [name[1] for name, _ in same]] for field, same in groupby(some, key=_field)
        ]
        begins, sizes, counts, widths, values = zip(*(_row(found, first) for _, found in some))
        # hexadecimal digits pack better than others of theirs
        yield _dumped({"names": names, "begins": begins, "sizes": sizes, "counts": counts,
                       "widths": widths, "values": b"".join(values).hex()})  # fmt: skip


def _field(each: tuple[Name, Rollup]) -> tuple[str, str]:
    """The entity and the field."""
    (entity, _, field), _ = each
    return entity, field


def _row(found: Rollup, first: int) -> tuple[int, int, Union[int, list[int]], int, bytes]:
    mean, low, high, counts = found.mean, found.low, found.high, found.count
    values = mean[:]
    if low is not mean and (low != mean or high != mean):
        values = mean + low + high
    elif values.count(values[0]) == len(values):
        values = values[:1]
    if sys.byteorder == "big":
        values.byteswap()
    most = max(counts)
    told = most if counts.count(most) == len(counts) else counts.tolist()
    return found.first - first, len(mean), told, len(values), values.tobytes()


# -- reading ---------------------------------------------------------------------------------------


def is_rollup(line: bytes) -> bool:
    return line.startswith(_PREFIX)


def at_beginning(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a frame behind the first of these lines, and the one that follows them."""
    next(lines, None)
    for line in lines:
        yield line
        if not is_rollup(line):
            return


def frame_of(lines: Iterable[bytes], number: int, *, shown: bool) -> Optional[Callable[[], Frame]]:
    """What opens the frame with this number; None where its lines are not all there.

    `shown`: also the readings that no rule asks for. Opening raises what Python does, or WireError,
    on lines that no recorder wrote.
    """
    found: list[bytes] = []
    left = (0, 0)  # the next of its part, and how many there are
    is_whole = not shown  # else a part may be cut off: something must follow
    for line in lines:
        if not is_rollup(line):
            is_whole = True
            break
        beginning = _BEGINNING.match(line)
        if beginning is None or int(beginning[2]) != number or len(found) >= MAX_LINES:
            return None
        kind, n, count = beginning[1], int(beginning[3]), int(beginning[4])
        if kind == b"shown" and not shown:
            break
        if (n, count) != left and not (n == 0 and left[0] == left[1]):
            return None
        left = (n + 1, count)
        found.append(line)
    if not (is_whole and found and left[0] == left[1]):
        return None
    return lambda: _opened(found)


def _opened(lines: Sequence[bytes]) -> Frame:
    head, *bodies = map(json.loads, lines)
    frame, decoder = Frame(), _decoder()
    first, last = _grid(head)
    frame.step_s = float(head["step_s"])
    begin, end = map(int_of, head["extent"] or (0, -1))
    if first <= last and not begin <= first <= last <= end:
        raise ValueError("buckets outside of the extent")  # which says how far it reaches
    if head["extent"] is not None:
        if not -_MAX_INDEX <= begin <= end <= _MAX_INDEX or end - begin >= MAX_BUCKETS:
            raise ValueError("an impossible grid")
        frame.cover(begin, end)
    frame.samples.take(head["samples"])
    for line in head["headers"]:
        frame.add_header(_header(line))
    for event in _events(decoder, head["events"]):
        frame.add_event(event)
    _take_devices(frame, decoder, head)
    frame.job.take(head["job"])
    for label, path in head["paths"].items():
        frame.add_path(clean(label, 255), clean(path))
    for pid, told in head["programs"][:MAX_PROGRAMS]:
        frame.programs[int_of(pid)] = ProgramFrame.of(told, first, last)
    for what, count in head["left_out"].items():
        frame.leave_out(clean(what, 80), max(int_of(count), 0))
    for body in bodies:
        if "values" in body:
            _take_rollups(frame, body, first, last)
        else:
            for process in (each for line in body["events"] for each in _processes(line)):
                frame.facts[int_of(process.pid)] = process
    return frame


def _grid(head: Mapping[str, Any]) -> tuple[int, int]:
    first, last = map(int_of, head["buckets"])
    if abs(first) > _MAX_INDEX or not 0 <= last - first + 1 <= MAX_BUCKETS:
        raise ValueError("an impossible grid")
    if head["step_s"] not in _STEPS_S:
        raise ValueError("an impossible step")
    return first, last


# frames that follow each other have the same headers and processes, mostly


@lru_cache(maxsize=16)
def _header(line: str) -> Header:
    found = Decoder().line(line)
    if not isinstance(found, Header):
        raise TypeError("expected a header")
    return found


@lru_cache(maxsize=64)
def _processes(line: str) -> Sequence[Process]:
    return [Process.of(event) for event in _events(_decoder(), [line])]


def _take_devices(frame: Frame, decoder: Decoder, head: Mapping[str, Any]) -> None:
    devices, told = _header(head["devices"]).devices, head["of_devices"]
    rows = decoder.line(head["rows"])
    if not isinstance(rows, Sample) or not len(devices) == len(told) <= MAX_DEVICES:
        raise ValueError("other devices")
    taken: list[DeviceFrame] = []
    for place, (device, its) in enumerate(zip(devices, told)):
        found = frame.find_device(device, taken)
        if found is None or device.key != place:
            raise ValueError("other devices")
        taken.append(found)
        found.take(its, [process for line in its["facts"] for process in _processes(line)])
        found.xids, found.states = (_events(decoder, its[name]) for name in ("xids", "states"))
        found.last = rows.rows.get("device", {}).get(place, {})
    frame.job.last = rows.rows.get("job", {}).get("", {})


def _decoder() -> Decoder:
    """One that takes samples of any device."""
    decoder = Decoder()
    decoder.line(_HEADER)
    return decoder


_HEADER = Encoder().header(_NOBODY)


def _events(decoder: Decoder, lines: Iterable[str]) -> list[Event]:
    items = map(decoder.line, lines)
    return [event for each in items if isinstance(each, Sample) for event in each.events]


def _take_rollups(frame: Frame, body: Mapping[str, Any], first: int, last: int) -> None:
    """One line of them."""
    values = bytes.fromhex(body["values"])
    names = [(entity, key, field) for entity, field, keys in body["names"] for key in keys]
    columns = [body[name] for name in ("begins", "sizes", "widths", "counts")]
    begins, sizes, widths, _ = columns
    if not {*map(type, begins), *map(type, sizes), *map(type, widths)} <= {int}:
        raise TypeError("expected whole numbers")
    if {len(names)} != {*map(len, columns)} or sum(widths) * _BYTES != len(values):
        raise ValueError("a number of columns that differs from the rollups")
    numbers = array("f", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    has_gaps = _check(body["names"], widths, values, numbers)
    ends = list(accumulate(widths))
    for name, begin, size, width, counts, end in zip(names, *columns, ends):
        if not (begin >= 0 and 0 < size <= last - first + 1 - begin):
            raise ValueError("buckets outside of their frame")
        own = _rollup(size, counts, numbers[end - width : end], has_gaps=has_gaps)
        entity, key, field = name
        rollup = Rollup.of(frame.step_s, first + begin, *own)
        frame.put((entity, _key(entity, key), field), rollup)


def _rollup(
    size: int, counts: Union[int, list[int]], numbers: array[float], *, has_gaps: bool
) -> tuple[array[int], array[float], Optional[array[float]], Optional[array[float]]]:
    """The columns of one: counts and means, and lows and highs that are not the means."""
    width = len(numbers)
    known = array("H", [counts]) * size if isinstance(counts, int) else array("H", counts)
    if len(known) != size or width not in (1, size, 3 * size):
        raise ValueError("columns of a different length")
    if has_gaps and isnan(sum(numbers)) and any(v != v and n for v, n in zip(numbers, known * 3)):
        raise ValueError("values that are none")
    if width == 3 * size:
        mean, low, high = numbers[:size], numbers[size : 2 * size], numbers[2 * size :]
        if any(map(gt, low, mean)) or any(map(gt, mean, high)):
            raise ValueError("a mean beyond its extremes")
        return known, mean, low, high
    return known, numbers if width == size else numbers * size, None, None


_NUMBERED = frozenset((*OF_BOTH, "device", "throttle", "process", "program"))


def _key(entity: str, key: Any) -> Key:
    """Whose a rollup of a file is."""
    if entity not in _NUMBERED:
        return clean(key, 255)
    places = key if entity in OF_BOTH else [key]
    if min(map(int_of, places)) < 0:
        raise IndexError("a place before the first")
    return (places[0], places[1]) if entity in OF_BOTH else places[0]


# -- ranges ----------------------------------------------------------------------------------------


def _check(
    names: Iterable[Any], widths: Sequence[int], values: bytes, numbers: array[float]
) -> bool:
    """Whether some may be NaN. Raises ValueError where a number is out of the range of its field,
    LookupError without one.

    The upper halves of all numbers are text for a regular expression, which settles nearly all of
    them in an eighth of the time that min and max take.
    """
    text = values.decode("utf-16-le", "surrogatepass")[1::2]
    count = len(numbers)
    upper = text if len(text) == count else "\uffff" * count  # two made a pair
    place = end = 0
    for entity, field, keys in names:
        at, place = place, place + len(keys)
        begin, end = end, end + sum(widths[at:place])
        _range(entity, field).check(numbers, upper, begin, end)
    return _MAYBE_NAN.search(upper) is not None


class _Range:
    """What a rollup may hold, but for NaN."""

    def __init__(self, low: float, high: float) -> None:
        slack = _HAIR * max(abs(low), abs(high))
        self._low, self._high = low - slack, high + slack
        bound = array("f", [high]).tobytes().decode("utf-16-le", "surrogatepass")[1]
        # in order as the floats are, negative ones and NaN behind all others; up to 1 % above the
        # bound passes for it
        first = chr(ord(bound) + 1)
        self._find_doubtful = re.compile(
            f"[{re.escape(first)}-{chr(ord(_NAN) - 1)}{chr(ord(_NAN) + 1)}-\U0010ffff]"
        ).search

    def check(self, numbers: array[float], upper: str, begin: int, end: int) -> None:
        """The numbers from `begin` to `end`, of which `upper` has the upper halves."""
        if self._find_doubtful(upper, begin, end):
            known = [value for value in numbers[begin:end] if value == value]
            if known and not (self._low <= min(known) and max(known) <= self._high):
                raise ValueError("a value out of range")


@cache
def _range(entity: str, name: str) -> _Range:
    field = kept_field(entity, name)
    return _Range(field.low, field.high)
