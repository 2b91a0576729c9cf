"""The memory classifier: traces of every allocator, those that look alike, and anything at all."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.finding import CONFIDENCES, MEM_TRUTHS
from gpumon.analysis.memory import classify, mem_truth_of
from gpumon.analysis.memory.classify import TRUTHS, tf_reserve_bytes
from tests.analysis.build import GIB, START, device, held, process
from tests.support.examples import examples

MIB = 1 << 20


def jump(level, context=0.4 * GIB, at=6.0):
    """The context at once, all of `level` after some seconds."""
    return lambda time: level if time >= at else min(context, level)


def stairs(*levels, every=40.0):
    return lambda time: levels[min(int(time // every), len(levels) - 1)]


def verdict(trace, total_mib, cc, seconds=600, **rest):
    found = classify(held(trace, seconds, **rest), total_mib * MIB, cc)
    return found.kind, found.confidence


# -- the table of plateaus: name, total MiB, capability, TensorFlow's plateau MiB, JAX's share
BOARDS = [
    ("A100-40", 40960, 8.0, 39424, 76.2), ("A100-80", 81920, 8.0, 80384, 75.6),
    ("A40", 46068, 8.6, 44532, 76.1), ("RTX 3090", 24576, 8.6, 23040, 77.1),
    ("RTX 2080 Ti", 11264, 7.5, 10214, 79.5), ("V100-32", 32768, 7.0, 31718, 76.6),
    ("V100-16", 16384, 7.0, 15334, 78.1), ("T4", 15360, 7.5, 14310, 78.3),
    ("H100", 81559, 9.0, 79759, 75.6), ("H200", 143771, 9.0, 141971, 75.4),
    ("1g.10gb", 9728, 8.0, 8192, 80.3), ("1g.5gb", 4864, 8.0, 3328, 85.5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "total", "cc", "plateau", "jax"), BOARDS)
def test_tensorflow_and_jax_on_every_board(name, total, cc, plateau, jax):
    assert total - tf_reserve_bytes(total * MIB, cc) / MIB == plateau
    driver = 250  # MiB beside the process: the driver's reserve
    trace = jump((plateau - driver) * MIB)
    assert verdict(trace, total, cc, framework="tf", others=driver * MIB) == ("tf", "high")
    assert verdict(jump(jax / 100 * total * MIB), total, cc, framework="jax") == ("jax", "high")


def test_tensorflow_beside_another_process_and_with_a_refused_chunk():
    beside = jump((80384 - 20000) * MIB)
    assert verdict(beside, 81920, 8.0, framework="tf", others=20000 * MIB) == ("tf", "high")
    refused = jump(80384 * 0.9 * MIB)
    assert verdict(refused, 81920, 8.0, framework="tf") == ("tf", "medium")


def test_the_reserve_of_tensorflow_may_be_crept_into():
    """cuDNN and cuBLAS load after the plateau: 5 % of a small slice."""

    def trace(time):
        return (3100 + min(time, 100) * 3) * MIB if time > 6 else 200 * MIB

    assert verdict(trace, 4864, 8.0, framework="tf", others=100 * MIB)[0] == "tf"


def test_what_does_not_stand_still_is_no_plateau():
    def trace(time):
        return 0.4 * GIB if time < 6 else (80384 if time < 200 else 60000) * MIB

    assert verdict(trace, 81920, 8.0, framework="tf") == ("growth", "low")
    even = stairs(*(n * GIB for n in range(1, 9)))
    assert verdict(even, 81920, 8.0, framework="tf") == ("growth", "low")


def test_what_the_environment_says_only_moves_the_confidence():
    plateau, growth = jump(80000 * MIB), {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert verdict(plateau, 81920, 8.0, framework="tf", hints=growth) == ("tf", "low")
    doubling = stairs(*(n * GIB for n in (1, 3, 7, 15, 31)))
    assert verdict(doubling, 81920, 8.0, framework="tf") == ("growth", "medium")
    assert verdict(doubling, 81920, 8.0, framework="tf", hints=growth) == ("growth", "medium")
    half = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}
    assert verdict(jump(41 * GIB), 81920, 8.0, framework="jax", hints=half) == ("jax", "high")
    assert verdict(jump(41 * GIB), 81920, 8.0, framework="jax") == ("pool", "low")
    off = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    assert verdict(jump(60.4 * GIB), 81920, 8.0, framework="jax", hints=off) == ("jax", "low")
    assert verdict(jump(20 * GIB), 81920, 8.0, framework="jax", hints=off) == ("growth", "medium")
    odd = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "set"}
    assert verdict(jump(60.4 * GIB), 81920, 8.0, framework="jax", hints=odd) == ("jax", "high")


def torch_trace(peak, total=81920 * MIB):
    """A model, then activations that grow over a minute, then the high-water mark."""
    return lambda time: min(0.4 * GIB + min(time / 60, 1.0) ** 0.5 * (peak - 0.4 * GIB), peak)


def test_a_full_pytorch_job_is_no_reservation():
    assert verdict(torch_trace(80384 * MIB), 81920, 8.0, framework="torch") == ("reserve", "high")
    # also where TensorFlow is mapped in it, and the level happens to be TensorFlow's
    both = {"framework": "torch", "frameworks": ("torch", "tf")}
    assert verdict(torch_trace(80384 * MIB), 81920, 8.0, **both) == ("reserve", "high")
    assert verdict(jump(80384 * MIB), 81920, 8.0, **both) == ("tf", "medium")


def test_batch_8_of_bert_is_42_mib_from_a_plateau_and_no_plateau():
    """0 → 417 → 887 → 7069 of 7611 MiB."""

    def trace(time):
        return (417 if time < 8 else 887 if time < 30 else 7069) * MIB

    for tags in (("torch",), ("torch", "tf")):
        kind, _ = verdict(trace, 7611, 6.1, framework="torch", frameworks=tags)
        assert kind == "reserve"


def vllm_trace(level, weights=15 * GIB):
    def trace(time):
        if time < 60:
            return 0.4 * GIB + weights * time / 60
        return weights + 3 * GIB if time < 70 else level

    return trace


def test_inference_servers():
    served = vllm_trace(72 * GIB)
    vllm = {"framework": "vllm", "frameworks": ("vllm", "torch")}
    assert verdict(served, 81920, 8.0, **vllm) == ("kv", "high")
    told = {**vllm, "command": "vllm serve m --gpu-memory-utilization 0.5"}
    assert verdict(vllm_trace(40 * GIB), 81920, 8.0, **told) == ("kv", "high")
    assert verdict(vllm_trace(40 * GIB), 81920, 8.0, **vllm) == ("kv", "low")
    sglang = {"framework": "torch", "command": "python -m sglang.launch_server --model m"}
    assert verdict(served, 81920, 8.0, **sglang)[0] == "kv"
    assert verdict(jump(20 * GIB), 81920, 8.0, framework="llama") == ("real", "high")


def test_memory_of_unknown_processes():
    assert verdict(jump(40 * GIB), 81920, 8.0, seconds=700) == ("pool", "low")
    assert verdict(jump(74 * GIB), 81920, 8.0, seconds=700) == ("pool", "low")
    assert verdict(jump(74 * GIB), 81920, 8.0, seconds=300) == ("reserve", "low")  # not for long
    assert verdict(jump(50 * GIB), 81920, 8.0, seconds=700) == ("reserve", "low")  # no round share
    assert verdict(torch_trace(74 * GIB), 81920, 8.0, seconds=700) == ("reserve", "low")


def test_too_early_to_tell():
    assert verdict(jump(80384 * MIB), 81920, 8.0, seconds=40, framework="tf") == ("early", "low")
    assert verdict(jump(80384 * MIB), 81920, 8.0, seconds=120, framework="tf") == ("tf", "medium")
    assert verdict(jump(9 * GIB), 81920, 8.0, seconds=40, framework="torch") == ("reserve", "high")
    context = jump(0.4 * GIB)
    assert verdict(context, 81920, 8.0, framework="tf") == ("context", "medium")


def test_a_process_that_was_there_before_the_recording():
    there = {"framework": "tf", "appeared": False}
    assert verdict(lambda _: 80000 * MIB, 81920, 8.0, **there) == ("tf", "medium")
    both = {**there, "framework": "torch", "frameworks": ("torch", "tf")}
    assert verdict(lambda _: 80000 * MIB, 81920, 8.0, **both) == ("tf", "low")
    assert verdict(lambda _: 41 * GIB, 81920, 8.0, **there) == ("pool", "low")


def test_bins_alone_serve_where_there_is_no_rise():
    mem = [0.4 * GIB, 40 * GIB, *[80000 * MIB] * 60]
    made = process(len(mem), mem, framework="tf")
    assert classify(made, 81920 * MIB, 8.0).kind == "tf"
    late = [5 * GIB] * 40 + [12 * GIB] * 40
    assert classify(process(80, late, framework="torch"), 81920 * MIB, 8.0).kind == "reserve"


# -- a device --------------------------------------------------------------------------------------
def test_the_least_certain_process_decides():
    tf = held(jump(78 * GIB), 600, framework="tf", pid=1)
    torch = held(jump(1 * GIB), 600, framework="torch", pid=2)
    found = mem_truth_of(device(60, mem_used_bytes=79 * GIB, processes=[torch, tf]))
    assert (found.mem_truth, found.kind, len(found.processes)) == ("unknown", "tf", 2)
    assert [each.process.facts.pid for each in found.of_kind("tf")] == [1]
    assert mem_truth_of(device(60, processes=[torch])).mem_truth == "upper-bound"
    llama = held(jump(20 * GIB), 600, framework="llama")
    assert mem_truth_of(device(60, processes=[llama])).mem_truth == "real"


def test_nobody_on_the_device():
    assert mem_truth_of(device(60, mem_used_bytes=0)).mem_truth == "real"
    assert mem_truth_of(device(60)).mem_truth == "unknown"
    stray = mem_truth_of(device(60, mem_used_bytes=40 * GIB))
    assert (stray.mem_truth, stray.kind) == ("unknown", "")


def test_a_display_server_beside_decides_nothing():
    server = held(lambda _: 30 * MIB, 600, pid=7, command="/usr/lib/xorg/Xorg", name="Xorg")
    llama = held(jump(20 * GIB), 600, framework="llama")
    assert mem_truth_of(device(60, processes=[server, llama])).mem_truth == "real"


def test_without_the_memory_of_processes_the_device_stands_in_for_a_single_one():
    only = process(60, framework="tf")
    used = [0.4 * GIB, *[80000 * MIB] * 59]
    found = mem_truth_of(device(60, mem_used_bytes=used, processes=[only]))
    assert (found.mem_truth, found.kind) == ("unknown", "tf")
    two = [process(60, framework="torch", pid=1), process(60, framework="torch", pid=2)]
    assert mem_truth_of(device(60, mem_used_bytes=used, processes=two)).confidence == "low"


def test_unknown_total_or_capability():
    tf = held(jump(80000 * MIB), 600, framework="tf")
    assert classify(tf, None).kind == "early"
    assert classify(tf, 81920 * MIB, None).kind == "tf"
    made = device(60, processes=[tf], facts={"compute_capability": None, "mem_total_bytes": None})
    assert mem_truth_of(made).mem_truth == "unknown"


# -- anything --------------------------------------------------------------------------------------
NUMBERS = st.one_of(st.none(), st.floats(0, 2.0**40, width=32))
TAGS = st.lists(
    st.sampled_from(["tf", "jax", "torch", "vllm", "rmm", "llama", "cuda-other"]), max_size=3
)


@examples(150)
@given(
    mem=st.lists(NUMBERS, min_size=1, max_size=40),
    rise=st.lists(st.tuples(st.floats(0, 600), st.floats(0, 2.0**40)), max_size=40),
    tags=TAGS,
    total=st.one_of(st.none(), st.floats(0, 2.0**40), st.just(nan)),
    cc=st.one_of(st.none(), st.floats(3, 12)),
    hints=st.dictionaries(
        st.sampled_from(["TF_FORCE_GPU_ALLOW_GROWTH", "XLA_CLIENT_MEM_FRACTION",
                         "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"]),
        st.text(max_size=5),
    ),
    command=st.text(max_size=30),
    appeared=st.booleans(),
)  # fmt: skip
def test_any_trace_gets_a_verdict(mem, rise, tags, total, cc, hints, command, appeared):
    made = process(
        len(mem), mem, rise=sorted((START + at, value) for at, value in rise), hints=hints,
        framework=tags[0] if tags else "", frameworks=tuple(tags), command=command,
        appeared=appeared,
    )  # fmt: skip
    found = classify(made, total, cc)
    assert found.truth in MEM_TRUTHS
    assert found.confidence in CONFIDENCES
    assert found.kind in TRUTHS
    only = device(len(mem), mem_used_bytes=mem, processes=[made], total=total)
    assert mem_truth_of(only).mem_truth in MEM_TRUTHS


@examples(60)
@given(
    levels=st.lists(st.integers(2, 90), min_size=1, max_size=6),
    tag=st.sampled_from(["torch", "", "llama"]),
    factor=st.sampled_from([2, 4, 8]),
)
def test_where_no_size_is_absolute_only_shares_count(levels, tag, factor):
    """Of a caching allocator and a pool: the same shape on a larger device is the same kind."""
    kinds = set()
    for total in (64 * GIB, 64 * factor * GIB):
        trace = stairs(*(level / 100 * total for level in levels))
        found = classify(held(trace, 900, framework=tag), total, 8.0)
        kinds.add((found.kind, found.confidence))
    assert len(kinds) == 1
