"""Settings: flags > environment (GPUMON_*) > the user's file > the site's file > defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpumon.errors import UsageError, suggestion
from gpumon.model.text import clean, shown
from gpumon.toml import read_toml, site_file

THEMES = ("dark", "light", "colour-blind", "ansi", "mono")
NOTIFY = ("off", "bell", "desktop")
#: columns that the table of processes can be sorted by
SORTS = (
    "pid", "user", "node", "gpu", "framework", "mem", "sm", "cpu", "rss", "threads", "time",
)  # fmt: skip


class Settings(NamedTuple):
    """Every setting, with its default; named so in the files and, in capitals, as GPUMON_*."""

    interval_s: float = 1.0  # seconds between samples, 0.1 to 3600
    theme: str = ""  # one of THEMES; empty: by what the terminal can show
    ascii: bool = False  # ASCII characters only: no braille, no blocks
    zoom_s: float = 600.0  # seconds that the plots show at start, 10 to a month
    sort: str = ""  # column that sorts processes at start; empty: GPU memory, else CPU
    plots: bool = True  # whether GPUs get plots where there is room, instead of a row each
    record: bool = True  # whether the dashboard records what it shows
    probe: bool = False  # whether `gpumon record` puts the probe into the Python of its command
    notify: str = "off"  # off, bell or desktop: at the job's end, 10 min left, critical findings
    record_keep_days: float = 30.0  # days after which a recording is removed
    record_max_bytes: float = 2.0 * (1 << 30)  # bytes of all recordings; above, the oldest go


def load_settings(**flags: Any) -> Settings:
    """Settings from all places; a flag that is None was not given. Raises UsageError."""
    merged: dict[str, Any] = {}
    for path in (site_file(), _user_file()):
        if path is not None:
            merged.update(_read(path))
    for name in Settings._fields:
        text = os.environ.get(f"GPUMON_{name.upper()}")
        if text is not None:
            merged[name] = _from_text(name, text)
            _check({name: merged[name]}, f"GPUMON_{name.upper()}: ")
    given = {name: value for name, value in flags.items() if value is not None}
    _check(given)
    return Settings(**(merged | given))


def overriding(name: str) -> str:
    """The environment variable that wins over the user's file; "" where none is set."""
    variable = f"GPUMON_{name.upper()}"
    return variable if variable in os.environ else ""


def user_path() -> str:
    """The user's file, whether it is there or not."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "gpumon", "config.toml")


def _user_file() -> str | None:
    path = user_path()
    return path if os.path.exists(path) else None


def _read(path: str) -> dict[str, Any]:
    content = read_toml(path)
    settings = content.get("settings", {}) if path == site_file() else content
    if not isinstance(settings, dict):
        raise UsageError(f"{path}: settings must be a table; write [settings] above them")
    for name, value in settings.items():
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise UsageError(f"{path}: {clean(name, 80)}: the number is too large")
        if name not in Settings._fields:
            near = suggestion(name, Settings._fields)
            listed = f"; known settings: {', '.join(Settings._fields)}"
            raise UsageError(f"{path}: unknown setting {clean(name, 80)!r}{near or listed}")
        default = Settings._field_defaults[name]
        fits = isinstance(value, type(default)) or (
            isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)
        )
        if not fits:
            raise UsageError(f"{path}: {name} must be {_KIND[type(default)]}, not {shown(value)}")
    _check(settings, f"{path}: ")
    return settings


_KIND = {float: "a number", str: "text", bool: "true or false"}
_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


def _from_text(name: str, text: str) -> Any:
    default = Settings._field_defaults[name]
    try:
        if isinstance(default, bool):
            return _TRUTH[text.lower()]
        return float(text) if isinstance(default, float) else text
    except (KeyError, ValueError):
        must = f"must be {_KIND[type(default)]}"
        raise UsageError(f"GPUMON_{name.upper()}={shown(text)}: {must}") from None


#: setting -> least, most, and what to give
_RANGES = {
    "interval_s": (0.1, 3600, "0.1 to 3600 seconds"),
    "zoom_s": (10, 31 * 86400, "seconds, from 10 to a month"),
    "record_keep_days": (0, 36500, "days, 0 or more"),
    "record_max_bytes": (0, 1e18, "bytes, 0 or more"),
}


def _check(given: Mapping[str, Any], where: str = "") -> None:
    """Raises UsageError for what is out of range; `where` the settings were given comes first."""
    for name, values in (("theme", ("", *THEMES)), ("notify", NOTIFY), ("sort", ("", *SORTS))):
        value, known = given.get(name, values[0]), ", ".join(filter(None, values))
        if value not in values:
            raise UsageError(f"{where}unknown {name} {value!r}; choose from: {known}")
    for name, (least, most, what) in _RANGES.items():
        if name in given and not least <= given[name] <= most:
            raise UsageError(f"{where}{name} {given[name]:g}: expected {what}")
