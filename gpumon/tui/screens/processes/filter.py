"""The filter of the process table: words, and comparisons like `gpu=0 user=ada mem>10G cpu>50`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gpumon.model.units import parse_size

_TERM = re.compile(r"^(\w+)(>=|<=|!=|=|>|<)(.*)$")
_NUMBERS = {"gpu", "mem", "sm", "cpu", "rss", "pid", "threads"}
_TEXTS = {"user", "node", "framework", "state", "command"}

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


class Term(NamedTuple):
    """One condition: `field` "" is a word to be found anywhere."""

    field: str
    compare: str
    text: str
    value: float


def parse_filter(text: str) -> tuple[list[Term], str]:
    """The terms (all must hold), and what is wrong with the text ("" if nothing)."""
    terms = []
    for word in text.split():
        match = _TERM.match(word)
        if match is None:
            terms.append(Term("", "", word.lower(), 0.0))
            continue
        field, compare, value = match.group(1).lower(), match.group(2), match.group(3)
        if field in _TEXTS and compare in ("=", "!="):
            terms.append(Term(field, compare, value.lower(), 0.0))
        elif field in _NUMBERS:
            size = parse_size(value.rstrip("%"))
            if size is None:
                return [], f"{word}: {value!r} is not a number"
            terms.append(Term(field, compare, value, size))
        else:
            names = ", ".join(sorted(_NUMBERS | _TEXTS))
            return [], f"{word}: unknown field; choose from: {names}"
    return terms, ""


def matches(terms: list[Term], texts: dict[str, str], numbers: dict[str, list[float]]) -> bool:
    """Whether all terms hold.

    texts: by the names of `_TEXTS`; numbers: by those of `_NUMBERS`, several for a process on
    several devices, none where the reading is missing: a comparison with it is never true.
    """
    anywhere = " ".join(texts.values()).lower()
    for term in terms:
        if not term.field:
            if term.text not in anywhere:
                return False
        elif term.field in _TEXTS:
            found = term.text in texts.get(term.field, "").lower()
            if found != (term.compare == "="):
                return False
        else:
            compare = _COMPARE[term.compare]
            if not any(compare(value, term.value) for value in numbers.get(term.field, [])):
                return False
    return True
