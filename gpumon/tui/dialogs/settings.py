"""The settings that matter on the screen, to change and to keep."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from gpumon.config import NOTIFY, SORTS, THEMES, Settings, overriding, user_path
from gpumon.errors import GpumonError
from gpumon.files import NotWritten, write_file
from gpumon.model.text import clean
from gpumon.model.units import span_text
from gpumon.toml import read_toml, with_values
from gpumon.tui.theme import choose

if TYPE_CHECKING:
    from gpumon.tui.screen_app import ScreenApp

_AUTOMATIC = "automatic"
_ZOOMS_S = (60.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0)


class Choices(NamedTuple):
    """The values of a setting, in the order in which they follow on each other."""

    name: str
    values: Sequence[str | bool | float]
    help: str


CHOICES = (
    Choices("theme", ("", *THEMES), "colours"),
    Choices("zoom_s", _ZOOMS_S, "time that plots show at start"),
    Choices("sort", ("", *SORTS), "column that sorts processes"),
    Choices("plots", (True, False), "plots of GPUs where there is room"),
    Choices("notify", NOTIFY, "job end and critical findings; next start"),
    Choices("record", (True, False), "record what is shown; next start"),
)


class SettingsDialog(ModalScreen["Settings | None"]):
    """Its result are the settings as they were changed, None where they were not."""

    BINDINGS = [
        ("escape,q,f2", "close", "close"),
        ("right,space", "change(1)", "next value"),
        ("left", "change(-1)", "value before"),
    ]

    def __init__(self, before: Settings, now: Settings) -> None:
        """`now` may differ already, by keys such as `t`."""
        super().__init__()
        self._before, self._settings = before, now

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label("Settings", markup=False, id="asked")
            yield OptionList(*map(self._text, CHOICES), markup=False)
            yield Label("←→ change · Esc save and close", classes="dim", markup=False)

    def _text(self, each: Choices) -> str:
        value = value_text(getattr(self._settings, each.name))
        variable = overriding(each.name)
        note = f"{variable} overrides it" if variable else each.help
        return f"{each.name.removesuffix('_s'):<8}{value:<14}{note}"

    def action_change(self, step: int) -> None:
        options = self.query_one(OptionList)
        place = options.highlighted or 0
        each = CHOICES[place]
        value, values = getattr(self._settings, each.name), each.values
        before = values.index(value) if value in values else 0  # one that is none is as the first
        change: dict[str, Any] = {each.name: values[(before + step) % len(values)]}
        self._settings = self._settings._replace(**change)
        options.replace_option_prompt_at_index(place, self._text(each))

    def on_option_list_option_selected(self, _event: OptionList.OptionSelected) -> None:
        self.action_change(1)

    def action_close(self) -> None:
        self.dismiss(self._settings if self._settings != self._before else None)


def value_text(value: str | bool | float) -> str:
    """`yes`, `10m`, `automatic`, `dark`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return span_text(value) if isinstance(value, float) else value or _AUTOMATIC


def change_settings(app: ScreenApp[Any], take: Callable[[str], None]) -> None:
    """Show the dialog; once settings were changed, `take` gets a line about where they are kept."""
    before = now = app.settings
    if app.palette != choose(now.theme):  # by the key t
        now = now._replace(theme=app.palette)

    def taken(settings: Settings | None) -> None:
        if settings is not None:
            app.take_settings(settings)
            take(kept_text(before, settings))

    app.push_screen(SettingsDialog(before, now), taken)


def kept_text(before: Settings, now: Settings) -> str:
    """Keep what differs, for the next start; what came of it, in a line."""
    changes = {
        name: value for name, value in now._asdict().items() if value != getattr(before, name)
    }
    try:
        path = save_settings(changes)
    except GpumonError as error:
        return clean(str(error))
    return f"saved {', '.join(changes).replace('_s', '')} in {clean(path)}"


def save_settings(changes: Mapping[str, str | bool | float]) -> str:
    """Keep these in the user's file, whose other lines stay as they are; returns its path.

    Raises GpumonError: it cannot be written, or is written in a form that is not understood.
    """
    path = user_path()
    text = ""
    if os.path.exists(path):
        read_toml(path)  # of a file with a mistake nothing is changed
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise NotWritten(path, error) from None
    write_file(path, with_values(path, text, changes), regular=True)
    return path
