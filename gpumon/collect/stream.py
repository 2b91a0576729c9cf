"""The agent on standard output: samples as lines, until there is a reason to end.

A guest on the node: it leaves nothing behind, says what it costs, and ends when its output cannot
be written, when its job has ended, on SIGTERM, and, with `until_eof`, when its standard input
ends (`sources` hold a pipe there; under nohup and cron it does not look at its input). With
`heartbeat` it also ends when that input has been silent for 45 s: a network that was cut tells
neither end of the other for minutes.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from getopt import GetoptError, getopt
from typing import Callable, NamedTuple, Optional

from gpumon import __version__
from gpumon.collect.agent import Agent, leave, next_tick, phase_of
from gpumon.collect.cgroup.room import LEFT, Room, leave_in_time
from gpumon.collect.guest import be_guest
from gpumon.collect.job.guard import Standing, Target, parse_target
from gpumon.collect.labels import AFRESH, addressed_to, end_line, labelled
from gpumon.collect.limits import spare_address_space
from gpumon.errors import EXIT_OK, EXIT_USAGE
from gpumon.model.sample import JOB_ENDED, NO_ROOM, Event, Header, Sample
from gpumon.wire.encoder import Encoder

_SIGNALLED = 128  # shells' convention: 128 + signal
_FLAGS = ("interval=", "count=", "until-eof", "heartbeat", "label", "spread", "job=", "gpus=")
_SILENCE_S = 45  # of a reader that was to send a line every 10 s
_MOST_BYTES = 8192  # of what it says in a line that has not ended


class _Signalled(BaseException):  # no collector's failure
    """SIGTERM or SIGINT came, or SIGALRM for a silent reader; carries the number."""


class _End(NamedTuple):
    """Why the stream ends. `why` is for programs, as `guard` names it."""

    text: str = ""  # "": nobody is listening
    why: str = ""


class _Output:
    """Standard output, line by line and unbuffered: a sample is of use now or never."""

    def __init__(self, label: str = "") -> None:
        """`label`: the node's name, where lines of several nodes share one pipe."""
        self._label = label
        self._torn = False  # a signal came in the middle of a line

    def write(self, line: str) -> None:
        data = line.encode("ascii")
        data = labelled(self._label, data) if self._label else data + b"\n"
        if self._torn:
            data = b"\n" + data
        while data:
            self._torn = True
            data = data[os.write(1, data) :]
        self._torn = False

    def last(self, line: str) -> None:
        """Write if that is possible at once; a reader that is gone or slow misses it."""
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        try:
            if any(events == select.POLLOUT for _, events in poll.poll(0)):
                self.write(line)
        except OSError:
            pass


class _Answering:
    """Answers requests; what stacks take is loaded with the first one."""

    def __init__(self, agent: Agent, write: Callable[[str], None]) -> None:
        self._agent = agent
        self._write = write
        self._rest = b""
        self._answers: Optional[Callable[[bytes], None]] = None
        self.is_due = False  # somebody waits for a whole sample

    def take(self, said: bytes) -> None:
        *lines, rest = (self._rest + said).split(b"\n")
        self._rest = rest[-_MOST_BYTES:]
        for line in lines:
            if addressed_to(self._agent.node, line) == AFRESH:
                self.is_due = True
            elif line.strip():
                self._stacks(line + b"\n")

    def _stacks(self, line: bytes) -> None:
        if self._answers is None:
            from gpumon.collect.stacks.answers import Answers

            self._answers = Answers(self._agent.node, self._agent.stacks, self._write).take
        self._answers(line)


class Reader(NamedTuple):
    """How the reader shows that it is there."""

    until_eof: bool = False  # it holds our input open
    heartbeat: bool = False  # the same, and it sends a line every 10 s
    label: bool = False  # it reads several nodes from one pipe
    spread: bool = False  # it reads so many nodes that they share out the interval
    goodbye: bytes = b""  # a line of its own that ends this agent alone, where several share it
    answers: Optional[_Answering] = None  # takes what else it says


_ANYBODY = Reader()


def run(
    interval_s: float,
    count: int | None = None,
    reader: Reader = _ANYBODY,
    target: Target | None = None,
) -> int:
    """Stream samples to standard output until there is a reason to end; returns the exit code.

    With a `target` that is always 0: as a step of the job, anything else would become the job's
    DerivedExitCode.
    """
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)

    def ignore() -> None:
        """No further signal may break into the end."""
        for each in signals:
            signal.signal(each, signal.SIG_IGN)

    def on_signal(number: int, _frame: object) -> None:
        if number == signal.SIGALRM and _heard():
            signal.alarm(_SILENCE_S)
            return
        ignore()
        raise _Signalled(number)

    for number in signals:
        signal.signal(number, on_signal)
    encoder = Encoder()
    code, end = EXIT_OK, _End()
    output, agent = _Output(), None
    try:
        if reader.heartbeat:
            signal.alarm(_SILENCE_S)
        agent = Agent(interval_s, target=target)
        if reader.label:
            reader = reader._replace(goodbye=end_line(agent.node))
        output = _Output(agent.node if reader.label else "")
        reader = reader._replace(answers=_Answering(agent, output.write))
        try:
            end = _stream(agent, encoder, output, count, reader)
        finally:
            ignore()
    except _Signalled as signalled:
        code, end = _SIGNALLED + signalled.args[0], _End(f"signal {signalled.args[0]}")
        if signalled.args[0] == signal.SIGALRM:
            code, end = EXIT_OK, _End(f"no heartbeat from the reader for {_SILENCE_S} s")
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: of a terminal that is gone
            raise
    signal.alarm(0)
    if agent is None:
        return code if target is None else EXIT_OK
    if end.text:
        event = Event(time.time(), "end", text=end.text, data={"why": end.why} if end.why else {})
        output.last(encoder.sample(Sample(event.time, time.monotonic(), {}, {}, [event])))
    agent.close()
    return code if target is None else EXIT_OK


def _stream(
    agent: Agent, encoder: Encoder, output: _Output, count: int | None, reader: Reader
) -> _End:
    """Header and samples until the end; returns a message about the end."""
    standing = agent.standing
    if standing.why:
        output.write(encoder.header(_refusal(agent, standing)))
        return _End(standing.text, standing.why)
    agent.start()
    output.write(encoder.header(agent.header()))
    phase_s = phase_of(agent.node, agent.interval_s) if reader.spread else 0.0
    for number in range(count or sys.maxsize):
        if number:
            due = next_tick(agent.interval_s, phase_s)
            end = _wait_until(due, reader, agent.room)
            if end is not None:
                return end
            agent.late(time.monotonic() - due)
        is_whole = reader.answers is not None and reader.answers.is_due
        sample = agent.sample(whole=is_whole)
        if agent.devices.changed or is_whole:
            output.write(encoder.header(agent.header()))
        if reader.answers is not None:
            reader.answers.is_due = False
        output.write(encoder.sample(sample))
        if agent.job_ended:
            return _End("the job has ended", JOB_ENDED)
    return _End("the requested number of samples was taken")


def _refusal(agent: Agent, standing: Standing) -> Header:
    """A header of which nothing can be taken for the job's."""
    now, mono = time.time(), time.monotonic()
    return Header(agent.node, "", now, mono, agent.interval_s, __version__, notes=[standing.text])


def main() -> None:
    """`python -m gpumon.collect`, and what runs on a node without the package.

    The flags are those of `gpumon collect`; argparse would take 1 MiB of the node's memory.
    """
    be_guest()
    leave_in_time()
    spare_address_space()
    try:
        flags = dict(getopt(sys.argv[1:], "", _FLAGS)[0])
        interval_s = float(flags.get("--interval", 1))
        if not 0.1 <= interval_s <= 3600:
            raise ValueError("--interval: expected 0.1 to 3600 seconds")
        count = int(flags["--count"]) if "--count" in flags else None
        gpus = int(flags["--gpus"]) if "--gpus" in flags else None
        target = parse_target(flags["--job"], gpus) if "--job" in flags else None
    except (GetoptError, ValueError) as error:
        print(f"gpumon collect: {error}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    heartbeat = "--heartbeat" in flags
    reader = Reader(
        heartbeat or "--until-eof" in flags, heartbeat, "--label" in flags, "--spread" in flags
    )
    leave(run(interval_s, count, reader, target))


def _wait_until(due: float, reader: Reader, room: Room) -> Optional[_End]:
    """Sleep until `due` (monotonic), or until a whole sample is asked for; why to end as soon as
    the reader or our input has gone, or the job needs the memory.

    The reader's end is noticed while asleep (POLLERR on the pipe), so that
    `gpumon collect --interval 3600 | head -1` leaves nothing behind.
    """
    poll = select.poll()
    poll.register(1, 0)
    if reader.until_eof:
        poll.register(0, select.POLLIN)
    while True:
        left = due - time.monotonic()
        if left <= 0 or (reader.answers is not None and reader.answers.is_due):
            return None
        patience = room.patience_s()
        if not patience:
            return _End(LEFT, NO_ROOM)
        for fd, events in poll.poll(min(left, patience) * 1000 + 1):
            if fd == 1 and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                return _End()
            if fd == 0:
                said = os.read(0, 65536) if events & select.POLLIN else b""
                if not said or (reader.goodbye and reader.goodbye in said):
                    return _End()
                if reader.heartbeat:
                    signal.alarm(_SILENCE_S)
                if reader.answers is not None:
                    reader.answers.take(said)


def _heard() -> bool:
    """Whether the reader has sent something that was not read yet: a process that was stopped for a
    while, as those of a suspended job are, has only missed it.
    """
    poll = select.poll()
    poll.register(0, select.POLLIN)
    readable = any(events & select.POLLIN for _, events in poll.poll(0))
    return readable and bool(os.read(0, 65536))
