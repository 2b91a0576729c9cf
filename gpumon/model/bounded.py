"""Collections that hold at most so many things and so many bytes, whatever a stream sends.

What is left out is counted, so that it can be reported.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import Any, Deque, Dict, Generic, Iterator, Optional, Tuple, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

#: bytes of an object and of its place in a container, about
_OBJECT = 64


def weight(value: Any) -> int:
    """About how many bytes a value of a stream takes: texts, numbers, containers of these."""
    if isinstance(value, str):
        return _OBJECT + value.__sizeof__()
    if isinstance(value, dict):
        return _OBJECT + sum(2 * _OBJECT + weight(k) + weight(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return _OBJECT + sum(map(weight, value))
    return _OBJECT


class Allowance:
    """Room for so many things, wherever they are then kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = self.left_out = 0

    def take(self) -> bool:
        """Whether there is room for one more."""
        if self.used >= self._most:
            self.left_out += 1
            return False
        self.used += 1
        return True

    def give(self, count: int) -> None:
        """So many of them are no longer kept."""
        self.used -= count


class Recent(Generic[_Value]):
    """The newest things, at least one; older ones make room."""

    def __init__(self, most: int, room_bytes: int) -> None:
        self._most, self._room = most, room_bytes
        self._kept: Deque[Tuple[_Value, int]] = deque()
        self._bytes = 0
        self.left_out = 0

    def append(self, value: _Value) -> None:
        size = weight(value)
        self._kept.append((value, size))
        self._bytes += size
        while len(self._kept) > 1 and (len(self._kept) > self._most or self._bytes > self._room):
            self._bytes -= self._kept.popleft()[1]
            self.left_out += 1

    def copy(self) -> Recent[_Value]:
        other = copy(self)
        other._kept = self._kept.copy()
        return other

    @property
    def newest(self) -> Optional[_Value]:
        return self._kept[-1][0] if self._kept else None

    def __iter__(self) -> Iterator[_Value]:
        return (value for value, _ in self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class Known(Dict[_Key, _Value]):
    """Things by key. Where there is no room, new ones are left out and the old ones stay.

    Change it with `keep` and `pop` alone.
    """

    def __init__(self, most: int, room_bytes: int) -> None:
        super().__init__()
        self._most, self._room = most, room_bytes
        self._sizes: Dict[_Key, int] = {}
        self._bytes = 0
        self.left_out = 0

    def keep(self, key: _Key, value: _Value) -> bool:
        """Whether there was room for it; a new value of a known key takes the old one's place."""
        before = self._sizes.get(key, 0)
        size = weight(key) + weight(value)
        if (not before and len(self) >= self._most) or self._bytes + size - before > self._room:
            self.left_out += 1
            return False
        self[key] = value
        self._sizes[key] = size
        self._bytes += size - before
        return True

    def pop(self, key: _Key, *default: Any) -> Any:
        self._bytes -= self._sizes.pop(key, 0)
        return super().pop(key, *default)

    def copy(self) -> Known[_Key, _Value]:
        other: Known[_Key, _Value] = Known(self._most, self._room)
        other.update(self)
        other._sizes, other._bytes = dict(self._sizes), self._bytes
        other.left_out = self.left_out
        return other


def left_out_text(left_out: Dict[str, int]) -> str:
    """What was left out of a stream, by name, as a sentence for people; "" where nothing was."""
    what = ", ".join(f"{count:,} {name}" for name, count in sorted(left_out.items()) if count)
    return f"This stream sent more than gpumon keeps; left out: {what}." if what else ""
