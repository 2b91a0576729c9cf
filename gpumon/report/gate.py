"""`--fail-if`: an expression over the report's JSON, for scripts that act on it.

    gpu.busy.p50<20
    efficiency.mem_percent < 30 and waste_gpu_hours > 1
    findings.critical > 0 or job.state == "OUT_OF_MEMORY"

Names are paths into the JSON; through a list a comparison holds when it holds for one entry.
Shorthands: gpu.busy.{mean,p50,p95}, gpu.mem.percent, cpu.percent, mem.percent, time.percent,
findings.{critical,warning,info,ID}. A value that is not known makes no comparison true; a name that
no report has is an error, because a gate that never closes is found by nobody.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from gpumon.errors import UsageError
from gpumon.report.why import WHY

_TOKEN = re.compile(
    r"\s*(?:(?P<op><=|>=|==|!=|<|>)|(?P<paren>[()])|(?P<text>\"[^\"]*\"|'[^']*')"
    r"|(?P<number>-?\d+(?:\.\d+)?(?![\w.-]))|(?P<name>[A-Za-z_][\w.-]*))"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_SHORT = {
    "gpu.busy.mean": "devices.busy_mean",
    "gpu.busy.p50": "devices.busy_p50",
    "gpu.busy.p95": "devices.busy_p95",
    "gpu.mem.percent": "efficiency.gpu_mem_percent",
    "gpu.percent": "efficiency.gpu_busy_percent",
    "cpu.percent": "efficiency.cpu_percent",
    "mem.percent": "efficiency.mem_percent",
    "time.percent": "efficiency.time_percent",
}
_LEVELS = ("critical", "warning", "info")
#: maps whose keys differ from report to report, and parts that only some have
_OPEN = {"sources", "tres", "missing", "not_evaluable", "states", "numbers"}
_SOMETIMES = {"attempts", "segments", "tasks"}

#: a report's JSON -> whether the expression holds; names whose value nobody knows are added to the
#: set. Raises UsageError for a name that no report has
Gate = Callable[[dict[str, Any], set[str]], bool]


def parse_gate(text: str) -> Gate:
    """Raises UsageError for what is no expression, naming the place."""
    tokens = _tokens(text)
    gate, rest = _either(tokens, text)
    if rest:
        raise _error(text, f"unexpected {rest[0][1]!r}")
    return gate


_Token = tuple[str, str]


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _error(text, f"cannot read {text[at:].strip()[:20]!r}")
        found.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return found


def _error(text: str, what: str) -> UsageError:
    return UsageError(f"--fail-if {text!r}: {what}; write for example 'gpu.busy.p50<20'")


def _either(tokens: list[_Token], text: str) -> tuple[Gate, list[_Token]]:
    first, tokens = _both(tokens, text)
    while tokens and tokens[0] == ("name", "or"):
        second, tokens = _both(tokens[1:], text)
        first = _joined(first, second, any)
    return first, tokens


def _both(tokens: list[_Token], text: str) -> tuple[Gate, list[_Token]]:
    first, tokens = _term(tokens, text)
    while tokens and tokens[0] == ("name", "and"):
        second, tokens = _term(tokens[1:], text)
        first = _joined(first, second, all)
    return first, tokens


def _joined(one: Gate, other: Gate, how: Callable[[list[bool]], bool]) -> Gate:
    # both sides are always asked, so that every name that is not known is told
    return lambda body, unknown: how([one(body, unknown), other(body, unknown)])


def _term(tokens: list[_Token], text: str) -> tuple[Gate, list[_Token]]:
    if tokens and tokens[0] == ("paren", "("):
        gate, rest = _either(tokens[1:], text)
        if not rest or rest[0] != ("paren", ")"):
            raise _error(text, "a ) is missing")
        return gate, rest[1:]
    if len(tokens) < 3 or tokens[0][0] != "name" or tokens[1][0] != "op":
        raise _error(text, "expected NAME < VALUE")
    name, (_, sign), (kind, value) = tokens[0][1], tokens[1], tokens[2]
    if kind not in ("number", "text"):
        raise _error(text, f"{value!r} is no number and no text in quotes")
    what, known = name.removeprefix("findings."), (*_LEVELS, *WHY)
    if what != name and what not in known:
        raise _error(text, f"no finding is called {what!r}{_like(what, known)}")
    wanted: float | str = float(value) if kind == "number" else value[1:-1]
    return _comparison(name, _COMPARE[sign], wanted), tokens[3:]


def _comparison(
    name: str, compare: Callable[[Any, Any], bool], wanted: float | str
) -> Callable[[dict[str, Any], set[str]], bool]:
    def holds(body: dict[str, Any], unknown: set[str]) -> bool:
        values = [value for value in look_up(body, name) if value is not None]
        comparable = [v for v in values if isinstance(v, str) == isinstance(wanted, str)]
        if not comparable:
            unknown.add(name)
        return any(compare(value, wanted) for value in comparable)

    return holds


def look_up(body: dict[str, Any], name: str) -> list[Any]:
    """All values behind a name; of a path through a list, those of every entry."""
    if name.startswith("findings."):
        what = name.partition(".")[2]
        key = "level" if what in _LEVELS else "id"
        raised = [each for each in body["findings"] if not each["suppressed_by"]]
        return [sum(each[key] == what for each in raised)]
    values: list[Any] = [body]
    above = ""
    for part in _SHORT.get(name, name).split("."):
        inner = [each for each in _flat(values) if isinstance(each, dict)]
        names = {key for each in inner for key in each}
        if names and part not in names | _SOMETIMES and above not in _OPEN:
            near = _like(part, names)
            raise UsageError(f"--fail-if: no report has {name!r}{near}; see docs/json.md")
        values = [each[part] for each in inner if part in each]
        above = part
    return _flat(values)


def _flat(values: list[Any]) -> list[Any]:
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def _like(word: str, words: Iterable[str]) -> str:
    near = get_close_matches(word, words, 1)
    return f", perhaps {near[0]!r}" if near else ""
