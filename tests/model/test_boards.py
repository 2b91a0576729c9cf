"""Facts of a GPU are checked by what its driver did not report itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.boards import LIMITS, MEMORY_MIB, checked_facts
from gpumon.model.reading import IMPLAUSIBLE
from gpumon.model.sample import Header, Sample
from gpumon.site.read import load_site
from gpumon.wire.decoder import Decoder
from tests.bounds import bombs

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
