"""A reader takes no number from a stream that a device, by its own facts, cannot have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.fields import FIELDS, GROUPS
from gpumon.model.plausible import LIMITS, MEMORY_MIB, ceilings, checked_facts, narrowed
from gpumon.model.reading import IMPLAUSIBLE, Missing
from gpumon.model.sample import Device, Header, Sample
from gpumon.site.read import load_site
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.bounds import bombs

FACTS = {
    "mem_total_bytes": 80 << 30,
    "power_limit_max_w": 400.0,
    "power_limit_default_w": 400.0,
    "sm_clock_max_mhz": 1410,
    "mem_clock_max_mhz": 1593,
    "temperature_shutdown_c": 92,
    "temperature_mem_max_c": 95,
    "pcie_gen_max": 4,
    "pcie_width_max": 16,
    "nvlink_links": 12,
}
BOUND = ceilings(FACTS)
NAMES = sorted(BOUND.keys() & FIELDS["device"].keys())


def stream(row, usage):
    """Lines of a header with two devices, the second without facts, and samples of both."""
    encoder = Encoder()
    devices = [Device(0, 0, "GPU-0", "A100", facts=FACTS), Device(1, 1, "GPU-1", "?")]
    header = Header("n", "", 0.0, 0.0, 1.0, "0", devices=devices)
    lines = [encoder.header(header)]
    for second in range(1, 3):
        rows = {
            "device": {0: dict(row), 1: dict(row)},
            "usage": {(0, 7): dict(usage), (1, 7): dict(usage)},
        }
        lines.append(encoder.sample(Sample(float(second), float(second), rows)))
    return [line.encode() for line in lines]


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 4), min_size=1), st.floats(0, 4))
def test_a_reader_refuses_what_the_device_cannot_have(factors, memory):
    row = {name: int(factor * BOUND[name]) for name, factor in factors.items()}
    usage = {"type": "C", "mem_bytes": int(memory * BOUND["mem_bytes"])}
    lines = stream(row, usage)
    decoder = Decoder()
    decoder.line(lines[0])
    sample = decoder.line(lines[1])
    assert isinstance(sample, Sample)
    for name, value in row.items():
        read = sample.rows["device"][0][name]
        if value > 1.01 * BOUND[name]:
            assert read == Missing("implausible")
        elif value < 0.99 * BOUND[name]:
            assert not isinstance(read, Missing)
        if value <= FIELDS["device"][name].high:  # of a device that says nothing of itself
            assert not isinstance(sample.rows["device"][1][name], Missing)
    if usage["mem_bytes"] > BOUND["mem_bytes"]:
        assert sample.rows["usage"][0, 7]["mem_bytes"] == Missing("implausible")
    assert sample.rows["usage"][1, 7]["mem_bytes"] == usage["mem_bytes"]


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan"), 10**400])
def test_what_is_no_size_of_a_device_sets_no_ceiling(odd):
    assert ceilings(dict.fromkeys(FACTS, odd)) == {}


@pytest.mark.parametrize("odd", [float("inf"), float("nan")])
def test_a_range_has_two_ends(odd):
    """They become numbers in the text of a compiled function, where `inf` and `nan` are names."""
    for field in (field for group in GROUPS for field in group.fields):
        assert float("-inf") < field.low <= field.high < float("inf")
        assert narrowed(field, {field.name: odd}) == field


# -- facts, by what the driver did not report itself
GIB = 1 << 30


def test_the_boards_are_those_of_the_table():
    table = [gpu for gpu in load_site().gpus if not gpu.mig_of]
    assert [(gpu.match, gpu.mem_bytes >> 20) for gpu in table] == list(MEMORY_MIB)


@pytest.mark.parametrize(
    ("name", "gib", "is_fine"),
    [
        ("NVIDIA A100-SXM4-40GB", 40, True),
        ("NVIDIA A100-SXM4-80GB", 80, True),
        ("NVIDIA GB200", 186, True),
        ("NVIDIA GH200 480GB", 96, True),
        ("NVIDIA H100 80GB HBM3", 1024, False),
        ("Tesla T4", 64, False),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 5, True),
        ("NVIDIA X900", 2048, True),
        ("NVIDIA X900", 12e18 / GIB, False),
        ("NVIDIA X900", -1, False),
        ("NVIDIA X900", float("nan"), False),
    ],
)
def test_memory_is_what_a_board_of_this_name_can_have(name, gib, is_fine):
    size = gib * GIB
    found = checked_facts(name, {"mem_total_bytes": size})["mem_total_bytes"]
    assert found == (size if is_fine else IMPLAUSIBLE)


@given(st.sampled_from(sorted(LIMITS)), st.floats(1.01, 1e6))
def test_a_fact_beyond_any_board_is_implausible(fact, factor):
    assert checked_facts("X", {fact: LIMITS[fact] * factor})[fact] == IMPLAUSIBLE
    assert checked_facts("X", {fact: LIMITS[fact] / factor})[fact] != IMPLAUSIBLE


def test_a_limit_is_never_taken_from_the_same_answer():
    """12 EB in total let 116 PB in use pass."""
    device = bombs.device(0, facts={"mem_total_bytes": 12_000_000_000_000_000_000})
    decoder = Decoder()
    header = decoder.line(bombs.header([device]))
    assert isinstance(header, Header)
    assert header.devices[0].facts["mem_total_bytes"] == IMPLAUSIBLE
    row = [0, 10, 10, 116_000_000_000_000_000, 0, 100]
    sample = decoder.line(bombs.sample(1.0, {"device.fast": [row]}))
    assert isinstance(sample, Sample), sample
    assert sample.rows["device"][0]["mem_used_bytes"].reason == "implausible"
