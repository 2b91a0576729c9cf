"""What five releases of Slurm printed for the same 18 kinds of job.

`samples/RELEASE-SETUP.tar.xz` holds files of one cluster each; its COMMANDS.tsv tells for each
file the host, the user, the exit code, the command and what it wrote to stderr. Times are UTC.
"""

from __future__ import annotations

import csv
import io
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "samples"
#: clusters with device cgroups, one per release
RELEASES = ("22.05.8", "23.11.11", "24.11.7", "25.05.8", "26.05.3")
#: all clusters on which the 18 kinds of job ran
CLUSTERS = (*(f"{release}-cgroupv1" for release in RELEASES), "22.05.8-nocgroup")


class Command(NamedTuple):
    file: str
    host: str
    user: str
    code: int
    command: str
    err: str


@cache
def files(cluster: str) -> dict[str, bytes]:
    """Everything of one cluster, by file name."""
    with tarfile.open(_FOLDER / f"{cluster}.tar.xz") as archive:
        return {
            member.name.partition("/")[2]: archive.extractfile(member).read()
            for member in archive.getmembers()
            if member.isfile()
        }


def read(cluster: str, name: str) -> bytes:
    return files(cluster)[name]


@cache
def commands(cluster: str) -> dict[str, Command]:
    """What was run for each file."""
    text = read(cluster, "COMMANDS.tsv").decode()
    rows = csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    next(rows)
    return {
        file: Command(file, host, user, int(code[3:]), command, err)
        for file, host, user, code, _time, _size, command, err in rows
    }


@cache
def job_ids(cluster: str) -> dict[str, str]:
    """Kind of job -> its id."""
    ids: dict[str, str] = json.loads(read(cluster, "jobids.json"))
    return ids
