"""What a sample costs from the received line to the store and the recording, stage by stage.

    python -m benchmarks.sample [--nodes N] [--ticks N] [--interval S] [--profile STAGE]

The streams of `benchmarks.scale_feed` (eight H100 with GPM, 16 processes, every field moves) in one
thread: each stage takes the lines of all nodes, tick by tick, and its CPU time is divided by the
samples. *record* is the time of the stream's thread, without packing; *roll* the same with rollup
lines. Parsing the JSON alone is the unit in which runs on a busy machine compare. `--profile` also
prints where one stage spends it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.scale_feed import made_tape
from benchmarks.table import rows_table
from gpumon.analysis.aggregate.limits import LIVE
from gpumon.analysis.aggregate.roller import Roller
from gpumon.analysis.aggregate.run import Aggregation
from gpumon.model.axis import Axis
from gpumon.model.sample import Header, Sample
from gpumon.pipeline.backlog import Backlog
from gpumon.recording import Recorder
from gpumon.store import Store
from gpumon.transport.intake import Intake
from gpumon.wire.encoder import Encoder

Item = Header | Sample
T = TypeVar("T")


class Nodes:
    """The streams of some nodes, and what stands behind them."""

    def __init__(self, count: int, folder: Path) -> None:
        self._tape = made_tape()
        self.names = [f"gpu{number:04d}" for number in range(count)]
        self._intakes = {name: Intake() for name in self.names}
        self._axes = {name: Axis(ours=True) for name in self.names}
        self._store = Store()
        self._backlog = Backlog(replayed=False)
        self._aggregation = Aggregation(LIVE)
        self._recorders = {
            kind: {name: Recorder(str(folder / f"{name}-{kind}.gpumon"), roller=roller)
                   for name in self.names}
            for kind, roller in (("plain", None), ("rolled", Roller))
        }  # fmt: skip

    def headers(self, at: float) -> dict[str, bytes]:
        own = self._tape.header
        return {
            name: Encoder().header(own._replace(node=name, time=at, mono=at)).encode()
            for name in self.names
        }

    def lines(self, number: int, at: float) -> dict[str, bytes]:
        rests = self._tape.rests
        return {
            name: b'{"t":%.3f,"m":%.3f,%s'
            % (at, at, rests[number and 1 + (number + 7 * place) % 59])  # the first names processes
            for place, name in enumerate(self.names)
        }

    # -- the stages

    def parse(self, lines: dict[str, bytes]) -> None:
        for line in lines.values():
            json.loads(line)

    def decode(self, lines: dict[str, bytes]) -> dict[str, list[Item]]:
        return {name: self._intakes[name].line(line) for name, line in lines.items()}

    def place(self, found: dict[str, list[Item]]) -> dict[str, Item]:
        return {name: self._axes[name].item(item, item.time) for name, (item,) in found.items()}

    def store(self, items: dict[str, Item]) -> None:
        for name, item in items.items():
            if isinstance(item, Header):
                self._store.header(name, item)
            else:
                self._store.add(name, item, item.time)

    def wait(self, items: dict[str, Item]) -> None:
        for name, item in items.items():
            self._backlog.put(name, item)
        while self._backlog.take() is not None:
            pass

    def aggregate(self, items: dict[str, Item]) -> None:
        for name, item in items.items():
            self._aggregation.add(name, item)

    def record(self, items: dict[str, Item], kind: str) -> None:
        for name, item in items.items():
            recorder = self._recorders[kind][name]
            if isinstance(item, Header):
                recorder.header(item)
            else:
                recorder.add(item)

    def close(self) -> None:
        for recorders in self._recorders.values():
            for recorder in recorders.values():
                recorder.close(in_haste=True)


class Costs:
    """CPU of each stage, s."""

    def __init__(self, profiled: str) -> None:
        self.spent: dict[str, float] = {}
        self.profile = cProfile.Profile() if profiled else None
        self._profiled = profiled

    def of(self, stage: str, work: Callable[[], T]) -> T:
        began = time.thread_time()
        if stage == self._profiled and self.profile is not None:
            result = self.profile.runcall(work)
        else:
            result = work()
        self.spent[stage] = self.spent.get(stage, 0.0) + time.thread_time() - began
        return result


def feed(nodes: Nodes, lines: dict[str, bytes], costs: Costs) -> None:
    costs.of("json alone", lambda: nodes.parse(lines))
    found = costs.of("decode", lambda: nodes.decode(lines))
    items = costs.of("place", lambda: nodes.place(found))
    costs.of("store", lambda: nodes.store(items))
    costs.of("wait", lambda: nodes.wait(items))
    costs.of("aggregate", lambda: nodes.aggregate(items))
    costs.of("record", lambda: nodes.record(items, "plain"))
    costs.of("roll", lambda: nodes.record(items, "rolled"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sample")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--ticks", type=int, default=60)
    parser.add_argument("--interval", type=int, default=1)
    parser.add_argument("--profile", default="", help="a stage of the table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sample-") as name:
        nodes = Nodes(args.nodes, Path(name))
        begun, costs = time.time(), Costs(args.profile)
        feed(nodes, nodes.headers(begun), Costs(""))
        for number in range(args.ticks):
            feed(nodes, nodes.lines(number, begun + number * args.interval), costs)
        began = time.process_time()
        nodes.close()
        closed_s = time.process_time() - began
    count = args.nodes * args.ticks
    spent = {**costs.spent, "close (last flush, two recordings)": closed_s}
    least = spent["json alone"]
    rows = [
        [stage, f"{each / count * 1e3:.3f}", f"{each / least:.2f}"] for stage, each in spent.items()
    ]
    print(rows_table(["stage", "CPU ms a sample", "of parsing"], rows))
    if costs.profile is not None:
        pstats.Stats(costs.profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
