"""Summaries of jobstats in AdminComment."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.slurm import js1

GIB = 1 << 30
SUMMARY = {
    "gpus": 2,
    "total_time": 3600,
    "nodes": {
        "gpu01": {
            "cpus": 8,
            "total_memory": 32 * GIB,
            "used_memory": 33 * GIB,
            "total_time": 14400.5,
            "gpu_total_memory": {"0": 80 * GIB, "2": 80 * GIB},
            "gpu_used_memory": {"0": 9 * GIB, "2": 0},
            "gpu_utilization": {"0": 14.25, "2": 0},
        }
    },
}


def packed(document: object) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(document).encode())).decode()


def test_a_summary():
    found = js1.parse(packed(SUMMARY))
    assert found.elapsed_s == 3600
    node = found.nodes["gpu01"]
    assert (node.cpus, node.cpu_s) == (8, 14400.5)
    assert node.mem_used_bytes > node.mem_total_bytes  # occurs, and stays as it is
    assert list(node.gpus) == ["0", "2"]
    assert node.gpus["0"].busy_percent == 14.25
    assert (node.gpus["2"].busy_percent, node.gpus["2"].mem_used_bytes) == (0, 0)
    assert node.gpus["0"].missing == {}


def test_a_utilization_that_is_missing_is_not_0():
    document = json.loads(json.dumps(SUMMARY))
    del document["nodes"]["gpu01"]["gpu_utilization"]
    gpu = js1.parse(packed(document)).nodes["gpu01"].gpus["0"]
    assert gpu.busy_percent is None
    assert gpu.mem_used_bytes == 9 * GIB
    assert set(gpu.missing) == {"busy_percent"}


@pytest.mark.parametrize("word", ["Short", "None", "broken", "AAAA", ""])
def test_what_is_no_summary_is_none(word):
    assert js1.parse(f"JS1:{word}") is None


def test_other_comments_are_none():
    assert js1.parse("") is None
    assert js1.parse("anything") is None
    assert js1.parse("note; " + packed(SUMMARY)).elapsed_s == 3600


@pytest.mark.slow
def test_a_bomb_does_not_grow():
    bomb = "JS1:" + base64.b64encode(gzip.compress(b" " * (64 << 20))).decode()
    assert js1.parse(bomb) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["nodes", "n1", "gpus", "gpu_utilization", "cpus", "total_time"]),
                inner,
            )
        ),
        max_leaves=8,
    )
)
def test_any_document_is_read(document):
    js1.parse(packed(document))
    js1.parse(packed({"nodes": {"n": document}, "gpus": document}))


@given(st.text(max_size=60))
def test_any_comment_is_read(text):
    js1.parse(text)
    js1.parse("JS1:" + text)
