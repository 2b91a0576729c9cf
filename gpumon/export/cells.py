"""Lines of a recording as cells of CSV, without readings in between.

A line that holds rows and nothing else, as nearly all do, is checked and written by functions that
are compiled for its columns. Any other line is left to the decoder, which says what is wrong with
it, or reads it; both ways end in the same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, TypeVar

from gpumon.export.csv import line_of, missing_text, text_cell
from gpumon.export.tables import TABLES, Lines, Row, Tables
from gpumon.model.fields import GROUP_BY_KEY, GROUPS, OF_BOTH, Field, Group
from gpumon.model.reading import REASON_OF_LETTER
from gpumon.model.sample import Header, Key, Sample
from gpumon.model.untrusted import finite_of, key_of, text_of, time_of
from gpumon.model.usual_rows import MAX_TEXT, Layout
from gpumon.wire import MAX_LINE_BYTES, MAX_ROWS
from gpumon.wire.decoder import Decoder, refuse_constant

_LINE = re.compile(
    r'\{"t":([0-9]{1,11}(?:\.[0-9]{1,3})?),"m":([0-9]{1,11}(?:\.[0-9]{1,3})?),'
    r'"rows":\{"(.*)\]\]\}\}'
)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_TEXT = re.compile(r'"[^"\\\x00-\x1f]*"')
#: kept: rows of each device and group, numbers of each range, functions for rows
_MAX_ROWS, _MAX_NUMBERS, _MAX_CASES = 16, 4096, 1024
#: (cells of a group's readings, those that are missing), of the values in a row
_Write = Callable[[list[str]], tuple[str, str]]
_K = TypeVar("_K")
_V = TypeVar("_V")


class _Unusual(Exception):
    """Only the decoder can tell what this is."""


class Cells(dict[str, Any]):
    """In place of a sample's rows: entity -> key -> the parts of its line, a group's each."""

    def __init__(self) -> None:
        super().__init__()
        #: by entity and key: the places of groups of which values are missing, and which they are
        self.missing: dict[tuple[str, Key], list[tuple[int, str]]] = {}


class CellTables(Tables):
    """Tables of samples with `Cells` as lines of CSV, many at a time; of others as rows."""

    def __init__(self) -> None:
        super().__init__()
        self._identities: dict[tuple[str, Key], str] = {}  # cells of live processes and devices

    def take_header(self, header: Header) -> None:
        super().take_header(header)
        self._identities.clear()

    def of(self, sample: Sample) -> Iterator[Row | Lines]:
        if isinstance(sample.rows, Cells):
            when = line_of(TABLES["host"], self.when(sample.time))
            for entity in self.identify:
                if of_entity := sample.rows.get(entity):
                    lines = self._lines(entity, of_entity, when, sample, sample.rows.missing)
                    yield Lines(TABLES[entity], "".join(lines), len(of_entity))
            sample = sample._replace(rows={})
        if sample.rows or sample.events:
            self._identities.clear()
        yield from super().of(sample)

    def _lines(
        self,
        entity: str,
        rows: dict[Key, list[str]],
        when: str,
        sample: Sample,
        missing: dict[tuple[str, Key], list[tuple[int, str]]],
    ) -> Iterator[str]:
        for key, parts in rows.items():
            place = entity, key
            who = self._identities.get(place)
            if who is None:
                values = [*self.when(sample.time), *self.identify[entity](key, sample)]
                who = self._identities[place] = line_of(TABLES[entity], values)[len(when) :]
            if place in missing:
                reasons = " ".join([each for _, each in sorted(missing[place])])
                yield f"{when}{who}{''.join(parts)},{reasons}\n"
            else:
                yield f"{when}{who}{''.join(parts)},\n"


class CellDecoder(Decoder):
    """A decoder that gives `Cells` in place of a sample's rows where it can."""

    def __init__(self) -> None:
        #: by group and device: the values in a row, as they stand there, -> what they become
        self._rows: dict[str, _Kept[Key, _Rows]] = {}
        super().__init__()

    def line(self, line: str | bytes) -> Header | Sample | None:
        try:
            return self._cells(line)
        except (_Unusual, ValueError, TypeError, KeyError, RecursionError):
            return super().line(line)

    def _lay_out(self, found: Layout) -> None:
        if getattr(self, "columns", None) is not found:
            self._rows.clear()
        super()._lay_out(found)

    def _cells(self, line: str | bytes) -> Sample:
        """The line is cut at what stands between groups, rows and values: where a text holds such
        characters, too, what is left of it is no value.
        """
        if not isinstance(line, bytes) or len(line) > MAX_LINE_BYTES or self.is_lost:
            raise _Unusual
        found = _LINE.fullmatch(line.decode())
        if found is None or self.header is None:
            raise _Unusual
        time, mono, groups = found.groups()
        cells, names = Cells(), set()
        for part in groups.split(']],"'):
            name, _, rows = part.partition('":[[')
            if name in names or name not in self.columns:
                raise _Unusual
            names.add(name)
            group = GROUP_BY_KEY[name]
            if group.entity in TABLES:
                self._add(group, rows, cells.setdefault(group.entity, {}), cells.missing)
            else:
                self._check(name, rows)
        return Sample(time_of(float(time)), finite_of(float(mono)), cells)

    def _add(
        self,
        group: Group,
        rows: str,
        cells: dict[Key, list[str]],
        missing: dict[tuple[str, Key], list[tuple[int, str]]],
    ) -> None:
        """Write the rows of one group to their places."""
        place, blank = _PLACES[group.key], _BLANK[group.entity]
        between, behind_key, keys = _SHAPES[group.entity]
        table = rows.split(between)
        if len(table) > MAX_ROWS:
            raise _Unusual
        known = self._rows.get(group.key)
        if known is None:
            known = self._rows[group.key] = _Kept(partial(self._of_device, group))
        for row in table:
            own, _, values = row.partition(behind_key)
            key, device = keys[own]
            parts = cells.get(key)
            if parts is None:
                parts = cells[key] = blank.copy()
            elif parts[place] is not blank[place]:
                raise _Unusual  # twice in one table
            parts[place], absent = known[device][values]
            if absent:
                missing.setdefault((group.entity, key), []).append((place, absent))

    def _of_device(self, group: Group, device: Key) -> _Rows:
        return _Rows(group, tuple(self._usual.columns_of(group.key, device)))

    def _check(self, name: str, rows: str) -> None:
        """Rows that are part of no table."""
        if "true" in rows or "false" in rows:
            raise _Unusual
        for row in json.loads(f"[[{rows}]]", parse_constant=refuse_constant):
            if type(row[0]) is not str or self._usual.read(name, key_of(row[0]), row) is None:
                raise _Unusual


# -- places of the groups in a row of an entity

_PLACES: dict[str, int] = {}
_BLANK: dict[str, list[str]] = {}
for _group in GROUPS:
    _own = _BLANK.setdefault(_group.entity, [])
    _PLACES[_group.key] = len(_own)
    _own.append("," * len(_group.fields))


# -- what stands between commas


class _Kept(dict[_K, _V]):
    """What was made of a key before, of at most so many; what is made may raise _Unusual."""

    def __init__(self, make: Callable[[_K], _V], most: int = 4096) -> None:
        self._make, self._most = make, most

    def __missing__(self, key: _K) -> _V:
        if len(self) >= self._most:
            self.clear()
        found = self[key] = self._make(key)
        return found


class _Rows(dict[str, tuple[str, str]]):
    """Of one device and group: the values in a row, as they stand there -> what they become."""

    def __init__(self, group: Group, fields: tuple[Field | None, ...]) -> None:
        self._group, self._fields = group, fields
        self._write: _Write = _compiled(group, fields, (), "")  # the newest case

    def __missing__(self, values: str) -> tuple[str, str]:
        if len(self) >= _MAX_ROWS:
            self.clear()
        row = values.split(",")
        try:
            found = self._write(row)
        except (_Unusual, ValueError):
            gaps = tuple([at for at, value in enumerate(row) if value == "null"])
            self._write = _compiled(self._group, self._fields, gaps, row[-1] if gaps else "")
            found = self._write(row)
        self[values] = found
        return found


class _Numbers(dict[str, str]):
    """Numbers of one range."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def __missing__(self, raw: str) -> str:
        if not _NUMBER.fullmatch(raw):
            raise _Unusual
        value = float(raw)
        if not self._low <= (value if len(raw) < 16 else json.loads(raw)) <= self._high:
            raise _Unusual
        if len(self) >= _MAX_NUMBERS:
            self.clear()
        text = self[raw] = str(value)
        return text


_numbers = lru_cache(maxsize=64)(_Numbers)


def _text(raw: str) -> str:
    if not _TEXT.fullmatch(raw):
        raise _Unusual
    return text_cell(text_of(raw[1:-1], MAX_TEXT))


def _number_key(raw: str) -> tuple[Key, Key]:
    if not _WHOLE.fullmatch(raw):
        raise _Unusual
    key = key_of(int(raw))
    return key, key


def _text_key(raw: str) -> tuple[Key, Key]:
    if not _TEXT.fullmatch(raw):
        raise _Unusual
    key = key_of(raw[1:-1])
    return key, key


def _pair_key(raw: str) -> tuple[Key, Key]:
    """`0,4711`, in the first row of a table behind a bracket."""
    device, _, pid = raw.removeprefix("[").partition(",")
    key = (_number_key(device)[0], _number_key(pid)[0])
    return key_of(list(key)), key[0]


_TEXTS = _Kept(_text)
#: entity -> between two rows, behind a row's key, and keys with their device
_SHAPES: dict[str, tuple[str, str, _Kept[str, tuple[Key, Key]]]] = {
    **dict.fromkeys(("device", "process", "program"), ("],[", ",", _Kept(_number_key))),
    **dict.fromkeys(("host", "job", "net", "disk"), ("],[", ",", _Kept(_text_key))),
    **dict.fromkeys(OF_BOTH, ("],[[", "],", _Kept(_pair_key))),
}


# -- rows


@lru_cache(maxsize=_MAX_CASES)
def _compiled(
    group: Group, columns: tuple[Field | None, ...], gaps: tuple[int, ...], letters: str
) -> _Write:
    """A function that writes rows of these columns with nulls at these places.

    It raises _Unusual or ValueError on any other row. Its text is made of our own table.
    """
    is_text = not letters or _TEXT.fullmatch(letters)
    if len(gaps) != max(0, len(letters) - 2) or not is_text or gaps[-1:] >= (len(columns),):
        raise _Unusual
    made: dict[str, Any] = {"_Unusual": _Unusual}
    cells: dict[str, str] = {}
    reasons: dict[str, str] = {}
    of_gap = dict(zip(gaps, letters[1:-1]))
    for at, field in enumerate(columns):
        if field is None or field.name in cells:  # unknown, or declared twice
            raise _Unusual
        cells[field.name] = "" if at in of_gap else f"{{c{at}[v{at}]}}"
        if at in of_gap:
            reasons[field.name] = REASON_OF_LETTER.get(of_gap[at], "error")
        else:
            made[f"c{at}"] = _TEXTS if field.text else _numbers(field.low, field.high)
    text = "".join(f",{cells.get(field.name, '')}" for field in group.fields)
    missing = {each.name: reasons[each.name] for each in group.fields if each.name in reasons}
    unpacked = [f"v{at}" for at in range(len(columns))] + ["_"] * bool(gaps)
    nulls = [f"v{at} == 'null'" for at in gaps] + [f"_ == {letters!r}"] * bool(gaps)
    exec(
        f"def write(row):\n    {', '.join(unpacked)}, = row\n"
        f"    if not ({' and '.join(nulls) or True}): raise _Unusual\n"
        f"    return f{text!r}, {missing_text(missing)!r}\n",
        made,
    )
    write: _Write = made["write"]
    return write
