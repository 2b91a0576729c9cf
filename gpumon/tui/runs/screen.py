"""All recorded runs: what to replay, report, compare or delete."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from textual.actions import parse
from textual.app import ComposeResult
from textual.events import Key as Pressed
from textual.events import MouseScrollDown, MouseScrollUp, Resize
from textual.screen import ModalScreen

from gpumon.config import Settings
from gpumon.errors import GpumonError
from gpumon.model.text import clean
from gpumon.model.units import bytes_text, plural
from gpumon.report.render.runs import total_text
from gpumon.terminal import prepare_output
from gpumon.tui.columns import Column
from gpumon.tui.dialogs.choice import Choice, ChoiceDialog
from gpumon.tui.dialogs.help import HelpDialog
from gpumon.tui.dialogs.page import PageDialog
from gpumon.tui.dialogs.palette import open_palette
from gpumon.tui.keys import Key, bindings, moving, mute_text
from gpumon.tui.lines import Row, spread
from gpumon.tui.lists import ListKeys, ListState, Order
from gpumon.tui.parts.keybar import key_bar
from gpumon.tui.parts.view import View
from gpumon.tui.runs.table import SORTS, details, ordered, table
from gpumon.tui.screen_app import Clickable, ScreenApp, run_to_end

if TYPE_CHECKING:
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.recording.runs import Run

T = TypeVar("T")

_SAID_S = 5.0

KEYS = (
    Key("enter,p", "open", "Enter", "Replay", "play the recording in the dashboard"),
    Key("r", "report", "r", "Report", "show the report of the run"),
    Key("c", "compare", "c", "Compare", "compare two marked runs, or this one and the one before"),
    Key("m,space", "mark", "m", "Mark", "mark a run to compare"),
    Key("d,delete", "delete", "d", "Delete", "delete the recordings of the run; asks first"),
    Key("escape", "leave", "Esc", "Back", "clear marks and filter; go back"),
    Key("slash", "filter", "/", "Filter", "show only runs that contain all words"),
    Key("s", "sort(1)", "s", "Sort", "sort by start, length, size or name"),
    Key("I", "reverse", "I", "", "invert the order"),
    *moving("select a run"),
    Key("f2", "settings", "F2", "", "settings: theme, zoom, sort, plots; kept between starts"),
    Key("ctrl+p", "palette", "Ctrl-P", "", "find any action by its name"),
    Key("question_mark,h,f1", "help", "?", "Help", "show this help (also h, F1)"),
    Key("q,ctrl+c", "quit", "q", "Quit", "quit"),
)  # fmt: skip


class Library(Protocol):
    """What there is of recordings. All calls take a while; all but `folder` raise GpumonError."""

    @property
    def folder(self) -> str:
        """Where they are kept."""

    def find(self) -> tuple[Sequence[Run], Sequence[str]]:
        """All runs, and why some files could not be read."""

    def report(self, run: Run, columns: int) -> str:
        """The page of its report, with colours as a terminal takes them."""

    def compare(self, a: Run, b: Run) -> str:
        """The two side by side."""

    def remove(self, run: Run) -> None:
        """Its recordings, for good."""

    def replay(self, run: Run) -> Pipeline:
        """Its recordings as the dashboard shows them."""


@dataclass
class State(ListState):
    """With the IDs of the runs that are marked."""

    order: Order = field(default_factory=lambda: Order(SORTS[0]))
    marked: set[str] = field(default_factory=set)


class RunsScreen(ListKeys["Run"], ModalScreen["Run | None"]):
    """One row for each run; its result is the run to replay, None to go back."""

    BINDINGS = bindings(KEYS)  # type: ignore[assignment]
    SORTS = SORTS
    NAME, TALL, DETAILS = "run", 12, 4
    _state: State

    def __init__(self, library: Library, state: State, palette: str, glyphs: str) -> None:
        super().__init__()
        self._library = library
        self._state = state
        self._palette = palette
        self._glyphs = glyphs
        self._runs: list[Run] | None = None  # None: not read yet
        self._unread: list[str] = []
        self._said = (state.message, time.monotonic() + _SAID_S)
        state.message = ""

    def compose(self) -> ComposeResult:
        for name in ("title", "view", "keys"):
            yield Clickable(self.action_act, id=name)

    def on_mount(self) -> None:
        for part in self.query(Clickable):
            part.restyle(self._palette)
        self._read()

    def _read(self) -> None:
        app = self.app  # which a thread cannot ask for once the list was left

        def find() -> None:
            runs, unread = self._library.find()
            app.call_later(self._found, list(runs), list(unread))

        threading.Thread(target=find, daemon=True, name="runs").start()

    def _found(self, runs: list[Run], unread: list[str]) -> None:
        self._runs, self._unread = runs, unread
        self._state.marked &= {run.id for run in runs}
        self._draw()

    # -- drawing

    def on_resize(self, _event: Resize) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        if not self.is_attached:  # a thread came back too late
            return
        parts = {part.id: part for part in self.query(Clickable)}
        width, height = parts["view"].size
        if width <= 0 or height <= 0:
            return
        views = {
            "title": View([self._title(width)]),
            "view": self._view(width, height),
            "keys": self._bar(width),
        }
        for name, view in views.items():
            parts[name].zones = view.zones
            if parts[name].show(view.rows):
                parts[name].refresh()

    def _title(self, width: int) -> Row:
        left: Row = [(" gpumon runs ", "title")]
        if self._runs is None:
            return spread([*left, ("  reading the recordings …", "dim")], [], width)
        return spread(
            [*left, (f"  {total_text(self._runs, self._library.folder)}", "dim")], [], width
        )

    def _bar(self, width: int) -> View:
        said, until = self._said
        if said and time.monotonic() < until:
            return View([[(f" {said}", "attention")]])
        order = self._state.order
        lit = {"Filter"} if order.filter_text else set()
        beside = {"Sort": order.sort, "Mark": str(len(self._state.marked) or "")}
        return key_bar(KEYS, (), lit, lambda bar: beside.get(bar, ""), width, several=False)

    def _view(self, width: int, height: int) -> View:
        above = self._above()
        runs = self._items()
        if not runs:
            rows = [*above, *self._nothing()]
            return View(rows + [[]] * (height - len(rows)))
        return self._list(runs, above, width, height)

    def _table(self, items: Sequence[Run], selected: int, size: tuple[int, int]) -> View:
        order, marked = self._state.order, self._state.marked
        return table(items, order, marked, (self._top, selected), size, self._glyphs)

    def _about(self, item: Run, width: int) -> list[Row]:
        return details(item, width)

    def _above(self) -> list[Row]:
        rows: list[Row] = []
        if self._unread:
            count = plural(len(self._unread), "file")
            rows.append([(f" {count} not read: {clean(self._unread[0], 300)}", "attention")])
        if text := self._state.order.filter_text:
            rows.append([(f" filter: {clean(text, 100)}", "key"), ("   Esc clears it", "dim")])
        return rows

    def _nothing(self) -> list[Row]:
        if self._runs is None:
            return []
        if self._runs:
            return [[(" no run matches the filter", "dim")]]
        hint = "   'gpumon' and 'gpumon record' create them"
        return [[(" no recordings", ""), (hint, "dim")]]

    # -- the selected run

    def _items(self) -> list[Run]:
        return ordered(self._runs or (), self._state.order)

    def _ask(self, dialog: ModalScreen[T | None], take: Callable[[T], None]) -> None:
        def taken(answer: T | None) -> None:
            if answer is not None:
                take(answer)
            self._draw()

        self.app.push_screen(dialog, taken)

    def _say(self, message: str) -> None:
        self._said = clean(message, 300), time.monotonic() + _SAID_S
        if self.is_attached:
            self.set_timer(_SAID_S, self._draw)
        self._draw()

    # -- keys

    async def action_act(self, action: str) -> None:
        _, name, arguments = parse(action)
        getattr(self, f"action_{name}")(*arguments)
        self._draw()

    def action_quit(self) -> None:
        self.app.exit()

    def action_mark(self) -> None:
        if (run := self._selected()) is not None:
            self._state.marked ^= {run.id}
            self.action_move(1)

    def action_open(self) -> None:
        if (run := self._selected()) is not None:
            self.dismiss(run)

    def action_report(self) -> None:
        if (run := self._selected()) is not None:
            columns = self.size.width - 2
            self._make(f"reading {run.id} …", lambda: self._library.report(run, columns))

    def action_compare(self) -> None:
        """The marked one or two; the older one is A."""
        run = self._selected()
        if run is None:
            return
        newest_first = ordered(self._runs or (), Order(SORTS[0]))
        marked = [each for each in newest_first if each.id in self._state.marked]
        if len(marked) > 2:
            self._say(f"{len(marked)} runs are marked; mark two to compare")
            return
        others = [each for each in marked if each.id != run.id]
        older = newest_first[newest_first.index(run) + 1 :]
        pair = marked if len(marked) == 2 else [run, *(others or older)][:2]
        if len(pair) < 2:
            self._say("there is no run before this one to compare with; mark another one")
            return
        a, b = sorted(pair, key=lambda each: each.start)
        self._make(f"comparing {a.id} and {b.id} …", lambda: self._library.compare(a, b))

    def _make(self, doing: str, make: Callable[[], str]) -> None:
        """Show the page that a thread makes."""
        app = self.app

        def work() -> None:
            try:
                page = make()
            except GpumonError as error:
                app.call_later(self._say, str(error))
            else:
                app.call_later(self._show, page)

        self._say(doing)
        threading.Thread(target=work, daemon=True, name="page").start()

    def _show(self, page: str) -> None:
        self._said = ("", 0.0)
        self._draw()
        if self.is_current:
            self.app.push_screen(PageDialog(page))

    def action_delete(self) -> None:
        run = self._selected()
        if run is None:
            return

        def take(answer: str) -> None:
            if answer == "delete":
                self._remove(run)

        files = f"{plural(len(run.paths), 'file')}, {bytes_text(run.size_bytes)}"
        choices = [
            Choice("keep", ("keep", "")),
            Choice("delete", ("delete", f"{files}; this cannot be undone")),
        ]
        title = f"Delete the recordings of {clean(run.id, 100)}?"
        dialog = ChoiceDialog(title, (Column(""), Column("", most=70)), choices)
        self._ask(dialog, take)

    def _remove(self, run: Run) -> None:
        self.action_move(1)  # what is below comes up
        try:
            self._library.remove(run)
        except GpumonError as error:
            self._say(str(error))
        else:
            self._say(f"deleted {run.id}")
        self._read()

    def action_leave(self) -> None:
        if self._state.marked or self._state.order.filter_text:
            self._state.marked.clear()
            self._state.order = self._state.order._replace(filter_text="")
        else:
            self.dismiss(None)

    def on_key(self, event: Pressed) -> None:
        """One that does nothing says so."""
        if said := mute_text(event, self._bindings.key_to_bindings):
            self._say(said)

    def action_settings(self) -> None:
        from gpumon.tui.dialogs.settings import change_settings  # opened seldom

        app = self.app
        assert isinstance(app, ScreenApp)

        def taken(said: str) -> None:
            for part in self.query(Clickable):
                part.restyle(app.palette)
            self._say(said)

        change_settings(app, taken)

    def action_palette(self) -> None:
        open_palette(self.app, KEYS, self.action_act)

    def action_help(self) -> None:
        self.app.push_screen(HelpDialog(KEYS))

    def on_mouse_scroll_down(self, _event: MouseScrollDown) -> None:
        self.action_move(3)
        self._draw()

    def on_mouse_scroll_up(self, _event: MouseScrollUp) -> None:
        self.action_move(-3)
        self._draw()


class RunsApp(ScreenApp["Run | None"]):
    """The screen alone, on the whole terminal."""

    def __init__(self, library: Library, settings: Settings, state: State) -> None:
        super().__init__(settings)
        self._library = library
        self._state = state
        self._glyphs = "ascii" if settings.ascii or not prepare_output() else "braille"

    def on_mount(self) -> None:
        screen = RunsScreen(self._library, self._state, self._palette, self._glyphs)
        self.push_screen(screen, self.exit)


def choose_run(library: Library, settings: Settings, state: State) -> Run | None:
    """Show the list until the user chooses a run to replay, or quits. Raises GpumonError."""
    return run_to_end(RunsApp(library, settings, state))
