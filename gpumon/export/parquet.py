"""A table as Parquet, in row groups, so that memory does not grow with the run. Needs pyarrow."""

from __future__ import annotations

import importlib
from typing import Any, BinaryIO

from gpumon.errors import GpumonError
from gpumon.export.csv import missing_text
from gpumon.export.tables import Row, Table, Value

#: some tens of megabytes while they wait; fewer make files larger and slower to read
_ROWS_PER_GROUP = 20_000
MAX_TEXT_BYTES = 8 << 20  # of the texts among them
_INT64 = 1 << 63


def require() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet, or a GpumonError that names what to install."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise GpumonError(
            "Parquet needs pyarrow: pip install 'gpumon-slurm[parquet]', or export --to csv"
        ) from None


class Writer:
    """Writes rows of one table to a binary stream; all numbers are doubles, `time` is UTC."""

    def __init__(self, table: Table, stream: BinaryIO) -> None:
        self._pyarrow, parquet = require()
        types = {
            "time": self._pyarrow.timestamp("ms", tz="UTC"),
            "number": self._pyarrow.float64(),
            "int": self._pyarrow.int64(),
            "text": self._pyarrow.string(),
        }
        self._schema = self._pyarrow.schema(
            [
                *(
                    self._pyarrow.field(
                        column.name,
                        types[column.kind],
                        metadata={"unit": column.unit} if column.unit else None,
                    )
                    for column in table.columns
                ),
                self._pyarrow.field("missing", types["text"]),
            ]
        )
        self._kinds = [column.kind for column in table.columns]
        self._text_bytes = 0
        self._columns: list[list[Value]] = [[] for _ in self._schema]
        self._writer = parquet.ParquetWriter(stream, self._schema, compression="zstd")

    def write(self, row: Row) -> None:
        for column, kind, value in zip(self._columns, self._kinds, row.values):
            column.append(_stored(value, kind))
            if isinstance(value, str):
                self._text_bytes += value.__sizeof__()
        self._columns[-1].append(missing_text(row.missing) or None)
        if len(self._columns[0]) >= _ROWS_PER_GROUP or self._text_bytes > MAX_TEXT_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        arrays = [
            self._pyarrow.array(column, field.type)
            for column, field in zip(self._columns, self._schema)
        ]
        self._writer.write_table(self._pyarrow.Table.from_arrays(arrays, schema=self._schema))
        self._text_bytes = 0
        for column in self._columns:
            column.clear()


def _stored(value: Value, kind: str) -> Value:
    if value is None or kind == "text":
        return value
    if kind == "int":
        return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None
    return round(float(value) * 1000) if kind == "time" else float(value)
