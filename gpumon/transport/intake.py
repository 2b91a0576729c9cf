"""Lines of a live stream, as they are taken: decoded, counted, and cut where they come too fast.

What could not be taken is said in the header's notes, which every screen and recording has: when
it first happens, and again when it is ten times as much.
"""

from __future__ import annotations

from gpumon.errors import WireError
from gpumon.model.bounded import left_out_text
from gpumon.model.sample import Header, Sample
from gpumon.model.stack import Told
from gpumon.model.units import plural
from gpumon.transport.rate import Rate
from gpumon.wire import MAX_LINE_BYTES
from gpumon.wire.decoder import Decoder
from gpumon.wire.stacks import parse_answer

#: of what others write on the agent's output before its first line (start-up files, prologs) as
#: much is skipped, whatever it is
MAX_NOISE_BYTES = 16 << 20
NOISE = (
    f"more than {MAX_NOISE_BYTES >> 20} MiB of other output came before the agent's first line; "
    "shell start-up files must print nothing where there is no terminal"
)
_HEADER = b'{"wire"'
_SAY_AGAIN = 10  # times as much as when it was last said


class Intake:
    """One stream. Used by one thread."""

    def __init__(self, rate: Rate | None = None) -> None:
        """`rate`: what the stream may send; None: anything."""
        self._rate = rate
        self._decoder = Decoder(keep_lines=True)
        self._said = 0
        self.bad_lines = 0
        self._noise_bytes = 0

    @property
    def header(self) -> Header | None:
        """The newest that could be taken, as the stream sent it."""
        return self._decoder.header

    def line(self, line: bytes) -> list[Header | Sample]:
        """What to hand on for it; a bad line is counted.

        What comes before the header is skipped, up to a bound. Raises WireError where that is too
        much or the header is bad, TooFast where too much comes.
        """
        if self._decoder.header is None:
            line = self._without_noise(line)
            if not line:
                return []
        try:
            item = self._decoder.line(line)
        except WireError:
            if self._decoder.header is None:
                raise
            item = None
            self.bad_lines += 1
        if self._rate is not None:
            self._rate.take(len(line), is_sample=isinstance(item, Sample) or not line.strip())
        items = [] if item is None else [item]
        header = self._decoder.header
        if header is not None and (isinstance(item, Header) or self._is_news()):
            told = self._with_notes(header)
            items = [told] if isinstance(item, Header) else [*items, told]
        return items

    def answer(self, line: bytes) -> Told | None:
        """A line that answers a request for stacks; None for a bad one, which is counted.

        Raises TooFast.
        """
        if self._rate is not None:
            self._rate.take(len(line), is_sample=True)
        try:
            return parse_answer(line)
        except WireError:
            self.bad_lines += 1
            return None

    def _without_noise(self, line: bytes) -> bytes:
        """What of a line before the first header is the agent's."""
        begin = line.find(_HEADER)
        noise, rest = (line[:begin], line[begin:]) if begin >= 0 else (line, b"")
        self._noise_bytes += len(noise) + 1
        if self._noise_bytes > MAX_NOISE_BYTES:
            raise WireError(NOISE)
        return rest

    def _is_news(self) -> bool:
        count = self.bad_lines + sum(self._decoder.left_out.values())
        if not count or count < _SAY_AGAIN * self._said:
            return False
        self._said = count
        return True

    def _with_notes(self, header: Header) -> Header:
        notes = left_out_notes(self.bad_lines, self._decoder.left_out)
        return header._replace(notes=[*header.notes, *notes]) if notes else header


class Lines:
    """Whole lines from pieces of any size; a decoder refuses what is left of one too long."""

    def __init__(self) -> None:
        self._rest = b""
        self._open_bytes = 0  # of the line that has not ended

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece, without their ends.

        Raises WireError for a line that does not end.
        """
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: MAX_LINE_BYTES + 1]
        self._open_bytes = len(rest) if lines else self._open_bytes + len(data)
        if self._open_bytes > MAX_NOISE_BYTES:
            raise WireError(NOISE)
        return lines


def left_out_notes(bad_lines: int, left_out: dict[str, int]) -> list[str]:
    """What of a stream was not taken, in sentences for people."""
    notes = []
    if bad_lines:
        lines = plural(bad_lines, "line")
        notes.append(f"{lines} of this stream could not be read; the rest is shown.")
    if text := left_out_text(left_out):
        notes.append(text)
    return notes
