"""Lines that people paste: directives, exports and commands that gpumon suggests.

Names of nodes, jobs and GPUs come from recordings, from Slurm and from a site's file: from somebody
else. They enter a line only as a `Word`, which the grammar of its kind accepts as a whole: one
value, never an option, a second command or something that a shell expands. A value that does not
pass is None, and a line that lacks a value is empty: then its sentence stands alone.
"""

from __future__ import annotations

import re
import shlex
from typing import Optional, Union

from gpumon.model.text import clean

_NODE = r"[A-Za-z0-9_][\w.-]{0,252}"
_NODES = r"[A-Za-z0-9_](?:[\w.-]|\[\d[\d,-]{0,999}\]){0,252}"
_SIZE = r"\d{1,12}(?:\.\d{1,3})?[KMGTP]?B?"
_COUNT = r"\d{1,12}"
_NAME = r"[A-Za-z0-9_][\w.:,=+@-]{0,254}"

_GRAMMAR = {
    kind: re.compile(pattern, re.ASCII)
    for kind, pattern in {
        "node": _NODE,
        "nodes": rf"{_NODES}(?:,{_NODES}){{0,999}}",
        "job": r"\d{1,10}(?:_\d{1,10}|\+\d{1,5})?",
        "pid": r"[2-9]|[1-9]\d{1,9}",  # 0 and -1 are everybody's, 1 is init's
        "size": _SIZE,
        "count": rf"{_COUNT}(?:-{_COUNT})?",
        "counts": rf"{_COUNT}(?:-{_COUNT})?(?:,{_COUNT}(?:-{_COUNT})?){{0,9999}}",
        "time": r"(?:\d{1,6}-)?\d{1,6}(?::\d{1,2}){0,2}",
        "name": _NAME,
        "option": r"--[a-z][a-z-]{0,40}",
    }.items()
}
#: option of sbatch -> kind of its value
_OF_OPTION = {
    **dict.fromkeys(("--mem", "--mem-per-cpu", "--mem-per-gpu", "--tmp"), "size"),
    **dict.fromkeys(
        ("--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task", "--cpus-per-gpu"), "count"
    ),
    **dict.fromkeys(
        ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket",
         "--partition", "--constraint"), "name",
    ),
    "--exclude": "nodes",
    "--time": "time",
}  # fmt: skip
#: options that programs read from a file's name: `-x` all of them, `+cmd` less and vi
_NO_PATH = re.compile(r"[-+]|$")
_NOT_PROSE = re.compile(r"[^\w .,:%/+=@()°×…–-]")


class Line(str):
    """A template of ours, its {} filled with words and whole numbers; empty where one is missing.

    The template is a literal in the code; a test sees to that.
    """

    __slots__ = ()

    def __new__(cls, template: str = "", *values: Union[Line, int, None]) -> Line:
        """Raises TypeError for a value that no grammar has accepted."""
        for value in values:
            if value is None or value == "":
                return str.__new__(cls)
            if not isinstance(value, (Line, int)):
                raise TypeError(f"unchecked text for a line: {value!r}")
        return str.__new__(cls, template.format(*values) if values else template)


class Word(Line):
    """One value that a grammar has accepted."""

    __slots__ = ()

    def __new__(cls, kind: str, text: str) -> Word:
        """Raises ValueError where `text` is not a value of this kind."""
        if not _GRAMMAR[kind].fullmatch(text):
            raise ValueError(f"not a valid {kind}: {clean(text, 80)!r}")
        return str.__new__(cls, text)


EMPTY = Line()


def word(kind: str, text: str) -> Optional[Word]:
    """The value, where it is one of this kind."""
    return str.__new__(Word, text) if _GRAMMAR[kind].fullmatch(text) else None


def kind_of(option: str) -> str:
    """Of the values of an option of sbatch; "" for an option that gpumon does not write."""
    return _OF_OPTION.get(option, "")


def value(option: str, text: str) -> Optional[Word]:
    """What `option` of sbatch may be given; None for an option that gpumon does not write."""
    kind = kind_of(option)
    return word(kind, text) if kind else None


def setting(option: str, text: str) -> Line:
    """`--mem=9G`; empty where the value or the option does not pass."""
    return Line("{}={}", word("option", option), value(option, text))


def path(text: str) -> Optional[Line]:
    """A file's path, quoted for the shell; None where it reads as an option or moves a cursor."""
    if _NO_PATH.match(text) or not text.isprintable():
        return None
    return str.__new__(Line, shlex.quote(text))


def words(text: str) -> Line:
    """Text within a sentence to send: whatever a shell could act on is a question mark."""
    return str.__new__(Line, _NOT_PROSE.sub("?", clean(text, 400)))
