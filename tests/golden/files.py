"""Files of named sections of text, and how a section that differs is shown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
#: begins the line with a section's name
MARK = "=== "
#: of a difference that are shown
_LINES = 80


def path_of(name: str) -> Path:
    """`pages/corpus-cpu` as a file."""
    return FOLDER / f"{name}.txt"


@cache
def sections(name: str) -> Mapping[str, str]:
    """The text of each section of a file, by its name; none where there is no such file."""
    path = path_of(name)
    if not path.exists():
        return {}
    parts = ("\n" + path.read_text()).split(f"\n{MARK}")[1:]
    pairs = (part.partition("\n") for part in parts)
    return {title: text.strip("\n") for title, _, text in pairs}


def write(name: str, texts: Mapping[str, str]) -> None:
    """The file anew, its sections in the order of `texts`."""
    path_of(name).parent.mkdir(exist_ok=True)
    path_of(name).write_text(
        "".join(f"{MARK}{title}\n{_tidy(text)}\n\n" for title, text in texts.items())
    )


def difference(name: str, title: str, text: str) -> str:
    """How `text` differs from what the file has, and how to write it anew; "" if it does not."""
    before, after = sections(name).get(title, ""), _tidy(text)
    if before == after:
        return ""
    path = path_of(name).relative_to(FOLDER.parents[1])
    lines = list(difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{path}: {title}", "now", lineterm="", n=1
    ))  # fmt: skip
    more = [f"… {len(lines) - _LINES} more lines"] if len(lines) > _LINES else []
    wanted = "wanted? python -m tests.golden --write, and say why in the commit"
    return "\n".join([*lines[:_LINES], *more, wanted, ""])


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
