"""A table as CSV (RFC 4180): a line of names, then a line per row; no value is an empty cell."""

from __future__ import annotations

import csv
import io
from typing import TextIO

from gpumon.export.tables import Lines, Row, Table, Value, told

#: a spreadsheet takes text that begins so for a formula, and commands are chosen by users
_FORMULA = ("=", "+", "-", "@")


class Writer:
    """Writes rows of one table to a text stream (opened with newline="")."""

    def __init__(self, table: Table, stream: TextIO) -> None:
        self._kinds = [column.kind for column in table.columns]
        self._stream = stream
        self._writer = csv.writer(stream, lineterminator="\n")
        self._writer.writerow([*(column.name for column in table.columns), "missing"])

    def write(self, row: Row | Lines) -> None:
        """One line, or several that are ready; the last cell has the missing values:
        `power_w=lost fan_percent=lost`.
        """
        if isinstance(row, Lines):
            self._stream.write(row.text)
            return
        cells = [_cell(value, kind) for value, kind in zip(row.values, self._kinds)]
        self._writer.writerow([*cells, missing_text(row.missing)])

    def close(self) -> None:
        """Nothing is held back."""


def missing_text(missing: dict[str, str]) -> str:
    """The reasons as one text, for formats without a table in a cell."""
    return " ".join(f"{name}={reason}" for name, reason in missing.items())


def _cell(value: Value, kind: str) -> Value:
    value = told(value, kind)
    return harmless(value) if kind == "text" and isinstance(value, str) else value


def line_of(table: Table, values: list[Value]) -> str:
    """The first values of a row as they stand in its line, without its end."""
    stream = io.StringIO()
    kinds = (column.kind for column in table.columns)
    csv.writer(stream, lineterminator="").writerow(map(_cell, values, kinds))
    return stream.getvalue()


def text_cell(text: str) -> str:
    """A text as it stands between the commas of a line."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow(["", _cell(text, "text")])
    return stream.getvalue()[1:]


def harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
