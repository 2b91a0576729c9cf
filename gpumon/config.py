"""Settings: flags > environment (GPUMON_*) > the user's file > the site's file > defaults."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from gpumon.errors import UsageError
from gpumon.model.text import clean, shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

THEMES = ("dark", "light", "colour-blind", "ansi", "mono")


class Settings(NamedTuple):
    """Every setting, with its default; named so in the files and, in capitals, as GPUMON_*."""

    interval_s: float = 1.0  # seconds between samples, 0.1 to 3600
    theme: str = ""  # one of THEMES; empty: chosen by what the terminal can show
    ascii: bool = False  # no braille and no block glyphs
    zoom_s: float = 600.0  # seconds that the plots show at start
    record: bool = True  # whether the dashboard records what it shows
    record_keep_days: float = 30.0  # recordings that are older are removed
    record_max_bytes: float = 2.0 * (1 << 30)  # and the oldest, above so many in all


def load_settings(**flags: Any) -> Settings:
    """Settings from all places; a flag that is None was not given. Raises UsageError."""
    merged: dict[str, Any] = {}
    for path in (_site_file(), _user_file()):
        if path is not None:
            merged.update(_read(path))
    for name in Settings._fields:
        text = os.environ.get(f"GPUMON_{name.upper()}")
        if text is not None:
            merged[name] = _from_text(name, text)
    merged.update({name: value for name, value in flags.items() if value is not None})
    return _checked(Settings(**merged))


def _user_file() -> str | None:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    path = os.path.join(home, "gpumon", "config.toml")
    return path if os.path.exists(path) else None


def _site_file() -> str | None:
    given = os.environ.get("GPUMON_SITE")
    if given:
        return given
    return "/etc/gpumon/site.toml" if os.path.exists("/etc/gpumon/site.toml") else None


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; correct or remove it") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply; correct or remove it") from None
    except (ValueError, OverflowError) as error:  # TOML's errors, and numbers beyond Python's
        raise UsageError(f"{path}: {error}; correct or remove it") from None
    settings = content.get("settings", {}) if path == _site_file() else content
    if not isinstance(settings, dict):
        raise UsageError(f"{path}: settings must be a table")
    for name, value in settings.items():
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise UsageError(f"{path}: {clean(name, 80)}: the number is too large")
        if name not in Settings._fields:
            raise UsageError(
                f"{path}: unknown setting {clean(name, 80)!r}; "
                f"known are {', '.join(Settings._fields)}"
            )
        default = Settings._field_defaults[name]
        fits = isinstance(value, type(default)) or (
            isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)
        )
        if not fits:
            raise UsageError(f"{path}: {name} must be {_KIND[type(default)]}, not {shown(value)}")
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
        raise UsageError(
            f"GPUMON_{name.upper()}={shown(text)}: must be {_KIND[type(default)]}"
        ) from None


def _checked(settings: Settings) -> Settings:
    if not 0.1 <= settings.interval_s <= 3600:
        raise UsageError(f"interval_s {settings.interval_s:g}: give seconds from 0.1 to 3600")
    if settings.theme and settings.theme not in THEMES:
        raise UsageError(f"no theme {settings.theme!r}; there are {', '.join(THEMES)}")
    if not 10 <= settings.zoom_s <= 31 * 86400:
        raise UsageError(f"zoom_s {settings.zoom_s:g}: give seconds from 10 to a month")
    if not 0 <= settings.record_keep_days <= 36500:
        raise UsageError(f"record_keep_days {settings.record_keep_days:g}: give days from 0 on")
    if not 0 <= settings.record_max_bytes < 1e18:
        raise UsageError(f"record_max_bytes {settings.record_max_bytes:g}: give bytes from 0 on")
    return settings
