"""One stream of the agent on a node: ships it, feeds its lines, and says why it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from gpumon.collect.guard import JOB_ENDED, NO_JOB, WRONG_JOB
from gpumon.errors import WireError
from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.spacing import Spacing
from gpumon.sources.base import Sink
from gpumon.sources.intake import Intake, Lines
from gpumon.sources.rate import Rate, TooFast
from gpumon.sources.ship import cargo
from gpumon.sources.stream import Stream


class Outcome(NamedTuple):
    """How a stream ended, in words.

    `refused`: it never told anything of the job; `aside`: it would, but another way is better;
    `lost`: it did, and broke off; `ended`: the job is over. `final`: the same way would be refused
    again.
    """

    kind: Literal["refused", "aside", "lost", "ended"]
    text: str
    final: bool = False


class Follower:
    """Takes one stream into a sink. Used by one thread, but for `last_line`."""

    def __init__(
        self,
        node: str,
        sink: Sink,
        complete: Callable[[Header], Header],
        begin: Callable[[Header], bool],
        done: Callable[[], bool] = lambda: False,
        axis: Axis | None = None,
        now: Callable[[], float] = clock.now,
    ) -> None:
        """`complete` adds to a header what the stream does not know, its node's name first;
        `begin` is asked before the first sample whether to take this stream; after `done` nothing
        more is taken: who quits must not wait for what a thousand nodes have sent. `axis`: of this
        node, also in the streams before; `now`: our clock, epoch s.
        """
        self._node = node
        self._sink = sink
        self._complete = complete
        self._begin = begin
        self._done = done
        self._intake = Intake(Rate())
        self._axis = axis or Axis(ours=True)
        self._now = now
        self._header: Header | None = None  # held back until the agent has said if it is the job's
        self._spacing = Spacing()
        self._live = False
        self._aside = False
        self._end: Event | None = None
        self.last_line = clock.since_boot()

    def follow(self, stream: Stream, loaded: Callable[[], None]) -> Outcome:
        """Until the stream ends. `loaded`: the agent is sent, and heartbeats may follow."""
        try:
            stream.write(cargo())
            loaded()
            lines = Lines()
            while data := stream.read():
                self.last_line = clock.since_boot()
                for line in lines.feed(data):
                    if self._done():
                        return Outcome("ended", "")
                    self._line(line)
                    if self._aside:
                        return Outcome("aside", "")
        except OSError:  # it went away before it had read the agent; its complaint says why
            pass
        except (WireError, TooFast) as error:
            return self._outcome(str(error))
        return self._outcome(stream.complaint() or "the connection was closed")

    def _line(self, line: bytes) -> None:
        for item in self._intake.line(line):
            if isinstance(item, Header):
                self._header = self._complete(self._axis.header(item, self._now()))
                if self._live:
                    self._send_header()
            else:
                self._sample(item)

    def _sample(self, sample: Sample) -> None:
        self._end = next((event for event in sample.events if event.kind == "end"), None)
        if self._why in (WRONG_JOB, NO_JOB):
            return
        if not self._live:
            self._live = self._header is not None and self._begin(self._header)
            self._aside = not self._live
            if self._aside:
                return
        self._send_header()
        if sample.rows:
            self._spacing.note(clock.since_boot())
        received = self._now()
        self._sink.add(self._node, self._axis.sample(sample, received), received)

    @property
    def interval_s(self) -> float:
        """Between samples, as the stream says, or as they come where that is much less; 0 while it
        has said nothing.
        """
        header = self._intake.header
        return self._spacing.interval_s(header.interval_s) if header is not None else 0.0

    def _send_header(self) -> None:
        if self._header is not None:
            self._sink.header(self._node, self._header)
            self._header = None

    @property
    def _why(self) -> object:
        return self._end.data.get("why") if self._end is not None else None

    def _outcome(self, text: str) -> Outcome:
        if self._why in (WRONG_JOB, NO_JOB) and self._end is not None:
            return Outcome("refused", self._end.text, final=self._why == WRONG_JOB)
        if self._why == JOB_ENDED and self._end is not None:
            return Outcome("ended", self._end.text)
        if self._end is not None:
            text = self._end.text
        return Outcome("lost" if self._live else "refused", text)
