"""Signals to a process, with their confirmation."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from gpumon.model import clock


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
    (signal.SIGSTOP, "pause it; SIGCONT resumes it"),
    (signal.SIGCONT, "continue"),
    (signal.SIGKILL, "end it at once; nothing is saved"),
)


class SignalDialog(ModalScreen["signal.Signals | None"]):
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
    import psutil  # a twentieth of a second, for this alone

    try:
        handle = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return f"{target.pid} has ended already"
    except OSError as error:
        return f"{target.pid}: {error.strerror}"
    try:
        # The handle cannot be given to another process any more: now the start time decides.
        if abs(psutil.Process(target.pid).create_time() - clock.set_by() - target.start) > 2:
            return f"{target.pid} is another process by now; nothing was sent"
        signal.pidfd_send_signal(handle, number)
        return f"sent {number.name} to {target.pid}"
    except PermissionError:
        return f"{target.pid} belongs to another user; nothing was sent"
    except (psutil.Error, OSError):
        return f"{target.pid} has ended already"
    finally:
        os.close(handle)
