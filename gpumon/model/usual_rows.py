"""Rows of a stream as nearly all are, read by functions that are compiled for their columns.

A row has its key, a value for each column, and where values are null, the letters of the reasons.
Of thousands a second nearly each is as declared and within range. What is not, or is anything else,
is left to a reader that looks at each value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from gpumon.model.fields import Field
from gpumon.model.plausible import Ceilings, ceilings, narrowed_columns
from gpumon.model.reading import Missing, Reading
from gpumon.model.sample import Device, Key
from gpumon.model.untrusted import text_of

MAX_TEXT = 256  # characters of a value that is a text
#: sets of nulls for which the rows of one stream have a function of their own
MAX_GAPS = 512

Columns = List[Optional[Field]]
_Read = Callable[[List[Any]], Optional[Dict[str, Reading]]]


class Layout(NamedTuple):
    """What rows a header declares. Streams that declare the same share one."""

    columns: Mapping[str, Columns]  # by group, behind the key
    narrowed: Mapping[Tuple[str, Key], Columns]  # of single devices, by their facts
    by_group: Mapping[str, Mapping[Optional[Key], Columns]]  # both; None: of the other devices
    whole: Mapping[str, Mapping[Optional[Key], _Read]]  # functions for rows without nulls


def layout(columns: Mapping[str, Columns], devices: Iterable[Device]) -> Layout:
    """The layout of a header with these columns and devices."""
    return _layout(
        tuple((group, tuple(fields)) for group, fields in columns.items()),
        tuple((device.key, tuple(ceilings(device.facts).items())) for device in devices),
    )


@lru_cache(maxsize=16)  # kinds of nodes; each takes 30 KB
def _layout(
    groups: Tuple[Tuple[str, Tuple[Optional[Field], ...]], ...],
    bounds: Tuple[Tuple[Key, Ceilings], ...],
) -> Layout:
    columns = {group: list(fields) for group, fields in groups}
    narrowed = narrowed_columns(bounds, columns)
    by_group: Dict[str, Dict[Optional[Key], Columns]] = {
        group: {None: fields} for group, fields in columns.items()
    }
    for (group, device), fields in narrowed.items():
        by_group[group][device] = fields
    whole: Dict[str, Dict[Optional[Key], _Read]] = {
        group: {device: _compiled(tuple(fields), ()) for device, fields in own.items()}
        for group, own in by_group.items()
    }
    return Layout(columns, narrowed, by_group, whole)


class UsualRows:
    """Rows of one header's columns. A line with truth values must not come here: they compare as
    numbers.
    """

    def __init__(self, layout: Layout, missing: Callable[[str, Key, str, str], Missing]) -> None:
        """`missing`: by group, key, field and letter."""
        self._columns, self._whole = layout.by_group, layout.whole
        self._gaps: Dict[Tuple[int, Tuple[int, ...]], _Read] = {}
        self._missing = missing

    def read(self, group: str, key: Key, row: List[Any]) -> Optional[Dict[str, Reading]]:
        """The readings in the order of their columns; None: this is not a usual row."""
        device = key[0] if isinstance(key, tuple) else key
        try:
            if None in row:
                return self._with_gaps(group, key, device, row)
            whole = self._whole[group]
            return whole.get(device, whole[None])(row)
        except (TypeError, ValueError):  # not a number, or a row of another length
            return None

    def _with_gaps(
        self, group: str, key: Key, device: Key, row: List[Any]
    ) -> Optional[Dict[str, Reading]]:
        of_group = self._columns[group]
        columns = of_group.get(device, of_group[None])
        gaps = tuple([at for at, value in enumerate(row) if value is None])
        letters, place = row[-1], (id(columns), gaps)
        if not isinstance(letters, str) or len(letters) != len(gaps):
            return None
        read = self._gaps.get(place)
        if read is None:
            if len(self._gaps) >= MAX_GAPS:
                return None
            read = self._gaps[place] = _compiled(tuple(columns), gaps)
        found = read(row)
        for at, letter in zip(gaps, letters) if found is not None else ():
            field = columns[at - 1]
            if found is not None and field is not None:
                found[field.name] = self._missing(group, key, field.name, letter)
        return found


@lru_cache(maxsize=1024)
def _compiled(columns: Tuple[Optional[Field], ...], gaps: Tuple[int, ...]) -> _Read:
    """A function that reads rows of these columns with nulls at these places.

    It gives None where a value is out of its range, and raises TypeError or ValueError on values of
    another kind and on rows of another length. Its text is made of our own table alone.
    """
    values = [f"v{at}" for at in range(1, len(columns) + 1)]
    tests, items = ["True"], {}
    for at, (field, value) in enumerate(zip(columns, values), 1):
        if field is None:
            continue
        if field.name in items:  # declared twice: their order counts
            return lambda row: None
        is_text = field.text and at not in gaps
        if at not in gaps and not is_text:
            tests.append(f"{field.low!r} <= {value} <= {field.high!r}")
        items[field.name] = f"text_of({value}, {MAX_TEXT})" if is_text else value
    unpacked = ", ".join(["_", *values, *(["_"] if gaps else [])])
    readings = ", ".join(f"{name!r}: {value}" for name, value in items.items())
    made: Dict[str, Any] = {"text_of": text_of}
    exec(
        f"def read(row):\n    {unpacked}, = row\n"
        f"    return {{{readings}}} if {' and '.join(tests)} else None\n",
        made,
    )
    read: _Read = made["read"]
    return read
