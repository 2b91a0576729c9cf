"""The parsers on texts as the documented formats have them, and the verdicts; needs no GPU."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpumon.model.fields import FIELDS
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Header, Sample
from tests.gpu import compare
from tests.gpu.compare import PeerRow, Stream

NOON = time.mktime((2026, 3, 14, 12, 0, 0, 0, 0, -1))

SMI = """\
0, 97, 41, 9216, 600, 611.25, 700.00, 64, 70, 1980, 3201, P0, 16, 0x0000000000000004, 0
1, [N/A], [N/A], 0, 600, 71.03, 700.00, 31, N/A, 345, 3201, P8, 16, 0x0000000000000001, [N/A]
"""
DMON = """\
#Time        gpu     sm    mem    enc    dec    jpg    ofa  smutil  smocc  mmaact   dram
#HH:MM:SS    Idx      %      %      %      %      %      %   GPM:%  GPM:%   GPM:%  GPM:%
 12:00:01      0     97     41      0      0      0      0      62     40      33     24
 12:00:02      0     98     41      0      0      -      -       -     40       –     25
"""
NVTOP = """\
[
  {
   "device_name": "NVIDIA H200",
   "gpu_clock": "1980MHz",
   "mem_clock": "3201MHz",
   "temp": "64C",
   "fan_speed": null,
   "power_draw": "611W",
   "gpu_util": "97%",
   "mem_util": "6%"
   "mem_total": "150754820096"
   "mem_used": "9663676416"
  }
]
"""


def stream(field: str, *readings: Any, entity: str = "device", key: Any = 7) -> Stream:
    """A device with NVML index 0 and stream key 7; one reading a second from noon on."""
    header = Header("n", "", NOON, 0, 1.0, "", [Device(7, 0, "GPU-1", "H200")])
    samples = [
        Sample(NOON + i, float(i), {entity: {key: {field: r}}}) for i, r in enumerate(readings)
    ]
    return Stream([header, *samples])


def verdict(ours: Stream, field: str, *values: float | None, entity: str = "device") -> str:
    key = 0 if entity == "device" else 4711
    rows = [PeerRow(NOON + i, entity, key, {field: value}) for i, value in enumerate(values)]
    (line,) = compare.compare(ours, "peer", rows)
    return line.verdict


def test_nvidia_smi() -> None:
    first, second = compare.parse_smi_gpu(SMI, NOON)
    assert (first.time, first.entity, first.key) == (NOON, "device", 0)
    assert first.values["mem_used_bytes"] == 9 * 2**30
    assert (first.values["power_w"], first.values["pstate"]) == (611.25, 0)
    assert first.values["throttle_mask"] == 4
    assert second.values["busy_percent"] is None
    assert second.values["mem_temperature_c"] is None
    with pytest.raises(ValueError, match="1 values for"):
        compare.parse_smi_gpu("0, Unknown Error", NOON)


def test_nvidia_smi_apps() -> None:
    rows = compare.parse_smi_apps("4711, 3521\n4712, [N/A]\n", NOON)
    assert [(row.key, row.values["mem_bytes"]) for row in rows] == [
        (4711, 3521 * 2**20),
        (4712, None),
    ]


def test_dmon() -> None:
    first, second = compare.parse_dmon(DMON, NOON)
    assert first.time == NOON + 1.5
    assert list(first.values.values()) == [62, 40, 33, 24]
    assert list(second.values.values()) == [None, 40, None, 25]
    with pytest.raises(ValueError, match="0 values for 4"):
        compare.parse_dmon(DMON.replace("GPM:", ""), NOON)


def test_dmon_over_midnight() -> None:
    before_midnight = NOON + 12 * 3600 - 1
    text = DMON.replace(" 12:00:01", " 23:59:59").replace(" 12:00:02", " 00:00:01")
    times = [row.time - before_midnight for row in compare.parse_dmon(text, before_midnight)]
    assert times == [0.5, 2.5]


def test_nvtop_with_and_without_commas() -> None:
    (row,) = compare.parse_nvtop(NVTOP, NOON)
    assert list(row.values.values()) == [97, 611, 64, 1980, 3201]
    assert compare.parse_nvtop(NVTOP.replace("null", '"CPU Fan"'), NOON) == [row]


def test_nvitop() -> None:
    line = f'[{NOON}, 0, [97, "N/A", 9663676416, 611250, 700000, 64, 1980, 3201, "P0"]]'
    (row,) = compare.parse_nvitop(line, 0)
    assert (row.time, row.values["power_w"], row.values["pstate"]) == (NOON, 611.25, 0)
    assert row.values["mem_controller_percent"] is None


def test_a_peer_that_agrees_within_the_tolerance() -> None:
    assert verdict(stream("busy_percent", 90, 95, 97), "busy_percent", 99, 88, 97) == "agree"
    assert verdict(stream("busy_percent", 50, 50, 50), "busy_percent", 61, 61, 61) == "differ"
    assert verdict(stream("power_w", 500, 500), "power_w", 525, 480) == "agree"
    assert verdict(stream("power_w", 500, 500), "power_w", 0.5, 0.5) == "differ"


def test_readings_around_the_moment_count() -> None:
    ramp = stream("mem_used_bytes", *(i * 2**30 for i in range(6)))
    assert verdict(ramp, "mem_used_bytes", 0.5 * 2**30) == "agree"
    assert verdict(ramp, "mem_used_bytes", 3 * 2**30) == "differ"  # read at noon + 3 s only


def test_exact_fields() -> None:
    assert verdict(stream("throttle_mask", 4, 1), "throttle_mask", 1) == "agree"
    assert verdict(stream("throttle_mask", 4, 1), "throttle_mask", 5) == "differ"


def test_what_one_of_them_does_not_know() -> None:
    nothing = Missing("unsupported")
    assert verdict(stream("pcie_width", nothing), "pcie_width", 16) == "lost by gpumon"
    assert verdict(stream("pcie_width", nothing), "pcie_width", None) == "in neither"
    assert verdict(stream("pcie_width", 16), "pcie_width", None) == "only in gpumon"


def test_processes_are_found_by_pid() -> None:
    held = stream("mem_bytes", 3 * 2**30, entity="usage", key=(7, 4711))
    assert verdict(held, "mem_bytes", 3 * 2**30, entity="usage") == "agree"
    other = stream("mem_bytes", 3 * 2**30, entity="usage", key=(7, 4712))
    assert verdict(other, "mem_bytes", 3 * 2**30, entity="usage") == "lost by gpumon"


def test_every_name_is_a_field() -> None:
    tables = (compare.SMI_GPU, compare.DMON, compare.NVITOP, compare.NVTOP)
    names = {field for table in tables for field, _ in table.values()}
    assert names <= set(FIELDS["device"])
    assert set(compare.TOLERANCES) <= set(FIELDS["device"]) | set(FIELDS["usage"])
