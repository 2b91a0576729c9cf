"""Stacks as text and JSON: who stands together, and sentences where there is no stack."""

from __future__ import annotations

import json

import pytest

from gpumon.export.stacks import ranges_text, stacks_json, stacks_text, why_text
from gpumon.model.stack import Fold, Frame, Place, Stack, ThreadStack, folded, place_of

LOOP = Frame("train.py", 131, "train", True)
REDUCE = Frame("torch/distributed/distributed_c10d.py", 2219, "all_reduce", False)
WRAPPER = Frame("torch/distributed/c10d_logger.py", 81, "wrapper", False)
ITEM = Frame("train.py", 140, "train", True)


def stack(rank, *frames, pid=None, **more):
    threads = (ThreadStack("MainThread", True, frames),) if frames else ()
    return Stack(pid or 100 + (rank or 0), "python", rank, by="py-spy", threads=threads, **more)


def test_ranks_that_stand_at_the_same_place_are_one_paragraph():
    there = [("gpu01" if n < 4 else "gpu02", stack(n, REDUCE, WRAPPER, LOOP)) for n in range(8)]
    there[3] = ("gpu01", stack(3, ITEM))
    assert stacks_text(there) == "\n".join(
        [
            "ranks 0–2, 4–7 on gpu01, gpu02: train.py:131 → all_reduce  (py-spy)",
            "  torch/distributed/distributed_c10d.py:2219  all_reduce",
            "  torch/distributed/c10d_logger.py:81         wrapper",
            "> train.py:131                                train",
            "",
            "rank 3 on gpu01: train.py:140  (py-spy)",
            "> train.py:140  train",
        ]
    )


def test_it_is_said_where_calls_between_differ():
    text = stacks_text([("n1", stack(0, REDUCE, WRAPPER, LOOP)), ("n1", stack(1, REDUCE, LOOP))])
    assert text.splitlines()[:2] == [
        "ranks 0–1: train.py:131 → all_reduce  (py-spy)",
        "  the stack of rank 0; others differ in calls between",
    ]


def test_several_processes_of_a_rank_are_told_apart():
    text = stacks_text([("n1", stack(0, LOOP, pid=7)), ("n1", stack(0, LOOP, pid=8)),
                        ("n1", stack(None, LOOP, pid=9))])  # fmt: skip
    assert text.startswith("rank 0 (PID 7), rank 0 (PID 8), PID 9: train.py:131  (py-spy)\n")


def test_many_nodes_are_counted():
    text = stacks_text([(f"n{n}", stack(n, LOOP)) for n in range(6)])
    assert text.startswith("ranks 0–5 on n0, n1, n2, n3 and 2 more nodes: ")


def test_the_probes_stack_says_its_age():
    text = stacks_text([("n1", stack(0, LOOP)._replace(by="probe", age_s=1.7))])
    assert text.startswith("rank 0: train.py:131  (probe, 1 s ago)")


def test_of_several_threads_each_is_named():
    several = (ThreadStack("MainThread", True, (LOOP,)), ThreadStack("", False, (REDUCE,)))
    lines = stacks_text([("n1", stack(0)._replace(threads=several))]).splitlines()
    assert lines[1:] == [
        "  thread MainThread",
        "> train.py:131  train",
        "  thread ?",
        "  torch/distributed/distributed_c10d.py:2219  all_reduce",
    ]


@pytest.mark.parametrize(
    ("why", "more", "words"),
    [
        ("ended", {}, "has ended"),
        ("other-user", {}, "another user"),
        ("not-python", {}, "not a Python program"),
        ("no-py-spy", {}, "pip install 'gpumon-slurm[stacks]'"),
        ("ptrace", {"detail": "1"}, "(ptrace_scope 1)"),
        ("refused", {}, "does not permit"),
        ("timeout", {}, "within 3 s"),
        ("silent", {"age_s": 40.0}, "has not written for 40 s"),
        ("failed", {"detail": "torn"}, "could not read it: torn"),
        ("of a later version", {}, "no reason was given"),
    ],
)
def test_why_there_is_no_stack(why, more, words):
    none = stack(0, why=why, **more)
    assert words in why_text(none)
    text = stacks_text([("n1", none), ("n1", none._replace(rank=1))])
    assert text == f"ranks 0–1: no stack: {why_text(none)}"
    (told,) = stacks_json([("n1", none)], {})["stacks"]
    assert told["missing"] == {"reason": why, "text": why_text(none)}
    assert (told["by"], told["age_s"], told["threads"]) == (None, None, [])


def test_a_main_thread_alone_says_why_there_is_no_more():
    text = stacks_text([("n1", stack(0, LOOP, why="no-py-spy"))])
    assert text.splitlines()[-1].startswith("  main thread only: py-spy is not installed")


def test_json_has_all_of_it():
    body = json.loads(json.dumps(stacks_json([("n1", stack(2, LOOP))], {"n2": "no answer"})))
    assert body == {
        "version": 1,
        "stacks": [
            {
                "node": "n1", "pid": 102, "name": "python", "rank": 2, "local_rank": None,
                "by": "py-spy", "age_s": 0.0, "missing": None,
                "threads": [
                    {"name": "MainThread", "main": True, "frames": [
                        {"file": "train.py", "line": 131, "function": "train", "own": True}]}
                ],
            }
        ],
        "missing_nodes": {"n2": "no answer"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1], "0–2"), ([0, 2, 3, 9], "0, 2–3, 9")]
)
def test_ranges(numbers, text):
    assert ranges_text(numbers) == text


def test_places():
    assert place_of([]) is None
    assert place_of([REDUCE]) == Place("", 0, "all_reduce")
    assert place_of([LOOP, ITEM]) == Place("train.py", 131, "")
    assert place_of([REDUCE, ITEM, LOOP]) == Place("train.py", 140, "all_reduce")
    assert folded([]) == []
    one = ("n1", stack(0, LOOP))
    assert folded([one]) == [Fold([one], Place("train.py", 131, ""), False)]
