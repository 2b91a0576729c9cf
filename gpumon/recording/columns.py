"""The numbers of a recording as arrays: what a report reads.

A decoder makes an object of every reading, which takes ten times as long as the parsing. Here the
table of a wanted group is cut out of each line as text, and a frame's tables are parsed at once;
where they all have the same rows, as nearly always, a column is one comprehension. A line that
does not look like ours is parsed whole: slower, the same numbers.
"""

from __future__ import annotations

import json
from array import array
from itertools import chain
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gpumon.model.fields import GROUP_OF, Field
from gpumon.model.sample import Key


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number")


_LOADS = json.JSONDecoder(parse_constant=_refuse).decode
_NAN = float("nan")
_MAX_KEYS = 8192  # of one group
_Table = List[List[Any]]


class Column(NamedTuple):
    """A field of one entity over time; both arrays (of doubles) are equally long."""

    times: array[float]  # epoch s, shared by the fields of one group
    values: array[float]  # nan: missing, or beyond what the quantity can have


#: (entity, key, field) -> its column; only what was read at all
Columns = Dict[Tuple[str, Key, str], Column]


class Picker:
    """Collects the wanted fields (entity -> names) from the lines of one frame after another."""

    def __init__(self, wanted: Mapping[str, Sequence[str]]) -> None:
        self._groups: Dict[str, List[Field]] = {}
        for entity, names in wanted.items():
            for name in names:
                group = GROUP_OF[entity, name]
                fields = {field.name: field for field in group.fields}
                self._groups.setdefault(group.key, []).append(fields[name])
        self._columns: Columns = {}
        self._declared: Dict[str, List[Tuple[Field, int]]] = {}

    def take(self, lines: List[bytes]) -> None:
        """Some lines in their order; a header among them says how those behind it are laid out."""
        begin = 0
        for at, line in enumerate(lines):
            if b'"wire":' in line:
                body = _parsed(line)
                if "wire" in body:
                    self._take(lines[begin:at])
                    self._declare(body)
                    begin = at + 1
        self._take(lines[begin:])

    def columns(self) -> Columns:
        return self._columns

    def _declare(self, header: Dict[str, Any]) -> None:
        """Where the wanted fields stand in the rows of their groups."""
        declared = header.get("groups")
        self._declared = {}
        for key, fields in self._groups.items():
            group = declared.get(key) if isinstance(declared, dict) else None
            names = _names(group)
            self._declared[key] = [
                (field, names.index(field.name) + 1) for field in fields if field.name in names
            ]

    def _take(self, lines: List[bytes]) -> None:
        for group, columns in self._declared.items():
            if not columns:
                continue
            mark = f'"{group}":'.encode()
            times, tables = _tables(lines, group, mark)
            _append(self._columns, group.split(".", 1)[0], columns, times, tables)


def _tables(lines: List[bytes], group: str, mark: bytes) -> Tuple[List[Any], List[Any]]:
    """The times of the samples that have a group, and its tables."""
    heads: List[bytes] = []
    cut: List[bytes] = []
    with_group = [line for line in lines if mark in line]
    for line in with_group:
        begin = line.index(mark) + len(mark)
        end = line.find(b"]]", begin)
        comma = line.find(b",", 0, 40)
        if line[:5] != b'{"t":' or end < 0 or comma < 0:
            return _tables_slowly(with_group, group)
        heads.append(line[5:comma])
        cut.append(line[begin : end + 2])
    try:
        times = _LOADS(f"[{b','.join(heads).decode()}]")
        tables = _LOADS(f"[{b','.join(cut).decode()}]")
    except (ValueError, RecursionError):
        return _tables_slowly(with_group, group)
    if len(times) != len(with_group) or len(tables) != len(with_group):
        return _tables_slowly(with_group, group)
    return times, tables


def _tables_slowly(lines: List[bytes], group: str) -> Tuple[List[Any], List[Any]]:
    times, tables = [], []
    for line in lines:
        body = _parsed(line)
        rows = body.get("rows")
        if isinstance(rows, dict) and isinstance(rows.get(group), list):
            times.append(body.get("t"))
            tables.append(rows[group])
    return times, tables


def _append(
    into: Columns,
    entity: str,
    columns: List[Tuple[Field, int]],
    times: List[Any],
    tables: List[Any],
) -> None:
    """Add tables of one group."""
    if not _are_numbers(times, -1e15, 1e15):
        good = [at for at, each in enumerate(times) if _are_numbers([each], -1e15, 1e15)]
        times, tables = [times[at] for at in good], [tables[at] for at in good]
    width = 1 + max(place for _, place in columns)
    for key, own_times, rows in _by_key(times, tables, width):
        _extend(into, entity, key, columns, own_times, rows)


def _by_key(times: List[Any], tables: List[Any], width: int) -> List[Tuple[Key, List[Any], _Table]]:
    """The rows of each key, all at least `width` long; at once where all tables have the same."""
    try:
        keys = [row[0] for row in tables[0]] if tables else []
        plain = set(map(type, chain.from_iterable(tables))) <= {list}
        if (
            plain
            and min(map(len, chain.from_iterable(tables)), default=width) >= width
            and all([row[0] for row in table] == keys for table in tables)
        ):
            return [
                (_key(key), times, [table[place] for table in tables])
                for place, key in enumerate(keys)
            ]
    except (TypeError, IndexError, KeyError, ValueError):
        pass  # a row is not what it should be: find out which
    found: Dict[Key, Tuple[List[Any], _Table]] = {}
    for at, table in zip(times, tables):
        for row in table if isinstance(table, list) else ():
            try:
                key = _key(row[0])
            except (TypeError, IndexError, KeyError, ValueError):
                continue
            if isinstance(row, list) and len(row) >= width:
                own = found.setdefault(key, ([], []))
                own[0].append(at)
                own[1].append(row)
    return [(key, own_times, rows) for key, (own_times, rows) in found.items()]


def _extend(
    into: Columns,
    entity: str,
    key: Key,
    columns: List[Tuple[Field, int]],
    times: List[Any],
    rows: _Table,
) -> None:
    shared: Optional[array[float]] = None
    for field, place in columns:
        column = into.get((entity, key, field.name))
        if column is None:
            if len(into) >= _MAX_KEYS * len(columns):
                return
            column = Column(array("d") if shared is None else shared, array("d"))
            into[entity, key, field.name] = column
        if column.times is not shared:
            shared = column.times
            shared.fromlist(times)
        values = [row[place] for row in rows]
        if not _are_numbers(values, field.low, field.high):
            values = [_checked(value, field) for value in values]
        column.values.fromlist(values)


def _are_numbers(values: List[Any], low: float, high: float) -> bool:
    """All of them are, and within the range; asked of whole columns because that is cheap."""
    kinds = set(map(type, values))
    return not values or (kinds <= {int, float} and low <= min(values) and max(values) <= high)


def _checked(value: Any, field: Field) -> float:
    if isinstance(value, (int, float)) and field.low <= value <= field.high:
        return float(value)
    return _NAN


def _key(value: Any) -> Key:
    if isinstance(value, list):
        first, second = value
        return int(first), int(second)
    if isinstance(value, (int, str)):
        return value
    raise TypeError("no key")


def _names(group: Any) -> List[Any]:
    fields = group.get("fields") if isinstance(group, dict) else None
    entries = fields if isinstance(fields, list) else []
    return [entry[0] if isinstance(entry, list) and entry else "" for entry in entries]


def _parsed(line: bytes) -> Dict[str, Any]:
    try:
        body = _LOADS(line.decode())
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
