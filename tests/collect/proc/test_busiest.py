import subprocess

import pytest

from gpumon.collect.proc.busiest import Busiest
from gpumon.collect.procfs import ProcFs, Records
from tests.collect.trees import plant_process


@pytest.fixture
def resting():
    """PIDs of processes that do nothing."""
    found = [subprocess.Popen(["sleep", "600"]) for _ in range(40)]
    yield {each.pid for each in found}
    for each in found:
        each.kill()
        each.wait()


def test_of_processes_that_do_not_come_into_question_no_file_is_opened(monkeypatch, resting):
    opened = set()
    read = Records.read

    def counted(records, path):
        opened.add(int(path.split("/")[2]))
        return read(records, path)

    monkeypatch.setattr(Records, "read", counted)
    found = Busiest(ProcFs())
    for mono in (0.0, 6.0):
        shown = found.pids(5, mono)
        assert len(shown) == 5
        assert opened & resting <= set(shown)


def test_by_the_time_used_since_the_last_look_then_by_all_of_it(tmp_path):
    for pid, ticks in ((10, 500), (11, 300), (12, 200), (13, 100)):
        plant_process(tmp_path, pid, ticks=(ticks, 0))
    found = Busiest(ProcFs(str(tmp_path)))
    assert found.pids(3, 0.0) == [10, 11, 12]
    plant_process(tmp_path, 13, ticks=(101, 0))
    plant_process(tmp_path, 12, ticks=(200, 7))
    assert found.pids(3, 1.0) == [10, 11, 12]  # looked at every 5 s
    assert found.pids(3, 5.0) == [12, 13, 10]


def test_a_clock_that_went_back_is_that_of_another_process(tmp_path):
    for pid, ticks in ((10, 500), (11, 300)):
        plant_process(tmp_path, pid, ticks=(ticks, 0))
    found = Busiest(ProcFs(str(tmp_path)))
    found.pids(1, 0.0)
    plant_process(tmp_path, 10, ticks=(8, 0))
    plant_process(tmp_path, 11, ticks=(305, 0))
    assert found.pids(1, 5.0) == [10]


def test_threads_of_the_kernel_are_left_out_until_their_number_is_anothers(tmp_path):
    plant_process(tmp_path, 2, ticks=(900, 0), ppid=0)
    plant_process(tmp_path, 30, ticks=(800, 0), ppid=2)
    plant_process(tmp_path, 40, ticks=(1, 0))
    found = Busiest(ProcFs(str(tmp_path)))
    assert found.pids(2, 0.0) == [40]
    plant_process(tmp_path, 30, ticks=(700, 0), ppid=1)
    assert found.pids(2, 5.0) == [30, 40]


def test_looks_that_take_long_are_rarer(monkeypatch, tmp_path):
    plant_process(tmp_path, 10, ticks=(5, 0))
    found = Busiest(ProcFs(str(tmp_path)))
    times = iter([0.0, 0.03])
    monkeypatch.setattr("time.thread_time", lambda: next(times))
    found.pids(1, 0.0)  # 30 ms: 0.3 % of 10 s
    plant_process(tmp_path, 11, ticks=(9, 0))
    times = iter([1.0, 1.03] * 2)
    assert found.pids(1, 5.0) == [11]  # the first interval is not known to be short
    plant_process(tmp_path, 12, ticks=(20, 0))
    assert found.pids(1, 10.0) == [11]
    assert found.pids(1, 15.0) == [12]
