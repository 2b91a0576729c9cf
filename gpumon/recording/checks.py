"""Checks: what a reader takes of a recording was proven to be what was written.

zstd has one checksum, at a frame's end: too late for reading the frame from its beginning, and
missing in an unfinished frame. So the last line of each part that is flushed ends
with the key `"check":"0a1b2c3d"`: the CRC-32 of the frame's lines so far, without these keys. It
begins with the recording's random id and the frame's number, which the frame's first line tells. So
a part that was skipped, repeated, changed or comes from elsewhere does not fit, and nothing behind
it in its frame either.
"""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Optional
from zlib import crc32

from gpumon.recording.zstd import Broken
from gpumon.wire import MAX_LINE_BYTES

#: how a line with a check ends: no other can, as their last values are no texts
_CHECK = b',"check":"%08x"}\n'
CHECK_BYTES = len(_CHECK % 0)
ANY_CHECK = re.compile(rb',"check":"[0-9a-f]{8}"\}\n')
_END = b"}\n"
#: packed, a part is one block of zstd: what can be unpacked can be proven
_PART_BYTES = 48 << 10
_MAX_PART_BYTES = _PART_BYTES + MAX_LINE_BYTES + CHECK_BYTES
_BEGINNING = re.compile(rb'\{(?:"restated":true,)?"frame":\["([0-9a-f]{16})",([0-9]{1,9})\],')


class Identity(NamedTuple):
    """Which frame of which recording."""

    stream: bytes  # 8, random
    number: int  # from 0

    def begun(self, line: bytes) -> bytes:
        """The object in `line`, which is the frame's first, with the identity as its first key."""
        return b'{"frame":["%s",%d],%s' % (self.stream.hex().encode(), self.number, line[1:])

    @property
    def seed(self) -> int:
        return crc32(self.stream + self.number.to_bytes(4, "little"))


def identity_of(line: bytes) -> Optional[Identity]:
    """Identity from a frame's first line; None for a recording without checks."""
    found = _BEGINNING.match(line)
    return Identity(bytes.fromhex(found[1].decode()), int(found[2])) if found else None


class Checking:
    """Adds checks to the lines of one frame."""

    def __init__(self, identity: Identity) -> None:
        self._crc = identity.seed

    def parts(self, lines: bytes) -> Iterator[bytes]:
        """What is to be flushed, in parts that a block can hold."""
        while lines:
            end = len(lines)
            if end > _PART_BYTES:
                end = lines.rfind(b"\n", 0, _PART_BYTES) + 1 or lines.index(b"\n") + 1
            part, lines = lines[:end], lines[end:]
            self._crc = crc32(part, self._crc)
            yield part[: -len(_END)] + _CHECK % self._crc


class Proving:
    """Gives the lines of one frame as they come, as soon as a check has proven them."""

    def __init__(self) -> None:
        self._identity: Optional[Identity] = None
        self._crc = 0
        self._rest = b""  # not proven yet
        self._frames = 0

    def take(self, chunk: bytes) -> List[bytes]:
        """The next bytes; gives the lines that they prove. Raises Broken where they do not fit.

        Frames that were packed again are one, in which first lines of others come.
        """
        text, begin = self._rest + chunk, 0
        proven: List[bytes] = []
        for check in ANY_CHECK.finditer(text):
            at = check.start()
            self._begin(identity_of(text[begin : begin + 80]))
            self._crc = crc32(_END, crc32(text[begin:at], self._crc))
            if check[0] != _CHECK % self._crc:
                raise Broken("a checksum does not match")
            proven += (text[begin:at] + b"}").split(b"\n")
            begin = check.end()
        self._rest = text[begin:]
        if len(self._rest) > _MAX_PART_BYTES:
            raise Broken("a checksum is missing")
        return proven

    def _begin(self, identity: Optional[Identity]) -> None:
        if identity is None:
            return
        if identity == self._identity:
            raise Broken("a part is repeated")
        self._identity, self._crc = identity, identity.seed
        self._frames += 1

    def end(self, *, whole: bool) -> None:
        """Of the frame, and whether it was finished. Raises Broken where lines were not proven.

        Two recorded frames in one that was not finished: what was between them is gone.
        """
        if self._rest:
            raise Broken("a checksum is missing at its end")
        if self._frames > 1 and not whole:
            raise Broken("a part of it is missing")
