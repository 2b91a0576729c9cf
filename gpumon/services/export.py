"""Writes a recorded run as tables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from gpumon.errors import UsageError
from gpumon.export import tables
from gpumon.export.cells import CellDecoder, CellTables
from gpumon.export.formats import FORMATS
from gpumon.export.write import write_file, write_folder
from gpumon.services.runs import Stream, open_run, spare_recordings


def export(run: str, to: str, table: str | None, output: str | None) -> list[str]:
    """All tables or one; what the run lacks, in sentences.

    Raises UsageError, NotFoundError, GpumonError, OSError.
    """
    format = FORMATS[to]
    format.require()  # before anything is made
    one_file = bool(table) or format.has_all_tables
    to_screen = output in (None, "", "-") and sys.stdout.isatty()
    if one_file and format.is_binary and to_screen:
        raise UsageError(f"{to} cannot be written to a terminal; name a file with -o")
    spare_recordings(output, [run])
    streams = open_run(run)
    left_out: list[str] = []
    rows = _rows(streams, table, left_out, as_cells=to == "csv")
    if one_file:
        write_file(rows, format, table, output)
    else:
        folder = output or _folder(run)
        counts = write_folder(rows, format, folder).items()
        written = ", ".join(f"{name} {count:,}" for name, count in counts) or "nothing"
        print(f"{folder}: rows of {written}")
    return [f"{each.node}: {said}" for each in streams for said in each.problems] + left_out


def _rows(
    streams: list[Stream], table: str | None, left_out: list[str], *, as_cells: bool
) -> Iterator[tables.Row | tables.Lines]:
    """Of all nodes, one after the other; what could not be kept is added to `left_out`.

    `as_cells`: lines of recordings become lines of CSV where nothing needs their readings.
    """
    for stream in streams:
        problems: list[str] = []
        items = stream.items
        if as_cells and stream.joined is not None:
            items = stream.joined.items(decoder=CellDecoder)
        for row in tables.rows(items, problems, CellTables() if as_cells else None):
            if table in (None, row.table.name):
                yield row
        left_out += [f"{stream.node}: {each}" for each in problems]


def _folder(run: str) -> str:
    """`gpumon-4711` for a job, `gpumon-gpu01-20261121T201202` for a file of that name."""
    name = os.path.basename(run.rstrip("/")).split(".")[0]
    return "gpumon-" + (re.sub(r"[^\w+,-]", "_", name) or "run")
