"""The parts of a zstd frame (RFC 8878, 3.1.1): a header, blocks, and mostly a checksum.

A frame is unpacked block by block: a decompressor that gets exactly one block returns all that the
block holds, at most 128 KiB, so nothing stays behind in it and no input can fill the memory.
"""

from __future__ import annotations

from typing import Callable, Iterator, Tuple

#: reads at most so many bytes of packed data; b"" at the end
Read = Callable[[int], bytes]

HEADER_BYTES = 18  # at most
_SHORTEST_HEADER_BYTES = 6
_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
MAX_BLOCKS = 1_000_000  # of one frame
_READ_BYTES = 1 << 16


class Broken(Exception):
    """Data that no zstd wrote."""


class Torn(Broken):
    """The data ends before its frame does; `useful`: bytes up to the last block with content."""

    def __init__(self, useful: int = 0) -> None:
        super().__init__("it is cut off")
        self.useful = useful


def header(data: bytes) -> Tuple[int, bool]:
    """Of a frame that begins with `data`: the bytes of its header, and whether it has a checksum.

    Raises Torn where `data` is too short to tell.
    """
    if len(data) < _SHORTEST_HEADER_BYTES:
        raise Torn
    descriptor = data[4]
    single = descriptor >> 5 & 1
    content_size = (single, 2, 4, 8)[descriptor >> 6]
    size = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size
    return size, bool(descriptor >> 2 & 1)


def block(head: bytes) -> Tuple[bool, int]:
    """Of a block's header: whether it is the last of its frame, and the bytes that follow it.

    Raises Torn, and Broken for a block of unknown kind.
    """
    if len(head) < _BLOCK_HEADER_BYTES:
        raise Torn
    bits = int.from_bytes(head, "little")
    kind, size = bits >> 1 & 3, bits >> 3
    if kind == 3:
        raise Broken("a block of unknown kind")
    return bool(bits & 1), 1 if kind == 1 else size


def parts(read: Read) -> Iterator[bytes]:
    """The header of a frame, then each block, the last one with the checksum.

    Returns at the end of the frame. Raises Torn and Broken.
    """
    take = _Taking(read).take
    start = take(_SHORTEST_HEADER_BYTES)
    size, has_checksum = header(start)
    yield start + take(size - len(start))
    for _ in range(MAX_BLOCKS):
        head = take(_BLOCK_HEADER_BYTES)
        is_last, size = block(head)
        yield head + take(size + (_CHECKSUM_BYTES if is_last and has_checksum else 0))
        if is_last:
            return
    raise Broken("too many blocks")


class _Taking:
    """Reads exactly as much as is asked for, a little ahead."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._data, self._at = b"", 0

    def take(self, size: int) -> bytes:
        while len(self._data) - self._at < size:
            more = self._read(_READ_BYTES)
            if not more:
                raise Torn
            self._data, self._at = self._data[self._at :] + more, 0
        found = self._data[self._at : self._at + size]
        self._at += size
        return found
