"""zstd, from the standard library (Python 3.14) or from the package `zstandard`; and gzip.

A frame of zstd (RFC 8878, 3.1.1) is a header, blocks, and mostly a checksum. It is unpacked block
by block: a decompressor that gets exactly one block returns all that the block holds, at most 128
KiB, so nothing stays behind in it and no input can fill the memory.
"""

from __future__ import annotations

import zlib
from typing import Any, Callable, Iterator, Optional, Protocol, Tuple, Type

from gpumon.errors import GpumonError

#: reads at most so many bytes of packed data; b"" at the end
Read = Callable[[int], bytes]

HEADER_BYTES = 18  # at most
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
_LEAST_BYTES = 1 << 12
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


# -- packing


class Packer(Protocol):
    """Packs one frame."""

    def block(self, data: bytes) -> bytes:
        """All of `data`, packed so that it can be read although the frame continues."""

    def finish(self) -> bytes:
        """The rest of the frame, with its checksum."""


def packer(*, is_small: bool = False) -> Packer:
    """For one new frame. Raises GpumonError where there is no zstd."""
    window_log = SMALL_WINDOW_LOG if is_small else WINDOW_LOG
    table_log = SMALL_TABLE_LOG if is_small else TABLE_LOG
    try:
        import zstandard
    except ImportError:
        return _StandardPacker(_standard(), window_log, table_log)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, window_log=window_log, hash_log=table_log, chain_log=table_log,
        write_checksum=True, write_content_size=False,
    )  # fmt: skip
    return _PackagePacker(zstandard.ZstdCompressor(compression_params=parameters))


class _PackagePacker:
    """Its `compressobj` would hold 128 KiB for what it puts out, in each of many recorders."""

    def __init__(self, compressor: Any) -> None:
        self._chunker = compressor.chunker(chunk_size=_CHUNK_BYTES)

    def block(self, data: bytes) -> bytes:
        return b"".join((*self._chunker.compress(data), *self._chunker.flush()))

    def finish(self) -> bytes:
        return b"".join(self._chunker.finish())


class _StandardPacker:
    def __init__(self, module: Any, window_log: int, table_log: int) -> None:
        parameter = module.CompressionParameter
        self._stream = module.ZstdCompressor(
            options={
                parameter.compression_level: LEVEL,
                parameter.window_log: window_log,
                parameter.hash_log: table_log,
                parameter.chain_log: table_log,
                parameter.checksum_flag: 1,
            }
        )

    def block(self, data: bytes) -> bytes:
        packed: bytes = self._stream.compress(data, self._stream.FLUSH_BLOCK)
        return packed

    def finish(self) -> bytes:
        packed: bytes = self._stream.flush(self._stream.FLUSH_FRAME)
        return packed


def _standard() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found]  # Python 3.14
    except ImportError:
        raise GpumonError("recordings need zstd: install the Python package zstandard") from None
    return zstd


# -- unpacking


def unpacked(read: Read) -> Iterator[bytes]:
    """What one frame holds, in pieces: a block of at most 128 KiB, and small ones before it.

    Where the frame has a checksum it is verified behind the last block. Raises Torn where the data
    ends before the frame does, Broken where it is damaged, after what came before.
    """
    unpack, error = _unpacker()
    seen = useful = 0
    piece = b""
    why: Optional[Broken] = None
    try:
        for part in parts(read):
            data = unpack(part)
            seen += len(part)
            useful = seen if data else useful
            piece += data
            if len(piece) >= _LEAST_BYTES:
                yield piece
                piece = b""
    except Torn:
        why = Torn(useful)
    except Broken as broken:
        why = broken
    except error as refused:
        if _NO_MEMORY in str(refused):  # which says nothing about the file
            raise MemoryError from None
        why = Broken(str(refused))
    if piece:
        yield piece
    if why is not None:
        raise why


def gunzipped(read: Read) -> Iterator[bytes]:
    """What a gzip file holds, in pieces. Raises as `unpacked` does."""
    unpack, data = zlib.decompressobj(wbits=31), b""
    try:
        while data := data or read(_LEAST_BYTES):
            if unpack.eof:  # such files may be put together
                unpack = zlib.decompressobj(wbits=31)
            yield unpack.decompress(data)
            data = unpack.unused_data
    except zlib.error as refused:
        raise Broken(str(refused)) from None
    if not unpack.eof:
        raise Torn


def _unpacker() -> Tuple[Callable[[bytes], bytes], Type[Exception]]:
    """Unpacks a frame part by part, and what it raises. Raises GpumonError."""
    try:
        import zstandard
    except ImportError:
        module = _standard()
        limit = {module.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
        return module.ZstdDecompressor(options=limit).decompress, module.ZstdError
    package = zstandard.ZstdDecompressor(max_window_size=1 << MAX_WINDOW_LOG)
    return package.decompressobj().decompress, zstandard.ZstdError
