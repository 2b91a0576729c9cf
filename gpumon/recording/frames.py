"""Where the frames of a recording lie, and the lines in them.

Behind each frame that was finished stands a *trailer*, a skippable frame that zstd passes over: how
long the frame is and from when to when, and before that, where there is one, the frame's digest.
They are the index: read backwards from the end of the file they tell every frame without unpacking
one. What has no trailer (the frame that is being written, one that a crash cut off, a file that was
packed again) is walked block by block: zstd's block headers tell where a frame ends (RFC 8878,
3.1.1).
"""

from __future__ import annotations

import os
import struct
from math import isfinite
from typing import Iterator, List, NamedTuple, Optional, Tuple

from gpumon.recording.zstd import MAGIC, Broken, unpacked
from gpumon.wire import MAX_LINE_BYTES

_HEAD = struct.Struct("<4sI")  # magic, the bytes that follow
_SKIPPABLE = b"\x5a\x2a\x4d\x18"  # of the 16 that zstd sets apart, ours
#: how each trailer ends: mark, frame bytes, ended, start, last
_TAIL = struct.Struct("<8sIIdd")
#: and where a digest stands before that: its bytes, its number, its stream
_DIGEST_TAIL = struct.Struct("<8sIIddII8s")
_MARK, _DIGEST_MARK = b"gpumon\x00\x01", b"gpumon\x00\x02"
_ANY_MARK = _MARK[:-1]
_TAIL_OF_MARK = {_MARK: _TAIL, _DIGEST_MARK: _DIGEST_TAIL}
#: of one digest, unpacked (packed it is smaller); of eight devices it has 0.3 MB
MAX_DIGEST_BYTES = 1 << 21
_MAX_FRAMES = 100_000  # of one file: two years of them
_MAX_BLOCKS = 1_000_000  # of one frame
_MAX_RESTARTS = 64  # behind places where no frame goes on
_CHUNK_BYTES = 1 << 14
#: a frame that unpacks to so much more than it packs is made to fill a memory, not by a recorder
_MAX_RATIO = 500
_ALWAYS_FINE_BYTES = 1 << 24


class Place(NamedTuple):
    """Where a packed digest lies, and which of its stream's it is."""

    begin: int
    end: int
    number: int
    stream: bytes


class Frame(NamedTuple):
    """zstd data at [begin, end) of a file; `start` and `last` are None where no trailer says."""

    begin: int
    end: int
    whole: bool
    start: Optional[float] = None  # epoch s of its first sample
    last: Optional[float] = None  # and of its last
    ended: bool = False  # the recording was closed behind it
    behind: int = 0  # where its trailer ends
    digest: Optional[Place] = None


class PackedDigest(NamedTuple):
    """A digest to write behind a frame."""

    data: bytes
    number: int
    stream: bytes  # 8 bytes


def trailer(
    frame_bytes: int, start: float, last: float, ended: bool, digest: Optional[PackedDigest] = None
) -> bytes:
    """What is written behind a frame of `frame_bytes` bytes."""
    body = (frame_bytes, int(ended), start, last)
    if digest is None:
        tail = _TAIL.pack(_MARK, *body)
    else:
        told = (len(digest.data), digest.number, digest.stream)
        tail = digest.data + _DIGEST_TAIL.pack(_DIGEST_MARK, *body, *told)
    return _HEAD.pack(_SKIPPABLE, len(tail)) + tail


def find_frames(fd: int, size_bytes: int) -> List[Frame]:
    """All frames in the first `size_bytes` of a file, in order; costs three small reads a frame."""
    found: List[Frame] = []
    end = size_bytes
    while end > 0 and len(found) < _MAX_FRAMES:
        frame = _trailed(fd, end)
        if frame is None:
            begin = _behind_last_trailer(fd, end)
            found.extend(reversed(list(_walked(fd, begin, end))))
            end = begin
        else:
            found.append(frame)
            end = frame.begin
    found.reverse()
    return found


def lines(fd: int, frame: Frame) -> Iterator[bytes]:
    """The whole lines of a frame, without their ends; at most one unfinished line is dropped.

    Raises Broken at a damaged place, behind the lines before it. Bounded in memory, whatever the
    frame holds: a line that is too long is cut to one that the decoder refuses.
    """
    rest = b""
    for chunk in _bounded(fd, frame):
        whole, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield from filter(None, (rest + whole).split(b"\n"))
            rest = tail
        elif len(rest) <= MAX_LINE_BYTES:
            rest += tail


def _bounded(fd: int, frame: Frame) -> Iterator[bytes]:
    at = frame.begin

    def read(size: int) -> bytes:
        nonlocal at
        data = os.pread(fd, min(size, frame.end - at), at)
        at += len(data)
        return data

    limit = max(_MAX_RATIO * (frame.end - frame.begin), _ALWAYS_FINE_BYTES)
    for chunk in unpacked(read, _CHUNK_BYTES):
        limit -= len(chunk)
        if limit < 0:
            raise Broken("it unpacks to far more than a recording holds")
        yield chunk


def _trailed(fd: int, end: int) -> Optional[Frame]:
    """The frame whose trailer ends at `end`."""
    begin = max(end - _DIGEST_TAIL.size, 0)
    data = os.pread(fd, end - begin, begin)
    if data.startswith(_DIGEST_MARK) and len(data) == _DIGEST_TAIL.size:
        _, length, ended, start, last, size, number, stream = _DIGEST_TAIL.unpack(data)
        digest_end = end - _DIGEST_TAIL.size
        digest = Place(digest_end - size, digest_end, number, stream)
        at = digest.begin - _HEAD.size
    elif len(data) >= _TAIL.size and data[-_TAIL.size :].startswith(_MARK):
        _, length, ended, start, last = _TAIL.unpack(data[-_TAIL.size :])
        digest = None
        at = end - _TAIL.size - _HEAD.size
    else:
        return None
    if not 0 < length <= at or not (isfinite(start) and isfinite(last)):
        return None
    if digest is not None and digest.end - digest.begin > MAX_DIGEST_BYTES:
        return None
    head = _HEAD.pack(_SKIPPABLE, end - at - _HEAD.size)
    if os.pread(fd, _HEAD.size, at) != head or os.pread(fd, 4, at - length) != MAGIC:
        return None
    return Frame(at - length, at, True, start, last, bool(ended), end, digest)


def _behind_last_trailer(fd: int, end: int) -> int:
    """Where the last trailer before `end` ends; 0 when there is none."""
    overlap = len(_MARK)
    upper = end
    while upper > 0:
        lower = max(upper - (1 << 20), 0)
        data = os.pread(fd, min(upper + overlap, end) - lower, lower)
        at = data.rfind(_ANY_MARK)
        while at >= 0:
            tail = _TAIL_OF_MARK.get(data[at : at + len(_MARK)])
            behind = end if tail is None else lower + at + tail.size
            if behind < end and _trailed(fd, behind) is not None:
                return behind
            at = data.rfind(_ANY_MARK, 0, at)
        upper = lower
    return 0


def _walked(fd: int, begin: int, end: int) -> Iterator[Frame]:
    """Frames without trailers in [begin, end); what is none is passed over."""
    restarts = 0
    while begin < end:
        magic = os.pread(fd, min(8, end - begin), begin)
        if len(magic) == 8 and magic[1:4] == _SKIPPABLE[1:] and magic[0] & 0xF0 == 0x50:
            begin += 8 + int.from_bytes(magic[4:], "little")
            continue
        is_frame = magic[:4] == MAGIC
        behind = _end_of_frame(fd, begin, end) if is_frame else None
        if behind is not None:
            yield Frame(begin, behind, True)
            begin = behind
            continue
        restarts += 1
        following = _find(fd, MAGIC, begin + 1, end) if restarts <= _MAX_RESTARTS else end
        if is_frame:
            yield Frame(begin, following, False)
        begin = following


def _end_of_frame(fd: int, begin: int, end: int) -> Optional[int]:
    """Where the frame at `begin` ends; None when that is not before `end`."""
    head = os.pread(fd, 18, begin)
    if len(head) < 6:
        return None
    descriptor = head[4]
    single = descriptor >> 5 & 1
    content_size = (single, 2, 4, 8)[descriptor >> 6]
    at = begin + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size
    for _ in range(_MAX_BLOCKS):
        last, size = _block(os.pread(fd, 3, at))
        at += 3 + size
        if size < 0 or at > end:
            return None
        if last:
            at += 4 * (descriptor >> 2 & 1)
            return at if at <= end else None
    return None


def _block(head: bytes) -> Tuple[bool, int]:
    """Of a block's header: whether it is the last of its frame, and the bytes behind it (or −4)."""
    if len(head) < 3:
        return False, -4
    bits = int.from_bytes(head, "little")
    kind, size = bits >> 1 & 3, bits >> 3
    if kind == 3:
        return False, -4
    return bool(bits & 1), 1 if kind == 1 else size


def _find(fd: int, wanted: bytes, begin: int, end: int) -> int:
    """Where `wanted` next begins in [begin, end), or `end`."""
    while begin < end:
        data = os.pread(fd, min(1 << 20, end - begin), begin)
        at = data.find(wanted)
        if at >= 0:
            return begin + at
        if begin + len(data) >= end or len(data) < len(wanted):
            return end
        begin += len(data) - len(wanted) + 1
    return end
