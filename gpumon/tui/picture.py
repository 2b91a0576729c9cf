"""What the terminal shows, cell by cell: so only cells that differ are ever sent.

Over ssh bytes are what a dashboard costs. Textual 8 sends each changed span from the left edge of
its widget on, with all of its style for each run, and after a dialog the whole screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Union

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style
from textual.strip import Strip

Run = tuple[str, Style]
#: one string for each cell; "" is the second half of a wide character
Cells = Union[str, list[str]]
Piece = tuple[str, int, int, Cells]  # look, y, x, cells

_UNKNOWN = "\0"  # differs from every cell
#: cells of text as it mostly is; `cell_len` would keep each text that it is asked about
_NARROW = re.compile("[ -~°·×–…↑↓─-▟⠀-⣿]*")
_NEAR_BYTES = 4  # what lies between two changes goes out, too: moving the cursor costs as much
#: of which to send one and how often (REP) takes fewer bytes: narrow characters, as terminals
#: differ in what they repeat of others
_REPEATED = re.compile("([─-▟⠀-⣿])\\1{2,}|([ -~])\\2{6,}")


class Picture:
    """The cells of the terminal; nothing is known of them until they were sent."""

    repeats = False  # whether the terminal knows REP

    def __init__(self) -> None:
        self._rows: list[tuple[Cells, str]] = []  # cells, and each one's look
        #: a look is a character: the number of a style; that of blanks is their ground's alone
        self._styles: list[Style] = []
        self._looks: dict[tuple[Style, bool], str] = {}  # (style, is blank) -> look
        self._grounds: dict[str, str] = {}  # look -> the look of blanks that cannot be told from it
        self._look = ""  # sent last, which what follows has until another one is sent

    def forget(self) -> None:
        """Something else may be there: another size, another program's output."""
        self.__init__()  # type: ignore[misc]

    def change(self, parts: Iterable[tuple[int, int, Iterable[Run]]], system: ColorSystem) -> str:
        """What to send for these parts of rows, (y, x, runs) each.

        Cells of one style go together: a colour takes more bytes than moving the cursor.
        """
        pieces = [piece for y, x, runs in parts for piece in self._differences(y, x, runs)]
        written: list[str] = []
        at = -1, -1
        first = self._look
        for look, y, x, cells in sorted(
            self._with_blanks_dressed(pieces), key=lambda piece: (piece[0] != first, piece)
        ):
            if look != self._look:
                before = self._styles[ord(self._look) - 1] if self._look else None
                written.append(_change(before, self._styles[ord(look) - 1], system))
                self._look = look
            written += _move(at, (y, x)), self._packed(cells)
            # terminals differ in how wide some characters are
            at = (y, x + len(cells)) if isinstance(cells, str) else (-1, -1)
        return "".join(written)

    def _with_blanks_dressed(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Blanks in a style that is sent anyway, where there is one on their ground."""
        dress: dict[str, str] = {}  # look of blanks -> look
        for look in filter(None, (self._look, *(look for look, *_ in pieces))):
            if look != (ground := self._grounds[look]):
                dress.setdefault(ground, look)
        for look, y, x, cells in pieces:
            yield dress.get(look, look), y, x, cells

    def _packed(self, cells: Cells) -> str:
        if isinstance(cells, str) and self.repeats:
            return _REPEATED.sub(lambda run: f"{run[0][0]}\x1b[{len(run[0]) - 1}b", cells)
        return "".join(cells)

    def _differences(self, y: int, x: int, runs: Iterable[Run]) -> Iterator[Piece]:
        """Each piece to send; from now on they are known."""
        cells, looks = self._drawn(runs)
        end = x + len(looks)
        self._rows += [("", "")] * (y + 1 - len(self._rows))
        before, looked = self._rows[y]
        if (missing := end - len(looked)) > 0:
            before, looked = _joined(before, _UNKNOWN * missing), looked + _UNKNOWN * missing
        after = _joined(_joined(before[:x], cells), before[end:])
        self._rows[y] = after, looked[:x] + looks + looked[end:]
        changed = [
            n
            for n, (old, new, old_look, look) in enumerate(
                zip(before[x:end], cells, looked[x:end], looks)
            )
            if old != new or old_look != look
        ]
        for look, first, past in self._joined_spans(changed, cells, looks):
            yield look, y, x + first, cells[first:past]

    def _joined_spans(
        self, changed: Sequence[int], cells: Cells, looks: str
    ) -> Iterator[tuple[str, int, int]]:
        """Look, first and past-last of cells to send; what lies between near ones goes too."""
        look, first, past = "", 0, 0
        for n in changed:
            if n == past and looks[n] == look:
                past = n + 1
                continue
            both = (
                self._common(look, looks[past : n + 1]) if past and n - past <= _NEAR_BYTES else ""
            )
            if both and len("".join(cells[past:n]).encode()) <= _NEAR_BYTES:
                look, past = both, n + 1
                continue
            if past:
                yield look, first, past
            look, first, past = looks[n], n, n + 1
        if past:
            yield look, first, past

    def _common(self, look: str, looks: str) -> str:
        """The look that all of them may have: blanks any on their ground; "": there is none."""
        for each in looks:
            if each == look or each == self._grounds[look]:
                continue
            if look != self._grounds[each]:
                return ""
            look = each
        return look

    def _drawn(self, runs: Iterable[Run]) -> tuple[Cells, str]:
        """The cells, and each one's look."""
        cells: Cells = ""
        looks = ""
        for text, style in runs:
            new = text if width_of(text) == len(text) else _split(text)
            cells = _joined(cells, new)
            looks += self._look_of(style, is_blank=not text.strip(" ")) * len(new)
        return cells, looks

    def _look_of(self, style: Style, *, is_blank: bool) -> str:
        look = self._looks.get((style, is_blank))
        if look is None:
            look = self._looks[style, is_blank] = self._new_look(style, is_blank)
        return look

    def _new_look(self, style: Style, is_blank: bool) -> str:
        ground = _ground(style)
        if is_blank and style != ground:
            return self._look_of(ground, is_blank=True)
        self._styles.append(style)
        look = chr(len(self._styles))
        self._grounds[look] = look if is_blank else self._look_of(ground, is_blank=True)
        return look


def width_of(text: str) -> int:
    """In cells."""
    return len(text) if text.isascii() or _NARROW.fullmatch(text) else cell_len(text)


def _split(text: str) -> list[str]:
    """Text with wide characters, or with marks upon others, as cells."""
    cells: list[str] = []
    for char in text:
        width = cell_len(char)
        if width:
            cells += [char, *[""] * (width - 1)]
        elif cells:
            last = next(n for n in reversed(range(len(cells))) if cells[n])
            cells[last] += char
    return cells


def _joined(left: Cells, right: Cells) -> Cells:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    return [*left, *right]


def _move(at: tuple[int, int], to: tuple[int, int]) -> str:
    """The shortest sequence for it: (y, x) both."""
    (y, x), (to_y, to_x) = at, to
    if at == to:
        return ""
    if y != to_y:
        return f"\x1b[{to_y + 1};{to_x + 1}H"
    if to_x < x:
        return f"\x1b[{to_x + 1}G"
    return f"\x1b[{to_x - x}C" if to_x - x > 1 else "\x1b[C"


@lru_cache(maxsize=4096)
def _ground(style: Style) -> Style:
    """What is seen of a blank."""
    lines = style.underline, style.underline2, style.overline, style.strike, style.link
    return style if style.reverse or any(lines) else Style(bgcolor=style.bgcolor)


@lru_cache(maxsize=4096)
def _change(before: Style | None, after: Style, system: ColorSystem) -> str:
    """Codes for another style; mostly only its colours are others."""
    if before is None or before + Style(color=after.color, bgcolor=after.bgcolor) != after:
        whole = Strip.render_ansi(after, system)
        return f"\x1b[0;{whole}m" if whole else "\x1b[0m"
    codes: list[str] = []
    if after.color is not None and after.color != before.color:
        codes += after.color.downgrade(system).get_ansi_codes()
    if after.bgcolor is not None and after.bgcolor != before.bgcolor:
        codes += after.bgcolor.downgrade(system).get_ansi_codes(foreground=False)
    return f"\x1b[{';'.join(codes)}m" if codes else ""
