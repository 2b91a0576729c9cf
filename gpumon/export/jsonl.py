"""Rows of all tables as lines of JSON: an object each, null with its reason in `missing`."""

from __future__ import annotations

import json
from typing import Any, TextIO

from gpumon.export.tables import Row, Table, told


class Writer:
    """Writes rows of any table to a text stream; `table` comes first."""

    def __init__(self, table: Table | None, stream: TextIO) -> None:
        self._stream = stream

    def write(self, row: Row) -> None:
        body: dict[str, Any] = {"table": row.table.name}
        for column, value in zip(row.table.columns, row.values):
            body[column.name] = told(value, column.kind)
        body["missing"] = row.missing
        self._stream.write(json.dumps(body, separators=(",", ":"), allow_nan=False) + "\n")

    def close(self) -> None:
        """Nothing is held back."""
