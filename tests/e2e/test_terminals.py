"""What reaches the terminal: its colours, its characters, and only what it can show."""

import re

import pytest

from tests.e2e.rawpty import COLUMNS, write
from tests.e2e.screen import Dashboard
from tests.nvml.emulator import Emulated

pytestmark = pytest.mark.terminal

UTF8 = {"LANG": "C.UTF-8"}
XTERM = {"TERM": "xterm-256color"}
TRUE_COLOUR = {**XTERM, "COLORTERM": "truecolor", **UTF8}
AXIS = r"(?ms)GPU 0\b.*busy \d+ %.*^100\b.*GPU 3\b.*busy \d+ %"  # plots, with their numbers
AREA = AXIS + ".*[\u2580-\u259f]"
LEAVES = ["\x1b[?1049l", "\x1b[?25h", "\x1b[?1000l"]  # alternate screen, cursor, mouse


@pytest.fixture(scope="module")
def gpus():
    with Emulated("a100x4", freeze_s=20) as gpus:
        yield gpus


def busy(gpus):
    return [device["readings"]["busy_percent"] for device in gpus.expected()]


def headings(written):
    """What the headings of the plots say that each GPU is busy, in per cent."""
    shown = "\n".join(written.rows)
    found = dict(re.findall(r"GPU (\d) .*?busy (\d+) %", shown))
    return [int(found[number]) for number in sorted(found)]


@pytest.mark.parametrize(
    ("terminal", "colours"),
    [
        (TRUE_COLOUR, {"24 bit"}),
        ({**XTERM, **UTF8}, {"256"}),
        ({"TERM": "tmux-256color", **UTF8}, {"256"}),
        ({"TERM": "xterm", **UTF8}, {"16"}),
        ({"TERM": "screen", **UTF8}, {"16"}),
        ({"TERM": "linux", **UTF8}, {"16"}),
        ({"TERM": "vt100", **UTF8}, set()),
        ({**TRUE_COLOUR, "NO_COLOR": "1"}, set()),
        ({**TRUE_COLOUR, "NO_COLOR": ""}, {"24 bit"}),  # no-color.org: only when not empty
    ],
    ids=lambda value: ",".join(value.values()) if isinstance(value, dict) else "",
)
def test_colours_are_those_the_terminal_has(gpus, terminal, colours):
    written = write(gpus, terminal, until=AXIS)
    assert written.code == 0
    assert written.colours == colours
    assert headings(written) == busy(gpus)
    if terminal["TERM"] != "linux":  # its mouse is not the one of xterm
        assert all(end in written.text for end in LEAVES)


def test_only_changes_are_sent_until_all_of_it_is_asked_for(gpus):
    seldom = "Processes"  # a key of the bar, which nothing changes
    once = write(gpus, TRUE_COLOUR, until=AXIS, keys=["\x1b[B", "q"])
    assert once.text.count(seldom) == 1
    assert write(gpus, TRUE_COLOUR, until=AXIS, keys=["\x0c", "q"]).text.count(seldom) == 2


@pytest.mark.parametrize(
    ("cursor", "repeats"), [(b"\x1b[2;5R", True), (b"\x1b[2;2R", False), (b"", False)]
)
def test_characters_are_repeated_where_the_terminal_says_that_it_can(gpus, cursor, repeats):
    asked, answer = b"\x1b[6n", {b"\x1b[6n": cursor} if cursor else {}
    written = write(gpus, TRUE_COLOUR, until=AXIS, keys=["\x0c", "q"], answers=answer)
    repeated = re.findall(r"\x1b\[\d+b", written.text.partition(asked.decode())[2])
    assert bool(repeated) == repeats
    assert headings(written) == busy(gpus)


@pytest.mark.parametrize(
    ("theme", "colours"),
    [
        ("dark", {"24 bit"}),
        ("light", {"24 bit"}),
        ("colour-blind", {"24 bit"}),
        ("ansi", {"16"}),
        ("mono", set()),
    ],
)
def test_every_theme_keeps_to_its_colours(gpus, theme, colours):
    written = write(gpus, TRUE_COLOUR, "--theme", theme, until=AXIS)
    assert (written.code, written.colours) == (0, colours)


def test_themes_differ(gpus):
    """Each by the colour of a value, as three themes give it (tui/theme.py: busy)."""
    for theme, escape in [
        ("dark", "38;2;79;214;165"),
        ("light", "38;2;10;125;85"),
        ("colour-blind", "38;2;86;180;233"),
    ]:
        assert escape in write(gpus, TRUE_COLOUR, "--theme", theme, until=AXIS).text


def test_a_theme_of_many_colours_is_brought_down_to_sixteen(gpus):
    written = write(gpus, {"TERM": "xterm", **UTF8}, "--theme", "dark", until=AXIS)
    assert written.colours == {"16"}


def test_no_colour_whatever_is_pressed(gpus):
    """Through every theme and every dialog."""
    keys = ["t"] * 5 + ["?", "\x1b", "3", "k", "\x1b", "/", "\x1b", "2", "q"]
    written = write(gpus, {**TRUE_COLOUR, "NO_COLOR": "1"}, until=r"\w", keys=keys)
    assert (written.code, written.colours) == (0, set())
    assert "\x1b[1" in written.text  # attributes stay: bold


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "en_US.ISO-8859-1", "PYTHONIOENCODING": "latin-1"},
        {"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"},  # LC_ALL wins
    ],
    ids=str,
)
def test_without_utf8_everything_is_ascii(gpus, locale):
    written = write(gpus, {**XTERM, **locale}, until=AXIS)
    assert written.code == 0
    assert written.data.isascii()
    assert rb"\u" not in written.data
    assert headings(written) == busy(gpus)
    assert "4 x A100" in "\n".join(written.rows)
    assert {len(row) for row in written.rows} == {COLUMNS}


DRAWN = re.compile("[\u2500-\u28ff]")


def test_areas_where_they_can_be_shown_and_nowhere_else(gpus):
    assert DRAWN.search(write(gpus, TRUE_COLOUR, until=AREA).text)
    assert not DRAWN.search(write(gpus, TRUE_COLOUR, "--ascii", until=AXIS).text)
    console = {"TERM": "linux", **UTF8}  # its font has a few hundred characters
    assert not DRAWN.search(write(gpus, console, until=AXIS).text)


@pytest.mark.parametrize("terminal", [{"TERM": "dumb"}, {"TERM": ""}, {}], ids=str)
def test_a_terminal_without_a_cursor_gets_one_sample_as_text(gpus, terminal):
    written = write(gpus, {**terminal, **UTF8}, until="never")
    assert written.code == 0
    assert "\x1b" not in written.text
    assert (
        f"TERM is {terminal.get('TERM') or 'not set'}; printing one sample as text" in written.text
    )
    for number, percent in enumerate(busy(gpus)):
        assert re.search(rf"^\[{number}\] .*\bbusy {percent} %", written.text, re.M)


@pytest.mark.parametrize(
    "junk", [b"\xe9", b"\xff", b"\xe9a", b"\x1b[200~\x80\xfe\x1b[201~"], ids=repr
)
def test_bytes_that_are_not_utf8_are_left_out(gpus, junk):
    """Keys of a Latin-1 terminal, or something binary that was pasted."""
    keys = [junk.decode("utf-8", "surrogateescape"), "t", "q"]
    written = write(gpus, TRUE_COLOUR, until=AXIS, keys=keys)
    assert written.code == 0
    assert "Traceback" not in written.text


def test_every_size_is_drawn_whole(gpus):
    """The title first, the keys last and once, no row longer than the screen; at each resize."""
    sizes = [(80, 24), (200, 60), (120, 40), (60, 15), (160, 50)]
    with Dashboard(gpus, size=sizes[0]) as dashboard:
        for columns, rows in sizes:
            dashboard.resize(columns, rows)

            def whole(_, rows=rows):
                lines = dashboard.text().split("\n")
                ends = len(lines) == rows and "q Quit" in lines[-1]
                return ends and lines[0].startswith(" gpumon") and "GPU 0" in dashboard.text()

            dashboard.wait_until(whole)
            lines = dashboard.text().split("\n")
            assert max(map(len, lines)) <= columns
            assert sum("q Quit" in line for line in lines) == 1
            assert sum(line.startswith(" gpumon ") for line in lines) == 1
