"""The app: one timer reads the store, draws the view, and acts on keys and clicks."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import RenderableType
from textual._compositor import ChopsUpdate
from textual.app import App, ComposeResult
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.screen import Screen

from gpumon import chart
from gpumon.config import Settings
from gpumon.errors import EXIT_FAILED, GpumonError
from gpumon.store import Store
from gpumon.terminal import prepare_output
from gpumon.tui import theme
from gpumon.tui.dialogs import FilterScreen, HelpScreen, SignalScreen, Target, send_signal
from gpumon.tui.keys import bindings
from gpumon.tui.lines import Lines
from gpumon.tui.marking import MarkActions, Marker
from gpumon.tui.player import Player
from gpumon.tui.playing import PlayerActions
from gpumon.tui.state import View, ViewState, Zone
from gpumon.tui.update import TightUpdate
from gpumon.tui.views.device import device_view
from gpumon.tui.views.job import job_view
from gpumon.tui.views.keybar import key_bar
from gpumon.tui.views.processes import SORTS, entries, process_view
from gpumon.tui.views.title import title_row

if TYPE_CHECKING:
    from gpumon.sources.base import Source

_POLL_S = 0.1  # how often the timer asks whether a sample came
_AGES_S = 1.0  # how often ages and the clock move without one

_VIEWS: dict[str, Callable[[ViewState, int, int], View]] = {
    "job": job_view,
    "device": device_view,
    "processes": process_view,
}


class Clickable(Lines):
    """Rows of which parts take clicks."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.zones: list[Zone] = []

    def on_click(self, event: Click) -> None:
        for zone in self.zones:
            if zone.holds(event.x, event.y):
                self.app.call_later(self.app.run_action, zone.action)
                if event.chain == 2 and zone.action.startswith("pick"):
                    self.app.call_later(self.app.run_action, "open")
                return


class GpumonApp(PlayerActions, MarkActions, App[None]):
    """The dashboard. Threads of the source write the store; only this thread draws."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = bindings()  # type: ignore[assignment]

    def __init__(
        self, source: Source, store: Store, settings: Settings, *, whole_node: bool = False
    ) -> None:
        palette = theme.choose(settings.theme)
        # told before the first paint: with NO_COLOR, Textual else draws in shades of grey
        super().__init__(ansi_color=palette in theme.NATIVE)
        glyphs = "ascii" if settings.ascii or not prepare_output() else "braille"
        self.state = ViewState(palette, glyphs, settings.zoom_s, whole_node=whole_node)
        self._source = source
        self._store = store
        self.player = source if isinstance(source, Player) else None
        self.marker = source if isinstance(source, Marker) else None
        self._drawn: object = None  # what the screen was last drawn from
        self._drawn_at = 0.0
        self.fault: Exception | None = None

    # -- life

    def compose(self) -> ComposeResult:
        yield Clickable(id="title")
        yield Clickable(id="view")
        yield Clickable(id="keys")

    def on_mount(self) -> None:
        for each in theme.textual_themes():
            self.register_theme(each)
        self._parts = {
            name: self.query_one(f"#{name}", Clickable) for name in ("title", "view", "keys")
        }
        self._apply_theme()
        for number in (signal.SIGTERM, signal.SIGHUP):  # leave the terminal as it was found
            asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)
        self._source.start(self._store)
        self.set_interval(_POLL_S, self._tick)
        # plotext takes 0.15 s to import: after the first paint, beside everything else
        threading.Thread(target=self._load_charts, daemon=True).start()

    def _load_charts(self) -> None:
        if not chart.loaded():
            chart.load()
            self.state.charts.clear()  # those so far were drawn without it

    def on_resize(self, _event: Resize) -> None:
        self.call_after_refresh(self.draw)

    def on_unmount(self) -> None:
        self._source.stop()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Textual's own, but for partial updates in fewer bytes."""
        if isinstance(renderable, ChopsUpdate):
            renderable = TightUpdate(renderable)
        super()._display(screen, renderable)

    def _handle_exception(self, error: Exception) -> None:
        """Close the screen first and say what failed after it, in one line."""
        if self.is_headless:  # tests want the traceback
            super()._handle_exception(error)
            return
        self.fault = self.fault or error
        self.exit(return_code=EXIT_FAILED)

    # -- drawing

    def _tick(self) -> None:
        """Draw when a sample came; else once a second, because ages and the clock move."""
        if self.state.frozen_at is not None or len(self.screen_stack) > 1:
            return
        if self.player is not None and self.player.seeking:
            return  # what is between here and there is not worth drawing
        self.tell_news()
        generation = self._store.generation
        if generation == self._drawn and time.monotonic() - self._drawn_at < _AGES_S:
            return
        self._drawn = generation
        self.draw()

    def draw(self) -> None:
        """Bring the whole screen to what the store says now; only changed cells are sent."""
        state = self.state
        self._drawn_at = time.monotonic()
        if state.frozen_at is None:
            state.update(self._store.nodes(), self._source.now())
        state.player = self.player
        view = self._parts["view"]
        width, height = view.size
        if width <= 0 or height <= 0:
            return
        drawn = _VIEWS[state.view](state, width, height)
        rows = drawn.rows[:height] + [[]] * (height - len(drawn.rows))
        if state.message and time.monotonic() < state.message_until:
            rows[-1] = [(f" {state.message}", "attention")]
        view.zones = drawn.zones
        view.show(rows)
        self._parts["title"].show([title_row(state, width)])
        keys = self._parts["keys"]
        row, keys.zones = key_bar(state, width)
        keys.show([row])

    def _apply_theme(self) -> None:
        self.theme = f"gpumon-{self.state.palette}"
        self.ansi_color = self.state.palette in theme.NATIVE
        for part in self._parts.values():
            part.restyle(self.state.palette)

    def say(self, message: str) -> None:
        """One line above the key bar, for some seconds."""
        self.state.message = message
        self.state.message_until = time.monotonic() + 5
        self.draw()

    # -- actions, as the table of keys names them

    def action_view(self, name: str) -> None:
        self.state.view = name
        self.draw()

    def action_open(self) -> None:
        """Enter: the selected device, or the device of the selected process."""
        state = self.state
        if state.view == "processes":
            found = entries(state)
            devices = found[state.cursor].process.usage if found else {}
            for position, (_, device) in enumerate(state.devices):
                if device.key in devices:
                    state.selected = position
                    break
        self.action_view("device")

    def action_leave(self) -> None:
        if self.state.filter_text and self.state.view == "processes":
            self.state.filter_text = ""
            self.draw()
        else:
            self.action_view("job")

    def action_move(self, step: int) -> None:
        state = self.state
        if state.view == "processes":
            state.cursor += step
            found = entries(state)
            state.cursor = min(max(state.cursor, 0), max(0, len(found) - 1))
            state.cursor_pid = found[state.cursor].identity if found else None
        else:
            state.selected = min(max(state.selected + step, 0), max(0, len(state.devices) - 1))
        self.draw()

    def action_pick(self, position: int) -> None:
        self.state.selected = position
        self.draw()

    def action_point(self, position: int) -> None:
        self.state.cursor = position
        self.state.cursor_pid = None
        self.draw()

    def action_zoom(self, step: int) -> None:
        self.state.zoom_by(step)
        self.draw()

    def action_freeze(self) -> None:
        """Hold the screen; while a recording is played, its clock."""
        state = self.state
        if self.player is not None:
            self.player.pause()
        elif state.frozen_at is None:
            state.update([node.frozen() for node in self._store.nodes()], self._source.now())
            state.frozen_at = state.now
        else:
            state.frozen_at = None
        self.draw()

    def action_sort(self, step: int) -> None:
        self.action_sort_by(SORTS[(SORTS.index(self.state.sort) + step) % len(SORTS)])

    def action_sort_by(self, name: str) -> None:
        if name == self.state.sort:
            self.state.reverse = not self.state.reverse
        else:
            self.state.sort, self.state.reverse = name, False
        self.action_view("processes")

    def action_reverse(self) -> None:
        self.state.reverse = not self.state.reverse
        self.action_view("processes")

    def action_tree(self) -> None:
        self.state.tree = not self.state.tree
        self.action_view("processes")

    def action_theme(self) -> None:
        position = theme.NAMES.index(self.state.palette)
        self.state.palette = theme.NAMES[(position + 1) % len(theme.NAMES)]
        self._apply_theme()
        self.say(f"colours: {self.state.palette}")

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_filter(self) -> None:
        def take(text: str | None) -> None:
            if text is not None:
                self.state.filter_text = text
            self.draw()

        self.action_view("processes")
        self.push_screen(FilterScreen(self.state.filter_text), take)

    def action_signal(self) -> None:
        """Ask which signal to send to the process under the cursor; only to one's own, and here."""
        if self.state.view != "processes":
            self.action_view("processes")
            return
        found = entries(self.state)
        if not found:
            return
        entry = found[self.state.cursor]
        facts, header = entry.process.facts, entry.node.header
        here = self._source.name == "local" and header is not None
        if not here:
            self.say("signals reach only processes of this node, live")
            return
        if entry.process.ended is not None:
            self.say(f"{facts.pid} has ended")
            return
        if facts.uid != os.getuid():
            self.say(f"{facts.pid} belongs to {facts.user or 'somebody else'}")
            return
        target = Target(facts.pid, facts.start, facts.command or facts.name)

        def send(number: object) -> None:
            if number is not None:
                self.say(send_signal(target, number))  # type: ignore[arg-type]

        self.push_screen(SignalScreen(target), send)

    def on_mouse_scroll_down(self, _event: MouseScrollDown) -> None:
        self.action_move(3 if self.state.view == "processes" else 1)

    def on_mouse_scroll_up(self, _event: MouseScrollUp) -> None:
        self.action_move(-3 if self.state.view == "processes" else -1)


def run_app(source: Source, settings: Settings, *, whole_node: bool = False) -> int:
    """Show the dashboard until the user quits; returns the exit code. Raises GpumonError."""
    app = GpumonApp(source, Store(), settings, whole_node=whole_node)
    try:
        app.run()
    finally:
        source.stop()
    if app.fault is not None:
        what = f"{type(app.fault).__name__}: {app.fault}"
        raise GpumonError(f"the screen failed ({what}); GPUMON_DEBUG=1 shows where") from app.fault
    return app.return_code or 0
