"""What the terminal shows: every cell as it should be, and no cell sent that was so before."""

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.ansi import AnsiDecoder
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from gpumon.tui.lines import fit_row
from gpumon.tui.picture import Picture, _change, width_of
from gpumon.tui.update import Changes
from tests.support.examples import examples

WIDTH, HEIGHT = 24, 4
PLAIN, RED, BOLD = Style(color="#c9d1d9"), Style(color="red", bgcolor="#0d1117"), Style(bold=True)
STYLES_OF = {"": PLAIN, "red": RED, "bold": BOLD}


class Terminal:
    """A picture, and a terminal that is sent what it says."""

    def __init__(self):
        self.picture = Picture()
        self.screen = pyte.Screen(WIDTH, HEIGHT)
        self.stream = pyte.Stream(self.screen)

    def change(self, *parts):
        sent = self.picture.change(parts, ColorSystem.TRUECOLOR)
        self.stream.feed(sent)
        return sent

    def look(self, y, x, past):
        return [cell_look(self.screen.buffer[y][n]) for n in range(x, past)]


def cell_look(cell):
    """All that is seen of it."""
    return (cell.data, cell.bg) if cell.data == " " else (cell.data, cell.fg, cell.bg, cell.bold)


def shown_alone(y, x, runs):
    terminal = Terminal()
    terminal.change((y, x, runs))
    return terminal


text = st.text(st.sampled_from("ab 漢é▁⣿🎉"), max_size=9)
runs = st.lists(st.tuples(text, st.sampled_from(["", "red", "bold"])), max_size=5)
parts = st.tuples(st.integers(0, HEIGHT - 1), runs)


@examples(2000)
@given(st.lists(st.lists(parts, max_size=3), max_size=6))
def test_every_cell_is_as_drawn_last(frames):
    terminal = Terminal()
    terminal.change(*((y, 0, [(" " * WIDTH, PLAIN)]) for y in range(HEIGHT)))
    rows = {}
    for frame in frames:
        at_once = {}
        for y, found in frame:  # whole rows, as two halves of wide characters are one cell
            at_once[y] = [(part, STYLES_OF[role]) for part, role in fit_row(found, WIDTH)]
        rows.update(at_once)
        terminal.change(*((y, 0, row) for y, row in at_once.items()))
        for y, row in rows.items():
            assert terminal.look(y, 0, WIDTH) == shown_alone(y, 0, row).look(y, 0, WIDTH)
    assert terminal.change(*((y, 0, row) for y, row in rows.items())) == ""


def test_parts_of_a_row_leave_the_rest():
    terminal = Terminal()
    terminal.change((1, 0, [("abcdefgh", PLAIN)]))
    terminal.change((1, 2, [("X", RED), ("Y", PLAIN)]))
    assert terminal.screen.display[1].rstrip() == "abXYefgh"
    assert terminal.look(1, 0, 8)[4:] == shown_alone(1, 0, [("abcdefgh", PLAIN)]).look(1, 4, 8)


def test_only_cells_that_differ_are_sent():
    terminal = Terminal()
    terminal.change((0, 0, [("busy 94 %   mem 10 %", PLAIN)]))
    sent = terminal.change((0, 0, [("busy 93 %   mem 11 %", PLAIN)]))
    assert sent.count("3") - sent.count("38") >= 1
    for same in ("busy", "mem", "%"):
        assert same not in sent


def test_near_changes_go_together_and_far_ones_apart():
    terminal = Terminal()
    terminal.change((0, 0, [("0" * 20, BOLD)]))
    assert "1001" in terminal.change((0, 0, [("1001" + "0" * 16, BOLD)]))
    assert "0" * 8 not in terminal.change((0, 0, [("0001" + "0" * 15 + "1", BOLD)]))


def test_a_colour_is_sent_once_for_all_that_has_it():
    terminal = Terminal()
    terminal.change(*((y, 0, [("1", RED), ("2", BOLD)]) for y in range(HEIGHT)))
    sent = terminal.change(*((y, 0, [("3", RED), ("4", BOLD)]) for y in range(HEIGHT)))
    assert sent.count("m") == 1  # the style that was sent last comes first, and again needs nothing
    terminal.picture.forget()
    assert terminal.change((0, 0, [("4", BOLD)])).count("m") == 1


def test_of_blanks_only_the_ground_is_sent():
    terminal = Terminal()
    terminal.change((0, 0, [("a  b", PLAIN)]))
    terminal.change((1, 0, [("  ", PLAIN), ("ab", PLAIN)]))
    assert terminal.change((1, 0, [("  ", BOLD), ("ab", PLAIN)])) == ""
    sent = terminal.change((1, 0, [("  ", RED), ("ab", PLAIN)]))
    assert sent.endswith("  ")
    assert terminal.screen.buffer[1][0].bg == "0d1117"


def test_blanks_go_with_what_is_beside_them():
    terminal = Terminal()
    terminal.change((0, 0, [("abcdefghijkl", BOLD)]))
    dim = Style(color="#7d8793")
    sent = terminal.change((0, 0, [("x", BOLD), ("  ", dim), ("y", BOLD), ("        ", dim)]))
    assert "x  y        " in sent
    assert sent.count("m") == 0


def test_a_blank_that_is_underlined_is_no_mere_blank():
    terminal = Terminal()
    terminal.change((0, 0, [("  ", PLAIN)]))
    terminal.change((0, 0, [("  ", PLAIN + Style(underline=True))]))
    assert terminal.screen.buffer[0][0].underscore


@pytest.mark.parametrize(
    ("given_text", "sent"),
    [
        ("⣿" * 40, "⣿\x1b[39b"),
        ("⣿⣿", "⣿⣿"),  # as short
        ("a" + " " * 9 + "b", "a \x1b[8bb"),
        ("漢" * 9, "漢" * 9),  # terminals repeat half of it
    ],
)
def test_what_repeats_is_sent_once_where_the_terminal_can_repeat(given_text, sent):
    terminal = Terminal()
    assert terminal.change((0, 0, [(given_text, BOLD)])).endswith(given_text)
    terminal.picture.forget()
    terminal.picture.repeats = True
    assert terminal.picture.change([(0, 0, [(given_text, BOLD)])], ColorSystem.TRUECOLOR).endswith(
        "H" + sent
    )


def test_no_move_is_counted_from_what_may_be_wider_than_it_should():
    terminal = Terminal()
    terminal.change((0, 0, [("a" * 20, BOLD)]))
    assert "\x1b[1;11H" in terminal.change((0, 0, [("🎉aaaaaaaab" + "a" * 9, BOLD)]))
    terminal.change((1, 0, [("a" * 20, BOLD)]))
    assert "\x1b[8C" in terminal.change((1, 0, [("baaaaaaaab" + "a" * 9, BOLD)]))


def test_what_is_not_known_is_sent():
    terminal = Terminal()
    row = (0, 0, [("abc", PLAIN)])
    terminal.change(row)
    assert terminal.change(row) == ""
    terminal.picture.forget()
    assert "abc" in terminal.change(row)


def test_what_textual_draws_is_compared_too():
    picture, console = Picture(), Console()
    console._color_system = ColorSystem.TRUECOLOR
    strips = [[Strip([Segment("abcdefgh", PLAIN)])], [Strip([Segment("ijklmnop", PLAIN)])]]
    whole = LayoutUpdate(strips, Region(0, 0, 8, 2))
    assert "abcdefgh" in Changes(whole, picture).render_segments(console)
    assert Changes(whole, picture).render_segments(console) == ""
    chops = ChopsUpdate(
        [{0: strips[0][0]}, {0: Strip([Segment("ijklXnop", PLAIN)])}], [(1, 2, 6)], [[8], [8]]
    )
    sent = Changes(chops, picture).render_segments(console)
    assert "X" in sent
    assert not set("ijklnop") & set(sent)
    assert Changes(chops, picture).render_segments(console) == ""


@pytest.mark.parametrize(
    ("given_text", "width"), [("94 %", 4), ("┤⣿⠀│", 4), ("漢字", 4), ("é", 1), ("e\u0301", 1)]
)
def test_width_in_cells(given_text, width):
    assert width_of(given_text) == width


ANY = st.sampled_from([None, True])
COLOURS = st.sampled_from([None, "default", "red", "bright_black", "#4fd6a5", "#0d1117"])
STYLES = st.builds(Style, color=COLOURS, bgcolor=COLOURS, bold=ANY, dim=ANY, reverse=ANY)


@given(st.lists(STYLES, max_size=12))
@examples(300)
def test_every_cell_has_its_own_style(styles):
    """However little of it is written anew."""
    written = "".join(
        _change(before, after, ColorSystem.TRUECOLOR) + "x"
        for before, after in zip([None, *styles], styles)
    )
    shown = AnsiDecoder().decode_line(written)
    for at, style in enumerate(styles):
        as_told = AnsiDecoder().decode_line(f"\x1b[0;{codes(style)}mx" if codes(style) else "x")
        assert look(shown, at) == look(as_told, 0)


def codes(style):
    return "" if style is None else Strip.render_ansi(style, ColorSystem.TRUECOLOR)


def look(shown, at):
    style = shown.get_style_at_offset(Console(), at)
    colours = [
        None if each is None or each.is_default else each.get_truecolor()
        for each in (style.color, style.bgcolor)
    ]
    return (*colours, bool(style.bold), bool(style.dim), bool(style.reverse))
