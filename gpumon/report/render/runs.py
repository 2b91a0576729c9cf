"""The recorded runs as cells of a table, as plain text, and as JSON."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, plural
from gpumon.report.render.layout import aligned

if TYPE_CHECKING:
    from gpumon.recording.runs import Run

HEAD = ("ID", "what", "where", "start", "length", "size", "state")
_RIGHT = [HEAD.index(name) for name in ("length", "size")]
_NO_GPU = "no GPU"


def cells(run: Run) -> list[str]:
    """In the order of the head; any text in them is clean."""
    more = len(run.nodes) - 1
    return [
        short_path(clean(run.id, 200)),
        clean(run.name, 60) or gpus_text(run),
        clean(run.nodes[0], 60) + (f" +{more}" if more else ""),
        _when(run.start),
        age_text(run.end - run.start),
        bytes_text(run.size_bytes),
        run.state,
    ]


def _when(at: float) -> str:
    """`23 Nov 17:22`, of another year with that in place of the time, as `ls -l` has it."""
    local = time.localtime(at)
    is_this_year = local.tm_year == time.localtime().tm_year
    return time.strftime("%d %b %H:%M" if is_this_year else "%d %b  %Y", local)


def gpus_text(run: Run) -> str:
    """`8 × A100-SXM4-80GB`: what a run outside of a job can be told by."""
    counts = Counter(clean(name, 60).removeprefix("NVIDIA ") for name in run.devices)
    return " + ".join(f"{count} × {name}" for name, count in counts.items()) or _NO_GPU


def total_text(runs: Sequence[Run], folder: str) -> str:
    """`12 runs, 1.3 GiB in ~/.local/state/gpumon`."""
    size = bytes_text(sum(run.size_bytes for run in runs))
    return f"{plural(len(runs), 'run')}, {size} in {short_path(folder)}"


def short_path(path: str) -> str:
    """With `~` for the home folder, as shells take it."""
    home = os.path.expanduser("~") + os.sep
    return "~" + os.sep + path[len(home) :] if path.startswith(home) else path


def text_table(runs: Sequence[Run], folder: str) -> str:
    head = tuple(name.upper() for name in HEAD)
    lines = aligned([head, *map(cells, runs)], _RIGHT)
    return "\n".join([*lines, "", total_text(runs, folder)]) + "\n"


def json_text(runs: Sequence[Run]) -> str:
    return json.dumps({"version": 1, "runs": [_body(each) for each in runs]})


def _body(run: Run) -> dict[str, Any]:
    """`job`, `name` and `cluster` are null outside of a job."""
    return {
        "id": run.id,
        "cluster": run.cluster or None,
        "job": run.job or None,
        "name": run.name or None,
        "nodes": run.nodes,
        "gpus": len(run.devices),
        "start": run.start,
        "end": run.end,
        "size_bytes": run.size_bytes,
        "state": run.state,
        "paths": run.paths,
    }
