import os
import time

import psutil
import pytest

from gpumon.collect.base import Tick
from gpumon.collect.host import (
    CpuTicks,
    Host,
    core_levels,
    parse_cpu_ticks,
    parse_disks,
    parse_loadavg,
    parse_meminfo,
)
from gpumon.collect.procfs import TICKS_PER_S, look
from gpumon.model.fields import FIELDS
from gpumon.model.reading import MEASURING, Missing

from .trees import plant

STAT = (
    "cpu  {user} 0 0 {idle} {iowait} 0 0 0 50 0\ncpu0 {user} 0 0 {idle} 0 0 0 0 0 0\n"
    "cpu2 0 0 0 {idle} {iowait} 0 0 0 0 0\nintr 1 2 3\nbtime 1700000000\n"
)
DISKSTATS = """   8       0 sda 1 0 {read} 1 1 0 {written} 1 0 0 0
   8       1 sda1 1 0 {read} 1 1 0 {written} 1 0 0 0
 253       0 dm-0 1 0 {read} 1 1 0 {written} 1 0 0 0
"""
MEMINFO = """MemTotal:       24684084 kB
MemFree:        22902808 kB
MemAvailable:   23320064 kB
Buffers:            4180 kB
Cached:           541736 kB
Shmem:             41736 kB
SwapTotal:          2048 kB
SwapFree:           1024 kB
HugePages_Total:       7
"""


def tree(root, user=100, idle=900, iowait=0):
    plant(
        root,
        {
            "stat": STAT.format(user=user, idle=idle, iowait=iowait),
            "meminfo": MEMINFO,
            "loadavg": "3.38 1.59 1.10 12/403 1540\n",
            "diskstats": DISKSTATS.format(read=user * 2048, written=idle * 2048),
            "pressure/cpu": "some avg10=2.50 avg60=0.00 avg300=0.05 total=5\n",
        },
    )
    return str(root)


def collected(host, mono):
    tick = Tick(1e9, mono)
    host.collect(tick)
    return tick.rows["host"][""]


def test_readings(tmp_path):
    host = Host(proc=tree(tmp_path))
    first = collected(host, 1.0)
    assert set(first) == set(FIELDS["host"])
    assert first["cpu_percent"] == MEASURING
    assert first["mem_used_bytes"] == (24684084 - 23320064) * 1024
    assert first["mem_cache_bytes"] == 500000 * 1024
    assert first["swap_used_bytes"] == 1024 * 1024
    assert (first["load1"], first["load5"], first["load15"]) == (3.38, 1.59, 1.10)
    assert first["cpu_pressure_percent"] == 2.5
    assert str(first["mem_pressure_percent"]) == "n/a kernel without PSI"
    tree(tmp_path, user=130, idle=960, iowait=10)
    second = collected(host, 2.0)
    assert second["cpu_percent"] == pytest.approx(30)
    assert second["iowait_percent"] == pytest.approx(10)
    assert "cpu_pressure_percent" not in second  # every 5 s
    tree(tmp_path, user=150, idle=1030, iowait=5)
    assert collected(host, 3.0)["iowait_percent"] == Missing("implausible")


def test_counters_that_go_back_are_no_negative_percentages(tmp_path):
    host = Host(proc=tree(tmp_path, user=1000, idle=9000))
    collected(host, 1.0)
    tree(tmp_path, user=10, idle=20)
    assert collected(host, 2.0)["cpu_percent"] == Missing("implausible")


def test_files_that_are_absent(tmp_path):
    readings = collected(Host(proc=str(tmp_path)), 1.0)
    assert set(readings) == set(FIELDS["host"])
    assert all(isinstance(reading, Missing) for reading in readings.values())


def test_memory_without_available_is_not_guessed(tmp_path):
    tree(tmp_path)
    plant(tmp_path, {"meminfo": "MemTotal: 100 kB\nMemFree: 50 kB\nCached: 1 kB\nShmem: 5 kB\n"})
    readings = collected(Host(proc=str(tmp_path)), 1.0)
    assert str(readings["mem_used_bytes"]) == "n/a no MemAvailable"
    assert readings["mem_cache_bytes"] == Missing("implausible")


def test_this_node_as_psutil_sees_it():
    host = Host()
    collected(host, 1.0)
    before, loads = psutil.cpu_times(), [os.getloadavg()[0]]
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass  # so that there is something to measure
    readings = collected(host, 2.0)
    assert 0 < readings["cpu_percent"] <= 100
    ticks = parse_cpu_ticks(look("/proc/stat"))
    after = psutil.cpu_times()
    assert before.idle <= ticks.idle / TICKS_PER_S <= after.idle
    assert sum(before[:8]) <= ticks.total / TICKS_PER_S + 0.1 <= sum(after[:8]) + 0.2
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    assert readings["mem_used_bytes"] == pytest.approx(
        memory.total - memory.available, abs=memory.total * 0.05
    )
    assert readings["swap_used_bytes"] == pytest.approx(swap.used, abs=64 << 20)
    loads.append(os.getloadavg()[0])
    assert min(loads) - 0.01 <= readings["load1"] <= max(loads) + 0.01


def test_facts_of_this_node():
    facts = Host().facts()
    assert facts["cpus"] == len(os.sched_getaffinity(0))
    assert facts["cpus_online"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert facts["mem_total_bytes"] == psutil.virtual_memory().total
    assert facts["swap_total_bytes"] == psutil.swap_memory().total
    assert facts["kernel"] == os.uname().release
    assert len(facts["boot_id"]) == 36
    assert isinstance(facts["cpu_model"], (str, Missing))


def test_facts_that_are_absent_or_hostile(tmp_path):
    plant(tmp_path, {"cpuinfo": "model name\t: Fast\x1b[2J CPU\n"})
    facts = Host(proc=str(tmp_path), sys=str(tmp_path)).facts()
    assert facts["cpu_model"] == "Fast?[2J CPU"
    absent = {name for name, fact in facts.items() if isinstance(fact, Missing)}
    assert absent == set(facts) - {"cpu_model"}


def test_parsers():
    assert parse_cpu_ticks("cpu  10 1 2 50 5 1 1 1 7 0\n") == CpuTicks(71, 50, 5)
    assert parse_cpu_ticks("cpu  10 1 2 50 5") == CpuTicks(68, 50, 5)
    assert parse_cpu_ticks("cpu0 10 1 2 50 5\n") is None
    assert parse_cpu_ticks("cpu  10 1 2 x 5\n") is None
    assert parse_meminfo(MEMINFO)["MemTotal"] == 24684084 * 1024
    assert "HugePages_Total" not in parse_meminfo(MEMINFO)
    assert parse_loadavg("nan 1 2") is None
    assert parse_loadavg("1 2") is None


def test_each_cpu_has_its_tenths_by_its_number(tmp_path):
    host = Host(proc=tree(tmp_path))
    assert collected(host, 1.0)["core_levels"] == MEASURING
    tree(tmp_path, user=130, idle=970)
    assert "core_levels" not in collected(host, 2.0)  # every 2 s
    assert collected(host, 3.0)["core_levels"] == "3-0"
    assert collected(host, 5.0)["core_levels"] == "?-?"  # nothing was counted since


def test_levels_of_cpus():
    def ticks(worked, idle):
        return CpuTicks(worked + idle, idle, 0)

    before = {n: ticks(100, 100) for n in range(4)}
    now = {0: ticks(200, 100), 1: ticks(100, 200), 3: ticks(50, 200), 4: ticks(1, 1)}
    assert core_levels(before, now) == "90-??"
    assert core_levels(before, {}) == ""


def test_disks_are_added_up_without_their_parts(tmp_path):
    sys_tree = tmp_path / "sys"
    plant(sys_tree, {"block/sda/device/model": "x", "block/dm-0/size": "1"})
    host = Host(proc=tree(tmp_path), sys=str(sys_tree))
    assert collected(host, 1.0)["disk_read_bytes_per_s"] == MEASURING
    time.sleep(0.05)
    tree(tmp_path, user=200, idle=1900)
    readings = collected(host, 6.0)
    ratio = readings["disk_write_bytes_per_s"] / readings["disk_read_bytes_per_s"]
    assert ratio == pytest.approx(10)
    assert parse_disks(DISKSTATS.format(read=2, written=4), {"sda"}) == (1024, 2048)
    assert parse_disks("nonsense", {"sda"}) is None


def test_a_node_without_disks_says_so(tmp_path):
    readings = collected(Host(proc=tree(tmp_path), sys=str(tmp_path / "none")), 1.0)
    assert str(readings["disk_read_bytes_per_s"]) == "n/a no local disk"
