"""The formats of `gpumon export`: one module and one line of this table each."""

from __future__ import annotations

import importlib
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from gpumon.export.tables import Lines, Row, Table


class RowWriter(Protocol):
    """Writes rows to a stream, which it leaves open; after `close` all is written.

    `Lines` come only to writers of CSV.
    """

    def write(self, row: Row | Lines) -> None: ...
    def close(self) -> None: ...


class Format(NamedTuple):
    """How a format is written: by `Writer(table, stream)` of its module, a RowWriter.

    The module may offer `require()`, which raises GpumonError where something is not installed.
    """

    module: str  # of this package
    ending: str  # of its files
    is_binary: bool = False
    has_all_tables: bool = False  # in one file, instead of a folder with a file per table

    def _module(self) -> Any:
        return importlib.import_module(f"gpumon.export.{self.module}")

    def writer(self, table: Table | None, stream: IO[Any]) -> RowWriter:
        """A writer of this table, None: of all of them."""
        found: RowWriter = self._module().Writer(table, stream)
        return found

    def require(self) -> None:
        """Raise GpumonError where it cannot be written here."""
        getattr(self._module(), "require", lambda: None)()


#: name on the command line -> format
FORMATS = {
    "csv": Format("csv", "csv"),
    "parquet": Format("parquet", "parquet", is_binary=True),
    "json": Format("jsonl", "jsonl", has_all_tables=True),
}
