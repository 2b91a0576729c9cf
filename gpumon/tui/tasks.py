"""Which task of an array, or component of a het job, to look at: a list to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from gpumon.model.text import clean
from gpumon.terminal import prepare_output
from gpumon.tui import theme
from gpumon.tui.driver import Terminal, run_screen


class Task(NamedTuple):
    """One of several jobs under one number."""

    id: str  # 4711_3, 4711+1
    state: str
    node: str = ""  # its nodes, as Slurm writes them
    about: str = ""  # what else tells it apart: elapsed time, request


class TaskScreen(ModalScreen["str | None"]):
    """Choose one; Esc chooses none."""

    BINDINGS = [("escape,q", "dismiss(None)", "none")]

    def __init__(self, job: str, tasks: Sequence[Task]) -> None:
        super().__init__()
        self._job = job
        self._tasks = tasks

    def compose(self) -> ComposeResult:
        ids = max((len(task.id) for task in self._tasks), default=2)
        nodes = min(30, max((len(task.node) for task in self._tasks), default=0))
        with Vertical(classes="dialog"):
            title = f"{clean(self._job, 60)} is {len(self._tasks)} jobs: which one?"
            yield Label(title, markup=False, id="asked")
            options = [
                f"{clean(task.id, 60):<{ids}}  {clean(task.state, 20):<10}  "
                f"{clean(task.node, 30):<{nodes}}  {clean(task.about, 60)}".rstrip()
                for task in self._tasks
            ]
            yield OptionList(*(Option(text) for text in options), markup=False)
            yield Label("Enter chooses · Esc leaves", classes="dim", markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._tasks[event.option_index].id)


class TaskApp(App["str | None"]):
    """The list alone, before there is anything else to show."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, job: str, tasks: Sequence[Task], palette: str) -> None:
        super().__init__(Terminal, ansi_color=palette in theme.NATIVE)
        self._palette = palette
        self._screen = TaskScreen(job, tasks)

    def on_mount(self) -> None:
        for each in theme.textual_themes():
            self.register_theme(each)
        self.theme = f"gpumon-{self._palette}"
        self.push_screen(self._screen, self.exit)


def choose_task(job: str, tasks: Sequence[Task], theme_setting: str = "") -> str | None:
    """Ask on the whole terminal which one; its id, or None when the user leaves."""
    prepare_output()
    return run_screen(TaskApp(job, tasks, theme.choose(theme_setting)))
