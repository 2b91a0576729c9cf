"""What travels to a node is cut, and does the same as what is installed."""

from __future__ import annotations

import sys
from types import CodeType, ModuleType

import pynvml
import pytest

from gpumon.collect.nvml import locate
from gpumon.transport import modules as travelling

MODULES = travelling.modules()


def _same(one: CodeType, other: CodeType) -> bool:
    """In instructions, constants and line numbers."""
    pairs = list(zip(one.co_consts, other.co_consts))
    return (
        one.co_code == other.co_code
        and list(one.co_lines()) == list(other.co_lines())
        and len(one.co_consts) == len(other.co_consts)
        and all(_same(a, b) if isinstance(a, CodeType) else a == b for a, b in pairs)
    )


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, _, path in travelling._files()])
def test_without_comments_the_code_is_the_same(name, path):
    def compiled(source):
        return compile(source, name, "exec", optimize=2, dont_inherit=True)  # without docstrings

    source = travelling._read(path)
    shipped = MODULES[name][1]
    assert _same(compiled(source), compiled(shipped))
    assert not [line for line in shipped.splitlines() if line.lstrip().startswith("#")]


def test_the_binding_has_all_that_the_agent_uses(monkeypatch):
    text = MODULES["pynvml"][1]
    assert len(text) < len(locate.source()) / 5
    module = ModuleType("cut")
    monkeypatch.setitem(sys.modules, "cut", module)  # where it sets the classes of its errors
    exec(compile(text, "cut", "exec"), cut := vars(module))
    used = {name for _, (_, source) in MODULES.items() for name in travelling._USED.findall(source)}
    assert len(used) > 100
    assert not [name for name in used if hasattr(pynvml, name) and name not in cut]
    for name in vars(pynvml):
        if name.startswith(travelling._LOOKED_UP):
            assert name in cut
    for value in list(cut.values()):
        for name in _names(getattr(getattr(value, "__wrapped__", value), "__code__", None)):
            assert name in cut or name not in vars(pynvml), name


def _names(code):
    """The globals that a function of the binding reads, and other names in it."""
    if code is None:
        return set()
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def test_its_licence_travels_with_it():
    assert "Redistribution and use in source and binary forms" in MODULES["pynvml"][1]
