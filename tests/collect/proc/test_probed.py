"""What the agent takes from the files of probes: never more than one of them may say."""

import json
import math
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect.base import Tick
from gpumon.collect.proc.probed import Probed, pool_row, program_row
from gpumon.collect.procfs import ProcFs
from gpumon.model.fields import FIELDS
from gpumon.model.text import clean

GIB = 1 << 30
POOL = {"device": 1, "used": 2 * GIB, "peak": 3 * GIB, "reserved": 4 * GIB, "reserved_peak": None}


@contextmanager
def program(**environ):
    """A process that waits."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environ},
    )  # fmt: skip
    try:
        child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.communicate()


def probed(
    folder, told, *, numbers=lambda visible, order: {0: 10, 1: 11}, variable=None, age_s=0.0
):
    """The rows of a tick, of a process whose probe told this."""
    proc = ProcFs("/proc")
    with program(GPUMON_PROBE_DIR=variable or str(folder)) as child:
        stat = proc.stat(child.pid)
        path = folder / f"{child.pid}-{stat.start_ticks}.json"
        if callable(told):
            told(path)
        else:
            path.write_text(told if isinstance(told, str) else json.dumps(told))
            os.utime(path, (time.time() - age_s,) * 2)
        tick = Tick(time.time(), 0.0)
        files = Probed(numbers, proc=proc)
        files.find(child.pid, stat, os.getuid())
        files.put(tick, child.pid)
        return {
            entity: [row for _, row in sorted(rows.items())] for entity, rows in tick.rows.items()
        }


def test_pools_are_those_of_devices_and_steps_those_of_the_process(tmp_path):
    told = {"pools": [POOL], "steps": 5, "step_s": 0.25, "place": "a.py:3 \x1b[2Jwait"}
    assert probed(tmp_path, told) == {
        "pool": [{"used_bytes": 2 * GIB, "peak_bytes": 3 * GIB, "reserved_bytes": 4 * GIB}],
        "program": [{"steps": 5, "step_us": 250_000, "place": "a.py:3 ?[2Jwait"}],
    }


def test_a_program_that_began_to_watch_itself_writes_to_the_usual_folder(tmp_path):
    """Most never do: its file is looked for now and then, and at the end."""
    proc, folder = ProcFs("/proc"), tmp_path / f"gpumon-probe-{os.getuid()}"
    folder.mkdir()

    def steps(call):
        call(tick := Tick(time.time(), 0.0), child.pid)
        return tick.rows.get("program", {}).get(child.pid, {}).get("steps")

    with program(TMPDIR=str(tmp_path)) as child:
        stat = proc.stat(child.pid)
        files = Probed(lambda visible, order: {}, proc=proc)
        files.find(child.pid, stat, os.getuid())
        path = folder / f"{child.pid}-{stat.start_ticks}.json"
        assert steps(files.put) is None
        path.write_text('{"steps": 5}')
        assert [steps(files.put) for _ in range(5)] == [None, None, None, 5, 5]
        path.rename(tmp_path / "kept")
        assert steps(files.put) is None
        (tmp_path / "kept").rename(path)
        assert steps(files.end) == 5


class _Titled(ProcFs):
    """One in which the title of a process stands where its environment was."""

    pid = 0

    def content(self, pid, name):
        titled = (pid, name) == (self.pid, "environ")
        return b"rank 0\0" if titled else super().content(pid, name)


def test_a_process_with_a_title_writes_where_its_parent_would(tmp_path, monkeypatch):
    proc = _Titled("/proc")
    with program() as child:
        proc.pid = child.pid
        stat = proc.stat(child.pid)
        here = ProcFs("/proc").content(stat.ppid, "environ")
        folder = tmp_path / "told"
        folder.mkdir()
        monkeypatch.setattr(
            "gpumon.collect.proc.probed.parse_environ",
            lambda content: {"GPUMON_PROBE_DIR": str(folder)} if content == here else None,
        )
        (folder / f"{child.pid}-{stat.start_ticks}.json").write_text('{"steps": 5}')
        files = Probed(lambda visible, order: {}, proc=proc)
        files.find(child.pid, stat, os.getuid())
        files.put(tick := Tick(time.time(), 0.0), child.pid)
    assert tick.rows["program"] == {child.pid: {"steps": 5}}


def test_the_number_of_a_device_is_what_the_process_was_shown(tmp_path):
    asked = []

    def numbers(visible, order):
        asked.append((visible, order))
        return {1: 7}

    told = {"pools": [POOL, {**POOL, "device": 0}], "visible": "3,5", "order": "PCI_BUS_ID"}
    assert len(probed(tmp_path, told, numbers=numbers)["pool"]) == 1
    assert asked == [("3,5", "PCI_BUS_ID")]


def test_two_frameworks_on_one_device_hold_what_they_hold_together(tmp_path):
    (row,) = probed(tmp_path, {"pools": [POOL, POOL]})["pool"]
    assert row["used_bytes"] == 4 * GIB


@pytest.mark.parametrize("age_s", [60, -60, -86_400])
def test_what_was_told_long_ago_or_will_be_tomorrow_is_not_told(tmp_path, age_s):
    assert probed(tmp_path, {"steps": 5}, age_s=age_s) == {}
    assert probed(tmp_path, {"steps": 5}, age_s=math.copysign(1, age_s)) != {}


def test_only_a_small_file_of_the_user_s_own_is_read(tmp_path):
    other = tmp_path / "other"
    other.write_text('{"steps": 5}')
    theirs = lambda path: (path.write_text('{"steps": 5}'), os.chown(path, 12345, -1))  # noqa: E731
    for tell in (
        *([theirs] if os.getuid() == 0 else []),
        lambda path: path.symlink_to(other),
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
        lambda path: path.write_text('{"steps": 5, "place": "' + "x" * (1 << 20) + '"}'),
        lambda path: path.write_text("[" * 50_000),
        lambda path: None,
    ):
        assert probed(tmp_path, tell) == {}
    assert probed(tmp_path, {"steps": 5}, variable="told") == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NAMES = ["used", "peak", "reserved", "limit", "retries", "device", "by", "uuid"]


def test_numbers_that_nothing_can_have_are_left_out(tmp_path):
    """Python's integers have no bound, and a time in s becomes one in µs."""
    huge = 10**400
    assert pool_row({"used": huge, "peak": 1 << 40}) == {"peak_bytes": 1 << 40}
    assert program_row({"steps": huge, "step_s": 1e305, "step_p95_s": float("nan")}) == {}
    assert program_row({"rank": 2.5, "worker": 1e300}) == {}
    assert program_row({"rank": 3, "worker": huge}) == {"rank": 3}
    assert probed(tmp_path, {"pools": [{"device": 1, "used": huge}], "steps": huge}) == {
        "pool": [{}]
    }


@given(st.dictionaries(st.sampled_from(NAMES), JSON))
def test_a_pool_has_numbers_alone(pool):
    row = pool_row(pool)
    assert row.keys() <= FIELDS["pool"].keys()
    assert all(value >= 0 for value in row.values())


@given(st.dictionaries(st.sampled_from(["steps", "step_s", "data_wait_percent", "place"]), JSON))
def test_a_program_has_numbers_and_a_clean_place(told):
    row = program_row(told)
    assert row.keys() <= FIELDS["program"].keys()
    assert str(row.get("place", "")) == clean(str(row.get("place", "")))
