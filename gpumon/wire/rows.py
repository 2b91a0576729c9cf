"""Rows of a sample as the wire has them: values shortened, missing ones as null and a letter.

Which groups a row holds hangs on the names in it, and what is to be done to it on which values are
missing. Both are nearly always as in the row before, so each case has a function of its own.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import Any, Callable, Dict, List, Mapping, Tuple

from gpumon.model.fields import GROUP_BY_KEY, GROUPS, Field
from gpumon.model.reading import NOT_SAMPLED, REASONS, Missing, Reading
from gpumon.model.sample import Key
from gpumon.wire.details import Place

#: names of rows that are known of each entity; beyond, they are learned anew
_MAX_KNOWN = 256

_Values = Tuple[Reading, ...]
#: details of missing values that were sent, by their place
_Sent = Dict[Place, str]
#: (key, values, sent, why) -> the row; details new to the reader are added to `sent` and `why`
_Write = Callable[[Key, _Values, _Sent, List[List[Any]]], List[Any]]


class EntityRows:
    """Writes the rows of one entity."""

    def __init__(self, entity: str) -> None:
        self._groups = [group for group in GROUPS if group.entity == entity]
        self._found: Dict[Tuple[str, ...], List[Tuple[str, Callable[..., _Values]]]] = {}

    def tables(
        self, rows: Mapping[Key, Mapping[str, Reading]], sent: _Sent, why: List[List[Any]]
    ) -> Dict[str, List[List[Any]]]:
        """Group -> its rows; a row belongs to each group of which it has a field."""
        tables: Dict[str, List[List[Any]]] = {}
        for key, readings in rows.items():
            names = tuple(readings)
            for group, values_of in self._found.get(names) or self._find(names):
                values = values_of(readings)
                # by way of a list: Python keeps thousands of tuples that were made of iterators
                kinds = tuple([*map(type, values)])
                row = _writer(group, kinds)(key, values, sent, why)
                tables.setdefault(group, []).append(row)
        return tables

    def _find(self, names: Tuple[str, ...]) -> List[Tuple[str, Callable[..., _Values]]]:
        """The groups in a row with these names, and what gives their values."""
        if len(self._found) >= _MAX_KNOWN:
            self._found.clear()
        found = self._found[names] = []
        for group in self._groups:
            own = [field.name for field in group.fields]
            if not set(own).isdisjoint(names):
                found.append((group.key, _values_of(own, names)))
        return found


def _values_of(own: List[str], there: Tuple[str, ...]) -> Callable[..., _Values]:
    if len(own) > 1 and set(own) <= set(there):
        return itemgetter(*own)
    return lambda readings: tuple([readings.get(name, NOT_SAMPLED) for name in own])


@lru_cache(maxsize=256)
def _writer(group: str, kinds: Tuple[type, ...]) -> _Write:
    """What writes rows of a group whose values are of these kinds."""
    return _compiled(group, tuple(issubclass(kind, Missing) for kind in kinds))


@lru_cache(maxsize=256)
def _compiled(group: str, missing: Tuple[bool, ...]) -> _Write:
    """A function that writes rows of a group in which these values are missing: the key, the
    values in the order of the fields, and the letters of missing ones.

    Its text is made of our own table alone.
    """
    entries, details, letters = ["key if type(key) is not tuple else list(key)"], [], []
    for at, (field, is_missing) in enumerate(zip(GROUP_BY_KEY[group].fields, missing)):
        value = f"values[{at}]"
        if not is_missing:
            entries.append(_shortened(value, field))
            continue
        entries.append("None")
        letters.append(f"reasons[{value}.reason]")
        details.append(
            f"    if {value}.detail != sent.get(({group!r}, key, {field.name!r}), ''):\n"
            f"        announce(({group!r}, key, {field.name!r}), {value}.detail, sent, why)\n"
        )
    if letters:
        entries.append(" + ".join(letters))
    made: Dict[str, Any] = {"reasons": REASONS, "announce": _announce, "significant": _significant}
    exec(
        "def write(key, values, sent, why):\n"
        + "".join(details)
        + f"    return [{', '.join(entries)}]\n",
        made,
    )
    write: _Write = made["write"]
    return write


def _shortened(value: str, field: Field) -> str:
    """The expression that takes a value, if it is a number, to the digits that its field has."""
    if field.text:
        return value
    short = f"round({value})"  # a third of what `round` with decimals takes
    if field.decimals:
        one = 10**field.decimals
        short = f"x / {one} if (x := round({value} * {one})) % {one} else x // {one}"
    short = f"({value} if {value}.__class__ is int else {short})"
    if field.digits:
        is_cut = field.unit == "B"
        return f"({short} if {value} < 1000 else significant({value}, {field.digits}, {is_cut}))"
    return short


def _significant(value: float, digits: int, is_cut: bool) -> int:
    """A number with so many digits. Sizes are cut off and not rounded, so that no part outgrows
    its whole (a job's memory its limit).
    """
    whole = int(value) if is_cut else round(value)
    step: int = 10 ** max(len(str(whole)) - digits, 0)
    return (whole if is_cut else whole + step // 2) // step * step


def _announce(place: Place, detail: str, sent: _Sent, why: List[List[Any]]) -> None:
    sent[place] = detail
    group, key, field = place
    why.append([group, list(key) if isinstance(key, tuple) else key, field, detail])
