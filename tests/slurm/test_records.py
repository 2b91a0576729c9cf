"""Rows of the accounting: each is a job, a step of one, or counted as unread."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.slurm import records, sacct, saved
from gpumon.slurm.records import Unread

FIELDS = list(sacct.FIELDS)
ROW = {
    "JobIDRaw": "11", "JobID": "11", "Cluster": "alpha", "State": "COMPLETED", "ExitCode": "0:0",
    "Elapsed": "01:00:00", "ElapsedRaw": "3600", "Start": "1795200000", "End": "1795203600",
    "Timelimit": "02:00:00", "TimelimitRaw": "120", "NNodes": "1", "AllocCPUS": "8",
    "ReqMem": "64G", "AllocTRES": "cpu=8,mem=64G,node=1", "TotalCPU": "01:00:00", "User": "ada",
    "JobName": "train",
}  # fmt: skip
#: what Slurm prints where it has no figure, and what it never should
WORDS = (
    "", "UNLIMITED", "Partition_Limit", "INVALID", "Unknown", "None", "None assigned", "NONE",
    "(null)", "N/A", "16?", "16?c", "16?n", "-1", "-00:00:01", "18446744073709551614",
    "4294967294", "1.50K", "213503982334-14:25:51", "16G?", "CANCELLED by 4294967294", "0:-1",
    "cpu=16?,mem=16?", "2026-03-29T02:30:00", "1969-12-31T23:59:59", "9" * 400,
)  # fmt: skip


def line(row: dict[str, str], delimiter: str = "|") -> str:
    return delimiter.join(row.get(name, "") for name in FIELDS)


def parsed(lines: list[str], delimiter: str = "|") -> tuple[list[str], Unread]:
    unread = Unread()
    found = sacct.parse("\n".join(lines).encode(), delimiter, FIELDS, unread)
    return [job.id for job in found], unread


@pytest.mark.parametrize("word", WORDS)
def test_no_word_in_a_field_hides_a_job(word):
    for field in (name for name in FIELDS if not name.startswith("JobID")):
        found, unread = parsed([line({**ROW, field: word}), line({**ROW, "JobIDRaw": "12"})])
        assert len(found) == 2, field
        assert not unread.count


def test_a_row_with_one_readable_id_is_a_job():
    assert parsed([line({**ROW, "JobID": "16?"})])[0]
    assert parsed([line({**ROW, "JobIDRaw": ""})])[0] == ["11"]


JUNK = st.text(st.characters(exclude_characters="\n\r"), max_size=30) | st.sampled_from(WORDS)


@given(st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=6))
def test_a_row_of_junk_is_a_job_or_counted(junk):
    """By a delimiter that no text holds, as in gpumon's own calls."""
    delimiter = records.new_delimiter()
    unread = Unread()
    output = "\n".join(line(row, delimiter) for row in (ROW, {**ROW, **junk}, ROW))
    found = sacct.parse(output.encode("utf-8", "replace"), delimiter, FIELDS, unread)
    steps = sum(len(job.steps) for job in found)
    assert len(found) + steps + unread.count == 3
    assert "JobIDRaw" in junk or len(found) == 3


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=3), max_size=5))
def test_no_other_row_suffers_from_junk(rows):
    delimiter = records.new_delimiter()
    lines = [line({**ROW, "JobIDRaw": "99", **row}, delimiter) for row in rows]
    good = [line({**ROW, "JobIDRaw": f"{n}", "JobID": f"{n}"}, delimiter) for n in range(1, 4)]
    output = "\n".join([good[0], *lines, *good[1:]])
    found = sacct.parse(output.encode("utf-8", "replace"), delimiter, FIELDS)
    assert {"1", "2", "3"} <= {job.raw_id for job in found}


def test_rows_after_many_that_cannot_be_read():
    broken = [line(ROW).replace("COMPLETED", "completed", 1)[:30] for _ in range(200)]
    found, unread = parsed([*broken, line(ROW)])
    assert found == ["11"]
    assert unread.count == 200


def test_what_is_counted_is_shown_without_what_upsets_a_terminal():
    found, unread = parsed(["x\x1b[31m|y", line(ROW)])
    assert found == ["11"]
    assert str(unread) == "1 row of the accounting could not be read; the first: 'x?[31m|y'"


def test_steps_without_their_job_are_counted():
    found, unread = parsed([line({**ROW, "JobIDRaw": "7.batch", "JobID": "7.batch"})])
    assert (found, unread.count) == ([], 1)


def test_clusters_of_a_federation_use_the_same_numbers():
    text = "JobIDRaw|Cluster|State\n7|a|COMPLETED\n7|b|FAILED\n7.0|a|COMPLETED\n7.1|b|FAILED\n"
    one, other = saved.parse(text.encode())
    assert [(job.cluster, [step.id for step in job.steps]) for job in (one, other)] == [
        ("a", ["0"]),
        ("b", ["1"]),
    ]


def test_dumps_in_one_file():
    text = "JobIDRaw|State\n7|COMPLETED\nJobIDRaw|State\n8|FAILED\n"
    unread = Unread()
    assert [job.id for job in saved.parse(text.encode(), unread=unread)] == ["7", "8"]
    assert not unread.count


def test_rows_of_csv_and_json_are_counted():
    table = io.StringIO()
    csv.writer(table).writerows([["JobID", "State"], ["7", "COMPLETED"], ["8"], ["", "FAILED"]])
    unread = Unread()
    assert len(saved.parse(table.getvalue().encode(), unread=unread)) == 1
    assert unread.count == 2
    document = {"jobs": [{"job_id": 7, "state": "COMPLETED"}, 3, {"state": "FAILED"}]}
    unread = Unread()
    assert len(saved.parse(json.dumps(document).encode(), unread=unread)) == 1
    assert unread.count == 2
