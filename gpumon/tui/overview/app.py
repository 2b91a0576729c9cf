"""The list of one's jobs: what is there to attach to, and which of them need a look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from textual.actions import parse
from textual.events import Key as Pressed
from textual.events import MouseScrollDown, MouseScrollUp
from textual.screen import ModalScreen

from gpumon.config import Settings
from gpumon.errors import GpumonError
from gpumon.model import clock
from gpumon.model.text import clean
from gpumon.model.units import age_text, plural
from gpumon.report.jobs import JobLine, Listing
from gpumon.terminal import prepare_output
from gpumon.tui.columns import Column
from gpumon.tui.dialogs.choice import Choice, ChoiceDialog
from gpumon.tui.dialogs.help import HelpDialog
from gpumon.tui.dialogs.page import PageDialog
from gpumon.tui.dialogs.palette import open_palette
from gpumon.tui.keys import Key, bindings, moving, mute_text
from gpumon.tui.lines import Row, fit_row, spread
from gpumon.tui.lists import ListKeys, ListState, Order
from gpumon.tui.overview.table import SORTS, details, ordered, table
from gpumon.tui.parts.keybar import key_bar
from gpumon.tui.parts.view import View
from gpumon.tui.screen_app import ViewApp, run_to_end

T = TypeVar("T")

_POLL_S = 0.25  # how often it is looked whether there is news
_DRAW_S = 1.0  # times continue
_SAID_S = 5.0

KEYS = (
    Key("enter", "open", "Enter", "Open", "attach to the job; if it has ended, report or replay"),
    Key("r", "report", "r", "Report", "show the job's report"),
    Key("p", "replay", "p", "Replay", "play the job's recording"),
    Key("slash", "filter", "/", "Filter", "show only jobs that contain all words"),
    Key("s", "sort(1)", "s", "Sort", "sort by waste, GPUs busy, time left, elapsed, name"),
    Key("I", "reverse", "I", "", "invert the order"),
    *moving("select a job"),
    Key("escape", "leave", "Esc", "", "clear the filter"),
    Key("t", "theme", "t", "Theme", "next theme: dark, light, colour-blind, 16 colours, mono"),
    Key("ctrl+p", "palette", "Ctrl-P", "", "find any action by its name"),
    Key("f2", "settings", "F2", "", "settings: theme, zoom, sort, plots; kept between starts"),
    Key("ctrl+l", "redraw", "Ctrl-L", "", "draw the whole screen again"),
    Key("question_mark,h,f1", "help", "?", "Help", "show this help (also h, F1)"),
    Key("q,ctrl+c", "quit", "q", "Quit", "quit"),
)  # fmt: skip


class Chosen(NamedTuple):
    """What the user wants to see of a job, on a screen of its own."""

    what: str  # attach, replay
    id: str


class Jobs(Protocol):
    """What a thread keeps up to date. No property waits."""

    @property
    def listing(self) -> Listing | None:
        """The newest; None before Slurm's first answer."""

    @property
    def trouble(self) -> str:
        """Why it is not newer, in a sentence; "" where nothing is wrong."""

    def report(self, id: str, columns: int) -> str:
        """The page of a job's report, with colours as a terminal takes them; takes a while."""


@dataclass
class State(ListState):
    """In the order of the list until another is chosen."""

    order: Order = field(default_factory=lambda: Order(SORTS[0]))


class JobsApp(ListKeys[JobLine], ViewApp["Chosen | None"]):
    """One row for each job; its result is what to look at next, None at the end."""

    BINDINGS = bindings(KEYS)  # type: ignore[assignment]
    SORTS = SORTS
    NAME, TALL, DETAILS = "job", 14, 6

    def __init__(self, jobs: Jobs, settings: Settings, title: str, state: State) -> None:
        super().__init__(settings)
        self._jobs = jobs
        self._title = title
        self._state = state
        self._glyphs = "ascii" if settings.ascii or not prepare_output() else "braille"
        self._said = ("", 0.0)
        self._drawn: tuple[float, Listing | None, str] = (0.0, None, "")

    def on_mount(self) -> None:
        self._begin()
        if self._state.message:
            self._say(self._state.message)
            self._state.message = ""

    # -- drawing

    def _look(self) -> None:
        self._waker.look_in(_POLL_S)
        if len(self.screen_stack) > 1:
            return
        at, listing, trouble = self._drawn
        is_news = self._jobs.listing is not listing or self._jobs.trouble != trouble
        if is_news or time.monotonic() - at >= _DRAW_S:
            self.draw()

    def draw(self) -> None:
        listing = self._jobs.listing
        self._drawn = time.monotonic(), listing, self._jobs.trouble
        width, height = self._parts["view"].size
        if width <= 0 or height <= 0:
            return
        now = clock.now()
        drawn = self._view(listing, width, height, now)
        rows = drawn.rows[:height] + [[]] * (height - len(drawn.rows))
        title = self._title_row(listing, width, now)
        self.paint(title, View(rows, drawn.zones), self._below(width))

    def _below(self, width: int) -> View:
        """The bar of keys, or for some seconds a message."""
        said, until = self._said
        if said and time.monotonic() < until:
            return View([[(f" {said}", "attention")]])
        lit = {"Filter"} if self._state.order.filter_text else set()
        return key_bar(KEYS, (), lit, self._beside, width, several=False)

    def _beside(self, bar: str) -> str:
        order = self._state.order
        return order.sort if bar == "Sort" and order.sort != "state" else ""

    def _title_row(self, listing: Listing | None, width: int, now: float) -> Row:
        left: Row = [(" gpumon jobs ", "title"), (f" {clean(self._title, 60)}", "")]
        if listing is None:
            return spread([*left, ("  querying Slurm …", "dim")], [], width)
        groups = [line.group for line in listing.lines]
        counts = {
            "running": sum(each.is_running for each in groups),
            "pending": sum(each.is_pending for each in groups),
            "ended": sum(each.has_ended for each in groups),
        }
        texts = [f"{n} {word}" for word, n in counts.items() if n]
        if listing.source != "slurm":
            texts = [plural(len(groups), "recorded run")]
        left += [("  " + " · ".join(texts), "dim")]
        age_s = now - listing.at
        right: Row = [(f"{age_text(age_s)} old  " if age_s >= 1 else "", "dim")]
        right.append((f"{time.strftime('%H:%M:%S', time.localtime(clock.wall(now)))} ", "dim"))
        return spread(left, right, width)

    def _view(self, listing: Listing | None, width: int, height: int, now: float) -> View:
        above = self._above(listing)
        lines = self._lines(listing, now)
        if listing is None or not lines:
            return View([*above, *self._nothing(listing)])
        return self._list(lines, above, width, height)

    def _table(self, items: Sequence[JobLine], selected: int, size: tuple[int, int]) -> View:
        order = self._state.order
        return table(items, order, self._top, selected, size, clock.now(), self._glyphs)

    def _about(self, item: JobLine, width: int) -> list[Row]:
        return [fit_row(row, width) for row in details(item, clock.now(), self._glyphs)]

    def _above(self, listing: Listing | None) -> list[Row]:
        """What is wrong with the list as a whole, as long as it is."""
        texts = [self._jobs.trouble, *(listing.notes if listing else ())]
        rows: list[Row] = [[(f" {clean(text, 300)}", "attention")] for text in texts if text]
        if (text := self._state.order.filter_text) and listing is not None:
            rows.append([(f" filter: {clean(text, 100)}", "key"), ("   Esc clears it", "dim")])
        return rows

    def _nothing(self, listing: Listing | None) -> list[Row]:
        if listing is None:
            return []
        if listing.lines:
            return [[(" no job matches the filter", "dim")]]
        hint = "see an example with gpumon demo" if listing.source != "slurm" else (
            "start one with sbatch, or list older ones with --since"
        )  # fmt: skip
        return [[(" no jobs", ""), (f"   {hint}", "dim")]]

    # -- the selected job

    def _lines(self, listing: Listing | None, now: float) -> list[JobLine]:
        return ordered(listing.lines, self._state.order, now) if listing else []

    def _items(self) -> list[JobLine]:
        return self._lines(self._jobs.listing, clock.now())

    def _say(self, message: str) -> None:
        self._said = clean(message, 300), time.monotonic() + _SAID_S

    def _ask(self, dialog: ModalScreen[T | None], take: Callable[[T], None]) -> None:
        self.ask(dialog, take)

    # -- keys

    async def action_act(self, action: str) -> None:
        _, name, arguments = parse(action)
        method = getattr(self, f"action_{name}")
        found = method(*arguments)
        if found is not None:
            await found
        self.draw()

    def action_open(self) -> None:
        """Enter: attach where it runs or will, else what there is to see afterwards."""
        line = self._selected()
        if line is None:
            return
        if line.group.is_running or line.group.is_pending:
            self.exit(Chosen("attach", line.id))
        elif not line.is_recorded:
            self.action_report()
        else:
            choices = [
                Choice("report", ("report", "what it requested and used, and the lines to change")),
                Choice("replay", ("replay", "its recording in the dashboard")),
            ]
            title = f"job {line.id} has ended ({line.group.state})"
            dialog = ChoiceDialog(title, (Column(""), Column("", most=70)), choices)
            self._ask(dialog, lambda what: getattr(self, f"action_{what}")())

    def action_report(self) -> None:
        line = self._selected()
        if line is None:
            return
        if line.group.is_pending:
            self._say(f"job {line.id} has not started: there is nothing to report yet")
            return
        self._say(f"reading job {line.id} …")
        columns = self.size.width - 2
        threading.Thread(target=self._make_report, args=(line.id, columns), daemon=True).start()

    def _make_report(self, id: str, columns: int) -> None:
        try:
            page = self._jobs.report(id, columns)
        except GpumonError as error:
            self.call_later(self._say, str(error))
            return
        self.call_later(self._show_report, page)

    def _show_report(self, page: str) -> None:
        self._said = ("", 0.0)
        if len(self.screen_stack) == 1:
            self.push_screen(PageDialog(page), lambda _: self.draw())

    def action_replay(self) -> None:
        line = self._selected()
        if line is None:
            return
        if line.is_recorded:
            self.exit(Chosen("replay", line.id))
        else:
            self._say(f"job {line.id} was not recorded; use 'gpumon record --' in its script")

    def action_leave(self) -> None:
        self._filter("")

    def action_theme(self) -> None:
        self._say(f"colours: {self._next_palette()}")

    def on_key(self, event: Pressed) -> None:
        """One that does nothing says so."""
        said = mute_text(event, self._bindings.key_to_bindings)
        if said and len(self.screen_stack) == 1:
            self._say(said)
            self.draw()

    def action_settings(self) -> None:
        from gpumon.tui.dialogs.settings import change_settings  # opened seldom

        change_settings(self, self._say)

    def action_palette(self) -> None:
        open_palette(self, KEYS, self.action_act)

    def action_help(self) -> None:
        self.push_screen(HelpDialog(KEYS))

    async def on_mouse_scroll_down(self, _event: MouseScrollDown) -> None:
        await self.action_act("move(3)")

    async def on_mouse_scroll_up(self, _event: MouseScrollUp) -> None:
        await self.action_act("move(-3)")


def choose_job(jobs: Jobs, settings: Settings, title: str, state: State) -> Chosen | None:
    """Show the list until the user chooses something or quits. Raises GpumonError."""
    return run_to_end(JobsApp(jobs, settings, title, state))
