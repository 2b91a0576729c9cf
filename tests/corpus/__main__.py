"""`python -m tests.corpus` prints the confusion table; `--write` puts it into docs/corpus.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.corpus.table import text

DOCUMENT = Path(__file__).parents[2] / "docs" / "corpus.md"
_BEGIN, _END = "<!-- table -->\n", "\n<!-- end -->"


def table_of(document: str) -> str:
    """The table that stands in the document."""
    return document.partition(_BEGIN)[2].partition(_END)[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.name} too")
    arguments = parser.parse_args()
    table = text()
    if arguments.write:
        before, _, rest = DOCUMENT.read_text().partition(_BEGIN)
        after = rest.partition(_END)[2]
        DOCUMENT.write_text(f"{before}{_BEGIN}{table}{_END}{after}")
    print(table)


if __name__ == "__main__":
    main()
