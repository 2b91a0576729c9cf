"""What a way to a node is: it starts the agent there and gives a pair of pipes to it.

`ssh` (paramiko), `openssh`, `srun` and `local` differ in this alone; the supervisor does the
rest for all: ships the agent, feeds the lines, checks the job, starts again with back-off.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Failure(Exception):
    """No stream, and why, in one line for people. `command`: what they may run to see or mend it.

    `final`: trying again cannot help (unknown host key, wrong password, no such host by name).
    `next_rung`: another way may work where this one cannot. `late`: more time may help.
    """

    def __init__(
        self,
        text: str,
        command: str = "",
        *,
        final: bool = False,
        next_rung: bool = True,
        late: bool = False,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.command = command
        self.final = final
        self.next_rung = next_rung
        self.late = late


class Stream(Protocol):
    """Both ends of a running remote command. Used by one thread, but `close` from any."""

    def read(self) -> bytes:
        """The next piece of its standard output, as it comes; b"" at the end. Blocks."""

    def write(self, data: bytes) -> None:
        """To its standard input. Raises OSError when it has gone."""

    def close(self) -> None:
        """End it: closes its input, then the connection. Returns within a fraction of a second,
        and a blocked `read` then returns b"".
        """

    def complaint(self) -> str:
        """The last line of its standard error so far, cleaned; "" when there was none."""


class Launcher(Protocol):
    """One way to nodes. Thread-safe: several nodes are opened at once."""

    name: str  # local, ssh, openssh, srun, srun-host, sstat
    lacks: str  # what it never shows, as a sentence for people; "": it shows all

    def open(self, node: str, argv: list[str]) -> Stream:
        """Run `argv` on the node; each word reaches it unchanged. Raises Failure."""

    def close(self) -> None:
        """Give up what several nodes share: the connection to the login host."""


class Rung(NamedTuple):
    """A way that was taken or refused for a node, in words for the screen."""

    name: str
    why: str
