"""Requests and answers about stacks: round trips, and what is refused."""

from __future__ import annotations

import json

import pytest

from gpumon.errors import WireError
from gpumon.model.stack import ANY, Frame, Stack, ThreadStack, Told
from gpumon.wire.decoder import Decoder
from gpumon.wire.stacks import ANSWER, answer_line, parse_answer, parse_request, request_line

FRAME = Frame("train.py", 7, "main", True)
STACK = Stack(
    17, "python", 3, 1, "probe", 1.5, (ThreadStack("MainThread", True, (FRAME, FRAME)),), "", ""
)


@pytest.mark.parametrize("told", [Told(STACK, 4), Told(Stack(1, why="ended"), 0), Told(None, 0)])
def test_an_answer_comes_back_as_it_was(told):
    line = answer_line(told).encode()
    assert line.startswith(ANSWER)
    assert parse_answer(line) == told


def test_readers_that_do_not_know_answers_skip_them():
    assert Decoder().line(answer_line(Told(STACK, 0))) is None


def test_a_request_comes_back_as_it_was():
    line = request_line(17, ANY, "/a folder/py-spy\n")
    assert line.count(b"\n") == 1
    assert parse_request(line.rstrip(b"\n")) == (17, ANY, "/a folder/py-spy\n")


@pytest.mark.parametrize(
    "line", [b"", b"stack", b"stack 1 any", b"stack -1 any ", b"stack 1 all ", b"end gpu01",
             b"stack 99999999999 any ", b"stack \xff any ", b"stack 1 any  "],
)  # fmt: skip
def test_anything_else_is_no_request(line):
    assert parse_request(line) is None


BODY = json.loads(answer_line(Told(STACK, 0)))


@pytest.mark.parametrize(
    "change",
    [
        {"pid": "17"}, {"pid": None}, {"threads": {}}, {"threads": [[1, 2]]}, {"rank": "3"},
        {"threads": [["a", True, [["f", 1, "g"]]]]}, {"age_s": "x"}, {"by": 3}, {"why": None},
        {"threads": [["a", True, [["f", 1.5, "g", True]]]]}, {"age_s": 1e300},
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused(change):
    with pytest.raises(WireError, match="malformed"):
        parse_answer(json.dumps({"stack": {**BODY["stack"], **change}, "more": 0}).encode())


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"stack"', b'{"stack":{}}', b"\xff", b"[" * 9999])
def test_what_is_no_answer_is_refused(line):
    with pytest.raises(WireError):
        parse_answer(line)
    with pytest.raises(WireError, match="the limit"):
        parse_answer(b" " * ((1 << 20) + 1))


def test_hostile_values_are_cut_and_cleaned():
    frame = ["\x1b[2J" + "f" * 500, 1, "\u202eg", 1]
    body = {
        "stack": {"pid": 1, "rank": -3, "local_rank": 1 << 40, "name": "\x07",
                  "threads": [["\x00" * 3, 1, [frame] * 70]] + [["b", 1, [frame] * 18]] * 70},
        "more": 1 << 50,
    }  # fmt: skip
    told = parse_answer(json.dumps(body).encode())
    assert told.more == 1 << 20
    assert (told.stack.rank, told.stack.local_rank, told.stack.name) == (None, None, "?")
    assert len(told.stack.threads) == 64
    assert sum(len(each.frames) for each in told.stack.threads) == 1024
    first = told.stack.threads[0]
    assert (first.name, first.is_main, len(first.frames)) == ("???", False, 64)
    assert first.frames[0].own is False
    assert first.frames[0].file.startswith("?[2Jff")
    assert len(first.frames[0].file) == 120
