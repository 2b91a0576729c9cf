"""One stream of the agent on a node: ships it, feeds its lines, and reports why it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Literal, NamedTuple

from gpumon.errors import WireError
from gpumon.model import clock
from gpumon.model.axis import Axis
from gpumon.model.sample import JOB_ENDED, NO_JOB, WRONG_JOB, Event, Header, Sample
from gpumon.model.spacing import Spacing
from gpumon.model.stack import Told
from gpumon.sources.base import Sink
from gpumon.store.turn import TURNS
from gpumon.transport.intake import Intake, Lines
from gpumon.transport.rate import Rate, TooFast
from gpumon.transport.stream import Stream
from gpumon.wire.stacks import ANSWER


class Outcome(NamedTuple):
    """How a stream ended, in words.

    `refused`: it never sent a sample of the job; `lost`: it did, and broke off; `ended`: the job is
    over. `final`: the same transport would be refused again.
    """

    kind: Literal["refused", "lost", "ended"]
    text: str
    final: bool = False


class Follower:
    """Takes one stream into a sink: `arrive`, then `take` until its end, each in one thread."""

    def __init__(
        self,
        node: str,
        sink: Sink,
        complete: Callable[[Header], Header],
        *,
        done: Callable[[], bool] = lambda: False,
        heard: Callable[[], None] = lambda: None,
        told: Callable[[Told], None] = lambda told: None,
        axis: Axis | None = None,
        now: Callable[[], float] = clock.now,
    ) -> None:
        """`complete` adds to a header what the stream does not know, its node's name first; after
        `done` nothing more is taken: who quits must not wait for what a thousand nodes have sent.
        `heard`: something has come; `told`: what was asked for. `axis`: of this node, also in the
        streams before; `now`: our clock, epoch s.
        """
        self._node = node
        self._sink = sink
        self._complete = complete
        self._done = done
        self._heard = heard
        self._told = told
        self._intake = Intake(Rate())
        self._axis = axis or Axis(ours=True)
        self._now = now
        self._lines = Lines()
        self._held: Iterable[tuple[Header | Sample, float]] = ()  # for `take`, each with its time
        self._spacing = Spacing()
        self._end: Event | None = None
        self._broken = ""  # why no more of it can be taken
        self.given_up = ""  # why our side closed the stream
        self.last_line = clock.since_boot()

    def arrive(
        self, stream: Stream, payload: bytes, loaded: Callable[[], None]
    ) -> Header | Outcome:
        """Wait for the first sample of the job; its header, or why there is none.

        `loaded`: `payload` is sent, and heartbeats may follow.
        """
        header: tuple[Header, float] | None = None
        try:
            stream.write(payload)
            loaded()
            while (items := self._read(stream)) is not None:
                with TURNS.of_stream():
                    for item, received in items:
                        if isinstance(item, Header):
                            header = item, received
                        elif self._is_the_jobs(item) and header is not None:
                            self._held = chain([header, (item, received)], items)
                            return header[0]
        except OSError:  # it went away before it had read the agent; its complaint says why
            pass
        except (WireError, TooFast) as error:
            return self._outcome("refused", str(error))
        return self._outcome("refused", self._why(stream))

    def take(self, stream: Stream) -> bool:
        """Take what comes next, first of all what `arrive` has read; False when the agent or the
        stream has ended.
        """
        held, self._held = self._held, ()
        try:
            items = held or self._read(stream)
            if items is None:
                return False
            with TURNS.of_stream():
                self._take_all(items)
        except OSError:
            return False
        except (WireError, TooFast) as error:
            self._broken = str(error)
            return False
        return self._end is None

    def outcome(self, stream: Stream) -> Outcome:
        """How it ended."""
        return self._outcome("lost", self._broken or self._why(stream))

    def _read(self, stream: Stream) -> Iterator[tuple[Header | Sample, float]] | None:
        """What the next piece of the stream holds, to be decoded as it is taken; None: nothing
        more is taken.
        """
        data = b"" if self._done() else stream.read()
        if not data:
            return None
        self.last_line = clock.since_boot()
        self._heard()
        return self._decoded(self._lines.feed(data))

    def _decoded(self, lines: list[bytes]) -> Iterator[tuple[Header | Sample, float]]:
        for line in lines:
            if self._done():
                return
            if line.startswith(ANSWER):
                if (answer := self._intake.answer(line)) is not None:
                    self._told(answer)
                continue
            for item in self._intake.line(line):
                yield item, self._now()

    def _take_all(self, items: Iterable[tuple[Header | Sample, float]]) -> None:
        """Up to the agent's last."""
        for item, received in items:
            self._take(item, received)
            if self._end is not None:
                return

    def _take(self, item: Header | Sample, received: float) -> None:
        if isinstance(item, Header):
            header = self._complete(self._axis.header(item, received))
            self._sink.header(self._node, header)
            return
        self._is_the_jobs(item)
        if item.rows:
            self._spacing.note(clock.since_boot())
        self._sink.add(self._node, self._axis.sample(item, received), received)

    def _is_the_jobs(self, sample: Sample) -> bool:
        """Notes also whether it is the agent's last."""
        self._end = next((event for event in sample.events if event.kind == "end"), None)
        return self._end is None or self._end.data.get("why") not in (WRONG_JOB, NO_JOB)

    @property
    def interval_s(self) -> float:
        """Between samples, as the stream says, or as they come where that is much less; 0 while it
        has said nothing.
        """
        header = self._intake.header
        return self._spacing.interval_s(header.interval_s) if header is not None else 0.0

    def _why(self, stream: Stream) -> str:
        return self.given_up or stream.complaint() or "the connection was closed"

    def _outcome(self, kind: Literal["refused", "lost"], text: str) -> Outcome:
        if self._done():
            return Outcome("ended", "")
        if self._end is None:
            return Outcome(kind, text)
        why = self._end.data.get("why")
        if why == JOB_ENDED:
            return Outcome("ended", self._end.text)
        if why in (WRONG_JOB, NO_JOB):
            return Outcome("refused", self._end.text, final=why == WRONG_JOB)
        return Outcome(kind, self._end.text)
