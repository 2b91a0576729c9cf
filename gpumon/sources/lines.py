"""Recorded streams in plain files of lines, gzip or not, as `gpumon collect` prints them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from gpumon.errors import GpumonError, NotFoundError, WireError
from gpumon.model.axis import Axis
from gpumon.model.sample import Header, Sample
from gpumon.model.text import clean
from gpumon.wire import MAX_LINE_BYTES, Decoder

_TORN = "the end is missing: the file stops in the middle of a line"
_TORN_GZIP = "the end is missing: the gzip file was cut off, and its checksum with it"
_CHUNK_BYTES = 1 << 18


def read_stream(path: str, problems: list[str] | None = None) -> Iterator[Header | Sample]:
    """Headers and samples of a stream in a file of lines.

    The checksum of a gzip file is verified before anything of it is given. A torn last line is
    dropped, which is added to `problems`. Raises NotFoundError, GpumonError (unreadable, damaged)
    or WireError.
    """
    said = [] if problems is None else problems
    try:
        with open(path, "rb") as probe:
            packed = probe.read(2) == b"\x1f\x8b"
        if packed and not _is_whole(path):
            _add(said, _TORN_GZIP)
        with gzip.open(path, "rb") if packed else open(path, "rb") as stream:
            yield from _items(stream, said)
    except FileNotFoundError:
        raise NotFoundError(f"no file {path}; give the path of a recorded stream") from None
    except WireError as error:
        raise WireError(f"{clean(path, 200)}: {error}") from None
    except EOFError:  # of a torn gzip file what was read stands
        return
    except (OSError, zlib.error) as error:
        what = error.strerror or error if isinstance(error, OSError) else error
        raise GpumonError(f"cannot read {path}: {what}") from None


def _is_whole(path: str) -> bool:
    """Whether a gzip file has its end. Raises OSError and zlib.error where it is damaged."""
    try:
        with gzip.open(path, "rb") as stream:
            while stream.read(_CHUNK_BYTES):
                pass
    except EOFError:
        return False
    return True


def _items(stream: gzip.GzipFile | BinaryIO, problems: list[str]) -> Iterator[Header | Sample]:
    decoder, axis = Decoder(), Axis()
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
            _add(problems, _TORN)
            return
        item = decoder.line(line)
        if item is not None:
            yield axis.item(item)


def _add(problems: list[str], problem: str) -> None:
    """Once, however often the file is read."""
    if problem not in problems:
        problems.append(problem)
