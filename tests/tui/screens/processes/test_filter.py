"""The filter of the process table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.tui.screens.processes.filter import matches, parse_filter
from tests.support.examples import examples

TEXTS = {"user": "ada", "command": "python train.py", "node": "gpu01", "framework": "torch PyTorch"}
NUMBERS = {"gpu": [0.0, 3.0], "mem": [20 * 2.0**30], "cpu": [99.0], "pid": [77.0], "sm": []}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", True), ("train", True), ("TRAIN", True), ("eval", False), ("ada train", True),
        ("user=ada", True), ("user=eve", False), ("user!=eve", True), ("gpu=3", True),
        ("gpu=1", False), ("mem>10G", True), ("mem>=20GiB", True), ("mem<20G", False),
        ("mem>20480M", False), ("cpu>50%", True), ("cpu>50 user=eve", False), ("pid=77", True),
        ("framework=torch", True), ("node=gpu01 gpu=0", True),
        ("sm>0", False), ("sm<=0", False),  # a missing reading matches no comparison
    ],
)  # fmt: skip
def test_filters(text, found):
    terms, wrong = parse_filter(text)
    assert wrong == ""
    assert matches(terms, TEXTS, NUMBERS) is found


@pytest.mark.parametrize(
    ("text", "words"),
    [("mem>lots", "not a number"), ("speed>3", "choose from"), ("user>3", "choose from")],
)
def test_what_is_wrong_is_said(text, words):
    terms, wrong = parse_filter(text)
    assert terms == []
    assert words in wrong


@examples(5000)
@given(st.text(st.sampled_from("abcgpume=<>! 0G.%é\x1b"), max_size=20))
def test_no_text_breaks_the_filter(text):
    terms, wrong = parse_filter(text)
    assert matches(terms, TEXTS, NUMBERS) in (True, False)
    assert "\n" not in wrong
