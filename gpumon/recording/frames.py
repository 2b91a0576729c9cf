"""Where the frames of a recording lie, and the lines in them.

Behind each frame that was finished stands a *trailer*, a skippable frame that zstd passes over: how
long the frame is and from when to when. (Older recorders put a *digest* before that, of which only
the frame's number is still read.) They are the index: read backwards from the end of the file they
give every frame's place without unpacking one. What has no trailer (the frame that is being
written, one that a crash cut off, a file that was packed again) is walked block by block: zstd's
block headers tell where a frame ends (RFC 8878, 3.1.1).
"""

from __future__ import annotations

import struct
from itertools import chain
from math import isfinite
from typing import Callable, Iterator, List, NamedTuple, Optional
from zlib import crc32

from gpumon.recording import blocks
from gpumon.recording.blocks import Broken, Torn
from gpumon.recording.checks import ANY_CHECK, CHECK_BYTES, Identity, Proving, identity_of
from gpumon.recording.zstd import MAGIC, unpacked
from gpumon.wire import MAX_LINE_BYTES

#: at most so many bytes of a file at a place; fewer only at its end. Raises OSError
ReadAt = Callable[[int, int], bytes]

_HEAD = struct.Struct("<4sI")  # magic, the bytes that follow
_SKIPPABLE = b"\x5a\x2a\x4d\x18"  # of the 16 that zstd sets apart, ours
#: how each trailer ends: mark, frame bytes, ended, start, last
_TAIL = struct.Struct("<8sIIdd")
#: and where a digest stands before that: its bytes, the frame's number, its stream
_DIGEST_TAIL = struct.Struct("<8sIIddII8s")
_MARK, _DIGEST_MARK = b"gpumon\x00\x01", b"gpumon\x00\x02"
_ANY_MARK = _MARK[:-1]
_TAIL_OF_MARK = {_MARK: _TAIL, _DIGEST_MARK: _DIGEST_TAIL}
#: what stands before a trailer to prove it: mark, stream, number of the frame, CRC-32 of the digest
#: and of all this with the trailer's end
_SEAL = struct.Struct("<8s8sIII")
_SEAL_MARK = b"gpumon\x00\x03"
_SEAL_HEAD = _HEAD.pack(_SKIPPABLE, _SEAL.size)
_SEALED_BYTES = _HEAD.size + _SEAL.size
_MAX_DIGEST_BYTES = 1 << 21
_MAX_FRAMES = 100_000  # of one file: two years of them
_MAX_RESTARTS = 64  # behind places where no frame continues
#: a frame that unpacks to so much more than it packs is made to fill a memory, not by a recorder
_MAX_RATIO = 500
_ALWAYS_FINE_BYTES = 1 << 18  # of each frame, of which a small file may have many


class Frame(NamedTuple):
    """zstd data at [begin, end) of a file.

    `start` and `last` are None where no trailer proves them; `has_trailer`: our recorder finished
    it, so it has a checksum.
    """

    begin: int
    end: int
    whole: bool
    start: Optional[float] = None  # epoch s of its first sample
    last: Optional[float] = None  # and of its last
    ended: bool = False  # the recording was closed behind it
    behind: int = 0  # where its trailer ends
    has_trailer: bool = False
    identity: Optional[Identity] = None


class Unproven(Exception):
    """These lines have no checksum: older recorders wrote none before a frame's end."""


def trailer(
    frame_bytes: int,
    start: float,
    last: float,
    ended: bool,
    identity: Optional[Identity] = None,
) -> bytes:
    """What is written behind a frame of `frame_bytes` bytes.

    What proves it stands before it, as if it were the frame's, where older readers pass over it.
    """
    if identity is not None:
        frame_bytes += _SEALED_BYTES
    end = _TAIL.pack(_MARK, frame_bytes, int(ended), start, last)
    found = _HEAD.pack(_SKIPPABLE, len(end)) + end
    return found if identity is None else _seal(identity, 0, end) + found


def _seal(identity: Identity, digest_crc: int, end: bytes) -> bytes:
    told = (_SEAL_MARK, *identity, digest_crc)
    crc = crc32(end, crc32(_SEAL.pack(*told, 0)))
    return _SEAL_HEAD + _SEAL.pack(*told, crc)


def find_frames(read: ReadAt, size_bytes: int) -> List[Frame]:
    """All frames in the first `size_bytes` of a file, in order; costs three small reads a frame."""
    found: List[Frame] = []
    end = size_bytes
    while end > 0 and len(found) < _MAX_FRAMES:
        frame = _trailed(read, end)
        if frame is None:
            begin = _behind_last_trailer(read, end)
            found.extend(reversed(list(_walked(read, begin, end))))
            end = begin
        else:
            found.append(frame)
            end = frame.begin
    found.reverse()
    return found


def lines(read: ReadAt, frame: Frame) -> Iterator[bytes]:
    """The whole lines of a frame, without their ends, proven by their checks.

    Raises Broken at a damaged place, behind the lines before it, and Torn where a frame that was
    not finished ends in something else than whole parts. Bounded in memory, whatever it holds.
    """
    chunks = _bounded(read, frame)
    first = next(chunks, b"")
    if identity_of(first) is None:
        yield from _unproven_lines(read, frame)
        return
    proving = Proving()
    for chunk in chain([first], chunks):
        yield from filter(None, proving.take(chunk))
    proving.end(whole=frame.whole)


def _unproven_lines(read: ReadAt, frame: Frame) -> Iterator[bytes]:
    """Of a frame without checks: those of one with a checksum when this was verified.

    Raises Unproven behind those of another. At most one unfinished line is dropped; one that is too
    long is cut to one that the decoder refuses.
    """
    has_checksum = frame.whole and blocks.header(read(blocks.HEADER_BYTES, frame.begin))[1]
    if frame.has_trailer and not has_checksum:
        raise Broken("its checksum is missing")
    _verify(read, frame, has_checksum)
    rest = b""
    for chunk in _bounded(read, frame):
        whole, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield from filter(None, (rest + whole).split(b"\n"))
            rest = tail
        elif len(rest) <= MAX_LINE_BYTES:
            rest += tail
    if not has_checksum:
        raise Unproven


def _verify(read: ReadAt, frame: Frame, has_checksum: bool) -> None:
    """Raises Broken where its checksum does not fit, or where it has checks all the same."""
    end, has_checks = b"", False
    try:
        for chunk in _bounded(read, frame):
            has_checks = has_checks or ANY_CHECK.search(end + chunk) is not None
            end = chunk[-CHECK_BYTES:]
    except Broken:
        if has_checksum:
            raise
    if has_checks:
        raise Broken("its first line is damaged")


def _bounded(read: ReadAt, frame: Frame) -> Iterator[bytes]:
    at = frame.begin

    def following(size: int) -> bytes:
        nonlocal at
        data = read(min(size, frame.end - at), at)
        at += len(data)
        return data

    limit = max(_MAX_RATIO * (frame.end - frame.begin), _ALWAYS_FINE_BYTES)
    try:
        for chunk in unpacked(following):
            limit -= len(chunk)
            if limit < 0:
                raise Broken("it decompresses to far more than a recording can hold")
            yield chunk
    except Torn as torn:
        if frame.whole or frame.begin + torn.useful < frame.end:
            raise


def _trailed(read: ReadAt, end: int) -> Optional[Frame]:
    """The frame whose trailer ends at `end`; None also where the trailer is damaged."""
    begin = max(end - _DIGEST_TAIL.size, 0)
    data = read(end - begin, begin)
    identity: Optional[Identity] = None
    if data.startswith(_DIGEST_MARK) and len(data) == _DIGEST_TAIL.size:
        _, length, ended, start, last, size, number, stream = _DIGEST_TAIL.unpack(data)
        identity = Identity(stream, number)
        at = begin - size - _HEAD.size
        if size > _MAX_DIGEST_BYTES:
            return None
    elif len(data) >= _TAIL.size and data[-_TAIL.size :].startswith(_MARK):
        data = data[-_TAIL.size :]
        _, length, ended, start, last = _TAIL.unpack(data)
        at = end - _TAIL.size - _HEAD.size
    else:
        return None
    if not 0 < length <= at or not (isfinite(start) and isfinite(last)) or ended > 1:
        return None
    head = _HEAD.pack(_SKIPPABLE, end - at - _HEAD.size)
    if read(_HEAD.size, at) != head or read(4, at - length) != MAGIC:
        return None
    found = Frame(at - length, at, True, None, None, bool(ended), end, True, identity)
    before = read(_SEALED_BYTES, max(at - _SEALED_BYTES, 0))
    if not before.startswith(_SEAL_HEAD + _SEAL_MARK):
        return found
    _, stream, number, digest_crc, _ = _SEAL.unpack(before[_HEAD.size :])
    identity = Identity(stream, number)
    if before != _seal(identity, digest_crc, data):
        return None
    return found._replace(end=at - _SEALED_BYTES, start=start, last=last, identity=identity)


def _behind_last_trailer(read: ReadAt, end: int) -> int:
    """Where the last trailer before `end` ends; 0 when there is none."""
    overlap = len(_MARK)
    upper = end
    while upper > 0:
        lower = max(upper - (1 << 20), 0)
        data = read(min(upper + overlap, end) - lower, lower)
        at = data.rfind(_ANY_MARK)
        while at >= 0:
            tail = _TAIL_OF_MARK.get(data[at : at + len(_MARK)])
            behind = end if tail is None else lower + at + tail.size
            if behind < end and _trailed(read, behind) is not None:
                return behind
            at = data.rfind(_ANY_MARK, 0, at)
        upper = lower
    return 0


def _walked(read: ReadAt, begin: int, end: int) -> Iterator[Frame]:
    """Frames without trailers in [begin, end); what is none is passed over."""
    restarts = 0
    while begin < end:
        magic = read(min(8, end - begin), begin)
        if len(magic) == 8 and magic[1:4] == _SKIPPABLE[1:] and magic[0] & 0xF0 == 0x50:
            begin += 8 + int.from_bytes(magic[4:], "little")
            continue
        is_frame = magic[:4] == MAGIC
        behind = _end_of_frame(read, begin, end) if is_frame else None
        if behind is not None:
            yield Frame(begin, behind, True)
            begin = behind
            continue
        restarts += 1
        following = _find(read, MAGIC, begin + 1, end) if restarts <= _MAX_RESTARTS else end
        if is_frame:
            yield Frame(begin, following, False)
        begin = following


def _end_of_frame(read: ReadAt, begin: int, end: int) -> Optional[int]:
    """Where the frame at `begin` ends; None when that is not before `end`."""
    try:
        size, has_checksum = blocks.header(read(blocks.HEADER_BYTES, begin))
        at = begin + size
        for _ in range(blocks.MAX_BLOCKS):
            last, size = blocks.block(read(3, at))
            at += 3 + size
            if at > end:
                return None
            if last:
                at += 4 * has_checksum
                return at if at <= end else None
    except Broken:
        pass
    return None


def _find(read: ReadAt, wanted: bytes, begin: int, end: int) -> int:
    """Where `wanted` next begins in [begin, end), or `end`."""
    while begin < end:
        data = read(min(1 << 20, end - begin), begin)
        at = data.find(wanted)
        if at >= 0:
            return begin + at
        if begin + len(data) >= end or len(data) < len(wanted):
            return end
        begin += len(data) - len(wanted) + 1
    return end
