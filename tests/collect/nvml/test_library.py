"""NVML's library, guarded calls, field values, process lists and sample buffers."""

from __future__ import annotations

import json
import struct
import sys
from types import SimpleNamespace

import pytest

from gpumon.collect.nvml.burst import Burst
from gpumon.collect.nvml.driver import library_version, module_version
from gpumon.collect.nvml.usage import parse_processes
from gpumon.collect.rates import Moment, Rate
from gpumon.model.reading import MEASURING, UNSUPPORTED, Missing
from tests.collect.collected import ROOT
from tests.nvml.emulator import Emulated, Scenario

_QUERY = """
import json
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.library import Library
from gpumon.collect.nvml.query import Query
query = Query(Library(), None)
query.handle = query.ask(nv.nvmlDeviceGetHandleByIndex, 0)
def plain(reading):
    return [reading.reason, reading.detail] if hasattr(reading, "reason") else reading
"""


def ask(gpus, code):
    """Run `code`, which sets `out`, with a Query on device 0."""
    program = f"{_QUERY}{code}\nprint(json.dumps(out))"
    done = gpus.run([sys.executable, "-c", program], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("code", "reason", "detail"),
    [
        (3, "unsupported", ""),
        (4, "no-permission", ""),
        (10, "timeout", ""),
        (13, "unsupported", "driver 580.159.03"),
        (15, "lost", ""),
        (16, "lost", ""),
        (9, "no-driver", ""),
        (2, "error", "Invalid Argument"),
        (1, "error", "Uninitialized"),
        (999, "error", "Unknown Error"),
        (777, "error", "Unknown Error"),
    ],
)
def test_errors_become_reasons(code, reason, detail):
    scenario = Scenario().gpu(0, model="T4").rule("nvmlDeviceGetPowerUsage", fail=code)
    with Emulated(scenario) as gpus:
        assert ask(gpus, "out = plain(query.get(nv.nvmlDeviceGetPowerUsage))") == [reason, detail]


def test_a_function_that_the_driver_lacks():
    with Emulated("preset:T4x1", driver="470") as gpus:
        got = ask(gpus, "out = plain(query.get(nv.nvmlDeviceGetCurrentClocksEventReasons))")
    assert got[0] == "unsupported"
    assert got[1].startswith("driver ")


def test_what_is_unsupported_is_asked_again_only_much_later():
    code = """
import time
fan = lambda: plain(query.get(nv.nvmlDeviceGetFanSpeed))
out = [fan(), fan(), fan()]
now = time.monotonic()
time.monotonic = lambda: now + 601
out.append(fan())
"""
    with Emulated("preset:T4x1") as gpus:
        assert ask(gpus, code) == [["unsupported", ""]] * 4
        assert gpus.stats()["nvmlDeviceGetFanSpeed"].calls == 2


def test_an_error_of_the_moment_is_asked_again():
    scenario = Scenario().gpu(0, model="T4").rule("nvmlDeviceGetPowerUsage", fail=999)
    with Emulated(scenario) as gpus:
        ask(gpus, "out = [plain(query.get(nv.nvmlDeviceGetPowerUsage)) for _ in range(3)]")
        assert gpus.stats()["nvmlDeviceGetPowerUsage"].calls == 3


def test_a_lost_device_is_not_asked_until_it_revives():
    code = """
power = lambda: plain(query.get(nv.nvmlDeviceGetPowerUsage))
out = [power(), power(), query.revive(), power()]
"""
    scenario = Scenario().gpu(0, model="T4").rule("nvmlDeviceGetPowerUsage", fail=15)
    with Emulated(scenario) as gpus:
        assert ask(gpus, code) == [["lost", ""], ["lost", ""], True, ["lost", ""]]
        assert gpus.stats()["nvmlDeviceGetPowerUsage"].calls == 2


def test_field_values_come_in_one_call_with_a_code_each():
    code = """
from gpumon.collect.nvml.fields import Fields
read = Fields(query).read(("power_w", "mem_temperature_c", "ecc_corrected", "pcie_replays"))
out = {name: plain(value) for name, value in read.items()}
"""
    scenario = Scenario().gpu(0, model="T4", power_w=61.5, ecc_corr=7, pcie_replay=4)
    with Emulated(scenario) as gpus:
        assert ask(gpus, code) == {
            "power_w": 61.5,
            "mem_temperature_c": ["unsupported", ""],
            "ecc_corrected": 7,
            "pcie_replays": 4,
        }
        assert gpus.stats()["nvmlDeviceGetFieldValues"].calls == 1


def test_a_second_source_is_asked_at_once_and_then_alone():
    code = """
from gpumon.collect.nvml import fields as nvml_fields
from gpumon.collect.nvml.fields import Fields, Source
nvml_fields.SOURCES["first"] = (Source(82), Source(94))  # memory temperature: not on a T4
nvml_fields.SOURCES["none"] = (Source(82), Source(9999))
fields = Fields(query)
out = [{n: plain(v) for n, v in fields.read(("first", "none")).items()} for _ in range(2)]
"""
    with Emulated(Scenario().gpu(0, model="T4", pcie_replay=4)) as gpus:
        assert ask(gpus, code) == [{"first": 4, "none": ["unsupported", ""]}] * 2
        assert gpus.stats()["nvmlDeviceGetFieldValues"].calls == 3


def test_without_a_driver_the_library_says_so():
    program = """
from gpumon.collect.nvml.binding import nv
from gpumon.collect.nvml.library import Library
try:
    Library()
except nv.NVMLError as error:
    print(error.value)
"""
    with Emulated("preset:T4x1") as gpus:
        env = {**gpus.env, "LD_LIBRARY_PATH": ""}
        done = gpus.run([sys.executable, "-c", program], env=env, cwd=ROOT)
    assert done.stdout.split() == ["12"], done.stderr


# -- rates -------------------------------------------------------------------------------------
def test_rate_of_a_counter():
    rate = Rate(wraps=True)
    assert rate.update(1000, Moment(10.0)) == MEASURING
    assert rate.update(3000, Moment(12.0)) == 1000
    assert rate.update(3000, Moment(13.0)) == 0


def test_rate_across_a_wrap_of_32_bits():
    rate = Rate(wraps=True)
    rate.update(2**32 - 100, Moment(0.0))
    assert rate.update(400, Moment(2.0)) == 250


def test_rate_after_a_reset_or_a_gap_is_measured_anew():
    rate = Rate(wraps=True)
    rate.update(2**40, Moment(0.0))
    assert rate.update(5, Moment(1.0)) == MEASURING
    assert rate.update(15, Moment(2.0)) == 10
    assert rate.update(UNSUPPORTED, Moment(3.0)) == UNSUPPORTED
    assert rate.update(25, Moment(4.0)) == MEASURING
    assert rate.update(35, Moment(4.0)) == MEASURING  # no time has passed


# -- process lists -----------------------------------------------------------------------------
def test_process_list_layouts():
    none = 0xFFFFFFFF
    v1 = struct.pack("=I4xQ", 11, 5) + struct.pack("=I4xQ", 12, 6)
    v2 = struct.pack("=I4xQII", 11, 5, none, none) + struct.pack("=I4xQII", 12, 6, 3, 0)
    longer = b"".join(struct.pack("=I4xQIIQ", pid, 7, none, none, 0) for pid in (11, 12, 13))
    assert [tuple(e) for e in parse_processes(v1, 2, 1)] == [(11, 5, none), (12, 6, none)]
    assert [tuple(e) for e in parse_processes(v2, 2, 3)] == [(11, 5, none), (12, 6, 3)]
    assert [tuple(e) for e in parse_processes(longer, 3, 3)] == [
        (11, 7, none),
        (12, 7, none),
        (13, 7, none),
    ]
    assert parse_processes(b"", 0, 3) == []


# -- the sample buffer -------------------------------------------------------------------------
def burst():
    return Burst(SimpleNamespace())  # no device: `summary` takes samples as they are


def test_burst_of_what_is_new():
    buffer = burst()
    old = [(1_000_000 + n * 200_000, 90) for n in range(20)]
    first = buffer.summary(old)
    assert first["busy_mean_percent"] == 90
    assert first["busy_gap_s"] == 0
    end = old[-1][0]
    row = buffer.summary([(end + 200_000, 0), (end + 400_000, 100), (end + 600_000, 50)])
    assert row == {
        "busy_mean_percent": 50,
        "busy_min_percent": 0,
        "busy_max_percent": 100,
        "busy_gap_s": 0,
    }


def test_burst_first_read_looks_back_two_seconds_only():
    samples = [(n * 100_000, 100 if n <= 80 else 0) for n in range(1, 101)]
    assert burst().summary(samples)["busy_max_percent"] == 0


def test_burst_says_what_the_buffer_had_lost():
    buffer = burst()
    buffer.summary([(1_000_000, 10), (1_200_000, 10)])
    row = buffer.summary([(6_200_000, 30), (6_400_000, 30)])
    assert row["busy_gap_s"] == pytest.approx(4.8)


def test_burst_without_samples_is_not_idleness():
    assert burst().summary([])["busy_mean_percent"] == Missing("not-sampled")


# -- versions ----------------------------------------------------------------------------------
def test_versions_for_the_note_of_a_mismatch(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "driver" / "nvidia").mkdir(parents=True)
    (tmp_path / "self" / "maps").write_text(
        "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib64/libc.so.6\n"
        "7f02-7f03 r-xp 00000000 08:01 2 /usr/lib64/libnvidia-ml.so.580.95.05\n"
    )
    (tmp_path / "driver" / "nvidia" / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 2025\n"
        "GCC version:  gcc version 11.4.1\n"
    )
    assert library_version(str(tmp_path)) == "580.95.05"
    assert module_version(str(tmp_path)) == "570.86.15"
    assert library_version(str(tmp_path / "none")) == ""
