r"""Rows of delimited output in which free text may hold the delimiter and line ends.

Slurm escapes nothing. gpumon's own calls use a delimiter with a random part, which no job can
have put into its name. For dumps that others saved with `|`, the fields whose form is known decide
where a row's free text begins and ends.

Forms only find the fields. A line with as many fields as expected and a job's ID is a row, whatever
stands in the others; a line that belongs to no row is counted.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpumon.model.text import clean

#: what the jobs' owners write; may hold anything
FREE_TEXT = frozenset((
    "jobname", "name", "comment", "admincomment", "systemcomment", "submitline", "workdir",
    "stdout", "stderr", "stdin",
))  # fmt: skip

_ID = r"\d+(?:\.(?:batch|extern|interactive|\d+(?:\+\d+)?))?"
#: what stands where there is no figure
_WORD = r"|UNLIMITED|Partition_Limit|INVALID|Unknown|NONE|None(?: assigned)?|N/A|\(null\)|16\?[nc]?"
_DURATION = rf"(?:-?[\d:.-]+{_WORD})?"
_TIME = rf"(?:[\dT:.+-]+{_WORD})?"
_TRES = r"(?:[\w./:-]+=[^,|\n]*(?:,[\w./:-]+=[^,|\n]*)*)?"
_COUNT = rf"(?:-?\d[\d.]*[KMGTPE]?{_WORD})?"
_SIZE = rf"(?:-?\d[\d.]*[KMGTPE?]?[nc]?{_WORD})?"
_FORMS = {
    "jobidraw": _ID,
    "jobid": r"\d+[\d_+%:,\[\].-]*(?:batch|extern|interactive)?(?:\+\d+)?",
    "state": r"[A-Z_]+\+?(?: by \S+)?(?:,[A-Z_]+)*",
    "exitcode": r"(?:\d+:\d+)?",
    "derivedexitcode": r"(?:\d+:\d+)?",
    **dict.fromkeys(
        ("elapsed", "totalcpu", "usercpu", "systemcpu", "cputime", "suspended", "avecpu", "mincpu"),
        _DURATION,
    ),
    **dict.fromkeys(("start", "end", "submit", "eligible"), _TIME),
    **dict.fromkeys(
        (
            "reqtres", "alloctres", "tresusageintot", "tresusageinave", "tresusageinmax",
            "tresusageinmin", "tresusageinmaxnode", "tresusageinmaxtask", "tresusageouttot",
        ),
        _TRES,
    ),
    **dict.fromkeys(
        (
            "elapsedraw", "cputimeraw", "timelimitraw", "ncpus", "nnodes", "alloccpus", "reqcpus",
            "ntasks", "uid", "gid", "restarts", "maxrsstask", "consumedenergyraw",
        ),
        _COUNT,
    ),
    **dict.fromkeys(("maxrss", "averss", "reqmem", "maxvmsize", "consumedenergy"), _SIZE),
}  # fmt: skip
_CHECKS: dict[str, Callable[[str], re.Match[str] | None]] = {
    name: re.compile(form).fullmatch for name, form in _FORMS.items()
}
#: fields that distinguish a row from other lines
_IDS = ("jobidraw", "jobid")
#: lines that one row may span, and delimiters in its free text
_MAX_LINES, _MAX_EXCESS = 100, 50
#: lines in a row that begin like a row and are none: no row that spans lines is looked for then
_MAX_MISFITS = 50
#: characters of a row that a message shows; columns are separated by blanks there
_SHOWN = 80


@dataclass
class Unread:
    """Rows that could not be read: how many, and the beginning of the first."""

    count: int = 0
    first: str = ""

    def add(self, row: str) -> None:
        self.count += 1
        self.first = self.first or row[:_SHOWN]

    def join(self, other: Unread) -> None:
        self.count += other.count
        self.first = self.first or other.first

    def __str__(self) -> str:
        """A sentence; "" if there are none."""
        if not self.count:
            return ""
        rows = f"{self.count} row{'s' if self.count > 1 else ''}"
        return f"{rows} of the accounting could not be read; the first: {clean(self.first)!r}"


def new_delimiter() -> str:
    """A delimiter that no text can hold on purpose: of its own for each call."""
    return f"\x1f{secrets.token_hex(6)}\x1f"


def rows(
    text: str, delimiter: str, fields: Sequence[str], unread: Unread | None = None
) -> Iterator[dict[str, str]]:
    """Each row of `text` as a mapping of lower-case field names; other lines go to `unread`.

    A row spans lines while it lacks fields, and further where its last field is free text.
    """
    names = [name.lower() for name in fields]
    checks = [_CHECKS.get(name) for name in names]
    whole = _whole_row(names)
    lines = text.split("\n")
    at = misfits = 0
    ahead: list[str] | None = None  # what line `at` holds, where it was looked at already
    while at < len(lines):
        values = ahead or whole(lines[at].split(delimiter))
        ahead = None
        if values is not None:
            at += 1
        else:
            begins = misfits <= _MAX_MISFITS and _begins(lines[at], delimiter, names, checks)
            taken = _row_at(lines, at, delimiter, names, checks) if begins else None
            if taken is None:
                misfits += begins
                if unread is not None and lines[at].strip():
                    unread.add(lines[at])
                at += 1
                continue
            values, at = taken
        misfits = 0
        if names and names[-1] in FREE_TEXT:
            while at < len(lines):
                parts = lines[at].split(delimiter)
                ahead = whole(parts)
                if len(parts) == len(names) or _begins(lines[at], delimiter, names, checks):
                    break
                values[-1] += "\n" + lines[at]
                at += 1
            values[-1] = values[-1].rstrip("\n")
        yield dict(zip(names, values))


_Match = Callable[[str], "re.Match[str] | None"]


def _whole_row(names: Sequence[str]) -> Callable[[list[str]], list[str] | None]:
    """Gives back the fields of a line where they are a row: one for each name, and in their forms,
    or with the ID of a job or step among them.
    """
    forms = (".*" if name in FREE_TEXT else _FORMS.get(name, ".*") for name in names)
    plain: _Match = re.compile("\n".join(f"(?:{form})" for form in forms)).fullmatch
    ids = [(place, _CHECKS[name]) for place, name in enumerate(names) if name in _IDS]

    def whole(parts: list[str]) -> list[str] | None:
        if len(parts) != len(names):
            return None
        for place, check in ids:  # nearly always, and in a tenth of the time
            if check(parts[place]):
                return parts
        return parts if plain("\n".join(parts)) else None

    return whole


_Checks = Sequence["_Match | None"]


def _begins(line: str, delimiter: str, names: Sequence[str], checks: _Checks) -> bool:
    """Whether a row may begin with this line: its leading fields have their forms."""
    parts = line.split(delimiter)
    if len(parts) < 2:
        return False
    for part, name, check in zip(parts, names, checks):
        if name in FREE_TEXT:
            break
        if check is not None and not check(part):
            return False
    return True


def _row_at(
    lines: Sequence[str], at: int, delimiter: str, names: Sequence[str], checks: _Checks
) -> tuple[list[str], int] | None:
    """(values, next line) of the row that begins with line `at`, or None."""
    parts = lines[at].split(delimiter)
    for end in range(at + 1, min(at + _MAX_LINES, len(lines)) + 1):
        if len(parts) > len(names) + _MAX_EXCESS:
            return None
        if len(parts) >= len(names):
            values = _aligned(parts, delimiter, names, checks)
            if values is not None:
                return values, end
        if end < len(lines):
            first, *others = lines[end].split(delimiter)
            parts = [*parts[:-1], parts[-1] + "\n" + first, *others]
    return None


def _aligned(
    parts: Sequence[str], delimiter: str, names: Sequence[str], checks: _Checks
) -> list[str] | None:
    """The parts as one value per field, free text taking more than one where needed, or None."""

    def fits(part: str, field: int) -> bool:
        check = checks[field]
        return names[field] in FREE_TEXT or (
            "\n" not in part and (check is None or check(part) is not None)
        )

    excess = len(parts) - len(names)
    if excess == 0:
        fine = all(fits(part, field) for field, part in enumerate(parts))
        return list(parts) if fine else None
    # reachable[f]: of the ways to fill the first f fields, surplus parts used -> those of field f-1
    reachable: list[dict[int, int]] = [{0: 0}]
    for field, name in enumerate(names):
        after: dict[int, int] = {}
        for used in reachable[-1]:
            if not fits(parts[field + used], field):
                continue
            for more in range(excess - used + 1 if name in FREE_TEXT else 1):
                after.setdefault(used + more, more)
        reachable.append(after)
    if excess not in reachable[-1]:
        return None
    values: list[str] = []
    used = excess
    for field in reversed(range(len(names))):
        more = reachable[field + 1][used]
        start = field + used - more
        values.append(delimiter.join(parts[start : start + more + 1]))
        used -= more
    return values[::-1]
