"""Dialogs over the screen: help, the filter line, and signals with their confirmation."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from gpumon.model import clock
from gpumon.tui.filter import parse_filter
from gpumon.tui.keys import KEYS, Key

_TERMS = """\
[b]busy[/b]       share of time in which at least one kernel ran (NVML utilization.gpu);
           says nothing about how many of the SMs it used
[b]SM, tensor, DRAM[/b]   how much those units really worked (GPM, Hopper and later)
[b]mem[/b]        device memory in use as the driver sees it; a star: reserved by a framework,
           so what it needs is not known
[b]mem-ctrl[/b]   share of time in which device memory was read or written
[b]cache[/b]      page cache: charged to the job, given back when memory is needed
[b]below the median[/b]   how much less busy than the other nodes' GPUs, over five minutes
A value that is not there shows its reason; one that is old shows its age.
Gaps in a plot are times without a measurement."""


class HelpScreen(ModalScreen[None]):
    """The keys and the words."""

    BINDINGS = [("escape,question_mark,q", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        keys = "\n".join(
            f"[b]{_escaped(_own(key).ljust(7))}[/b]{_escaped(key.help)}" for key in KEYS if key.help
        )
        with VerticalScroll(classes="dialog wide"):
            yield Static(f"{keys}\n\n{_TERMS}")

    def on_click(self) -> None:
        self.dismiss()


class FilterScreen(ModalScreen["str | None"]):
    """One line at the bottom; Enter takes it, Esc leaves the filter as it was."""

    BINDINGS = [("escape", "cancel", "cancel")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="bottom"):
            yield Label("", id="wrong")
            yield Input(self._text, placeholder="text, or gpu=0 user=ada mem>10G cpu>50")

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#wrong", Label).update(parse_filter(event.value)[1])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if not parse_filter(event.value)[1]:
            self.dismiss(event.value.strip())

    def action_cancel(self) -> None:
        self.dismiss(None)


class LineScreen(ModalScreen["str | None"]):
    """One line of text at the bottom: a time to go to, a mark."""

    BINDINGS = [("escape", "cancel", "cancel")]

    def __init__(self, placeholder: str) -> None:
        super().__init__()
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="bottom"):
            yield Input(placeholder=self._placeholder)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_cancel(self) -> None:
        self.dismiss(None)


class Target(NamedTuple):
    """A process to signal, known well enough not to hit another with the same number."""

    pid: int
    start: float  # epoch seconds, as its facts say
    command: str


SIGNALS = (
    (signal.SIGTERM, "ask it to end"),
    (signal.SIGINT, "as Ctrl-C"),
    (signal.SIGUSR1, "often: write a checkpoint"),
    (signal.SIGUSR2, "as the program defines it"),
    (signal.SIGHUP, "hang up"),
    (signal.SIGSTOP, "stop it, to be continued"),
    (signal.SIGCONT, "continue"),
    (signal.SIGKILL, "end it at once; nothing is saved"),
)


class SignalScreen(ModalScreen["signal.Signals | None"]):
    """Choose a signal; choosing it is the confirmation, for the process it names."""

    BINDINGS = [("escape", "dismiss(None)", "cancel")]

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._target = target

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(f"Send to {self._target.pid}", markup=False)
            yield Label(self._target.command[:120], markup=False, classes="dim")
            yield OptionList(
                Option("cancel", id="cancel"),
                *(Option(f"{number.name:<8} {text}", id=number.name) for number, text in SIGNALS),
            )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        chosen = event.option.id or "cancel"
        self.dismiss(None if chosen == "cancel" else signal.Signals[chosen])


def send_signal(target: Target, number: signal.Signals) -> str:
    """Send, if it is still the same process; returns what happened in words."""
    try:
        handle = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return f"{target.pid} has ended already"
    except OSError as error:
        return f"{target.pid}: {error.strerror}"
    try:
        # The handle cannot be given to another process any more: now the start time decides.
        if abs(_start_time(target.pid) - clock.set_by() - target.start) > 2:
            return f"{target.pid} is another process by now; nothing was sent"
        signal.pidfd_send_signal(handle, number)
        return f"sent {number.name} to {target.pid}"
    except PermissionError:
        return f"{target.pid} belongs to somebody else; nothing was sent"
    except (ProcessLookupError, ValueError, OSError):
        return f"{target.pid} has ended already"
    finally:
        os.close(handle)


def _start_time(pid: int) -> float:
    """Epoch seconds at which a process started (proc(5): field 22 of stat, after boot)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
    with open("/proc/stat", "rb") as file:
        boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def _own(key: Key) -> str:
    """Of a pair in the key bar (`+ -`), the key that does what this line says."""
    return key.shown.split(" ")[-1]


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
