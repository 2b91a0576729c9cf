"""The app: reads the store when that changes, draws the screen shown, acts on keys and clicks."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from textual.actions import parse
from textual.await_complete import AwaitComplete
from textual.events import Key as Pressed
from textual.events import MouseScrollDown, MouseScrollUp

from gpumon import heap
from gpumon.config import Settings
from gpumon.errors import require_memory
from gpumon.files import NotWritten
from gpumon.model.text import clean
from gpumon.pipeline import notices
from gpumon.store.turn import TURNS
from gpumon.terminal import prepare_output
from gpumon.tui.driver import Terminal
from gpumon.tui.keys import PLOTS, bindings, mute_text
from gpumon.tui.moment import Moment
from gpumon.tui.notify import Notifier
from gpumon.tui.parts.keybar import key_bar
from gpumon.tui.parts.view import View
from gpumon.tui.runs.over import RunsOver
from gpumon.tui.screen_app import ViewApp, run_to_end
from gpumon.tui.screens import KEYS
from gpumon.tui.screens.array.screen import ArrayPane
from gpumon.tui.screens.base import Pane
from gpumon.tui.shown import Look, Shown
from gpumon.tui.update import release_closed_dialogs

if TYPE_CHECKING:
    from gpumon.pipeline.array import WatchedArray
    from gpumon.pipeline.pipeline import Pipeline
    from gpumon.slurm.job import Job
    from gpumon.tui.dialogs.prompt import Asker, Prompts
    from gpumon.tui.runs.screen import Library

T = TypeVar("T")

#: address space that must be free for a screen: one of eight GPUs takes 42 MiB from here on (by
#: VmSize, with limits of 100 to 200 MiB), most of it as threads start and rules are imported
_ROOM_BYTES = 48 << 20
_EVALUATE_S = 1.0  # when the first samples are on screen
_SETTLED_S = 20.0  # after so long most of what lasts is there
_PART_OF = {"node": "nodes", "process": "processes", "finding": "report"}  # lit in the key bar
_SAID_S = 5.0  # how long a message stays
#: a thread that comes back from waiting waits so long again for one that computes (findings,
#: rollups): Python's 5 ms add up in the screen's answer to a key. Few threads compete at a time, as
#: streams take turns (`store/turn.py`); when all of them did, this starved the screen
_SWITCH_S = 0.0005
#: new objects after which Python looks for garbage among them. At its own 700 it goes through the
#: samples of many nodes several times, which are no garbage, and takes a sixth of their CPU
_NEW_OBJECTS = 5_000


class GpumonApp(ViewApp[None]):
    """The dashboard. Threads of the pipeline write what it reads; only this thread draws."""

    BINDINGS = bindings((*KEYS, *ArrayPane.keys))  # type: ignore[assignment]

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        *,
        whole_node: bool = False,
        prompts: Prompts | None = None,
        array: WatchedArray | None = None,
        on_end: Callable[[Job], None] | None = None,
        library: Library | None = None,
        is_from_list: bool = False,
    ) -> None:
        """`array`: what the pipeline tells of, in the place of nodes; its tasks have their own.
        `on_end` is called when the job, or the whole array, has ended. `library`: recorded runs.
        `is_from_list`: Esc on the first screen ends the app, and shows the list again.
        """
        super().__init__(settings)
        glyphs = "ascii" if settings.ascii or not prepare_output() else "braille"
        self._pipeline = pipeline
        self._prompts = prompts
        self._asker: Asker | None = None
        if prompts is not None:
            from gpumon.tui.dialogs.prompt import Asker  # not for this node alone

            self._asker = Asker(self, prompts)
        look = Look(settings.zoom_s, glyphs, settings.sort, settings.plots)
        self._look_chosen = look
        self._shown = (
            Shown.of(self, pipeline, look, whole_node=whole_node)
            if array is None
            else Shown.of_array(self, pipeline, array, self._open_task, look)
        )
        self._array = array
        self._first = self._shown
        self._runs = RunsOver(self, library, self._play, self.say)
        self._is_from_list = is_from_list
        self._behind: Shown | None = None  # what a run that is played is shown in the place of
        self._tasks: dict[str, Shown] = {}  # of the array, those that were opened, by id
        ask = notices.of_pipeline(pipeline) if array is None else notices.of_array(array)
        is_live = pipeline.player is None
        self._notifier = Notifier(ask if is_live else None, settings.notify, os.environ, on_end)
        self._said = ("", 0.0)  # one line in the place of the key bar, and until when
        self._shows_seeking = False  # the title, in a replay

    # -- what is shown

    @property
    def moment(self) -> Moment:
        """Drawn last."""
        return self._shown.moment

    @moment.setter
    def moment(self, moment: Moment) -> None:
        self._shown.moment = moment

    @property
    def panes(self) -> Mapping[str, Pane]:
        return self._shown.panes

    @property
    def pane(self) -> Pane:
        """The screen in front."""
        return self._shown.pane

    @pane.setter
    def pane(self, pane: Pane) -> None:
        self._shown.pane = pane

    def _open_task(self, id: str) -> None:
        """Show a task of the array as if it were attached to alone."""
        pipeline = self._array.follow(id) if self._array is not None else None
        if pipeline is None:
            self.say(f"{id} is no longer running: gpumon report {id}")
            return
        shown = self._tasks.get(id)
        if shown is None or shown.pipeline is not pipeline:
            pipeline.listen(self._waker.wake)
            shown = Shown.of(self, pipeline, self._look_chosen, is_task=True)
        kept = self._array.followed() if self._array is not None else {}
        self._tasks = {id: each for id, each in self._tasks.items() if id in kept}
        self._tasks[id] = self._shown = shown

    def _play(self, pipeline: Pipeline | None) -> None:
        """Show a recording in the place of what is shown, or (None) that again."""
        behind = self._behind or self._shown
        if pipeline is None:
            self._shown, self._behind = behind, None
            self.action_runs()
            return
        pipeline.listen(self._waker.wake)
        pipeline.start()
        pipeline.evaluate()
        self._behind = behind
        self._shown = Shown.of(self, pipeline, self._look_chosen)
        self.say("Esc comes back to the runs")
        self.draw()

    # -- life

    def on_mount(self) -> None:
        self._begin()
        sys.setswitchinterval(_SWITCH_S)
        gc.set_threshold(_NEW_OBJECTS)
        self._pipeline.listen(self._waker.wake)
        if self._prompts is not None:
            self._prompts.listen(self._waker.wake)
        self._pipeline.start()
        self.set_timer(_SETTLED_S, partial(self._settle, _SETTLED_S))
        self.set_timer(_EVALUATE_S, threading.Thread(target=self._evaluate, daemon=True).start)

    def _evaluate(self) -> None:
        """For the first time: to import the rules takes as long as half of the start."""
        if not gc.isenabled():  # since `gpumon` began
            gc.collect()  # what imports left is 1 MiB, which the rules then take
            gc.freeze()
            gc.enable()
        self._pipeline.evaluate()

    def _settle(self, age_s: float) -> None:
        """Have what is there never looked through for garbage again, and return what is free; again
        at twice the age.

        With 64 nodes that takes 0.3 s every ten seconds, in which nothing else happens. Garbage
        that is there now stays, which is less than what it would cost to look for it.
        """
        gc.freeze()
        heap.trim()
        self.set_timer(age_s, partial(self._settle, 2 * age_s))

    def pop_screen(self) -> AwaitComplete:
        self.set_timer(0.5, release_closed_dialogs)  # when it is off the screen
        return super().pop_screen()

    def on_unmount(self) -> None:
        if self._asker is not None:
            self._asker.refuse()
        self._runs.stop()
        self._pipeline.stop()

    # -- drawing

    def _look(self) -> None:
        """Draw when it is due; see `Pacing`. A clock that stands still is looked at no more."""
        if self._asker is not None:
            self._asker.update()
        self._notify()
        player = self.moment.player
        if player is not None and player.seeking:
            if len(self.screen_stack) == 1:  # what is between here and there is not worth drawing
                title = self.pane.title(self.moment, self._parts["title"].size.width)
                self.paint_parts({"title": View([title])})
                self._shows_seeking = True
            self._waker.look_in(0.0)
            return
        clock = self._shown.pipeline.now()
        if self.moment.is_frozen or len(self.screen_stack) > 1:
            again_s = 1.0
        else:
            if self._shows_seeking:  # it may have come back to where it was, with nothing new
                self._shows_seeking = False
                self.draw()
            self._draw_due(clock)
            again_s = self._shown.pacing.again_s(clock)
        if player is None:
            self._waker.look_in(again_s)
        elif not player.paused:
            self._waker.look_in(again_s / player.speed)

    def _draw_due(self, clock: float) -> None:
        pipeline, pacing = self._shown.pipeline, self._shown.pacing
        if news := pipeline.news():
            self.say(clean(news))
            self.draw()
        if pacing.is_due(began := time.monotonic(), clock):
            spent = time.thread_time()  # not of the clock: what other threads take is not its cost
            self.draw()
            pacing.end(time.thread_time() - spent, time.monotonic() - began)

    def _notify(self) -> None:
        """Whatever is on the screen, and where nobody looks at it."""
        if not self._notifier.is_due(time.monotonic()):
            return
        sent, terminal = self._notifier.look(), self._driver
        if isinstance(terminal, Terminal):
            terminal.write(sent)
            terminal.set_title(self._notifier.title(self._pipeline.job()))

    def draw(self) -> None:
        """Bring the whole screen to what the store says now; only changed cells are sent."""
        with TURNS.of_screen():
            self._draw()

    def _draw(self) -> None:
        width, height = self._parts["view"].size
        if width <= 0 or height <= 0:
            return
        if not self.moment.is_frozen:
            self._shown.pacing.begin(time.monotonic(), self._shown.pipeline.now())
            self.moment = self._shown.look()
        drawn = self.pane.draw(self.moment, width, height)
        rows = drawn.rows[:height] + [[]] * (height - len(drawn.rows))
        title = self.pane.title(self.moment, width)
        self.paint(title, View(rows, drawn.zones), self._below(width))

    def _below(self, width: int) -> View:
        """The bar of keys, or for some seconds a message: it covers nothing that was measured."""
        said, until = self._said
        if said and time.monotonic() < until:
            return View([[(f" {said}", "attention")]])
        pane, actor, player = self.pane, self.pane.actor, self.moment.player
        lit = {_PART_OF.get(pane.name, pane.name).capitalize()}
        if self.moment.is_frozen or (player is not None and player.paused):
            lit.add("Freeze")
        return key_bar(
            self._shown.keys, {pane.name, actor.name, *self._shown.bar_where}, lit,
            lambda bar: pane.beside(bar) or actor.beside(bar), width,
            several=len(self.moment.nodes) > 1,
        )  # fmt: skip

    # -- for the screens; see `Shell`

    def show(self, name: str) -> None:
        if name not in self.panes:
            self.say(self.pane.lacks)
            return
        before, self.pane = self.pane.name, self.panes[name]
        self.pane.entered(before)

    def leave(self) -> None:
        if self._runs.leave():
            return
        if self._is_from_list and self._shown is self._first:
            self.exit()
        self._shown = self._first

    def say(self, message: str) -> None:
        self._said = message, time.monotonic() + _SAID_S
        self.set_timer(_SAID_S, self.draw)

    # -- actions, as the tables of keys name them

    async def action_act(self, action: str) -> None:
        """Have it done by the screen shown, else by the first that can, else by the app; draw."""
        self._waker.wake()
        _, name, arguments = parse(action)
        player = self.moment.player
        if name == "leave" and player is not None and player.seeking:
            player.stay()
            return
        for actor in (self.pane.actor, self.pane, *self._shown.actors):
            method = getattr(actor, f"action_{name}", None)
            if method is not None:
                method(*arguments)
                self.draw()
                return
        if not await self.run_action(action):
            self.say(self.pane.lacks)
            self.draw()

    def on_key(self, event: Pressed) -> None:
        """One that does nothing says so."""
        said = mute_text(event, self._bindings.key_to_bindings)
        if said and len(self.screen_stack) == 1:
            self._say_drawn(said)

    def action_view(self, name: str) -> None:
        self.show(name)
        self.draw()

    def action_zoom(self, step: int) -> None:
        before = self.moment.span_text
        self.moment = self.moment.zoomed(step)
        if self.moment.span_text == before:
            self.say(f"plots cannot show {'less' if step < 0 else 'more'} time")
        elif self.pane.name not in PLOTS:
            self.say(f"plots show {self.moment.span_text}")
        self.draw()

    def action_freeze(self) -> None:
        """Hold the screen; while a recording is played, its clock."""
        if self.moment.player is not None:
            self.moment.player.pause()
        elif self.moment.is_frozen:
            self.moment = replace(self.moment, is_frozen=False)
        else:
            self.moment = self._shown.look().frozen()
        self.draw()

    def action_theme(self) -> None:
        self.say(f"colours: {self._next_palette()}")
        self.draw()

    def action_runs(self) -> None:
        self._runs.open(self._palette, self._look_chosen.glyphs)
        self.draw()

    def action_settings(self) -> None:
        from gpumon.tui.dialogs.settings import change_settings  # opened seldom

        change_settings(self, self._say_drawn)

    def take_settings(self, settings: Settings) -> None:
        super().take_settings(settings)
        self._look_chosen = self._look_chosen._replace(
            zoom_s=settings.zoom_s, sort=settings.sort, plots=settings.plots
        )
        for shown in {self._first, self._shown, *self._tasks.values()}:
            shown.take(self._look_chosen)

    def _say_drawn(self, message: str) -> None:
        self.say(message)
        self.draw()

    def action_picture(self) -> None:
        from gpumon.tui.svg import save_svg  # seldom asked for

        try:
            self.say(f"saved as {clean(save_svg(self))}")
        except NotWritten as error:
            self.say(f"not saved: {clean(str(error))}")
        self.draw()

    def action_palette(self) -> None:
        from gpumon.tui.dialogs.palette import open_palette

        open_palette(self, self._shown.keys, self.action_act)

    def action_help(self) -> None:
        from gpumon.tui.dialogs.help import HelpDialog

        self.push_screen(HelpDialog(self._shown.keys))

    async def on_mouse_scroll_down(self, _event: MouseScrollDown) -> None:
        await self.action_act(f"move({self.pane.wheel})")

    async def on_mouse_scroll_up(self, _event: MouseScrollUp) -> None:
        await self.action_act(f"move({-self.pane.wheel})")


def run_app(
    pipeline: Pipeline,
    settings: Settings,
    *,
    whole_node: bool = False,
    prompts: Prompts | None = None,
    array: WatchedArray | None = None,
    on_end: Callable[[Job], None] | None = None,
    library: Library | None = None,
    is_from_list: bool = False,
) -> int:
    """Show the dashboard until the user quits; returns the exit code. Raises GpumonError.

    `prompts` asks through a dialog what transports need; `array`, `on_end`, `library` and
    `is_from_list`: see GpumonApp.
    """
    require_memory(_ROOM_BYTES)
    app = GpumonApp(
        pipeline, settings, whole_node=whole_node, prompts=prompts, array=array, on_end=on_end,
        library=library, is_from_list=is_from_list,
    )  # fmt: skip
    try:
        run_to_end(app)
    finally:
        pipeline.stop()
    return app.return_code or 0
