"""What a drawing of many nodes costs, without a terminal or a clock: CPU of each screen.

    python -m benchmarks.drawing [--nodes N[:S] ...] [--screens job nodes ...] [--draws N]
                                 [--profile]

The nodes of `benchmarks.scale_feed` are put into a store, tick by tick; after each tick the screen
is drawn once, as the dashboard does. Beside a busy machine the clock of this thread is the only
one that counts. `--profile` also prints where the last case spends it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.scale import counted
from benchmarks.scale_feed import Tape, made_tape
from benchmarks.scale_screen import made_job
from benchmarks.table import rows_table
from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.pipeline.pipeline import Pipeline
from gpumon.store import Store
from gpumon.tui.shown import Look, Shown
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder

WIDTH, HEIGHT = 200, 60
_WARM = 15  # ticks before the first that counts


class Run:
    """Some nodes in a store, and the screens that look at them."""

    def __init__(self, nodes: int, interval_s: int, tape: Tape) -> None:
        self.now = 1.8e9
        self._interval_s = interval_s
        self._tape = tape
        self._tick = 0
        job = made_job([f"gpu{number:04d}" for number in range(nodes)])
        self._job = replace(job, start=self.now - 3600)
        self._store = Store()
        jobs = SimpleNamespace(job=lambda: self._job, silence=None, news=lambda: "")
        source = SimpleNamespace(name="attach", now=lambda: self.now)
        pipeline = Pipeline(cast(Any, source), job=jobs, store=self._store)
        self.shown = Shown.of(cast(Any, self), pipeline, Look(600.0, "braille"))
        self._decoders = {name: Decoder() for name in job.nodes}
        for name, decoder in self._decoders.items():
            header = tape.header._replace(
                node=name, time=self.now, mono=self.now, interval_s=interval_s
            )
            self._take(name, decoder, Encoder().header(header).encode())
            self._store.status(name, Status("live", self.now, "", "ssh"))

    def _take(self, name: str, decoder: Decoder, line: bytes) -> None:
        item = decoder.line(line)
        if isinstance(item, Header):
            self._store.header(name, item)
        elif isinstance(item, Sample):
            self._store.add(name, item, item.time)

    def tick(self) -> None:
        """The next sample of each node."""
        self.now += self._interval_s
        rests = self._tape.rests
        for place, (name, decoder) in enumerate(self._decoders.items()):
            rest = rests[self._tick and 1 + (self._tick + 7 * place) % (len(rests) - 1)]
            self._take(name, decoder, b'{"t":%.3f,"m":%.3f,%s' % (self.now, self.now, rest))
        self._tick += 1

    def draw(self, screen: str) -> None:
        shown = self.shown
        shown.moment = shown.look()
        pane = shown.panes[screen]
        pane.draw(shown.moment, WIDTH, HEIGHT - 2)
        pane.title(shown.moment, WIDTH)


def drawn(run: Run, screen: str, draws: int, profile: cProfile.Profile | None) -> Iterator[float]:
    """CPU s of each drawing."""
    for _ in range(draws):
        run.tick()
        began = time.thread_time()
        if profile is not None:
            profile.runcall(run.draw, screen)
        else:
            run.draw(screen)
        yield time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drawing")
    parser.add_argument("--nodes", nargs="+", type=counted, default=[(64, 1), (256, 1), (1024, 5)])
    parser.add_argument("--screens", nargs="+", default=["job", "nodes"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    tape, rows = made_tape(), []
    profile: cProfile.Profile | None = None
    for nodes, interval_s in args.nodes:
        run = Run(nodes, interval_s, tape)
        for _ in range(_WARM):
            run.tick()
        for screen in args.screens:
            run.draw(screen)
            profile = cProfile.Profile() if args.profile else None
            spent = list(drawn(run, screen, args.draws, profile))
            rows.append([f"{nodes}, every {interval_s} s", screen, f"{median(spent) * 1e3:.1f}"])
    print(rows_table(["nodes", "screen", "CPU ms a drawing"], rows))
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
