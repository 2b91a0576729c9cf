"""Host lists as Slurm writes them: `gpu[01-04,7],login1` and back.

A list is items between commas or blanks; an item is text and brackets with ranges. The first
number of a range sets its width. As in Slurm, an item with brackets ends with one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpumon.slurm import values

#: names that one list may stand for, and numbers in one range (Slurm's MAX_RANGE is of this size)
MAX_HOSTS = 65536

_ITEM = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
_SEPARATORS = re.compile(r"[,\s]+")
_PART = re.compile(r"([^\[\]]*)\[([^\[\]]*)\]")
_RANGE = re.compile(r"( *)(\d{1,18})(?:-(\d{1,18}))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,18})", re.DOTALL)


def expand(text: str) -> list[str]:
    """The names in `text`, in its order, duplicates kept; none of `(null)` or `None assigned`.

    Raises ValueError with a sentence where it is no host list, or one of more than MAX_HOSTS.
    """
    text = values.known(text)
    hosts: list[str] = []
    position = 0
    while position < len(text):
        separator = _SEPARATORS.match(text, position)
        if separator:
            position = separator.end()
            continue
        item = _ITEM.match(text, position)
        if not item:
            raise ValueError(f"not a valid host list:  {text!r} has brackets that do not match")
        hosts += _expand_item(item.group(), MAX_HOSTS - len(hosts))
        position = item.end()
    return hosts


def _expand_item(item: str, room: int) -> list[str]:
    if "[" not in item:
        if room < 1:
            raise ValueError(f"host list of more than {MAX_HOSTS} names")
        return [item]
    names, position = [""], 0
    for part in _PART.finditer(item):
        numbers = _expand_ranges(part[2])
        if len(names) * len(numbers) > room:
            raise ValueError(f"host list of more than {MAX_HOSTS} names")
        names = [name + part[1] + number for name in names for number in numbers]
        position = part.end()
    if position != len(item):
        raise ValueError(f"not a valid host list:  {item!r} has text behind its last bracket")
    return names


def _expand_ranges(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ValueError(f"not a valid host list:  [{text}] holds something else than ranges")
        width = len(match[1]) + len(match[2])
        first, last = int(match[2]), int(match[3] or match[2])
        if first > last:
            raise ValueError(f"not a valid host list:  the range {part} runs backwards")
        if last - first + len(numbers) >= MAX_HOSTS:
            raise ValueError(f"host list of more than {MAX_HOSTS} names")
        numbers += [str(number).zfill(width) for number in range(first, last + 1)]
    return numbers


def compress(hosts: Iterable[str]) -> str:
    """The shortest list that `expand` turns back into these names, in this order."""
    groups: list[tuple[str, list[list[str]]]] = []  # prefix, ranges as [first, last]
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        prefix, number = match.groups() if match else (host, "")
        if not number or not groups or groups[-1][0] != prefix or not groups[-1][1]:
            groups.append((prefix, [[number, number]] if number else []))
            continue
        first, last = groups[-1][1][-1]
        if number == str(int(last) + 1).zfill(len(first)):
            groups[-1][1][-1][1] = number
        else:
            groups[-1][1].append([number, number])
    return ",".join(_written(prefix, ranges) for prefix, ranges in groups)


def _written(prefix: str, ranges: list[list[str]]) -> str:
    if not ranges:
        return prefix
    parts = [first if first == last else f"{first}-{last}" for first, last in ranges]
    if len(parts) == 1 and "-" not in parts[0]:
        return prefix + parts[0]
    return f"{prefix}[{','.join(parts)}]"
