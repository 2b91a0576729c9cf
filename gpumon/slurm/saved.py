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

#: a dump is read whole; a year of a busy site has a fraction of this
MAX_BYTES = 1 << 30

_HINT = "save one with: sacct -P -o ALL -j JOBID > FILE"
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9/]*")
#: what `-o JobID%20` leaves in no header, but people's exports put around a name
_QUOTES = "\"'"


def read(path: str, zone: tzinfo | None = None) -> list[Job]:
    """The jobs in the file. `zone` is that of its times (None: the system's).

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
        return parse(data, zone)
    except UsageError as error:
        raise UsageError(f"{shown} {error}") from error


def parse(data: bytes, zone: tzinfo | None = None) -> list[Job]:
    """The jobs in a dump. Raises UsageError where it is none, the name of the file left out."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").lstrip("\n")
    if text.lstrip()[:1] == "{":
        return _json(text)
    header, _, body = text.partition("\n")
    if not re.search(r"\bjobid(raw)?\b", header, re.IGNORECASE):
        raise UsageError(f"is no dump of sacct: its first line names no JobID; {_HINT}")
    if re.match(r"[- ]*-{3}[- ]*$", body.partition("\n")[0]):
        raise UsageError(f"is sacct's table for people, which cuts values; {_HINT}")
    rows = _csv_rows(text) if header.lstrip()[:1] in _QUOTES or "," in header else None
    jobs = sacct.jobs(rows if rows is not None else _rows(header, body), zone)
    if not jobs and body.strip():
        raise UsageError(f"holds no rows that fit its header; {_HINT}")
    return jobs


def _json(text: str) -> list[Job]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("is JSON that ends early or is broken; save it anew") from error
    if not isinstance(document.get("jobs"), list):
        raise UsageError(f"is JSON without a list of jobs; {_HINT}")
    return sacct_json.jobs(document)


def _rows(header: str, body: str) -> Iterator[dict[str, str]]:
    names = _FIELD.findall(header)
    between = _FIELD.split(header)
    delimiter = between[1] if len(between) > 2 else ""
    if not delimiter or not all(part == delimiter for part in between[1:-1]):
        raise UsageError(f"has a first line that is no list of sacct's fields; {_HINT}")
    trailing = [""] if between[-1] == delimiter else []
    yield from records.rows(body, delimiter, [*names, *trailing])


def _csv_rows(text: str) -> Iterator[dict[str, str]]:
    """Of comma-separated values with quotes around those that hold commas."""
    reader = csv.reader(io.StringIO(text))
    try:
        names = [name.strip(_QUOTES + " ").lower() for name in next(reader)]
        for values in reader:
            if len(values) == len(names):
                yield dict(zip(names, values))
    except csv.Error as error:
        raise UsageError(f"is a damaged CSV file: {error}; {_HINT}") from error
