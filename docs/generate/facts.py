"""Settings, keys, environment, files and exit codes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpumon import errors
from gpumon.config import THEMES, Settings
from gpumon.tui.keys import Key
from gpumon.tui.screens import KEYS
from gpumon.tui.screens.array.screen import ArrayPane

#: constant of gpumon.errors, or a signal -> when gpumon ends with it
EXIT_CODES = {
    errors.EXIT_OK: "Done.",
    errors.EXIT_FAILED: "Failed: a node that cannot be reached, no accounting, an I/O error.",
    errors.EXIT_USAGE: "Wrong usage, or an input file that is not valid.",
    errors.EXIT_MATCHED: "The expression of `report --fail-if` holds.",
    errors.EXIT_NOT_FOUND: "No such job, recording or device.",
    129: "SIGHUP, or the terminal is gone.",
    errors.EXIT_INTERRUPTED: "Interrupted (Ctrl-C).",
    143: "SIGTERM.",
}
EXIT_NOTES = (
    "`gpumon record -- COMMAND` ends with the exit code of COMMAND, which runs in any case.",
    "`gpumon record` without a command ends its recording on a signal and exits with 0.",
)

#: read by gpumon beside GPUMON_<setting>
ENVIRONMENT = {
    "GPUMON_SITE": "The site's file, instead of `/etc/gpumon/site.toml`.",
    "GPUMON_STATE": "Folder of recordings and marks, instead of `$XDG_STATE_HOME/gpumon`.",
    "GPUMON_PROBE_DIR": "Set by `gpumon record --probe` for its command: where the probe writes.",
    "GPUMON_JOB_ID": "For the command of `--on-end`: the job.",
    "GPUMON_JOB_STATE": "For the command of `--on-end`: how it ended, in Slurm's word.",
    "GPUMON_EXIT_CODE": "For the command of `--on-end`: as shells write it; may be empty.",
    "GPUMON_ELAPSED_S": "For the command of `--on-end`: seconds the job ran; may be empty.",
    "GPUMON_PROMETHEUS_URL": "The Prometheus server, where the site's file names none.",
    "GPUMON_PROMETHEUS_TOKEN": "Bearer token for Prometheus.",
    "GPUMON_PROMETHEUS_USER": "User name for Prometheus, with `GPUMON_PROMETHEUS_PASSWORD`.",
    "GPUMON_PROMETHEUS_PASSWORD": "Password for Prometheus; `~/.netrc` is read where none is set.",
    "GPUMON_DEBUG": "If set, an error prints its traceback.",
    "XDG_CONFIG_HOME": "Parent of `gpumon/config.toml`; default `~/.config`.",
    "XDG_STATE_HOME": "Parent of `gpumon/`, the folder of recordings; default `~/.local/state`.",
    "NO_COLOR": "If set, no colours.",
    "COLORTERM": "`truecolor` or `24bit` allows the themes with 16 million colours.",
    "TERM": "`dumb` or unset: one sample as text instead of the screen.",
    "LC_ALL": "With `LC_CTYPE` and `LANG`: whether the terminal shows UTF-8; else `ascii` applies.",
}

FILES = {
    "~/.config/gpumon/config.toml": "Your settings.",
    "/etc/gpumon/site.toml": "The site's GPUs, policies, thresholds and default settings.",
    "~/.local/state/gpumon/jobs/CLUSTER/JOBID/NODE-TIME.gpumon": "Recordings, mode 0600.",
}


class Setting(NamedTuple):
    name: str
    default: str
    help: str


def settings() -> list[Setting]:
    """Every setting, described by the comment beside its declaration."""
    found = []
    for name, text in re.findall(r"^    (\w+): .*#(.*)$", inspect.getsource(Settings), re.M):
        default = Settings._field_defaults[name]
        shown = {True: "true", False: "false", "": "none"}.get(default, f"{default}")
        if isinstance(default, float):
            shown = f"{default:.0f}" if default.is_integer() else f"{default:g}"
        found.append(Setting(name, shown, sentence(text.replace("THEMES", ", ".join(THEMES)))))
    return found


def keys() -> dict[str, list[tuple[str, str]]]:
    """Each key that does something of its own, and what; by the headings of the help."""
    groups: dict[str, list[Key]] = {}
    for key in KEYS:
        groups.setdefault(key.group, []).append(key)
    return {group: found for group, own in groups.items() if (found := list(_helped(own)))}


def array_keys() -> Iterator[tuple[str, str]]:
    """Those that do something else on the screen of an array."""
    return _helped(ArrayPane.keys)


def _helped(keys: Iterable[Key]) -> Iterator[tuple[str, str]]:
    for key in keys:
        if key.help:
            yield key.shown.split()[-1], sentence(key.help)  # of "[ ]" the second


def sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")
