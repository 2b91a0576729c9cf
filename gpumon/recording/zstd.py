"""zstd, by the package `zstandard`; and gzip.

A frame of zstd (RFC 8878, 3.1.1) is a header, blocks, and mostly a checksum. It is unpacked block
by block: a decompressor that gets exactly one block returns all that the block holds, at most 128
KiB, so nothing stays behind in it and no input can fill the memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpumon.errors import GpumonError

#: at most so many bytes of a file at a place; fewer only at its end. Raises OSError
ReadAt = Callable[[int, int], bytes]

_SHORTEST_HEADER_BYTES = 6
_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
MAX_BLOCKS = 1_000_000  # of one frame
_READ_BYTES = 1 << 16
MAGIC, GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
#: 35 µs a sample
LEVEL = 8
#: 64 KiB hold half a minute of lines. A dashboard on 64 nodes has 64 packers: each recorder begins
#: with 0.25 MiB; with the level's own tables it would be 4, with level 7 and larger tables 0.33 for
#: 2 % more bytes
WINDOW_LOG, TABLE_LOG = 16, 14
#: of many recorders: 0.16 MiB each, for 3 % more bytes
SMALL_WINDOW_LOG, SMALL_TABLE_LOG = 15, 13
_CHUNK_BYTES = 1 << 14
LEAST_BYTES = 1 << 12
#: what RFC 8878 asks every decoder to support; more could be asked of us only by a hostile file
MAX_WINDOW_LOG = 23

#: in the text of ZSTD_error_memory_allocation (zstd, lib/common/error_private.c)
_NO_MEMORY = "not enough memory"


class Broken(Exception):
    """Data that no zstd wrote."""


class Torn(Broken):
    """The data ends before its frame does; `useful`: bytes up to the last block with content."""

    def __init__(self, useful: int = 0) -> None:
        super().__init__("it is cut off")
        self.useful = useful


def blocks(read: ReadAt, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the header of the frame at `begin` lies, then each block, the last with the checksum.

    Reads nothing but their heads. Raises Torn where the frame ends behind `end`, and Broken.
    """
    head = read(min(_SHORTEST_HEADER_BYTES, end - begin), begin)
    if len(head) < _SHORTEST_HEADER_BYTES:
        raise Torn
    descriptor = head[4]
    single = descriptor >> 5 & 1
    checksum_bytes = _CHECKSUM_BYTES * (descriptor >> 2 & 1)
    content_size = (single, 2, 4, 8)[descriptor >> 6]
    behind = begin + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size
    is_last = False
    for _ in range(MAX_BLOCKS):
        if behind > end:
            raise Torn
        yield begin, behind
        if is_last:
            return
        begin = behind
        head = read(min(_BLOCK_HEADER_BYTES, end - begin), begin)
        if len(head) < _BLOCK_HEADER_BYTES:
            raise Torn
        bits = int.from_bytes(head, "little")
        is_last, kind = bool(bits & 1), bits >> 1 & 3
        if kind == 3:
            raise Broken("a block of unknown kind")
        size = 1 if kind == 1 else bits >> 3
        behind = begin + _BLOCK_HEADER_BYTES + size + checksum_bytes * is_last
    raise Broken("too many blocks")


def _ahead(read: ReadAt) -> ReadAt:
    """The same in larger pieces: the next small ones cost no call."""
    data, begin = b"", 0

    def read_at(size: int, at: int) -> bytes:
        nonlocal data, begin
        if not begin <= at <= at + size <= begin + len(data):
            data, begin = read(max(size, _READ_BYTES), at), at
        return data[at - begin : at - begin + size]

    return read_at


# -- packing


def packer(*, is_small: bool = False) -> Any:
    """Of the package, for one new frame: `compress` and `flush` give what can be read although the
    frame continues, `finish` the rest, with its checksum. Raises GpumonError where there is none.
    """
    zstandard = _package()
    window_log = SMALL_WINDOW_LOG if is_small else WINDOW_LOG
    table_log = SMALL_TABLE_LOG if is_small else TABLE_LOG
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, window_log=window_log, hash_log=table_log, chain_log=table_log,
        write_checksum=True, write_content_size=False,
    )  # fmt: skip
    # its `compressobj` would hold 128 KiB for what it puts out, in each of many recorders
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    return compressor.chunker(chunk_size=_CHUNK_BYTES)


def _package() -> Any:
    """Loaded when it is needed. Raises GpumonError."""
    try:
        import zstandard
    except ImportError:
        raise GpumonError("recordings need zstd: install the Python package zstandard") from None
    return zstandard


# -- unpacking


def unpacked(read: ReadAt, begin: int, end: int) -> Iterator[bytes]:
    """What the frame at `begin` holds, in pieces: a block of at most 128 KiB, and small ones
    before it.

    Where the frame has a checksum it is verified behind the last block. Raises Torn where the frame
    ends behind `end`, Broken where it is damaged, after what came before.
    """
    zstandard = _package()
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << MAX_WINDOW_LOG)
    unpack = decompressor.decompressobj().decompress
    read = _ahead(read)
    useful, piece = 0, b""
    try:
        for at, behind in blocks(read, begin, end):
            data = unpack(read(behind - at, at))
            useful = behind - begin if data else useful
            piece += data
            if len(piece) >= LEAST_BYTES:
                yield piece
                piece = b""
    except (Broken, zstandard.ZstdError) as error:
        if _NO_MEMORY in str(error):  # which says nothing about the file
            raise MemoryError from None
        if piece:
            yield piece
        raise Torn(useful) if isinstance(error, Torn) else Broken(str(error)) from None
    if piece:
        yield piece


def gunzipped(packed: Iterable[bytes]) -> Iterator[bytes]:
    """What a gzip file holds, in pieces. Raises as `unpacked` does."""
    unpack = zlib.decompressobj(wbits=31)
    try:
        for data in packed:
            while data:
                if unpack.eof:  # such files may be put together
                    unpack = zlib.decompressobj(wbits=31)
                yield unpack.decompress(data)
                data = unpack.unused_data
    except zlib.error as refused:
        raise Broken(str(refused)) from None
    if not unpack.eof:
        raise Torn
