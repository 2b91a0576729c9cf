"""Where the frames of a recording lie, and the lines in them, each proven by a check.

Behind each frame that was finished stands a *trailer*, a skippable frame that zstd passes over: how
long the frame is and from when to when. They are the index: read backwards from the end of the file
they give every frame's place without unpacking one. What has no trailer (the frame that is being
written, one that a crash cut off, a file that was packed again) is walked block by block: zstd's
block headers tell where a frame ends (RFC 8878, 3.1.1).

A file of lines that no recorder wrote, as `gpumon collect` prints them, is plain or packed by gzip
or zstd; it has neither trailers nor checks, and what there is of it is one piece.

zstd has one checksum, at a frame's end: too late for reading the frame from its beginning, and
missing in an unfinished frame. So the last line of each part that is flushed ends
with the key `"check":"0a1b2c3d"`: the CRC-32 of the frame's lines so far, without these keys. It
begins with the recording's random id and the frame's number, which the frame's first line tells. So
a part that was skipped, repeated, changed or comes from elsewhere does not fit, and nothing behind
it in its frame either.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import NamedTuple
from zlib import crc32

from gpumon.model.untrusted import MAX_TIME
from gpumon.recording import zstd
from gpumon.recording.zstd import MAGIC, Broken, ReadAt, Torn
from gpumon.wire import MAX_LINE_BYTES

#: a frame of the kind that zstd skips (of the 16 that it sets apart, ours), its length, and a mark
_TRAILER_HEAD = b"\x5a\x2a\x4d\x18\x30\0\0\0gpumon\0\x04"
_SKIPPED_BYTES = 8  # of magic and length
#: behind that: stream, number of the frame, frame bytes, ended, start, last; then the CRC-32 of all
#: from the mark on
_TOLD = struct.Struct("<8sIIIdd")
_TRAILER_BYTES = len(_TRAILER_HEAD) + _TOLD.size + 4
_MAX_FRAMES = 100_000  # of one file: two years of them
_MAX_RESTARTS = 64  # behind places where no frame continues
_PIECE_BYTES, _CHUNK_BYTES = 1 << 18, 1 << 20
_SKIPPABLES = range(0x184D2A50, 0x184D2A60)
#: a frame that unpacks to so much more than it packs is made to fill a memory, not by a recorder
_MAX_RATIO = 500
_MAX_GZIP_RATIO = 200  # what an agent prints packs to a tenth
_ALWAYS_FINE_BYTES = 1 << 18  # of each frame, of which a small file may have many
#: lines that are none, beyond as many as may be some
_MOST_WASTED = 10_000
_SIGNATURES = (
    (b'{"wire":', ""),
    (b"\x7fELF", "a program"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PAR1", "a Parquet file"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
    (b"#!", "a script"),
    (b"<", "an HTML or XML file"),
    (b"{", "a JSON file"),
)
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
    def next(self) -> Identity:
        return Identity(self.stream, self.number + 1)

    @property
    def seed(self) -> int:
        return crc32(self.stream + self.number.to_bytes(4, "little"))


def identity_of(line: bytes) -> Identity | None:
    """Identity from a frame's first line; None for a recording without checks."""
    found = _BEGINNING.match(line)
    return Identity(bytes.fromhex(found[1].decode()), int(found[2])) if found else None


class Part(NamedTuple):
    """A frame: zstd data at [begin, end) of a file.

    `start` and `last` are -inf where no trailer proves them.
    """

    begin: int
    end: int
    whole: bool
    start: float = -inf  # epoch s of its first sample
    last: float = -inf  # and of its last
    ended: bool = False  # the recording was closed behind it
    behind: int = 0  # where its trailer ends
    identity: Identity | None = None


def trailer(frame_bytes: int, start: float, last: float, ended: bool, identity: Identity) -> bytes:
    """What is written behind a frame of `frame_bytes` bytes."""
    data = _TRAILER_HEAD + _TOLD.pack(*identity, frame_bytes, int(ended), start, last)
    return data + crc32(data[_SKIPPED_BYTES:]).to_bytes(4, "little")


def is_zstd(head: bytes) -> bool:
    """By the first 4 bytes."""
    return head == MAGIC or int.from_bytes(head, "little") in _SKIPPABLES


def find_parts(read: ReadAt, size_bytes: int) -> list[Part]:
    """All frames in the first `size_bytes` of a file, in order; costs three small reads a frame."""
    if not is_zstd(read(len(MAGIC), 0)):
        return [_identified(read, Part(0, size_bytes, True))]
    found: list[Part] = []
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


def _identified(read: ReadAt, frame: Part) -> Part:
    """With its identity, as its first line tells it; without where no recorder wrote that."""
    try:
        return frame._replace(identity=identity_of(next(_unpacked(read, frame), b"")))
    except Broken:
        return frame


def _unpacked(read: ReadAt, frame: Part) -> Iterator[bytes]:
    """What a frame holds, unpacked; or a file that is none, by how it begins."""
    head = read(len(MAGIC), frame.begin)
    pieces: Iterator[bytes]
    if head == MAGIC:
        pieces, ratio = zstd.unpacked(read, frame.begin, frame.end), _MAX_RATIO
    elif head.startswith(zstd.GZIP):
        pieces, ratio = zstd.gunzipped(_pieces(read, frame, zstd.LEAST_BYTES)), _MAX_GZIP_RATIO
    else:
        pieces, ratio = _pieces(read, frame, _PIECE_BYTES), 1
    limit = max(ratio * (frame.end - frame.begin), _ALWAYS_FINE_BYTES)
    try:
        for piece in pieces:
            limit -= len(piece)
            if limit < 0:
                raise Broken("it decompresses to far more than a recording can hold")
            yield piece
    except Torn as torn:
        if frame.whole or frame.begin + torn.useful < frame.end:
            raise


def _pieces(read: ReadAt, frame: Part, size: int) -> Iterator[bytes]:
    for at in range(frame.begin, frame.end, size):
        yield read(min(size, frame.end - at), at)


def _trailed(read: ReadAt, end: int) -> Part | None:
    """The frame whose trailer ends at `end`; None also where the trailer is damaged."""
    at = end - _TRAILER_BYTES
    data = read(_TRAILER_BYTES, at) if at > 0 else b""
    if not data.startswith(_TRAILER_HEAD) or len(data) < _TRAILER_BYTES:
        return None
    stream, number, length, ended, start, last = _TOLD.unpack_from(data, len(_TRAILER_HEAD))
    identity = Identity(stream, number)
    is_ours = data == trailer(length, start, last, bool(ended), identity)
    is_possible = 0 < length <= at and all(abs(each) <= MAX_TIME for each in (start, last))
    if not (is_ours and is_possible) or read(len(MAGIC), at - length) != MAGIC:
        return None
    return Part(at - length, at, True, start, last, bool(ended), end, identity)


def _behind_last_trailer(read: ReadAt, end: int) -> int:
    """Where the last trailer before `end` ends; 0 when there is none."""
    for lower in range((end - 1) // _CHUNK_BYTES * _CHUNK_BYTES, -1, -_CHUNK_BYTES):
        data = read(min(_CHUNK_BYTES + _TRAILER_BYTES, end - lower), lower)
        at = data.rfind(_TRAILER_HEAD)
        while at >= 0:
            behind = lower + at + _TRAILER_BYTES
            if behind < end and _trailed(read, behind) is not None:
                return behind
            at = data.rfind(_TRAILER_HEAD, 0, at)
    return 0


def _walked(read: ReadAt, begin: int, end: int) -> Iterator[Part]:
    """Frames without trailers in [begin, end); what is none is passed over."""
    restarts = 0
    while begin < end:
        magic = read(min(_SKIPPED_BYTES, end - begin), begin)
        if len(magic) == _SKIPPED_BYTES and int.from_bytes(magic[:4], "little") in _SKIPPABLES:
            begin += _SKIPPED_BYTES + int.from_bytes(magic[4:], "little")
            continue
        is_frame = is_whole = magic.startswith(MAGIC)
        try:
            behind = max(at for _, at in zstd.blocks(read, begin, end)) if is_frame else begin
        except Broken:
            is_whole = False
        if not is_whole:
            restarts += 1
            behind = _next_frame(read, begin + 1, end) if restarts <= _MAX_RESTARTS else end
        if is_frame:
            yield _identified(read, Part(begin, behind, is_whole))
        begin = behind


def _next_frame(read: ReadAt, begin: int, end: int) -> int:
    """Where one may begin in [begin, end), else `end`."""
    for at in range(begin, end, _CHUNK_BYTES):
        found = read(min(_CHUNK_BYTES + len(MAGIC) - 1, end - at), at).find(MAGIC)
        if found >= 0:
            return at + found
    return end


# -- checks


class FramePacker:
    """Packs the lines of one frame with their checks, and puts its trailer behind them."""

    def __init__(self, identity: Identity, *, is_small: bool = False) -> None:
        """Raises GpumonError where there is no zstd."""
        self._identity = identity
        self._crc = identity.seed
        self._packer = zstd.packer(is_small=is_small)
        self._packed_bytes = 0

    def block(self, lines: bytes) -> bytes:
        """What is to be flushed, in parts that a block can hold."""
        packed = b""
        while lines:
            end = len(lines)
            if end > _PART_BYTES:
                end = lines.rfind(b"\n", 0, _PART_BYTES) + 1 or lines.index(b"\n") + 1
            part, lines = lines[:end], lines[end:]
            self._crc = crc32(part, self._crc)
            checked = part[: -len(_END)] + _CHECK % self._crc
            packed += b"".join((*self._packer.compress(checked), *self._packer.flush()))
        self._packed_bytes += len(packed)
        return packed

    def end(self, start: float, last: float, *, ended: bool) -> bytes:
        """The rest of the frame, and its trailer."""
        packed = b"".join(self._packer.finish())
        return packed + trailer(
            self._packed_bytes + len(packed), start, last, ended, self._identity
        )


def lines(read: ReadAt, frame: Part) -> Iterator[bytes]:
    """The whole lines of a frame, without their ends, each as soon as a check has proven it.

    Raises Broken at a damaged place, behind the lines before it, and Torn where a frame that was
    not finished ends in something else than whole parts. Bounded in memory, whatever it holds.
    """
    known: Identity | None = None
    crc, frames = 0, 0  # frames that were packed again are one, in which first lines of others come
    rest = b""  # not proven yet
    for chunk in _unpacked(read, frame):
        text, begin = rest + chunk, 0
        for check in ANY_CHECK.finditer(text):
            at = check.start()
            identity = identity_of(text[begin : begin + 80])
            if identity is not None and identity == known:
                raise Broken("a part is repeated")
            if identity is not None:
                known, crc = identity, identity.seed
                frames += 1
            crc = crc32(_END, crc32(text[begin:at], crc))
            if check[0] != _CHECK % crc:
                raise Broken("a checksum does not match")
            yield from filter(None, (text[begin:at] + b"}").split(b"\n"))
            begin = check.end()
        rest = text[begin:]
        if len(rest) > _MAX_PART_BYTES:
            raise Broken("a checksum is missing")
    if rest:
        raise Broken("a checksum is missing at its end")
    if frames > 1 and not frame.whole:  # what was between them is gone
        raise Broken("a part of it is missing")


# -- lines that no recorder wrote


def prove_foreign(read: ReadAt, parts: list[Part]) -> None:
    """That a file of lines that no recorder wrote was packed whole. Raises Torn where it ends too
    early, and Broken where it is damaged, or a recorder wrote it all the same.
    """
    end = b""
    for frame in parts:
        for piece in _unpacked(read, frame):
            end += piece
            if ANY_CHECK.search(end):
                raise Broken("its first line is damaged")
            end = end[-CHECK_BYTES:]
    if end[-1:] != b"\n" or not all(frame.whole for frame in parts):
        raise Torn


def foreign_lines(read: ReadAt, parts: list[Part]) -> Iterator[bytes]:
    """The whole lines of such a file, without their ends. At most one unfinished line is dropped;
    one that is too long is cut to one that the decoder refuses.

    Raises Broken where most of them are no lines of a stream.
    """
    rest, wanted = b"", _MOST_WASTED
    for piece in chain.from_iterable(_unpacked(read, frame) for frame in parts):
        whole, newline, tail = piece.rpartition(b"\n")
        if not newline:
            rest += tail if len(rest) <= MAX_LINE_BYTES else b""
            continue
        for line in filter(None, (rest + whole).split(b"\n")):
            wanted += 1 if line.startswith(b"{") else -1
            if wanted < 0:
                raise Broken("most of it cannot be read: the rest was left out")
            yield line
        rest = tail
    if len(rest) > MAX_LINE_BYTES:
        yield rest


def kind_of(read: ReadAt, frame: Part) -> str:
    """What a file that is no recording seems to be, by how it begins: `a script`, `empty`; "" where
    a stream begins so.
    """
    try:
        head = next(_unpacked(read, frame), b"")
    except Broken:
        return ""
    if not head.strip():
        return "empty"
    for begin, kind in _SIGNATURES:
        if head.lstrip().startswith(begin):
            return kind
    first = head.partition(b"\n")[0]
    if b"JobID" in first and b"|" in first:
        return "a dump of sacct (see 'gpumon report --from-sacct')"
    return "a binary file" if b"\0" in head else "a text file"
