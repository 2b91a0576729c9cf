"""Modules that Textual imports for what gpumon uses seldom or never: imported when they are called.

They are a quarter of the time and 3 MiB of the memory that importing Textual takes.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import get_ident
from types import ModuleType
from typing import Any

#: the command palette with all of its widgets; what is wrong with CSS, and what was meant; folders
#: for downloads; types of files; numbers for notifications; addresses in URLs; what styles keep for
#: clicks; tables of colours, trees of widgets
MODULES = (
    "textual.command", "textual.css._help_text", "difflib", "platformdirs", "mimetypes", "uuid",
    "ipaddress", "pickle", "rich.table", "rich.tree",
)  # fmt: skip


class _Later:
    """A function or a class of a module that is imported when it is called."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: Any, **named: Any) -> Any:
        return getattr(import_module(self._module), self._name)(*args, **named)

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        """As a base class: none. Textual's providers of commands, which gpumon has not."""
        return ()


class _Postponed(ModuleType):
    """Stands for a module where Textual imports it; afterwards, and in other threads, it has what
    the module has.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._importer: int | None = get_ident()  # None: it is done

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if get_ident() == self._importer:
            return self._instead(name)
        return self._real(name)

    def _instead(self, name: str) -> Any:
        return _Later(self.__name__, name)

    def _real(self, name: str) -> Any:
        self._give_way()
        return getattr(import_module(self.__name__), name)

    def _give_way(self) -> None:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def end(self) -> None:
        self._importer = None
        self._give_way()


class _Backports(_Postponed):
    """Stands for typing_extensions: what this Python has itself need not be taken from there."""

    def _instead(self, name: str) -> Any:
        return getattr(typing, name) if hasattr(typing, name) else self._real(name)


@contextmanager
def postponing() -> Iterator[None]:
    """What this thread imports meanwhile gets of these modules what imports them when it is called;
    those that are imported already stay as they are.
    """
    standing: list[_Postponed] = [_Postponed(name) for name in MODULES]
    standing.append(_Backports("typing_extensions"))
    standing = [each for each in standing if each.__name__ not in sys.modules]
    sys.modules.update({each.__name__: each for each in standing})
    try:
        yield
    finally:
        for each in standing:
            each.end()
