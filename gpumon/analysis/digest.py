"""The digest of a frame of a recording: what a report needs of it, as bytes.

Two parts in JSON and one of numbers. The *news* is what happened: headers, events, processes that
came and left. The *state* is what goes on: counters, peaks, last readings; only that of the last
digest is ever needed. The numbers are the bins of all series, in float32 as `Bins` keeps them; of
which series they are says the *directory*, which mostly equals the one before and then costs
nothing.

Layout, little-endian: head, directory, news, state; of each series where it begins behind the
digest's first bin, its bins, the values in its last one (three times uint16) and its form (a byte);
the float32 of all series: means, then lows, then highs. A series that is constant has one mean and
nothing else, one whose means are its lows and highs has only means. (Sorted into planes of bytes
the numbers pack worse by 3 to 6 %: many are equal, and zstd finds these.)
"""

from __future__ import annotations

import json
import re
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from functools import cache
from math import log2
from typing import Any, NamedTuple

from gpumon.analysis.bins import STEP_S, Bins, Columns, doubled
from gpumon.analysis.digest_lines import events_of, lines_of, rows_line, rows_of
from gpumon.analysis.digest_parts import SeriesName
from gpumon.analysis.gather_node import NodeGathering
from gpumon.errors import WireError
from gpumon.model.fields import FIELDS
from gpumon.model.sample import Event, Header
from gpumon.wire import Decoder, Encoder

_VERSION = 2  # 1 had no extremes of busy within a tick
#: version, bytes of directory, news and state; first bin, bins, step; series, numbers
_HEAD = struct.Struct("<IIIIqIdII")
#: of one digest; ten minutes have 60
MAX_BINS = 4096
_MAX_INDEX = 10**14
_STEPS_S = frozenset(STEP_S * 2**doublings for doublings in range(16))
_EVENTS = ("facts", "xids", "states")  # in a device's news
_CONSTANT, _FLAT, _FULL = range(3)
_HAIR = 1e-6  # what float32 may add to a bound
#: ranges of the series that are no fields
_RANGES = {
    "active": (0.0, 1.0), "masks": (0.0, 0.0), "throttle": (0.0, 1.0), "covered": (1.0, 1.0),
    "threads": (0.0, 1e12),
}  # fmt: skip
_FIELD_OF = {
    "mem": ("usage", "mem_bytes"),
    "sm": ("usage", "sm_percent"),
    "cpu": ("process", "cpu_percent"),
}

#: what a digest raises that nobody made for us
MALFORMED = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, WireError,
    struct.error,
)  # fmt: skip


class Range:
    """What a series may hold, but for NaN."""

    def __init__(self, low: float, high: float) -> None:
        slack = _HAIR * max(abs(low), abs(high))
        self._low, self._high = low - slack, high + slack
        first = re.escape(_upper_halves(array("f", [high])))
        self._find_doubtful = re.compile(f"[{first}-\U0010ffff]").search

    def checked(self, values: array[float], upper: str, begin: int, end: int) -> array[float]:
        """`values` from `begin` to `end`. Raises ValueError where one lies outside.

        `upper` are the upper halves of all: a regular expression settles nearly all of them, in an
        eighth of the time that min and max take.
        """
        found = values[begin:end]
        if self._find_doubtful(upper, begin, end):
            known = [value for value in found if value == value]
            if known and not (self._low <= min(known) and max(known) <= self._high):
                raise ValueError("a value out of range")
        return found


def _upper_halves(values: array[float]) -> str:
    """The upper 16 bits of each as a character: in order as the floats are, negative ones and NaN
    behind all others.
    """
    halves = array("H")
    halves.frombytes(values.tobytes())
    upper = halves[sys.byteorder == "little" :: 2]
    text = upper.tobytes().decode(f"utf-16-{sys.byteorder[0]}e", "surrogatepass")
    return text if len(text) == len(values) else "\uffff" * len(values)  # two made a pair


class Layout(NamedTuple):
    """The series of a directory: where each goes, and its range."""

    directory: bytes
    series: list[tuple[Bins, Range]]


class Digested(NamedTuple):
    """A digest taken apart; nothing in it was checked but that the lengths fit."""

    first: int
    width: int  # bins
    step_s: float
    directory: bytes
    news: bytes
    state: bytes
    spans: list[tuple[int, int, int]]  # of each series: begin, bins, values in the last
    forms: bytes
    values: array[float]


class News(NamedTuple):
    """What happened since the last digest."""

    headers: list[Header]
    events: list[Event]
    devices: list[Any]  # as `NodeGathering.take_news` takes them


# -- making ----------------------------------------------------------------------------------------


def made(
    node: NodeGathering, headers: Iterable[Header], events: Iterable[Event], step_s: float
) -> bytes:
    """What the node gathered since the last time, which it then forgets; b"": it is too much."""
    drained = [(name, columns) for name, bins in node.series() if (columns := bins.drain())]
    # the values of one field of many devices resemble each other
    drained.sort(key=lambda each: (each[0][:2], str(each[0][2])))
    first = min((columns.first for _, columns in drained), default=0)
    last = max((columns.first + len(columns.mean) for _, columns in drained), default=0)
    if last - first > MAX_BINS:
        return b""
    news = {
        "headers": [Encoder().header(header) for header in headers],
        "events": lines_of(events),
        "devices": [[place, _with_lines(device)] for place, device in node.news()],
    }
    node.forget()
    state = node.state()
    state["rows"] = rows_line(state["rows"])
    directory, told, goes_on = (
        json.dumps(part, separators=(",", ":"), allow_nan=False).encode()
        for part in ([name for name, _ in drained], news, state)
    )
    spans = array("H")
    forms = bytearray()
    means, lows, highs = array("f"), array("f"), array("f")
    for _, columns in drained:
        form = _form(columns)
        forms.append(form)
        spans.extend((columns.first - first, len(columns.mean), min(columns.weight, 0xFFFF)))
        means.extend(columns.mean[:1] if form == _CONSTANT else columns.mean)
        if form == _FULL:
            lows.extend(columns.low)
            highs.extend(columns.high)
    values = means + lows + highs
    sizes = (len(directory), len(told), len(goes_on), first, last - first, step_s)
    head = _HEAD.pack(_VERSION, *sizes, len(drained), len(values))
    body = spans[::3] + spans[1::3] + spans[2::3]
    return b"".join((head, directory, told, goes_on, _bytes(body), bytes(forms), _bytes(values)))


def _form(columns: Columns) -> int:
    mean = columns.mean.tobytes()
    if mean != columns.low.tobytes() or mean != columns.high.tobytes():
        return _FULL
    return _CONSTANT if mean == mean[:4] * len(columns.mean) else _FLAT


def _bytes(values: array[Any]) -> bytes:
    return _swapped(values[:]).tobytes()


def _swapped(values: array[Any]) -> array[Any]:
    """From this machine's order of bytes to a file's, or back."""
    if sys.byteorder == "big":
        values.byteswap()
    return values


# -- reading ---------------------------------------------------------------------------------------


def opened(data: bytes) -> Digested:
    """The parts of a digest. Raises one of MALFORMED."""
    version, directory, news, state, first, width, step_s, series, values = _HEAD.unpack_from(data)
    ends = [_HEAD.size]
    for size in (directory, news, state, 6 * series, series, 4 * values):
        ends.append(ends[-1] + size)
    if version != _VERSION or ends[-1] != len(data):
        raise ValueError("of another length or version")
    if not (abs(first) <= _MAX_INDEX and width <= MAX_BINS and step_s in _STEPS_S):
        raise ValueError("a grid that cannot be")
    parts = [data[begin:end] for begin, end in zip(ends, ends[1:])]
    spans = _array("H", parts[3])
    return Digested(
        first,
        width,
        step_s,
        parts[0],
        parts[1],
        parts[2],
        list(zip(spans[:series], spans[series : 2 * series], spans[2 * series :])),
        parts[4],
        _array("f", parts[5]),
    )


def _array(kind: str, data: bytes) -> array[Any]:
    values: array[Any] = array(kind)
    values.frombytes(data)
    return _swapped(values)


def news_of(digested: Digested) -> News:
    """Raises one of MALFORMED."""
    news = json.loads(digested.news)
    found = [Decoder().line(line) for line in news["headers"]]
    headers = [each for each in found if isinstance(each, Header)]
    devices = [[place, _with_events(device)] for place, device in news["devices"]]
    return News(headers, events_of(news["events"]), devices)


def _with_lines(device: Mapping[str, Any]) -> dict[str, Any]:
    return {name: lines_of(said) if name in _EVENTS else said for name, said in device.items()}


def _with_events(device: Mapping[str, Any]) -> dict[str, Any]:
    return {name: events_of(said) if name in _EVENTS else said for name, said in device.items()}


def layout(node: NodeGathering, directory: bytes) -> Layout:
    """Where the series go. Raises one of MALFORMED."""
    names: list[SeriesName] = json.loads(directory)
    series = []
    for kind, name, key in names:
        series.append((node.bins_of(kind, name, key), _range(kind, name)))
    if len({id(bins) for bins, _ in series}) != len(series):
        raise ValueError("a series twice")
    return Layout(directory, series)


@cache
def _range(kind: str, name: str) -> Range:
    if kind in _RANGES:
        return Range(*_RANGES[kind])
    entity, name = _FIELD_OF.get(kind, (kind, name))
    field = FIELDS[entity][name]
    return Range(field.low, field.high)


def take_bins(digested: Digested, into: Layout, step_s: float) -> None:
    """Append the series, on a grid of bins of `step_s`. Raises one of MALFORMED."""
    doublings = round(log2(step_s / digested.step_s))
    if digested.step_s * 2**doublings != step_s:
        raise ValueError("another grid")
    values, forms = digested.values, digested.forms
    if len(into.series) != len(forms):
        raise ValueError("other series than in the directory")
    sizes = [size for _, size, _ in digested.spans]
    kept = [1 if form == _CONSTANT else size for form, size in zip(forms, sizes)]
    full = sum(size for size, form in zip(sizes, forms) if form == _FULL)
    at, low_at, high_at = 0, sum(kept), sum(kept) + full
    if high_at + full != len(values):
        raise ValueError("other numbers than told")
    upper = _upper_halves(values)
    for (bins, range_), (begin, size, weight), form, own in zip(
        into.series, digested.spans, forms, kept
    ):
        if not 0 < size <= digested.width - begin:
            raise ValueError("bins beyond the digest's")
        lows = highs = means = range_.checked(values, upper, at, at + own)
        at += own
        if form == _CONSTANT:
            lows = highs = means = means * size
        elif form == _FULL:
            lows = range_.checked(values, upper, low_at, low_at + size)
            highs = range_.checked(values, upper, high_at, high_at + size)
            low_at, high_at = low_at + size, high_at + size
        columns = Columns(digested.first + begin, means, lows, highs, weight)
        for _ in range(doublings):
            columns = doubled(columns)
        bins.extend(columns)


def restore(node: NodeGathering, state: bytes) -> None:
    """The node goes on from there. Raises one of MALFORMED."""
    goes_on = json.loads(state)
    goes_on["rows"] = rows_of(goes_on["rows"])
    node.restore(goes_on)
