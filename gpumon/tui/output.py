"""Following what the job writes: made harmless here, drawn by `views.output`."""

from __future__ import annotations

import re
from typing import Protocol

from gpumon.model.text import clean

#: escape sequences of terminals (ECMA-48): strings such as titles and links, then CSI, then others
_ESCAPES = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]"
)
_TAB = " " * 4
_LONGEST = 4096  # characters of one line


class Output(Protocol):
    """The job's standard output and error, as files. Calls do not wait: a thread reads ahead."""

    def path(self, stream: str) -> str:
        """Where `out` or `err` goes; "" when that is not known, or when it is the same file."""

    def tail(self, stream: str) -> list[str]:
        """The last lines of it so far, some hundred at most, raw. Raises OSError with why not."""


def harmless(line: str) -> str:
    """The line as a terminal would have left it, as plain text.

    Colours and cursor movements are dropped; of a progress bar that returns to the line's start
    again and again, what it wrote last is kept.
    """
    text = _ESCAPES.sub("", line[-_LONGEST:])
    text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    return clean(text.replace("\t", _TAB).rstrip())
