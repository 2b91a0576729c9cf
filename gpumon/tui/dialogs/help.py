"""The keys and the words, on as many pages as they need."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from gpumon.tui.keys import Key

_TERMS = (
    ("busy", "share of time in which at least one kernel ran (NVML utilization.gpu); does not "
     "show how many of the SMs were used"),
    ("SM, tensor, DRAM", "share of time in which these units worked (GPM, Hopper and later)"),
    ("mem", "device memory, by the driver; a star: reserved, so the need is unknown; 60/75 %: in "
     "use/reserved (with --probe)"),
    ("plots", "the area is busy, bright as far as the SMs worked; the line is device memory; "
     "single dots are short maxima; gaps are times without samples"),
    ("mem-ctrl", "share of time in which device memory was read or written"),
    ("cache", "page cache: charged to the job, freed when memory is needed"),
    ("below the median", "how much less busy than the median GPU, over five minutes"),
    ("n/a", "a missing value shows the reason; an old value shows its age"),
)  # fmt: skip
_WIDEST = 96  # cells of a line
_LEAST_COLUMN, _GUTTER = 64, 3  # cells of two pages beside each other, and between them
#: cells and rows of border, padding, and the line below
_AROUND, _ABOVE_AND_BELOW = 6, 4
_KEY, _TERM = 8, 18  # cells before the text

Section = list[str]  # its heading and its lines


class HelpDialog(ModalScreen[None]):
    """The keys in groups, then the words; Tab turns the page."""

    BINDINGS = [
        ("escape,question_mark,h,f1,q", "dismiss", "close"),
        ("tab,right,down,pagedown,space", "turn(1)", "next page"),
        ("shift+tab,left,up,pageup", "turn(-1)", "page before"),
    ]

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__()
        self._keys = keys
        self._page = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog help"):
            with Horizontal(id="help-pages"):
                yield Static(id="help-page")
                yield Static(id="help-beside")
            yield Label("", classes="dim", markup=False, id="help-below")

    def on_resize(self, _event: Resize) -> None:
        self._show()

    def action_turn(self, step: int) -> None:
        self._page += step
        self._show()

    def _show(self) -> None:
        width, height = self.app.size
        column, rows = (width - _AROUND - _GUTTER) // 2, height - _ABOVE_AND_BELOW
        pages = help_pages(self._keys, min(_WIDEST, width - _AROUND), rows)
        beside = ""
        if len(pages) > 1 and column >= _LEAST_COLUMN:
            columns = help_pages(self._keys, min(_WIDEST, column), rows)
            pages = columns[::2]
            self._page %= len(pages)
            beside = "".join(columns[2 * self._page + 1 : 2 * self._page + 2])
        self._page %= len(pages)
        self.query_one(".help").set_class(bool(beside), "wide")
        self.query_one("#help-page", Static).update(pages[self._page])
        self.query_one("#help-beside", Static).update(beside)
        turn = f"Page {self._page + 1} of {len(pages)} · Tab next page · " if len(pages) > 1 else ""
        self.query_one("#help-below", Label).update(f"{turn}Esc close")

    def on_click(self) -> None:
        self.dismiss()


def help_pages(keys: Sequence[Key], width: int, height: int) -> list[str]:
    """Whole sections on each page, as many as fit into `height` rows; as Textual's markup."""
    pages: list[Section] = []
    for section in (*_sections(keys, width), _words(width)):
        if pages and len(pages[-1]) + 1 + len(section) <= height:
            pages[-1] += ["", *section]
        else:
            pages.append(section)
    tallest = max(map(len, pages))
    return ["\n".join([*page, *[""] * (tallest - len(page))]) for page in pages]


def _sections(keys: Sequence[Key], width: int) -> Iterator[Section]:
    groups: dict[str, list[Key]] = {}
    for key in keys:
        if key.help:
            groups.setdefault(key.group, []).append(key)
    for name, members in groups.items():
        lines = [line for key in members for line in _entry(_own(key), key.help, _KEY, width)]
        yield [_heading(name or "Keys"), *lines]


def _words(width: int) -> Section:
    lines = [line for term, text in _TERMS for line in _entry(term, text, _TERM, width)]
    return [_heading("Words"), *lines]


def _heading(text: str) -> str:
    return f"[b $accent]{text}[/]"


def _entry(name: str, text: str, indent: int, width: int) -> Iterator[str]:
    """The name, and its text in a column beside it."""
    first, *more = textwrap.wrap(text, max(20, width - indent), break_on_hyphens=False) or [""]
    yield f"[b]{_escaped(name.ljust(indent))}[/b]{_escaped(first)}"
    yield from (" " * indent + _escaped(line) for line in more)


def _own(key: Key) -> str:
    """Of a pair in the key bar (`+ -`), the key that does what this line says."""
    return key.shown.split(" ")[-1]


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
