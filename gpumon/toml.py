"""TOML that people write: a site's file and a user's settings, read within bounds."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from typing import Any

from gpumon.errors import UsageError

_SITE_FILE = "/etc/gpumon/site.toml"
#: of a file; the shipped table of GPUs has 10 KB
MAX_BYTES = 1 << 20
#: what stands behind `name =` on a line: a value without line breaks, and a comment
_VALUE = r"""("[^"]*"|'[^']*'|[^#"'\s]+)(?P<rest>\s*(?:#.*)?)$"""


def site_file() -> str | None:
    """$GPUMON_SITE, else /etc/gpumon/site.toml, else none."""
    given = os.environ.get("GPUMON_SITE")
    return given or (_SITE_FILE if os.path.exists(_SITE_FILE) else None)


def read_toml(path: str) -> dict[str, Any]:
    """What the file holds. Raises UsageError: one line with the file, and what to do."""
    remedy = "correct GPUMON_SITE or the file" if path == site_file() else "correct or remove it"
    try:
        return _loads(_content(path).decode())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply; {remedy}") from None
    except (ValueError, OverflowError) as error:  # TOML's errors, and numbers beyond Python's
        raise UsageError(f"{path}: {error}; {remedy}") from None


def with_values(path: str, text: str, changes: Mapping[str, str | bool | float]) -> str:
    """The text of a file with other values of some top-level keys; all other lines stay.

    Raises UsageError where such a key is written in a form that is not found.
    """
    wanted = {**_loads(text), **changes}
    head, tables = _parts(text)
    for name, value in changes.items():
        line = re.compile(rf"^(?P<name>\s*{re.escape(name)}\s*=\s*){_VALUE}", re.M)
        literal = _literal(value)
        if found := line.search(head):
            changed = found["name"] + literal + found["rest"]
            head = head[: found.start()] + changed + head[found.end() :]
        else:
            head += ("" if not head or head.endswith("\n") else "\n") + f"{name} = {literal}\n"
    try:
        if _loads(head + tables) == wanted:
            return head + tables
    except ValueError:
        pass
    raise UsageError(f"{path}: cannot change {', '.join(changes)} there; edit the file by hand")


def _loads(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):  # the screen opens sooner without it
        import tomllib
    else:
        import tomli as tomllib

    content: dict[str, Any] = tomllib.loads(text)
    return content


def _parts(text: str) -> tuple[str, str]:
    """The lines of top-level keys, and those of the tables behind them."""
    found = re.search(r"^[ \t]*\[", text, re.M)
    at = len(text) if found is None else found.start()
    return text[:at], text[at:]


def _literal(value: str | bool | float) -> str:
    import json  # whose strings, numbers and truth values TOML reads; only for changes

    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _content(path: str) -> bytes:
    """Does not wait for a FIFO, nor read a device without end. Raises OSError, ValueError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb") as file:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            raise ValueError("a FIFO, not a regular file")
        content = file.read(MAX_BYTES + 1) or b""  # None: a terminal in which nothing was typed
    if len(content) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES >> 20} MiB")
    return content
