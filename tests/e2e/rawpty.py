"""gpumon on a bare terminal: every byte that it writes, and what it shows.

It answers nothing but what it is told to.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyte

from tests.e2e.program import GPUMON, environment
from tests.nvml.emulator import Emulated
from tests.support.waiting import HANGS_S

COLUMNS, ROWS = 120, 40

_OF_THE_TERMINAL = ("TERM", "COLORTERM", "LANG", "LC_", "LANGUAGE", "PYTHON", "COLUMNS", "LINES")


class Written(NamedTuple):
    """What came out, the screen as it was before the last key, and the exit code."""

    data: bytes
    rows: list[str]
    code: int

    @property
    def colours(self) -> set[str]:
        """The forms of colour in it: `24 bit`, `256`, `16`."""
        return {form for sgr in re.findall(rb"\x1b\[([\d;]*)m", self.data) for form in _forms(sgr)}

    @property
    def text(self) -> str:
        return self.data.decode("utf-8")


def _forms(sgr: bytes) -> list[str]:
    codes = [int(code or 0) for code in sgr.split(b";")]
    forms = []
    while codes:
        code = codes.pop(0)
        if code in (38, 48):
            true_colour = codes[0] == 2
            forms.append("24 bit" if true_colour else "256")
            del codes[: 4 if true_colour else 2]
        elif 30 <= code <= 37 or 40 <= code <= 47 or 90 <= code <= 97 or 100 <= code <= 107:
            forms.append("16")
    return forms


class _Screen(pyte.Screen):
    """One that knows REP."""

    _drawn = ""

    def draw(self, data: str) -> None:
        super().draw(data)
        self._drawn = data[-1:]

    def repeat(self, count: int = 1) -> None:
        self.draw(self._drawn * count)


class _Stream(pyte.ByteStream):
    csi = {**pyte.ByteStream.csi, "b": "repeat"}
    events = pyte.ByteStream.events | {"repeat"}


def write(
    gpus: Emulated,
    terminal: Mapping[str, str],
    *arguments: str,
    until: str,
    keys: Sequence[str] = "q",
    answers: Mapping[bytes, bytes] = {},
) -> Written:
    """Run gpumon with only these variables of a terminal; once it shows `until`, press keys.

    until: a regular expression on the rows as a terminal shows them; answers: by their questions.
    """
    kept = {
        name: value
        for name, value in environment(gpus.env).items()
        if not name.startswith(_OF_THE_TERMINAL)
    }
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    program = subprocess.Popen(
        [*GPUMON, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, **terminal},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        return _read(program, ours, until, keys, answers)
    finally:
        program.kill()
        program.wait()
        os.close(ours)


def _read(
    program: subprocess.Popen[bytes],
    terminal: int,
    until: str,
    keys: Sequence[str],
    answers: Mapping[bytes, bytes],
) -> Written:
    screen = _Screen(COLUMNS, ROWS)
    stream = _Stream(screen)
    data = b""
    rows: list[str] = []
    left = list(keys)
    deadline = time.monotonic() + HANGS_S
    while True:
        shown = "\n".join(screen.display)
        assert time.monotonic() < deadline, f"no {until} on:\n{shown}"
        if not select.select([terminal], [], [], 0.3)[0]:  # a pause: a whole screen was drawn
            if left and re.search(until, shown):
                rows = list(screen.display)
                os.write(terminal, left.pop(0).encode("utf-8", "surrogateescape"))
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux reports the end of the other side
            break
        data += part
        for query, answer in answers.items():
            if query in part:
                os.write(terminal, answer)
        stream.feed(part)
    return Written(data, rows or list(screen.display), program.wait(HANGS_S))
