"""What a transport is: it starts the agent on a node and gives a pair of pipes to it.

`ssh` (paramiko), `openssh`, `srun` and `local` differ in this alone; `sources.attach` does the rest
for all: sends the agent, feeds the lines, checks the job, starts again with back-off.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

#: s; pauses before a node is tried again, the last one for ever
BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class Failure(Exception):
    """No stream, and why, in one line for people. `command`: what they may run to see or mend it.

    `final`: trying again cannot help (unknown host key, wrong password, no such host by name).
    `try_next`: another transport may work where this one cannot. `late`: more time may help.
    """

    def __init__(
        self,
        text: str,
        command: str = "",
        *,
        final: bool = False,
        try_next: bool = True,
        late: bool = False,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.command = command
        self.final = final
        self.try_next = try_next
        self.late = late


class Stream(Protocol):
    """Both ends of a running remote command. Used by one thread, but `close` from any."""

    def read(self) -> bytes:
        """The next piece of its standard output, as it comes; b"" at the end. Blocks."""

    def descriptor(self) -> int | None:
        """What is readable when `read` would not wait, as long as the stream is not forgotten;
        None: there is no such thing, and a thread has to wait.
        """

    def write(self, data: bytes) -> None:
        """To its standard input. Raises OSError when it has gone."""

    def say(self, line: bytes) -> None:
        """A line to this node's agent, between what `write` sends. Raises OSError."""

    def close(self) -> None:
        """End it: closes its input, then the connection. Returns within a fraction of a second,
        and a blocked `read` then returns b"".
        """

    def complaint(self) -> str:
        """The last line of its standard error so far, cleaned; "" when there was none."""


class Transport(Protocol):
    """One transport. Thread-safe: several nodes are opened at once."""

    name: str  # local, ssh, openssh, srun, srun-host, sstat
    lacks: str  # what it never shows, as a sentence for people; "": it shows all

    def open(self, node: str, argv: list[str]) -> Stream:
        """Run `argv` on the node; each word reaches it unchanged. Raises Failure."""

    def close(self) -> None:
        """Give up what several nodes share: the connection to the login host."""


class Attempt(NamedTuple):
    """A transport that was tried for a node, and why it was taken or failed, for the screen."""

    name: str
    why: str
