"""Recorded streams in plain files of lines, gzip or not, as `gpumon collect` prints them."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from gpumon.errors import ForeignLineError, GpumonError, NotFoundError, WireError
from gpumon.model.axis import Axis
from gpumon.model.sample import Header, Sample
from gpumon.model.text import clean
from gpumon.model.units import plural
from gpumon.sources.kinds import kind_of
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder

_TORN = "the end is missing: the file stops in the middle of a line"
_TORN_GZIP = "the end is missing: the gzip file was cut off, and its checksum with it"
_CHUNK_BYTES, _HEAD_BYTES = 1 << 18, 512
#: lines before the first of a stream, as a login shell may print
_MOST_BEFORE = 1000
#: empty lines and ones that cannot be read, beyond as many as headers and samples
_MOST_WASTED = 10_000
#: a file that unpacks to so much more than it packs is made to keep a program busy: what an agent
#: prints packs to a tenth
_MAX_RATIO, _ALWAYS_FINE_BYTES = 200, 1 << 20


def read_stream(path: str, problems: list[str] | None = None) -> Iterator[Header | Sample]:
    """Headers and samples of a stream in a file of lines.

    The checksum of a gzip file is verified before anything of it is given. A torn last line and
    lines that cannot be read are left out, which is added to `problems`. Raises NotFoundError,
    GpumonError (unreadable, damaged) or WireError, where nothing of it is a stream.
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
    except ForeignLineError:
        raise WireError(
            f"{clean(path, 200)} is {_kind(path, is_packed=packed)}, not a recording; expected a "
            ".gpumon file or the output of 'gpumon collect'"
        ) from None
    except WireError as error:
        raise WireError(f"{clean(path, 200)}: {error}") from None
    except EOFError:  # of a torn gzip file what was read stands
        return
    except (OSError, zlib.error) as error:
        what = error.strerror or error if isinstance(error, OSError) else error
        raise GpumonError(f"cannot read {path}: {what}") from None


def _is_whole(path: str) -> bool:
    """Whether a gzip file has its end. Raises OSError and zlib.error where it is damaged, and
    GpumonError where it unpacks to too much.
    """
    left = max(_MAX_RATIO * os.path.getsize(path), _ALWAYS_FINE_BYTES)
    try:
        with gzip.open(path, "rb") as stream:
            while data := stream.read(_CHUNK_BYTES):
                left -= len(data)
                if left < 0:
                    raise GpumonError(
                        f"{clean(path, 200)} decompresses to far more than a recording can hold"
                    )
    except EOFError:
        return False
    return True


def _kind(path: str, *, is_packed: bool) -> str:
    with gzip.open(path, "rb") if is_packed else open(path, "rb") as stream:
        return kind_of(stream.read(_HEAD_BYTES))


def _items(stream: gzip.GzipFile | BinaryIO, problems: list[str]) -> Iterator[Header | Sample]:
    decoder, axis = Decoder(), Axis()
    first: WireError | None = None  # of the lines that cannot be read
    bad = empty = read = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
            _add(problems, _TORN)
            break
        try:
            item = decoder.line(line)
        except WireError as error:
            first, bad = first or error, bad + 1
            while line and not line.endswith(b"\n"):  # the rest of one that is too long
                line = stream.readline(_CHUNK_BYTES)
            item = None
        else:
            empty += item is None
        if item is not None:
            read += 1
            yield axis.item(item)
        elif bad + empty > (read + _MOST_WASTED if read else _MOST_BEFORE):
            if read:
                _add(problems, "most of it is empty or cannot be read: the rest was left out")
            break
    if not read:
        raise first or ForeignLineError("not one line of a gpumon stream")
    if first is not None:
        _add(problems, f"{plural(bad, 'line')} could not be read: {first}")


def _add(problems: list[str], problem: str) -> None:
    """Once, however often the file is read."""
    if problem not in problems:
        problems.append(problem)
