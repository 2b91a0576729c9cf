"""Rows of a stream as nearly all are, read by functions that are compiled for their columns.

A row has its key, a value for each column, and where values are null, the letters of the reasons.
Of thousands a second nearly each is as declared and within range. What is not, or is anything else,
is left to a reader that looks at each value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from gpumon.model.fields import GROUP_BY_KEY, OF_BOTH, Field
from gpumon.model.plausible import Ceilings, ceilings, narrowed
from gpumon.model.reading import Missing, Reading
from gpumon.model.sample import Device, Key
from gpumon.model.untrusted import text_of

MAX_TEXT = 256  # characters of a value that is a text

Columns = List[Optional[Field]]


class Usual(NamedTuple):
    """How rows of some columns are read."""

    columns: Columns  # behind the key
    whole: Callable[[List[Any]], Optional[Dict[str, Reading]]]  # of rows without nulls
    fillings: List[Any]  # a value for each place, that may stand there


#: rows that a header declares, by group and device, whose facts may narrow the columns (None: of
#: the other devices). Streams that declare the same share one
Layout = Mapping[str, Mapping[Optional[Key], Usual]]


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
    usual: Dict[str, Dict[Optional[Key], Usual]] = {}
    for group, fields in groups:
        usual[group] = {None: _usual(fields, ())}
        if GROUP_BY_KEY[group].entity in ("device", *OF_BOTH):
            usual[group].update((device, _usual(fields, most)) for device, most in bounds)
    return usual


@lru_cache(maxsize=256)  # mostly all devices of a node are alike
def _usual(fields: Tuple[Optional[Field], ...], most: Ceilings) -> Usual:
    columns = [None if field is None else narrowed(field, dict(most)) for field in fields]
    fillings = [None, *("" if each is None or each.text else each.low for each in columns)]
    return Usual(columns, _compiled(columns), fillings)


class UsualRows:
    """Rows of one header's columns. A line with truth values must not come here: they compare as
    numbers.
    """

    def __init__(self, layout: Layout, missing: Callable[[str, Key, str, str], Missing]) -> None:
        """`missing`: by group, key, field and letter."""
        self._usual, self._missing = layout, missing

    def columns_of(self, group: str, key: Key) -> Columns:
        """Of a row with this key, with the ranges that its device's facts leave."""
        of_group = self._usual[group]
        return (of_group.get(key[0] if isinstance(key, tuple) else key) or of_group[None]).columns

    def read(self, group: str, key: Key, row: List[Any]) -> Optional[Dict[str, Reading]]:
        """The readings in the order of their columns; None: this is not a usual row."""
        of_group = self._usual[group]
        usual = of_group.get(key[0] if isinstance(key, tuple) else key) or of_group[None]
        try:
            if None not in row:
                return usual.whole(row)
            values, letters = row[:-1], row[-1]
            gaps = [at for at, value in enumerate(values) if value is None]
            if not isinstance(letters, str) or len(letters) != len(gaps):
                return None
            for at in gaps:
                values[at] = usual.fillings[at]
            found = usual.whole(values)
        except (TypeError, ValueError, IndexError):  # not a number, or a row of another length
            return None
        if found is not None:
            for at, letter in zip(gaps, letters):
                if (field := usual.columns[at - 1]) is not None:
                    found[field.name] = self._missing(group, key, field.name, letter)
        return found


def _compiled(columns: Columns) -> Callable[[List[Any]], Optional[Dict[str, Reading]]]:
    """A function that reads rows of these columns without nulls.

    It gives None where a value is out of its range, and raises TypeError or ValueError on values of
    another kind and on rows of another length. Its text is made of our own table alone.
    """
    values = [f"v{at}" for at in range(1, len(columns) + 1)]
    tests, items = ["True"], {}
    for field, value in zip(columns, values):
        if field is None:
            continue
        if field.name in items:  # declared twice: their order counts
            return lambda row: None
        if not field.text:
            tests.append(f"{field.low!r} <= {value} <= {field.high!r}")
        items[field.name] = f"text_of({value}, {MAX_TEXT})" if field.text else value
    readings = ", ".join(f"{name!r}: {value}" for name, value in items.items())
    made: Dict[str, Any] = {"text_of": text_of}
    exec(
        f"def read(row):\n    {', '.join(['_', *values])}, = row\n"
        f"    return {{{readings}}} if {' and '.join(tests)} else None\n",
        made,
    )
    read: Callable[[List[Any]], Optional[Dict[str, Reading]]] = made["read"]
    return read
