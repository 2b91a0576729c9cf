"""Run a terminal program in a real tmux, press its keys, and draw what it shows as a PNG.

    python screenshots/terminal_png.py --until busy --keys "2 Enter" -o out.png -- gpumon

The same as a library: `capture` and `render` for one picture, `Session` for several steps (tests
use it too). Needs tmux 3.2 or later, Pillow and DejaVu Sans Mono (Debian: fonts-dejavu-core).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
import unicodedata
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from PIL import Image, ImageDraw, ImageFont

Rgb = tuple[int, int, int]

# --- cells -----------------------------------------------------------------------------------


class Style(NamedTuple):
    """Attributes of a cell. A colour is None (default), a palette index or (red, green, blue)."""

    fg: int | Rgb | None = None
    bg: int | Rgb | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False


class Cell(NamedTuple):
    char: str
    style: Style
    width: int  # 1 or 2 columns


class Screen(NamedTuple):
    """What a terminal of `columns` x `rows` shows; a row may be shorter than `columns`."""

    columns: int
    rows: int
    cells: list[list[Cell]]

    def text(self) -> str:
        return "\n".join("".join(cell.char for cell in row).rstrip() for row in self.cells)


ATTRIBUTES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
RESETS = {
    22: ("bold", "dim"),
    23: ("italic",),
    24: ("underline",),
    27: ("reverse",),
    29: ("strike",),
}
# what the VT100 alternate character set means; tmux keeps it for programs that ask for it
ACS = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")


def select_graphics(style: Style, parameters: str) -> Style:
    """Return the style after an SGR sequence (ECMA-48 8.3.117) with these parameters."""
    codes = [int(part.split(":")[0] or 0) for part in parameters.split(";")]
    at = 0
    while at < len(codes):
        code = codes[at]
        at += 1
        if code == 0:
            style = Style()
        elif code in ATTRIBUTES:
            style = style._replace(**{ATTRIBUTES[code]: True})
        elif code in RESETS:
            style = style._replace(**dict.fromkeys(RESETS[code], False))
        elif code in (38, 48, 58):
            length = 4 if codes[at : at + 1] == [2] else 2
            colour = tuple(codes[at + 1 : at + 4]) if length == 4 else codes[at + 1]
            at += length
            if code != 58:  # the underline's own colour is not drawn
                style = style._replace(**{"fg" if code == 38 else "bg": colour})
        elif code in (39, 49):
            style = style._replace(**{"fg" if code == 39 else "bg": None})
        elif code % 100 // 10 in (3, 4) and code < 50:
            style = style._replace(**{"fg" if code < 40 else "bg": code % 10})
        elif 90 <= code <= 97 or 100 <= code <= 107:
            style = style._replace(**{"fg" if code < 100 else "bg": code % 10 + 8})
    return style


def parse(ansi: str, columns: int, rows: int) -> Screen:
    """Read the output of `tmux capture-pane -e -p -N`; a style lasts across the lines."""
    style, acs, cells = Style(), False, []
    for line in ansi.split("\n")[:rows]:
        row: list[Cell] = []
        at = 0
        while at < len(line):
            char = line[at]
            at += 1
            if char == "\x1b" and line[at : at + 1] == "[":
                end = line.index("m", at)
                style = select_graphics(style, line[at + 1 : end])
                at = end + 1
            elif char in "\x0e\x0f":
                acs = char == "\x0e"
            elif unicodedata.combining(char) or char in "\u200d\ufe0e\ufe0f":
                if row:
                    row[-1] = row[-1]._replace(char=row[-1].char + char)
            else:
                width = 2 if unicodedata.east_asian_width(char) in "WF" else 1
                row.append(Cell(char.translate(ACS) if acs else char, style, width))
        cells.append(row)
    return Screen(columns, rows, cells)


# --- glyphs ----------------------------------------------------------------------------------

WIDTH, HEIGHT, BASELINE, FONT_PX = 12, 24, 18, 20  # a cell; DejaVu Sans Mono 20 advances 12.04
MARGIN = 12
OVERSAMPLE = 4  # geometry is drawn this much larger, then reduced: smooth dots and arcs
FONT_DIRS = (
    "/usr/share/fonts/truetype/dejavu",  # Debian: fonts-dejavu-core
    "/usr/share/fonts/dejavu-sans-mono-fonts",  # Fedora, RHEL
    "/usr/share/fonts/TTF",  # Arch
    str(Path.home() / ".local/share/fonts"),
)


@cache
def font(bold: bool, italic: bool) -> ImageFont.FreeTypeFont:
    suffix = {(1, 0): "-Bold", (0, 1): "-Oblique", (1, 1): "-BoldOblique"}.get((bold, italic), "")
    for directory in FONT_DIRS:
        for name in (f"DejaVuSansMono{suffix}.ttf", "DejaVuSansMono.ttf"):
            if (path := Path(directory, name)).exists():
                return ImageFont.truetype(path, FONT_PX)
    raise SystemExit("terminal_png: no DejaVu Sans Mono; install the package fonts-dejavu-core")


def box_arms(name: str) -> dict[str, float]:
    """Thickness in light lines of each arm, read from a character's Unicode name.

    "DOWN HEAVY AND LEFT UP LIGHT" -> DOWN 2, LEFT 1, UP 1. A part without a weight has that of
    the part before it. Double lines are 3 thick; the caller hollows them.
    """
    both = {"HORIZONTAL": ("LEFT", "RIGHT"), "VERTICAL": ("UP", "DOWN")}
    arms: dict[str, float] = {}
    weight = 1
    for part in name.split(" AND "):
        words = part.split()
        for word, value in {"LIGHT": 1, "SINGLE": 1, "HEAVY": 2, "DOUBLE": 3}.items():
            weight = value if word in words else weight
        for word in words:
            for side in both.get(word, (word,)):
                if side in ("LEFT", "RIGHT", "UP", "DOWN"):
                    arms[side] = weight
    return arms


def draw_box(draw: ImageDraw.ImageDraw, char: str, width: int, height: int) -> None:
    """U+2500 to U+257F: lines from the middle of the cell to its sides."""
    name = unicodedata.name(char).replace("BOX DRAWINGS ", "")
    x, y, line = width // 2, height // 2, width // 6
    if "DIAGONAL" in name:
        if char in "╱╳":
            draw.line((0, height, width, 0), 255, line)
        if char in "╲╳":
            draw.line((0, 0, width, height), 255, line)
        return
    if "ARC" in name:  # a quarter circle to the side, then straight up or down
        right, down = ("RIGHT" in name), ("DOWN" in name)
        left, top = (x if right else -x), (y if down else y - 2 * x)
        grow = line // 2
        start = {(1, 1): 180, (0, 1): 270, (0, 0): 0, (1, 0): 90}[right, down]
        box = (left - grow, top - grow, left + 2 * x + grow, top + 2 * x + grow)
        draw.arc(box, start, start + 90, 255, line)
        span = (y + x, height) if down else (0, y - x)
        draw.rectangle((x - grow, span[0], x + grow - 1, span[1]), 255)
        return
    dashes = {"DOUBLE": 2, "TRIPLE": 3, "QUADRUPLE": 4}[name.split()[1]] if "DASH" in name else 0
    arms = box_arms(name.replace("DOUBLE DASH", ""))

    def bar(side: str, half: int, start: int) -> tuple[int, int, int, int]:
        return {
            "LEFT": (0, y - half, x + start - 1, y + half - 1),
            "RIGHT": (x - start, y - half, width, y + half - 1),
            "UP": (x - half, 0, x + half - 1, y + start - 1),
            "DOWN": (x - half, y - start, x + half - 1, height),
        }[side]

    def across(side: str) -> float:
        pair = ("UP", "DOWN") if side in ("LEFT", "RIGHT") else ("LEFT", "RIGHT")
        return max(arms.get(each, 0) for each in pair)

    for side, weight in arms.items():
        draw.rectangle(bar(side, int(weight * line) // 2, int(across(side) * line) // 2), 255)
    for side, weight in arms.items():
        if weight == 3:
            draw.rectangle(bar(side, line // 2, line // 2 if across(side) == 3 else 0), 0)
    for at in range(1, dashes + 1):
        if "LEFT" in arms:
            draw.rectangle((width * at // dashes - line, 0, width * at // dashes, height), 0)
        else:
            draw.rectangle((0, height * at // dashes - 2 * line, width, height * at // dashes), 0)


def draw_block(draw: ImageDraw.ImageDraw, char: str, width: int, height: int) -> None:
    """U+2580 to U+259F: eighths, shades and quadrants."""
    code = ord(char) - 0x2580
    if code == 0x00:
        box = (0, 0, width, height // 2)
    elif code <= 0x08:
        box = (0, height - height * code // 8, width, height)
    elif code <= 0x0F:
        box = (0, 0, width * (0x10 - code) // 8, height)
    elif code == 0x10:
        box = (width // 2, 0, width, height)
    elif code <= 0x13:
        draw.rectangle((0, 0, width, height), (code - 0x10) * 64)
        return
    elif code <= 0x15:
        box = (0, 0, width, height // 8) if code == 0x14 else (width * 7 // 8, 0, width, height)
    else:  # bits: upper left, upper right, lower left, lower right
        bits = (4, 8, 1, 13, 9, 7, 11, 2, 6, 14)[code - 0x16]
        for at in range(4):
            if bits >> at & 1:
                left, top = at % 2 * width // 2, at // 2 * height // 2
                draw.rectangle((left, top, left + width // 2 - 1, top + height // 2 - 1), 255)
        return
    draw.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), 255)


def draw_braille(draw: ImageDraw.ImageDraw, char: str, width: int, height: int) -> None:
    """U+2800 to U+28FF: dots in the order of Unicode's bits, evenly spaced across cells."""
    radius = width // 6
    for bit, (column, row) in enumerate(
        [(c, r) for c in (0, 1) for r in (0, 1, 2)] + [(0, 3), (1, 3)]
    ):
        if ord(char) >> bit & 1:
            x, y = width * (2 * column + 1) // 4, height * (2 * row + 1) // 8
            draw.ellipse((x - radius, y - radius, x + radius - 1, y + radius - 1), 255)


@lru_cache(maxsize=4096)
def glyph(text: str, columns: int, bold: bool, italic: bool) -> Image.Image:
    """Return the coverage (mode L) of one cell's text. Lines, blocks and braille are geometry."""
    for first, last, shape in (
        ("\u2500", "\u257f", draw_box),
        ("\u2580", "\u259f", draw_block),
        ("\u2800", "\u28ff", draw_braille),
    ):
        if first <= text[0] <= last:
            large = Image.new("L", (WIDTH * OVERSAMPLE, HEIGHT * OVERSAMPLE))
            shape(ImageDraw.Draw(large), text[0], *large.size)
            return large.reduce(OVERSAMPLE)
    mask = Image.new("L", (WIDTH * columns, HEIGHT))
    ImageDraw.Draw(mask).text((0, BASELINE), text, 255, font(bold, italic), anchor="ls")
    return mask


# --- picture ---------------------------------------------------------------------------------

THEMES: dict[str, tuple[Rgb, Rgb]] = {  # default foreground and background
    "dark": ((216, 220, 226), (16, 19, 24)),
    "light": ((36, 41, 47), (255, 255, 255)),
}
BASE16 = bytes.fromhex(
    "1c2128 e5534b 57ab5a c69026 539bf5 b083f0 39c5cf adbac7"
    "636e7b ff938a 8ddb8c eac55f 6cb6ff dcbdfb 76e3ea ffffff"
)


def _faint(fg: Rgb, bg: Rgb) -> Rgb:
    red, green, blue = ((3 * f + 2 * b) // 5 for f, b in zip(fg, bg))
    return red, green, blue


def rgb(colour: int | Rgb) -> Rgb:
    """Red, green and blue of a palette index: 16 of our own, then xterm's cube and greys."""
    if isinstance(colour, tuple):
        return colour
    if colour < 16:
        return BASE16[3 * colour], BASE16[3 * colour + 1], BASE16[3 * colour + 2]
    if colour >= 232:
        return (8 + 10 * (colour - 232),) * 3
    levels = (0, 95, 135, 175, 215, 255)
    colour -= 16
    return levels[colour // 36], levels[colour // 6 % 6], levels[colour % 6]


def render(screen: Screen, theme: str = "dark") -> Image.Image:
    default_fg, default_bg = THEMES[theme]
    size = (screen.columns * WIDTH + 2 * MARGIN, screen.rows * HEIGHT + 2 * MARGIN)
    image = Image.new("RGB", size, default_bg)
    draw = ImageDraw.Draw(image)
    for row, cells in enumerate(screen.cells):
        x, y = MARGIN, MARGIN + row * HEIGHT
        for text, style, columns in cells:
            fg = default_fg if style.fg is None else rgb(style.fg)
            bg = default_bg if style.bg is None else rgb(style.bg)
            if style.reverse:
                fg, bg = bg, fg
            if style.dim:
                fg = _faint(fg, bg)
            right = x + columns * WIDTH
            if bg != default_bg:
                draw.rectangle((x, y, right - 1, y + HEIGHT - 1), bg)
            if text != " ":
                image.paste(fg, (x, y), glyph(text, columns, style.bold, style.italic))
            for wanted, line in ((style.underline, BASELINE + 3), (style.strike, HEIGHT // 2)):
                if wanted:
                    draw.rectangle((x, y + line, right - 1, y + line), fg)
            x = right
    return image


# --- tmux ------------------------------------------------------------------------------------

CONFIG = """
set -g default-terminal tmux-256color
set -ga terminal-overrides ",*:RGB"
set -g status off
set -g escape-time 0
set -g remain-on-exit on
set -g remain-on-exit-format ""
"""


S = TypeVar("S", bound="Session")


class Session:
    """A program in a tmux of its own: the user's configuration and server stay untouched."""

    def __init__(
        self,
        command: list[str],
        size: tuple[int, int] = (120, 40),
        env: dict[str, str] | None = None,
    ) -> None:
        self.columns, self.rows = size
        self._directory = tempfile.mkdtemp(prefix="terminal-")
        config = Path(self._directory, "tmux.conf")
        config.write_text(CONFIG)
        self._tmux = ["tmux", "-u", "-S", f"{self._directory}/socket", "-f", str(config)]
        self._env = {**os.environ, "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8", **(env or {})}
        for name in ("TMUX", "TMUX_PANE", "COLUMNS", "LINES"):
            self._env.pop(name, None)
        # through env(1): tmux gives a command of one word to a shell, one of several to exec
        geometry = ("-x", str(self.columns), "-y", str(self.rows))
        try:
            self._call("new-session", "-d", *geometry, "env", *command)
        except BaseException:
            self.kill()
            raise

    def _call(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], env=self._env, capture_output=True, encoding="utf-8"
        )
        if done.returncode:
            raise RuntimeError(f"tmux {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def keys(self, *names: str, pause_s: float = 0.15) -> None:
        """Press keys by tmux's names (`Enter`, `C-c`, `Down`, `q`), with a pause after each."""
        for name in names:
            self._call("send-keys", name)
            time.sleep(pause_s)

    def type(self, text: str) -> None:
        self._call("send-keys", "-l", text)

    def screen(self) -> Screen:
        return parse(self._call("capture-pane", "-e", "-p", "-N"), self.columns, self.rows)

    def text(self) -> str:
        return self.screen().text()

    def png(self, path: str | Path, theme: str = "dark") -> None:
        render(self.screen(), theme).save(path, optimize=True)

    def ask(self, form: str) -> str:
        """What tmux knows of the program's terminal, by its formats: `#{pane_pid}`."""
        return self._call("display", "-p", form).rstrip("\n")

    def wait_for(self, text: str, timeout_s: float = 60) -> str:
        """Wait until the screen shows a text; returns the screen's text."""
        deadline = time.monotonic() + timeout_s
        while text not in (shown := self.text()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {text!r} within {timeout_s} s on:\n{shown}")
            time.sleep(0.05)
        return shown

    def wait_exit(self, timeout_s: float = 60) -> int:
        """Wait for the program's end; returns its exit status (128 + n for a signal n)."""
        deadline = time.monotonic() + timeout_s
        while True:
            form = "#{pane_dead} #{pane_dead_status} #{pane_dead_signal}"
            dead, status, number = self.ask(form).split(" ")
            if status or number:  # pane_dead alone may come before the status is known
                return int(status) if status else 128 + int(number)
            if (
                dead == "1"
            ):  # tmux 3.3 may miss the signal of a child's end; another's makes it look
                self._call("run-shell", "true")
            if time.monotonic() > deadline:
                raise TimeoutError(f"still running after {timeout_s} s:\n{self.text()}")
            time.sleep(0.05)

    def resize(self, columns: int, rows: int) -> None:
        self._call("resize-window", "-x", str(columns), "-y", str(rows))
        self.columns, self.rows = columns, rows

    def kill(self) -> None:
        """End the program (hang-up, as when a terminal closes) and the tmux, and tidy up."""
        subprocess.run([*self._tmux, "kill-server"], env=self._env, capture_output=True)
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def capture(
    command: list[str],
    size: tuple[int, int] = (120, 40),
    keys: str = "",
    wait: float = 2,
    until: str = "",
    env: dict[str, str] | None = None,
) -> Screen:
    """Run a command, wait for a text (or some seconds), press keys and wait again."""
    with Session(command, size, env) as session:
        if until:
            session.wait_for(until)
        else:
            time.sleep(wait)
        if keys:
            session.keys(*keys.split())
            time.sleep(wait)
        return session.screen()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", default="120x40", help="columns x rows")
    parser.add_argument("--wait", type=float, default=2, help="seconds before and after the keys")
    parser.add_argument("--until", default="", help="text to wait for before the keys")
    parser.add_argument("--keys", default="", help="tmux key names, separated by blanks")
    parser.add_argument("--theme-bg", choices=sorted(THEMES), default="dark")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("no command")
    columns, rows = map(int, args.size.split("x"))
    screen = capture(command, (columns, rows), args.keys, args.wait, args.until)
    render(screen, args.theme_bg).save(args.output, optimize=True)


if __name__ == "__main__":
    main()
