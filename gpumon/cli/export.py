"""`gpumon export`: a recorded run as tables for pandas, polars, DuckDB, R or a spreadsheet."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from gpumon.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from gpumon.cli.recorded import Stream
    from gpumon.export.tables import Row

#: the tables of `export.tables`, named here because --help imports nothing
TABLES = ("device", "usage", "process", "host", "job", "net", "disk", "event")
_ENDINGS = {"csv": "csv", "parquet": "parquet", "json": "jsonl"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a recording, a folder of them, or a job id")
    parser.add_argument("--to", required=True, choices=tuple(_ENDINGS), help="the format")
    parser.add_argument("--table", choices=TABLES, help="only this one, in one file")
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="for CSV and Parquet without --table: a new folder (gpumon-RUN); else a file "
        "(-: standard output)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from gpumon.cli.recorded import open_run, spare_recordings

    one_file = bool(args.table) or args.to == "json"
    if args.to == "parquet":
        from gpumon.export.parquet import load_pyarrow

        load_pyarrow()  # what is missing is said before anything is made
        if one_file and (not args.output or (args.output == "-" and sys.stdout.isatty())):
            raise UsageError("Parquet is not for a terminal: name the file with -o")
    spare_recordings(args.output, [args.run])
    streams = open_run(args.run)
    problems: list[str] = []
    rows = _rows(streams, args.table, problems)
    if one_file:
        _write_file(rows, args.to, args.table, args.output)
    else:
        _write_folder(rows, args.to, args.output or _folder(args.run))
    for stream in streams:
        for problem in stream.problems:
            print(f"gpumon: {stream.node}: {problem}", file=sys.stderr)
    for problem in problems:
        print(f"gpumon: {problem}", file=sys.stderr)
    return EXIT_OK


def _rows(streams: list[Stream], table: str | None, problems: list[str]) -> Iterator[Row]:
    """Of all nodes, one after the other; what could not be kept is added to `problems`."""
    from gpumon.export import tables

    for stream in streams:
        left_out: list[str] = []
        for row in tables.rows(stream.items, left_out):
            if table in (None, row.table.name):
                yield row
        problems += [f"{stream.node}: {each}" for each in left_out]


def _folder(run: str) -> str:
    """`gpumon-4711` for a job, `gpumon-gpu01-20261121T201202` for a file of that name."""
    name = os.path.basename(run.rstrip("/")).split(".")[0]
    return "gpumon-" + (re.sub(r"[^\w+,-]", "_", name) or "run")


def _write_file(rows: Iterable[Row], to: str, table: str | None, path: str | None) -> None:
    if path is not None and os.path.isdir(path):
        raise UsageError(f"{path} is a folder; name a file with -o")
    output = _Output(to, table, path)
    with _kept([output]):
        for row in rows:
            output.write(row)


def _write_folder(rows: Iterable[Row], to: str, folder: str) -> None:
    """A file per table that has rows; says what it wrote."""
    from gpumon.files import new_folder

    if folder == "-":
        raise UsageError("several tables need a folder: name one with -o, or a table with --table")
    outputs: dict[str, _Output] = {}
    counts: dict[str, int] = {}
    with new_folder(folder) as place, _kept(outputs.values()):
        for row in rows:
            name = row.table.name
            if name not in outputs:
                outputs[name] = _Output(to, name, f"{name}.{_ENDINGS[to]}", place)
            outputs[name].write(row)
            counts[name] = counts.get(name, 0) + 1
    told = ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "nothing"
    print(f"{folder}: rows of {told}")


class _Writer(Protocol):
    def write(self, row: Row) -> None: ...
    def close(self) -> None: ...


class _Output:
    """A table, or all of them, in a file; or on standard output (None, "-")."""

    def __init__(
        self, to: str, table: str | None, path: str | None, place: int | None = None
    ) -> None:
        """`place`: the descriptor of the file's folder."""
        from gpumon.files import Output

        self._path, self._place = path, place
        self._is_kept = False
        self._file: Output | None = None
        stream: Any = sys.stdout.buffer if to == "parquet" else sys.stdout
        if path is not None and path != "-":
            self._file = Output(path, folder=place)
            stream = self._file.stream
            if to != "parquet":
                stream = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        self._stream = stream
        self._writer = _writer(to, table, stream)
        self.write = self._writer.write

    def close(self) -> None:
        """All is written."""
        self._writer.close()
        self._stream.flush()
        if self._file is not None:
            self._file.close()

    def keep(self) -> None:
        if self._file is not None:
            self._file.keep()
        self._is_kept = True

    def discard(self) -> None:
        with suppress(Exception):  # a disk that is full is so to the end
            self._writer.close()
        if self._file is not None:
            self._file.discard()
        if self._is_kept and self._path is not None and self._place is not None:
            os.unlink(self._path, dir_fd=self._place)


@contextmanager
def _kept(outputs: Collection[_Output]) -> Iterator[None]:
    """All files when all went well, else none."""
    try:
        yield
        for output in outputs:
            output.close()
        for output in outputs:
            output.keep()
    except BaseException:
        for output in outputs:
            output.discard()
        raise


def _writer(to: str, table: str | None, stream: Any) -> _Writer:
    from gpumon.export.tables import TABLES as tables

    if to == "json":
        from gpumon.export.jsonl import JsonWriter

        return JsonWriter(stream)
    assert table is not None
    if to == "csv":
        from gpumon.export.csv import CsvWriter

        return CsvWriter(tables[table], stream)
    from gpumon.export.parquet import ParquetWriter

    return ParquetWriter(tables[table], stream)
