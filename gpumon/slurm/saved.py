"""A dump of `sacct` that someone saved: in any delimiter, as CSV, or as JSON.

The names in its first line tell its fields. It needs JobID or JobIDRaw, and State.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import tzinfo

from gpumon.errors import UsageError
from gpumon.model.text import clean
from gpumon.slurm import records, sacct, sacct_json
from gpumon.slurm.job import Job
from gpumon.slurm.records import Unread

#: a dump is read whole; a year of a busy site has a fraction of this
MAX_BYTES = 1 << 30

_HINT = "save one with: sacct -P -o ALL -j JOBID > FILE"
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9/]*")
#: what `-o JobID%20` leaves in no header, but people's exports put around a name
_QUOTES = "\"'"


def read(path: str, zone: tzinfo | None = None, unread: Unread | None = None) -> list[Job]:
    """The jobs in the file. `zone` is that of its times (None: the system's); rows that cannot be
    read go to `unread`.

    Raises UsageError, in one sentence, where it cannot be read or is no such dump.
    """
    shown = clean(path, 200)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {shown}: {reason}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{shown} is larger than 1 GiB; save fewer jobs")
    try:
        return parse(data, zone, unread)
    except UsageError as error:
        raise UsageError(f"{shown} {error}") from error


def parse(data: bytes, zone: tzinfo | None = None, unread: Unread | None = None) -> list[Job]:
    """The jobs in a dump. Raises UsageError where it is none, the name of the file left out."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").lstrip("\n")
    if text.lstrip()[:1] == "{":
        return _json(text, unread)
    header, _, body = text.partition("\n")
    if not re.search(r"\bjobid(raw)?\b", header, re.IGNORECASE):
        raise UsageError(f"is not a dump of sacct: its first line names no JobID; {_HINT}")
    if re.match(r"[- ]*-{3}[- ]*$", body.partition("\n")[0]):
        raise UsageError(f"is sacct's default table, which truncates values; {_HINT}")
    is_csv = header.lstrip()[:1] in _QUOTES or "," in header
    rows = _csv_rows(text, unread) if is_csv else _rows(header, body, unread)
    jobs = sacct.jobs(rows, zone, unread)
    if not jobs and body.strip():
        raise UsageError(f"has no rows that match its header; {_HINT}")
    return jobs


def _json(text: str, unread: Unread | None) -> list[Job]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("is incomplete or invalid JSON; save it again") from error
    if not isinstance(document.get("jobs"), list):
        raise UsageError(f"is JSON without a list of jobs; {_HINT}")
    return sacct_json.jobs(document, unread)


def _rows(header: str, body: str, unread: Unread | None) -> Iterator[dict[str, str]]:
    names = _FIELD.findall(header)
    between = _FIELD.split(header)
    delimiter = between[1] if len(between) > 2 else ""
    if not delimiter or not all(part == delimiter for part in between[1:-1]):
        raise UsageError(f"has a first line that is not a list of sacct's fields; {_HINT}")
    trailing = [""] if between[-1] == delimiter else []
    if header in body:  # of several dumps in one file
        body = "\n".join(line for line in body.split("\n") if line != header)
    yield from records.rows(body, delimiter, [*names, *trailing], unread)


def _csv_rows(text: str, unread: Unread | None) -> Iterator[dict[str, str]]:
    """Of comma-separated values with quotes around those that hold commas."""
    reader = csv.reader(io.StringIO(text))
    try:
        names = [name.strip(_QUOTES + " ").lower() for name in next(reader)]
        for values in reader:
            if len(values) == len(names):
                yield dict(zip(names, values))
            elif unread is not None and any(values):
                unread.add(",".join(values))
    except csv.Error as error:
        raise UsageError(f"is a damaged CSV file: {error}; {_HINT}") from error
