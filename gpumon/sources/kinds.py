"""What a file that is no recording seems to be, in words for the person who named it."""

from __future__ import annotations

_SIGNATURES = (
    (b"\x7fELF", "a program"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PAR1", "a Parquet file"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
    (b"#!", "a script"),
    (b"<", "an HTML or XML file"),
    (b"{", "a JSON file"),
)


def kind_of(head: bytes) -> str:
    """By how the file begins: `a text file`, `a script`, `empty`."""
    if not head.strip():
        return "empty"
    for begin, kind in _SIGNATURES:
        if head.lstrip().startswith(begin):
            return kind
    first = head.partition(b"\n")[0]
    if b"JobID" in first and b"|" in first:
        return "a dump of sacct (see 'gpumon report --from-sacct')"
    return "a binary file" if b"\0" in head else "a text file"
