"""`--fail-if`: an expression over the report's JSON, for scripts that act on it.

    gpu.busy.p50<20
    efficiency.mem_percent < 30 and waste_gpu_hours > 1
    findings.critical > 0 or job.state == "OUT_OF_MEMORY"

Names are paths into the JSON (`report.names`, with shorthands); through a list a comparison holds
when it holds for one entry; findings.{critical,warning,info,ID} count. A value that is not known
makes no comparison true; a name that no report has is an error: nobody finds a gate that never
closes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from gpumon.errors import UsageError
from gpumon.model.text import clean
from gpumon.report.model import Report
from gpumon.report.names import LEVELS, counted, is_text, path_of
from gpumon.report.render.json import document

_MAX_DEPTH = 50
_LONGEST_NAME = 200  # likeness to known names takes time that grows with its square
_TOKEN = re.compile(
    r"\s*(?:(?P<op><=|>=|==|!=|<|>)|(?P<paren>[()])|(?P<text>\"[^\"]*\"|'[^']*')"
    r"|(?P<number>-?\d+(?:\.\d+)?(?![\w.-]))|(?P<name>[A-Za-z_][\w.-]*))"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
#: a report's JSON -> whether the expression holds; names whose value nobody knows are added to the
#: set
Gate = Callable[[dict[str, Any], set[str]], bool]
Values = Callable[[dict[str, Any]], list[Any]]


def parse_gate(text: str) -> Gate:
    """Raises UsageError for what is no expression, naming the place."""
    tokens = _tokens(text)
    gate, rest = _joined(tokens, 0, text, 0, "or")
    if rest < len(tokens):
        raise _error(text, f"unexpected {tokens[rest][1]!r}")
    return gate


def matches(gate: Gate, reports: Sequence[Report]) -> tuple[bool, list[str]]:
    """Whether it holds for one of them; the names in it whose values are not known."""
    unknown: set[str] = set()
    matched = [gate(document(report), unknown) for report in reports]
    return any(matched), sorted(unknown)


_Token = tuple[str, str]


def _tokens(text: str) -> list[_Token]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _error(text, f"cannot read {text[at : at + 40].strip()[:20]!r}")
        found.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return found


def _error(text: str, what: str) -> UsageError:
    shown = clean(text, 200)
    return UsageError(
        f"--fail-if {shown!r}: {clean(what, 200)}; write for example 'gpu.busy.p50<20'"
    )


def _joined(tokens: list[_Token], at: int, text: str, depth: int, word: str) -> tuple[Gate, int]:
    """Terms with `and` or `or` between them, and where they end."""
    gates = []
    while True:
        if word == "or":
            gate, at = _joined(tokens, at, text, depth, "and")
        else:
            gate, at = _term(tokens, at, text, depth)
        gates.append(gate)
        if at == len(tokens) or tokens[at] != ("name", word):
            break
        at += 1
    how = any if word == "or" else all
    # all sides are always asked, so that every name that is not known is told
    return lambda body, unknown: how([gate(body, unknown) for gate in gates]), at


def _term(tokens: list[_Token], at: int, text: str, depth: int) -> tuple[Gate, int]:
    if tokens[at : at + 1] == [("paren", "(")]:
        if depth == _MAX_DEPTH:
            raise _error(text, f"more than {_MAX_DEPTH} parentheses are nested")
        gate, at = _joined(tokens, at + 1, text, depth + 1, "or")
        if tokens[at : at + 1] != [("paren", ")")]:
            raise _error(text, "a ) is missing")
        return gate, at + 1
    if len(tokens) < at + 3 or tokens[at][0] != "name" or tokens[at + 1][0] != "op":
        raise _error(text, "expected NAME < VALUE")
    name, (_, sign), (kind, value) = tokens[at][1], tokens[at + 1], tokens[at + 2]
    if kind not in ("number", "text"):
        raise _error(text, f"{value!r} is neither a number nor a quoted text")
    if len(name) > _LONGEST_NAME:
        raise _error(text, f"no value is called {name[:40]!r}…")
    wanted: float | str = float(value) if kind == "number" else value[1:-1]
    try:
        values = _values_of(name)
    except ValueError as error:
        raise UsageError(f"--fail-if: {error}; docs/report.md lists the names") from None
    if is_text(name) and kind == "number":
        raise _error(text, f'{name} is text: compare it with a quoted text, {name} == "{value}"')
    if not is_text(name) and kind == "text":
        raise _error(text, f"{name} is a number: compare it with a number without quotes")
    return _comparison(name, values, _COMPARE[sign], wanted), at + 3


def _comparison(
    name: str, values: Values, compare: Callable[[Any, Any], bool], wanted: float | str
) -> Gate:
    def holds(body: dict[str, Any], unknown: set[str]) -> bool:
        comparable = [v for v in values(body) if isinstance(v, str) == isinstance(wanted, str)]
        if not comparable:
            unknown.add(name)
        return any(compare(value, wanted) for value in comparable)

    return holds


def _values_of(name: str) -> Values:
    """What looks up a name in a report. Raises ValueError where no report has it."""
    if name.startswith("findings."):
        what = counted(name)
        return lambda body: [_count(body, what)]
    parts = path_of(name)
    return lambda body: _found(body, parts)


def _count(body: dict[str, Any], what: str) -> int:
    key = "level" if what in LEVELS else "id"
    return sum(each[key] == what for each in body["findings"] if not each["suppressed_by"])


def _found(body: dict[str, Any], parts: list[str]) -> list[Any]:
    """The values behind a path that are known; of one through a list, those of every entry."""
    values: list[Any] = [body]
    for part in parts:
        inner = [each[part] for each in values if isinstance(each, dict) and part in each]
        values = [
            each for value in inner for each in (value if isinstance(value, list) else [value])
        ]
    return [value for value in values if isinstance(value, (str, int, float))]
