"""What our reader asks for while it reads: lines on the agent's input, between its heartbeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from gpumon.collect.labels import addressed_to
from gpumon.wire.stacks import answer_line, parse_request

if TYPE_CHECKING:
    from gpumon.collect.stacks.stacks import Stacks

_MOST_BYTES = 8192  # of a line that has not ended


class Answers:
    """Takes the agent's input as it comes, and writes the answers. One thread's."""

    def __init__(
        self, node: str, stacks: Callable[[], Stacks], write: Callable[[str], None]
    ) -> None:
        self._node = node
        self._stacks = stacks
        self._write = write
        self._rest = b""

    def take(self, said: bytes) -> None:
        *lines, rest = (self._rest + said).split(b"\n")
        self._rest = rest[-_MOST_BYTES:]
        for line in lines:
            request = parse_request(addressed_to(self._node, line)) if line else None
            if request is not None:
                for told in self._stacks().answers(*request):
                    self._write(answer_line(told))
