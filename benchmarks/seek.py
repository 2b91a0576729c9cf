"""What far seeks in a replay cost: to the end, the beginning, and between them.

    python -m benchmarks.seek                                # a node-day of eight GPUs at 1 s
    python -m benchmarks.seek --nodes 4 --hours 2 [--no-rollups]
    python -m benchmarks.seek --files a.gpumon b.gpumon      # recordings that are there already

The recordings are made (`tests/recording/made.py`), which takes two minutes a node-day. The replay
runs as on a screen, with the store and the evaluator, paused. The first seek is asked for at once,
the others after it. CPU is that of the whole process, also of what is evaluated meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.recording import record
from benchmarks.table import rows_table
from gpumon.model.sample import Header, Sample
from gpumon.pipeline.pipeline import Pipeline
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from tests.recording import made

#: shares of the recorded time
TARGETS = (1.0, 0.0, 0.5, 0.95, 0.2, 0.9)
_BUDGET_S = 1.0


def stream(node: str, count: int) -> Iterator[Header | Sample]:
    return itertools.chain([made.header(node)], made.samples(count))


def recorded(folder: Path, nodes: int, hours: float, *, rollups: bool) -> list[str]:
    paths = [folder / f"gpu{n:02d}.gpumon" for n in range(nodes)]
    for path in paths:
        record(stream(path.stem, round(3600 * hours)), path, rollups=rollups)
    return list(map(str, paths))


def seeks(paths: list[str]) -> list[list[str]]:
    """Where to, wall and CPU seconds."""
    player = ReplaySource(tracks_of(paths))
    assert player.end is not None
    pipeline, rows = Pipeline(player, player=player), []
    pipeline.start()
    player.pause()
    pipeline.evaluate()
    for share in TARGETS:
        cpu, wall = time.process_time(), time.monotonic()
        player.seek(player.origin + share * (player.end - player.origin))
        while player.seeking:
            time.sleep(0.005)
        wall_s, cpu_s = time.monotonic() - wall, time.process_time() - cpu
        verdict = "within" if cpu_s <= _BUDGET_S else "over"
        rows.append([f"to {100 * share:.0f} %", f"{wall_s:.2f}", f"{cpu_s:.2f}", verdict])
    pipeline.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.seek", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--no-rollups", action="store_true", help="recordings of samples alone")
    parser.add_argument("--files", nargs="+", metavar="FILE", help="seek in these, make none")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        paths = args.files or recorded(
            Path(folder), args.nodes, args.hours, rollups=not args.no_rollups
        )
        rows = seeks(paths)
    print(rows_table(["seek", "wall s", "CPU s", f"budget {_BUDGET_S:g} s of CPU"], rows))


if __name__ == "__main__":
    main()
