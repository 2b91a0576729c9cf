"""What this process asks of a file server: calls on a folder, counted where Python makes them."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import pytest

#: they move data, or close what is open
_DATA = ("read", "write", "pread", "pwrite", "readv", "writev", "preadv", "pwritev", "close",
         "sendfile", "fdopen", "dup", "dup2", "lseek", "set_blocking", "fspath")  # fmt: skip


def count(monkeypatch: pytest.MonkeyPatch, folder: str) -> Counter[str]:
    """Counts from now on, by function of `os`: those that a file system answers, if they are about
    the folder or what lies in it.
    """
    calls: Counter[str] = Counter()
    fsencode = os.fsencode
    readlink, join = os.readlink, os.path.join
    inside = fsencode(os.path.realpath(folder))

    def place(value: object, within: object) -> bytes:
        if isinstance(value, int):
            try:
                return fsencode(readlink(f"/proc/self/fd/{value}"))
            except OSError:
                return b""
        if isinstance(value, (str, bytes, os.PathLike)):
            path = fsencode(value)
            if within is not None and not path.startswith(b"/"):
                return join(place(within, None), path)
            return path
        return b""

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            within = named.get("dir_fd", named.get("src_dir_fd"))
            if args and place(args[0], within).startswith(inside):
                calls[name] += 1
            return function(*args, **named)

        return call

    for name in dir(os):
        function = getattr(os, name)
        is_call = isinstance(function, BuiltinFunctionType)
        if is_call and name not in _DATA and not name.startswith("_"):
            monkeypatch.setattr(os, name, counted(name, function))
    return calls
