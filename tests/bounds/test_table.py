"""The table of bounds and the code say the same."""

import importlib
import os
import re

import pytest

from tests.e2e.program import ROOT

_BOUND = re.compile(r"([\d.,]+)(?: ?(KiB|MiB|GiB|s))?(?:/s)? `([a-z_.]+)\.([A-Z_]+)`")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def text():
    with open(os.path.join(ROOT, "docs", "reliability.md")) as file:
        return file.read().partition("## Bounds")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("number", "unit", "module", "name"), _BOUND.findall(text()))
def test_a_bound_is_the_constant_that_it_names(number, unit, module, name):
    value = getattr(importlib.import_module(f"gpumon.{module}"), name)
    assert float(number.replace(",", "")) * _UNITS.get(unit, 1) == value


def test_no_bound_is_passed_over():
    named = re.findall(r"`([a-z_.]+\.[A-Z_]{4,})`", text())
    assert len(named) > 50
    assert len(named) == len(_BOUND.findall(text()))
