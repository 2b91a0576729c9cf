"""zstd, from the standard library (Python 3.14) or from the package `zstandard`."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Protocol

from gpumon.errors import GpumonError

MAGIC = b"\x28\xb5\x2f\xfd"
#: 35 µs a sample
LEVEL = 8
#: 64 KiB hold half a minute of lines. A dashboard on 64 nodes has 64 packers: each recorder begins
#: with 0.25 MiB; with the level's own tables it would be 4, with level 7 and larger tables 0.33 for
#: 2 % more bytes
WINDOW_LOG, TABLE_LOG = 16, 14
_CHUNK_BYTES = 1 << 14
#: what RFC 8878 asks every decoder to support; more could be asked of us only by a hostile file
MAX_WINDOW_LOG = 23

#: reads at most so many bytes of packed data; b"" at the end
Read = Callable[[int], bytes]


class Broken(Exception):
    """Data that no zstd wrote."""


class Packer(Protocol):
    """Packs one frame."""

    def block(self, data: bytes) -> bytes:
        """All of `data`, packed so that it can be read although the frame goes on."""

    def finish(self) -> bytes:
        """The rest of the frame, with its checksum."""


def packer() -> Packer:
    """For one new frame. Raises GpumonError where there is no zstd."""
    try:
        import zstandard
    except ImportError:
        return _StandardPacker(_standard())
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, window_log=WINDOW_LOG, hash_log=TABLE_LOG, chain_log=TABLE_LOG,
        write_checksum=True, write_content_size=False,
    )  # fmt: skip
    return _PackagePacker(zstandard.ZstdCompressor(compression_params=parameters))


def unpacked(read: Read, chunk_bytes: int) -> Iterator[bytes]:
    """What one frame holds, in pieces of at most `chunk_bytes`; a torn frame just ends.

    Raises Broken where the data is damaged, after what came before the damage.
    """
    try:
        import zstandard
    except ImportError:
        yield from _unpacked_standard(_standard(), read, chunk_bytes)
        return
    # asks `read` for little at a time, so that little is lost in front of a damaged place
    unpacker = zstandard.ZstdDecompressor(max_window_size=1 << MAX_WINDOW_LOG)
    source: Any = _Readable(read)  # all that it asks of a file
    stream = unpacker.stream_reader(source, read_size=1 << 14, closefd=False)
    try:
        while chunk := stream.read(chunk_bytes):
            yield chunk
    except zstandard.ZstdError as error:
        raise Broken(str(error)) from None


class _PackagePacker:
    """Its `compressobj` would hold 128 KiB for what it puts out, in each of many recorders."""

    def __init__(self, compressor: Any) -> None:
        self._chunker = compressor.chunker(chunk_size=_CHUNK_BYTES)

    def block(self, data: bytes) -> bytes:
        return b"".join((*self._chunker.compress(data), *self._chunker.flush()))

    def finish(self) -> bytes:
        return b"".join(self._chunker.finish())


class _StandardPacker:
    def __init__(self, module: Any) -> None:
        parameter = module.CompressionParameter
        self._stream = module.ZstdCompressor(
            options={
                parameter.compression_level: LEVEL,
                parameter.window_log: WINDOW_LOG,
                parameter.hash_log: TABLE_LOG,
                parameter.chain_log: TABLE_LOG,
                parameter.checksum_flag: 1,
            }
        )

    def block(self, data: bytes) -> bytes:
        packed: bytes = self._stream.compress(data, self._stream.FLUSH_BLOCK)
        return packed

    def finish(self) -> bytes:
        packed: bytes = self._stream.flush(self._stream.FLUSH_FRAME)
        return packed


def _unpacked_standard(module: Any, read: Read, chunk_bytes: int) -> Iterator[bytes]:
    limit = {module.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    stream = module.ZstdDecompressor(options=limit)
    try:
        while not stream.eof:
            data = read(1 << 14) if stream.needs_input else b""
            if stream.needs_input and not data:
                return
            chunk = stream.decompress(data, chunk_bytes)
            if chunk:
                yield chunk
    except module.ZstdError as error:
        raise Broken(str(error)) from None


def _standard() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found]  # Python 3.14
    except ImportError:
        raise GpumonError("recordings need zstd: install the Python package zstandard") from None
    return zstd


class _Readable:
    def __init__(self, read: Read) -> None:
        self.read = read
