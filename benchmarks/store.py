"""What the store keeps of one node, by age: bytes by field and tier, and CPU per sample.

    python -m benchmarks.store [--nodes N ...] [--hours H ...] [--interval S] [--fields]

One node of `tests/recording/made.py` (eight H100 with GPM, every field of every group moves), a
minute of it again and again, in a store that has heard of N nodes. After a day only a sample a
minute is fed: all but the coarsest rings are full by then.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from benchmarks.processes import memory
from benchmarks.table import MIB, rows_table
from gpumon.model.sample import Sample
from gpumon.model.series import Series
from gpumon.model.view import Status
from gpumon.store import NodeView, Store
from tests.recording import made

_DAY_S = 86_400
_SELDOM_S = 60
_RUN, _RUNS = 300, 9  # samples, and how often they are timed


def fed(interval_s: float) -> Iterator[Sample]:
    """Samples without end; from the second minute on without what happens once."""
    minute = list(made.samples(60, interval_s=interval_s))
    begun_s = 0.0
    while True:
        for n, sample in enumerate(minute):
            at = begun_s + n * interval_s + 0.003
            yield sample._replace(time=made.START + at, mono=at)
        minute[0] = minute[0]._replace(events=[])
        begun_s += 60 * interval_s


def store_of(nodes: int, interval_s: float) -> Store:
    """A store that has heard of so many nodes; the first gets the samples."""
    store = Store()
    for n in range(nodes):
        store.status(f"gpu{n}", Status("connecting", made.START))
    store.header("gpu0", made.header("gpu0")._replace(interval_s=interval_s))
    return store


def size(*objects: object) -> int:
    """Bytes of the objects and of all that only data reaches from them."""
    seen: set[int] = set()
    found, total = list(objects), 0
    while found:
        each = found.pop()
        if id(each) in seen or isinstance(each, (type, str)):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        found += gc.get_referents(each)
    return total


def series_of(node: NodeView) -> Iterator[tuple[str, str, Series]]:
    for entity, rows in node._tables.items():
        for row in rows.values():
            for field, series in row.series.items():
                yield entity, field, series


def grown(nodes: int, hours: list[float], interval_s: float, *, fields: bool) -> list[list[str]]:
    """A row for each age: bytes of the node, of its series, and of their tiers."""
    store = store_of(nodes, interval_s)
    node = store.nodes()[0]
    samples, found, due_s = fed(interval_s), [], 0.0
    base = memory([os.getpid()]).rss_bytes
    for each in hours:
        for sample in samples:
            at = sample.time - made.START
            if at >= each * 3600:
                break
            if at < _DAY_S or at >= due_s:
                store.add("gpu0", sample)
                due_s = at + _SELDOM_S
        every = list(series_of(node))
        tiers: Counter[float] = Counter()
        for _, _, series in every:
            for tier in series._tiers:
                tiers[tier.step_s] += size(tier)
        rest = size(node._tables) - size(*(series for _, _, series in every))
        rss = memory([os.getpid()]).rss_bytes - base
        found.append([
            f"{nodes}", f"{each:g}", f"{size(node._tables) / MIB:.2f}", f"{rest / MIB:.2f}",
            f"{len(every)}", f"{rss / MIB:.2f}",
            ", ".join(f"{step_s} s {n / 1024:.0f}" for step_s, n in sorted(tiers.items())),
        ])  # fmt: skip
        if fields:
            by_field: Counter[str] = Counter()
            for entity, field, series in every:
                by_field[f"{entity}.{field}"] += size(series)
            for name, n in by_field.most_common():
                print(f"{each:6g} h {n:9} B {name}")
    return found


def cpu_s(nodes: int, interval_s: float) -> float:
    """Of adding one sample: the least of several runs, because other work only adds to it."""
    samples = fed(interval_s)
    ready = [next(samples) for _ in range(_RUN)]
    took_s = []
    for _ in range(_RUNS):
        store = store_of(nodes, interval_s)
        began = time.process_time()
        for sample in ready:
            store.add("gpu0", sample)
        took_s.append(time.process_time() - began)
    return min(took_s) / _RUN


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    parser.add_argument("--nodes", nargs="+", type=int, default=[1, 64, 1024])
    parser.add_argument("--hours", nargs="*", type=float, default=[0.05, 1, 3, 24, 168])
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--fields", action="store_true", help="bytes of each field, too")
    args = parser.parse_args()
    head = ["nodes", "h", "node MiB", "without series", "series", "RSS MiB", "tiers KiB"]
    for nodes in args.nodes:
        rows = grown(nodes, args.hours, args.interval, fields=args.fields)
        print(rows_table(head, rows), flush=True)
    for nodes in args.nodes:
        took_s = cpu_s(nodes, args.interval) * 10_000
        print(f"{nodes} nodes: {took_s:.2f} CPU s per 10,000 samples")


if __name__ == "__main__":
    main()
