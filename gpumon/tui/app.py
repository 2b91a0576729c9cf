"""The app: one timer reads the store, draws the view, and acts on keys and clicks."""

from __future__ import annotations

import gc
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rich.console import RenderableType
from textual._compositor import ChopsUpdate
from textual.app import App, ComposeResult
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.screen import Screen

from gpumon import chart
from gpumon.config import Settings
from gpumon.errors import EXIT_FAILED, NO_MEMORY, GpumonError, is_out_of_memory
from gpumon.store import NodeView, Store
from gpumon.terminal import prepare_output
from gpumon.tui import theme
from gpumon.tui.dialogs import FilterScreen, HelpScreen, SignalScreen, Target, send_signal
from gpumon.tui.driver import Terminal, run_screen
from gpumon.tui.following import OutputActions
from gpumon.tui.jobs import JobSource
from gpumon.tui.judging import Judging
from gpumon.tui.keys import bindings
from gpumon.tui.lines import Lines
from gpumon.tui.marking import MarkActions, Marker
from gpumon.tui.output import Output
from gpumon.tui.pacing import Pacing
from gpumon.tui.player import Player
from gpumon.tui.playing import PlayerActions
from gpumon.tui.prompts import PromptActions, Prompts
from gpumon.tui.reporting import ReportActions
from gpumon.tui.selecting import SelectActions
from gpumon.tui.state import View, ViewState, Zone
from gpumon.tui.update import TightUpdate
from gpumon.tui.views.device import device_view
from gpumon.tui.views.job import job_view
from gpumon.tui.views.keybar import key_bar
from gpumon.tui.views.node import node_view
from gpumon.tui.views.nodes import nodes_view
from gpumon.tui.views.output import output_view
from gpumon.tui.views.processes import entries, process_view
from gpumon.tui.views.report import finding_view, report_view
from gpumon.tui.views.title import title_row

if TYPE_CHECKING:
    from gpumon.sources.base import Source

#: address space that must be free for a screen: with less, eight GPUs did not reach it (tried with
#: seven limits on address space, `tests/e2e/test_address_space.py`)
_ROOM_BYTES = 32 << 20
_POLL_S = 0.1  # how often the timer asks whether to draw
_SETTLED_S = 20.0  # after so long most of what lasts is there
#: a thread that comes back from waiting waits so long again for one that computes (findings,
#: digests); Python's 5 ms are half a second for the readers of 64 nodes
_SWITCH_S = 0.0005

_VIEWS: dict[str, Callable[[ViewState, int, int], View]] = {
    "job": job_view,
    "device": device_view,
    "processes": process_view,
    "nodes": nodes_view,
    "node": node_view,
    "output": output_view,
    "report": report_view,
    "finding": finding_view,
}


_LISTS = ("processes", "nodes", "output", "report")  # the wheel moves three lines


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


class GpumonApp(
    SelectActions,
    PlayerActions,
    MarkActions,
    OutputActions,
    PromptActions,
    ReportActions,
    App[None],
):
    """The dashboard. Threads of the source write the store; only this thread draws."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = bindings()  # type: ignore[assignment]

    def __init__(
        self,
        source: Source,
        store: Store,
        settings: Settings,
        *,
        whole_node: bool = False,
        job: JobSource | None = None,
        prompts: Prompts | None = None,
        output: Output | None = None,
    ) -> None:
        palette = theme.choose(settings.theme)
        # told before the first paint: with NO_COLOR, Textual else draws in shades of grey
        super().__init__(Terminal, ansi_color=palette in theme.NATIVE)
        glyphs = "ascii" if settings.ascii or not prepare_output() else "braille"
        self.state = ViewState(palette, glyphs, settings.zoom_s, whole_node=whole_node)
        self._source = source
        self._store = store
        self.player = source if isinstance(source, Player) else None
        self.judging = Judging(store, replayed=self.player is not None)
        self.marker = source if isinstance(source, Marker) else None
        self.job = job
        self.prompts = prompts
        self.output = output
        self.state.has_output = output is not None
        self._pacing = Pacing(store)
        self.fault: Exception | None = None
        self._missed = False  # a drawing, as the terminal took nothing

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
        sys.setswitchinterval(_SWITCH_S)
        self._source.start(self.judging)
        self.set_interval(_POLL_S, self._tick)
        self.set_timer(_SETTLED_S, partial(self._settle, _SETTLED_S))
        # plotext takes 0.15 s to import: after the first paint, beside everything else
        threading.Thread(target=self._load_charts, daemon=True).start()

    def _load_charts(self) -> None:
        if not chart.loaded():
            chart.load()
            self.state.charts.clear()  # those so far were drawn without it
        self.judging.start(lambda: self.state.job)

    def _settle(self, age_s: float) -> None:
        """Have what is there never looked through for garbage again; again at twice the age.

        With 64 nodes that takes 0.3 s every ten seconds, in which nothing else happens.
        """
        gc.collect()
        gc.freeze()
        self.set_timer(age_s, partial(self._settle, 2 * age_s))

    def on_resize(self, _event: Resize) -> None:
        self.call_after_refresh(self.draw)

    def on_unmount(self) -> None:
        self.refuse_pending()
        self.judging.stop()
        self._source.stop()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Textual's own, but in fewer bytes, and none for a terminal that takes nothing."""
        if self._is_stalled:
            self._missed = True
            return
        if isinstance(renderable, ChopsUpdate):
            renderable = TightUpdate(renderable)
        super()._display(screen, renderable)

    @property
    def _is_stalled(self) -> bool:
        return isinstance(self._driver, Terminal) and self._driver.stalled

    def _handle_exception(self, error: Exception) -> None:
        """Close the screen first and say what failed after it, in one line."""
        if self.is_headless:  # tests want the traceback
            super()._handle_exception(error)
            return
        self.fault = self.fault or error
        self.exit(return_code=EXIT_FAILED)

    # -- drawing

    def _tick(self) -> None:
        """Draw when it is due; see `Pacing`."""
        self.ask_pending()
        if self._missed and not self._is_stalled:
            self._missed = False
            self.refresh()
        if self.state.frozen_at is not None or len(self.screen_stack) > 1:
            return
        if self.player is not None and self.player.seeking:
            return  # what is between here and there is not worth drawing
        self.tell_news()
        self.update_recording()
        if self._pacing.is_due(time.monotonic(), self._source.now()):
            began = time.thread_time()  # not of the clock: what other threads take is not its cost
            self.draw()
            self._pacing.end(time.thread_time() - began)

    def draw(self) -> None:
        """Bring the whole screen to what the store says now; only changed cells are sent."""
        state = self.state
        state.player = self.player
        if state.frozen_at is None:
            self._pacing.begin(time.monotonic())
            if self.job is not None:
                state.job = self.job.job()
            nodes = self._store.nodes()
            state.update(nodes, self._shown_time(nodes))
            state.verdict, state.verdict_trouble = self.judging.latest, self.judging.trouble
        if state.view == "output":
            self.read_output()
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

    def _shown_time(self, nodes: list[NodeView]) -> float:
        """Now; of a job that has ended, when its last sample was taken, so that it stays shown."""
        now = self._source.now()
        if not self.state.has_ended or any(node.status(now).state == "live" for node in nodes):
            return now
        last = [n.last_time + n.clock_offset_s for n in nodes if n.last_time is not None]
        return min(now, max(last)) if last else now

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
        self.action_move(3 if self.state.view in _LISTS else 1)

    def on_mouse_scroll_up(self, _event: MouseScrollUp) -> None:
        self.action_move(-3 if self.state.view in _LISTS else -1)


def run_app(
    source: Source,
    settings: Settings,
    *,
    whole_node: bool = False,
    job: JobSource | None = None,
    prompts: Prompts | None = None,
    output: Output | None = None,
) -> int:
    """Show the dashboard until the user quits; returns the exit code. Raises GpumonError.

    `job` tells what Slurm knows, `prompts` asks through a dialog what ways to nodes need, `output`
    is what the job writes.
    """
    _require_memory()
    app = GpumonApp(
        source, Store(), settings, whole_node=whole_node, job=job, prompts=prompts, output=output
    )
    try:
        run_screen(app)
    finally:
        source.stop()
    if app.fault is not None:
        if is_out_of_memory(app.fault):
            raise GpumonError(NO_MEMORY) from app.fault
        what = f"{type(app.fault).__name__}: {app.fault}"
        raise GpumonError(f"the screen failed ({what}); GPUMON_DEBUG=1 shows where") from app.fault
    return app.return_code or 0


def _require_memory() -> None:
    """Raise where the screen would not get far: without room for a thread's own data glibc ends
    the process, and leaves the terminal as it is.
    """
    try:
        mmap.mmap(-1, _ROOM_BYTES).close()  # of address space; no memory is used
    except (OSError, MemoryError):
        raise GpumonError(NO_MEMORY) from None
