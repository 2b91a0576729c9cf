"""The screens without a terminal: what an app gives them, as plain values."""

from dataclasses import replace
from types import SimpleNamespace

from gpumon.tui.lines import plain
from gpumon.tui.moment import Moment
from gpumon.tui.moment.zoom import Zoom
from gpumon.tui.screens import all_panes


class Looking:
    """Every screen at one moment; `at` goes on to another."""

    def __init__(self, nodes=(), now=0.0, *, glyphs="braille", zoom_s=600.0, **known):
        self.moment = Moment(Zoom(zoom_s), glyphs, nodes=list(nodes), now=now, **known)
        self.pipeline = SimpleNamespace(
            trouble="", is_local=False, want_report=lambda: None, stacks=None, output=None
        )
        self.panes = all_panes(self, self.pipeline)
        self.pane = self.panes["job"]
        self.said = []

    def at(self, **known):
        self.moment = replace(self.moment, **known)
        return self

    def draw(self, name, width, height):
        return self.panes[name].draw(self.moment, width, height)

    def text(self, name, width, height):
        return plain(self.draw(name, width, height).rows)

    @property
    def selection(self):
        return self.pane.selection

    @property
    def nodes(self):
        return self.panes["nodes"]

    @property
    def processes(self):
        return self.panes["processes"]

    def table(self, width, height):
        return self.nodes.table(self.moment, width, height)

    def summaries(self):
        return self.nodes.summaries(self.moment)

    def entries(self):
        return self.processes.entries(self.moment)

    # -- as the app

    def show(self, name):
        self.pane = self.panes[name]

    def say(self, message):
        self.said.append(message)

    def ask(self, dialog, take):
        raise AssertionError(dialog)

    def copy_to_clipboard(self, text):
        self.said.append(text)
