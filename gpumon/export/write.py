"""Writes rows to files, all of them whole or none at all; or to standard output."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gpumon.errors import UsageError
from gpumon.export.formats import Format
from gpumon.export.tables import TABLES, Lines, Row
from gpumon.files import Output, new_folder


def write_file(
    rows: Iterable[Row | Lines], to: Format, table: str | None, path: str | None
) -> None:
    """One table, or all of them (None), in one file; `path` None or "-": standard output.

    Raises UsageError, OSError.
    """
    if path is not None and os.path.isdir(path):
        raise UsageError(f"{path} is a folder; name a file with -o")
    output = _File(to, table, path)
    with _kept([output]):
        for row in rows:
            output.write(row)


def write_folder(rows: Iterable[Row | Lines], to: Format, folder: str) -> dict[str, int]:
    """A file per table that has rows; the number of rows by table. Raises UsageError, OSError."""
    if folder == "-":
        raise UsageError("several tables need a folder: name one with -o, or a table with --table")
    files: dict[str, _File] = {}
    counts: dict[str, int] = {}
    with new_folder(folder) as place, _kept(files.values()):
        for row in rows:
            name = row.table.name
            if name not in files:
                files[name] = _File(to, name, f"{name}.{to.ending}", place)
            files[name].write(row)
            counts[name] = counts.get(name, 0) + (row.number if isinstance(row, Lines) else 1)
    return counts


class _File:
    """A table, or all of them, in a file; or on standard output (None, "-")."""

    def __init__(
        self, to: Format, table: str | None, path: str | None, place: int | None = None
    ) -> None:
        """`place`: the descriptor of the file's folder."""
        self._path, self._place = path, place
        self._is_kept = False
        self._file: Output | None = None
        stream: Any = sys.stdout.buffer if to.is_binary else sys.stdout
        if path is not None and path != "-":
            self._file = Output(path, folder=place)
            stream = self._file.stream
            if not to.is_binary:
                stream = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        self._stream = stream
        self._writer = to.writer(TABLES[table] if table else None, stream)
        self.write = self._writer.write

    def close(self) -> None:
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
def _kept(files: Collection[_File]) -> Iterator[None]:
    """All files when all went well, else none."""
    try:
        yield
        for file in files:
            file.close()
        for file in files:
            file.keep()
    except BaseException:
        for file in files:
            file.discard()
        raise
