"""Rows of a sample as the wire has them: values shortened, missing ones as null and a letter.

Which groups a row belongs to hangs on the names in it, and what is to be done to it on which values
are missing. Both are nearly always as in a row before, so each case has a function of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

from gpumon.model.fields import GROUPS, Field, Group
from gpumon.model.reading import NOT_SAMPLED, REASONS, Missing, Reading
from gpumon.model.sample import Key
from gpumon.wire.details import Place

#: cases that are known of each entity; beyond, they are learned anew
_MAX_KNOWN = 256

_Names = Tuple[str, ...]
#: details of missing values that were sent, by their place
_Sent = Dict[Place, str]
#: group -> its rows; one that lacks a group makes a list for it
Tables = Dict[str, List[List[Any]]]
#: (key, values, tables, sent, why); details new to the reader are added to `sent` and `why`
_Write = Callable[[Key, Iterable[Reading], Tables, _Sent, List[List[Any]]], None]


class EntityRows:
    """Writes the rows of one entity."""

    def __init__(self, entity: str) -> None:
        self._entity = entity
        self._known: Dict[Tuple[_Names, Tuple[type, ...]], _Write] = {}

    def add(
        self,
        rows: Mapping[Key, Mapping[str, Reading]],
        tables: Tables,
        sent: _Sent,
        why: List[List[Any]],
    ) -> None:
        """Add rows to the tables, by group; each to all groups of which it has a field."""
        for key, readings in rows.items():
            values = readings.values()
            # by way of a list: Python keeps thousands of tuples that were made of iterators
            case = (tuple([*readings]), tuple([*map(type, values)]))
            write = self._known.get(case) or self._learn(*case)
            write(key, values, tables, sent, why)

    def _learn(self, names: _Names, kinds: Tuple[type, ...]) -> _Write:
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        missing = tuple([issubclass(kind, Missing) for kind in kinds])
        write = self._known[names, kinds] = _compiled(self._entity, names, missing)
        return write


@lru_cache(maxsize=_MAX_KNOWN)
def _compiled(entity: str, names: _Names, missing: Tuple[bool, ...]) -> _Write:
    """A function that adds rows of these names in which these values are missing: in the table of
    each group the key, the values in the order of its fields, and the letters of missing ones.

    Its text is made of our own table alone.
    """
    places = {name: f"v{at}" for at, name in enumerate(names)}
    absent = {name for name, is_missing in zip(names, missing) if is_missing}
    lines = [f"    {', '.join(places.values())}, = values"] if names else []
    lines.append("    at = key if type(key) is not tuple else list(key)")
    for group in GROUPS:
        if group.entity == entity and any(field.name in places for field in group.fields):
            lines += _group_lines(group, places, absent)
    made: Dict[str, Any] = {
        "reasons": REASONS, "announce": _announce, "significant": _significant,
        "absent": NOT_SAMPLED,
    }  # fmt: skip
    exec("def write(key, values, tables, sent, why):\n" + "\n".join(lines), made)
    write: _Write = made["write"]
    return write


def _group_lines(group: Group, places: Mapping[str, str], absent: Iterable[str]) -> List[str]:
    """What writes the row of one group; of fields that were not read at all, it says so."""
    entries, lines, letters = ["at"], [], []
    for field in group.fields:
        value = places.get(field.name, "absent")
        if value != "absent" and field.name not in absent:
            entries.append(_shortened(value, field))
            continue
        place = f"({group.key!r}, key, {field.name!r})"
        entries.append("None")
        letters.append(f"reasons[{value}.reason]")
        lines += [
            f"    if {value}.detail != sent.get({place}, ''):",
            f"        announce({place}, {value}.detail, sent, why)",
        ]
    if letters:
        entries.append(" + ".join(letters))
    return [*lines, f"    tables[{group.key!r}].append([{', '.join(entries)}])"]


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
