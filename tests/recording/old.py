"""Recordings as they were written before lines and trailers had checksums."""

from __future__ import annotations

import re

from gpumon.recording import Recording, frames
from gpumon.recording.zstd import packer, unpacked

_FRAME = re.compile(rb'^(\{(?:"restated":true,)?)"frame":\[[^]]*\],')
_CHECK = re.compile(rb',"check":"[0-9a-f]{8}"\}\n')


def old(path, target):
    """The recording at `path` in the old form: the same lines, flushes and trailers."""
    data = path.read_bytes()
    found = b""
    with Recording(str(path)) as recording:
        for frame in recording._frames:
            packed = _packed_as_before(data[frame.begin : frame.end], whole=frame.whole)
            found += packed
            if frame.has_trailer:
                found += _trailer(frame, len(packed))
    target.write_bytes(found)
    return target


def _packed_as_before(data, *, whole):
    """A block for each part, as it was flushed."""
    frame, found = packer(), b""
    text = b"".join(_pieces(data, whole=whole))
    text = _FRAME.sub(rb"\1", text)
    begin = 0
    for check in _CHECK.finditer(text):
        found += frame.block(text[begin : check.start()] + b"}\n")
        begin = check.end()
    return found + (frame.finish() if whole else b"")


def _pieces(data, *, whole):
    at = 0

    def read(size):
        nonlocal at
        at += size
        return data[at - size : at]

    pieces = unpacked(read)
    try:
        yield from pieces
    except Exception:
        assert not whole


def _trailer(frame, frame_bytes):
    return frames.trailer(frame_bytes, frame.start, frame.last, frame.ended)
