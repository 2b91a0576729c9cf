"""What every screen has from below: colours, few bytes to the terminal, errors of one line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from rich.color import ColorSystem
from rich.console import RenderableType
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App, ComposeResult
from textual.events import Click, Resize
from textual.screen import ModalScreen, Screen

from gpumon.config import Settings
from gpumon.errors import EXIT_FAILED, GpumonError, shortage
from gpumon.tui import theme
from gpumon.tui.driver import Terminal, run_screen
from gpumon.tui.lines import Lines, Row
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.picture import Run
from gpumon.tui.update import Changes
from gpumon.tui.waking import Waker

T = TypeVar("T")
A = TypeVar("A")

_LEAST_S = 0.1  # between two looks whether to draw


class ScreenApp(App[T]):
    """An app on the whole terminal."""

    CSS_PATH = str(Path(__file__).with_name("app.tcss"))
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._palette = theme.choose(settings.theme)
        # told before the first paint: with NO_COLOR, Textual else draws in shades of grey
        super().__init__(Terminal, ansi_color=self._palette in theme.NATIVE)
        for each in theme.textual_themes():
            self.register_theme(each)
        self._begin_with(f"gpumon-{self._palette}")
        self.fault: Exception | None = None
        self._missed = False  # a drawing, as the terminal took nothing

    def _begin_with(self, theme_name: str) -> None:
        """Have it this theme before styles are parsed, which a change of theme does again."""
        self.set_reactive(App.theme, theme_name)
        self.set_class(self.current_theme.dark, "-dark-mode", update=False)
        self.set_class(not self.current_theme.dark, "-light-mode", update=False)
        self.add_class(f"-theme-{theme_name}", update=False)
        self.stylesheet.set_variables(self.get_css_variables())
        self._refresh_truecolor_filter(self.ansi_theme)

    def _apply_theme(self) -> None:
        self.theme = f"gpumon-{self._palette}"
        self.ansi_color = self._palette in theme.NATIVE

    def take_settings(self, settings: Settings) -> None:
        """Show what the user changed at once."""
        if settings.theme != self.settings.theme:
            self._choose_palette(settings.theme)
        self.settings = settings

    def _choose_palette(self, setting: str) -> None:
        self._palette = theme.choose(setting)
        self._apply_theme()

    def _next_palette(self) -> str:
        position = theme.NAMES.index(self._palette)
        self._palette = theme.NAMES[(position + 1) % len(theme.NAMES)]
        self._apply_theme()
        return self._palette

    @property
    def palette(self) -> str:
        """The name of the colours in use, for what is restyled by itself."""
        return self._palette

    # -- drawing

    def on_resize(self, _event: Resize) -> None:
        self._forget()

    def action_redraw(self) -> None:
        """Also what another program has written over."""
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        if isinstance(self._driver, Terminal):
            self._driver.picture.forget()

    def _draw_missed(self) -> None:
        """Draw all of it, if a drawing was left out and the terminal takes them again."""
        if self._missed and not self._is_stalled:
            self._missed = False
            self.refresh()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Textual's own, but in fewer bytes, and none for a terminal that takes nothing."""
        if self._is_stalled:
            self._missed = True
            return
        if isinstance(self._driver, Terminal) and isinstance(
            renderable, (ChopsUpdate, LayoutUpdate)
        ):
            renderable = Changes(renderable, self._driver.picture)
        super()._display(screen, renderable)

    @property
    def _is_stalled(self) -> bool:
        return isinstance(self._driver, Terminal) and self._driver.stalled

    def _handle_exception(self, error: Exception) -> None:
        """Close the screen, then report what failed, in one line."""
        if self.is_headless:  # tests want the traceback
            super()._handle_exception(error)
            return
        self.fault = self.fault or error
        self.exit(return_code=EXIT_FAILED)


def run_to_end(app: ScreenApp[T]) -> T | None:
    """Run the app; its result. Raises GpumonError where the screen failed."""
    result = run_screen(app)
    if app.fault is not None:
        if lacking := shortage(app.fault):
            raise GpumonError(lacking) from app.fault
        what = f"{type(app.fault).__name__}: {app.fault}"
        raise GpumonError(f"the screen failed ({what}); GPUMON_DEBUG=1 shows where") from app.fault
    return result


class Clickable(Lines):
    """Rows of which parts take clicks."""

    def __init__(
        self,
        act: Callable[[str], Awaitable[None]],
        *,
        id: str,
        resized: Callable[[], None] = lambda: None,
    ) -> None:
        """`resized` is called when it has another size, and when it has its first."""
        super().__init__(id=id)
        self._act = act
        self._resized = resized
        self.zones: list[Zone] = []

    def on_resize(self) -> None:
        self._resized()

    def on_click(self, event: Click) -> None:
        for zone in self.zones:
            if zone.holds(event.x, event.y):
                self.app.call_later(self._act, zone.action_at(event.x))
                if event.chain == 2 and zone.action.startswith(("pick", "point")):
                    self.app.call_later(self._act, "open")
                return


class ViewApp(ScreenApp[T]):
    """An app of a title, a view and a bar of keys."""

    _parts: Mapping[str, Clickable] = {}  # until it is mounted

    def compose(self) -> ComposeResult:
        yield Clickable(self.action_act, id="title")
        yield Clickable(self.action_act, id="view", resized=self._draw_resized)
        yield Clickable(self.action_act, id="keys")

    def _begin(self) -> None:
        """To be called when it is mounted."""
        self._parts = {
            name: self.query_one(f"#{name}", Clickable) for name in ("title", "view", "keys")
        }
        self._restyle()
        self._waker = Waker(self._look_safely, _LEAST_S)
        if isinstance(self._driver, Terminal):
            self._driver.drained = self._waker.wake
        self._waker.wake()

    def _look_safely(self) -> None:
        try:
            self._draw_missed()
            self._look()
        except Exception as error:
            self._handle_exception(error)

    def _look(self) -> None:
        """See whether there is something to draw, and tell the waker when to look again."""
        raise NotImplementedError

    def _apply_theme(self) -> None:
        super()._apply_theme()
        self._restyle()

    def _restyle(self) -> None:
        for part in self._parts.values():
            part.restyle(self._palette)

    def _draw_resized(self) -> None:
        if self._parts:
            self.draw()

    async def action_act(self, action: str) -> None:
        """Do what a key or a click asks for, and draw."""
        raise NotImplementedError

    def draw(self) -> None:
        """Show what there is to show now."""
        raise NotImplementedError

    def ask(self, dialog: ModalScreen[A | None], take: Callable[[A], None]) -> None:
        """Open a dialog; `take` gets its answer, if there is one."""

        def taken(answer: A | None) -> None:
            if answer is not None:
                take(answer)
            self.draw()

        self.push_screen(dialog, taken)

    def paint(self, title: Row, view: View, bar: View) -> None:
        """Show these."""
        self.paint_parts({"title": View([title]), "view": view, "keys": bar})

    def paint_parts(self, views: Mapping[str, View]) -> None:
        """Show some parts. Where only cells changed, they go to the terminal here and now:
        Textual's way takes some messages, a timer and several times the CPU.
        """
        terminal = self._driver
        is_direct = isinstance(terminal, Terminal) and len(self.screen_stack) == 1
        changed: list[tuple[int, int, list[Run]]] = []
        for name, (rows, zones) in views.items():
            part = self._parts[name]
            part.zones = zones
            new = part.show(rows)
            if is_direct:
                left, top = part.region.offset
                changed += [(top + y, left, part.runs(y)) for y in new]
            elif new:
                part.refresh()
        if not isinstance(terminal, Terminal) or not changed:
            return
        if terminal.stalled:
            self._missed = True
        else:
            terminal.show(changed, self.console._color_system or ColorSystem.TRUECOLOR)
