"""Lines of several nodes on one pipe, as srun joins them.

srun passes on what a task writes in messages of at most 1024 bytes, a line to a message
(SLURM_IO_MAX_MSG_LEN), and between two messages of one task those of others may come. So a line
is cut into pieces that fit one message each, with the node's name in front:
`NODE +PIECE` where more of the line follows, `NODE -PIECE` at its end.
"""

from __future__ import annotations

_PIECE_BYTES = 700
_NAME_BYTES = 255
_MARKS = b"+-"
_OVER = b"."
#: asks an agent for a header and a whole sample, for a reader who came later
AFRESH = b"afresh"
#: lines that wait for their ends: of as many nodes as Slurm takes in one job, and of all together
MAX_OPEN, MAX_OPEN_BYTES = 65_536, 32 << 20


def labelled(node: str, line: bytes) -> bytes:
    """The pieces of one line (without its end), each a line of at most 1000 bytes."""
    name = label(node)
    starts = range(0, max(len(line), 1), _PIECE_BYTES)
    return b"".join(
        b"%s %c%s\n"
        % (name, _MARKS[start + _PIECE_BYTES >= len(line)], line[start : start + _PIECE_BYTES])
        for start in starts
    )


def end_line(node: str) -> bytes:
    """Ends the agent of this node alone, on the input that all of a step's tasks share."""
    return b"end %s\n" % label(node)


def over_line(node: bytes) -> bytes:
    """No more comes of this node; by who joins the streams, as `labelled` has the name."""
    return node + b" " + _OVER + b"\n"


def addressed(node: str, line: bytes) -> bytes:
    """A line for the agent of this node alone, on the same input."""
    return b"@%s %s" % (label(node), line)


def addressed_to(node: str, line: bytes) -> bytes:
    """What a line says to the agent of this node: b"" if it is for another."""
    if not line.startswith(b"@"):
        return line
    name, _, rest = line[1:].partition(b" ")
    return rest if name == label(node) else b""


def label(node: str) -> bytes:
    """A node's name in front of its lines."""
    return node.replace(" ", "_").encode("ascii", "replace")[:_NAME_BYTES]


class Joiner:
    """Puts the pieces together again."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max = max_line_bytes
        self._open: dict[bytes, bytes] = {}
        self._open_bytes = 0

    def piece(self, line: bytes) -> tuple[str, bytes] | None:
        """A node and a whole line of it with its end; b"" where no more comes of it, None while a
        line is open, or for no piece.

        Of a line that is too long the end is missing, so that it cannot be read.
        """
        name, blank, rest = line.rstrip(b"\n").partition(b" ")
        if not blank or not name or len(name) > _NAME_BYTES:
            return None
        if rest != _OVER and rest[:1] not in (b"+", b"-"):
            return None
        before = self._open.pop(name, b"")
        self._open_bytes -= len(before)
        if rest == _OVER:
            return name.decode("utf-8", "replace"), b""
        whole = before + rest[1:] if len(before) <= self._max else before
        if rest[:1] == b"-":
            return name.decode("utf-8", "replace"), whole + b"\n"
        if len(self._open) < MAX_OPEN and self._open_bytes + len(whole) <= MAX_OPEN_BYTES:
            self._open[name] = whole
            self._open_bytes += len(whole)
        return None
