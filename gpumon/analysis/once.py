"""What many rules ask of the same run, device or job is computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

_Of = TypeVar("_Of")
_Answer = TypeVar("_Answer")


def once(function: Callable[[_Of], _Answer]) -> Callable[[_Of], _Answer]:
    """Keeps the answer with the object that it is about, as long as that lives.

    For functions of one object of a plain class that nobody changes once it was asked about; the
    answer is shared, so nobody changes that either.
    """
    name = f"_{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(of: _Of) -> _Answer:
        answers = of.__dict__
        try:
            answer: _Answer = answers[name]
        except KeyError:
            answer = answers[name] = function(of)
        return answer

    return kept
