"""What gpumon uses of Textual that Textual does not promise; seen with Textual 8.2.8.

Where one of these fails after an update, look at the module that is named beside it.
"""

from __future__ import annotations

import inspect

import pytest
from rich.console import Console
from rich.segment import Segment
from textual import _ansi_sequences
from textual._compositor import ChopsUpdate, Compositor, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region

from gpumon.tui.driver import Terminal

SCREEN_APP, DRIVER, UPDATE = "screen_app.py", "driver.py", "update.py"


@pytest.mark.parametrize(
    ("owner", "name", "arguments", "used_in"),
    [
        (App, "_display", ["self", "screen", "renderable"], SCREEN_APP),
        (App, "_handle_exception", ["self", "error"], SCREEN_APP),
        (CompositorUpdate, "render_segments", ["self", "console"], UPDATE),
        (Compositor, "render_update", ["self", "full", "screen_stack", "simplify"], UPDATE),
        (LinuxDriver, "run_input_thread", ["self"], DRIVER),
        (LinuxDriver, "_run_input_thread", ["self"], DRIVER),
        (LinuxDriver, "_sigtstp_application", ["self"], DRIVER),
        (LinuxDriver, "_sigcont_application", ["self"], DRIVER),
        (XTermParser, "feed", ["self", "data"], DRIVER),
        (XTermParser, "tick", ["self"], DRIVER),
    ],
)
def test_methods_that_are_replaced_or_called(owner, name, arguments, used_in):
    found = list(inspect.signature(getattr(owner, name)).parameters)
    assert [each for each in found if each not in ("args", "_", "kwargs")] == arguments, used_in


def test_updates_hold_what_is_read_of_them():
    whole = LayoutUpdate([], Region(0, 0, 8, 2))
    assert (whole.strips, whole.region) == ([], Region(0, 0, 8, 2))
    part = ChopsUpdate([], [(0, 1, 2)], [[8]])
    assert (part.chops, part.spans, part.chop_ends) == ([], [(0, 1, 2)], [[8]])


async def test_the_app_has_its_loop_and_knows_of_synchronized_output():
    app = App()
    async with app.run_test():
        assert app._loop is not None
        assert app._sync_available is False
        assert hasattr(app.console, "_color_system")
    assert _ansi_sequences.SYNC_START == "\x1b[?2026h"
    assert _ansi_sequences.SYNC_END == "\x1b[?2026l"
    assert hasattr(Console(), "_color_system")


def test_a_key_that_may_go_on_is_waited_for():
    parser = XTermParser(False)
    assert parser._timeout_time is None
    assert list(parser.feed("\x1b")) == []
    assert parser._timeout_time is not None


async def test_the_thread_of_keys_ends_when_it_is_told():
    terminal = Terminal(App())
    assert isinstance(terminal, LinuxDriver)
    assert terminal.exit_event is terminal._input_ends
    terminal.exit_event.set()
    terminal.exit_event.set()
    terminal.exit_event.clear()
    assert not terminal.exit_event.is_set()
    terminal.exit_event.clear()
    assert terminal._key_thread is None


def test_caches_can_be_cleared():
    StylesCache.get_inner_outer.cache_clear()
    Segment._split_cells.cache_clear()
