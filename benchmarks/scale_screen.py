"""The dashboard that `benchmarks.scale` measures: `gpumon attach` on nodes of a job that is made.

Everything right of the pipes is gpumon's own: the transports, the threads, the recorder stage,
findings, store, screen. A node that is fed is a named pipe; a real one runs the agent. Lists are
kept beside: when each sample was in the store, when the first screen with it was drawn, and each
drawing. They are written at the end.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from array import array
from pathlib import Path

from gpumon import heap
from gpumon.config import load_settings
from gpumon.model.sample import Sample
from gpumon.pipeline.pipeline import Pipeline
from gpumon.pipeline.recorder import RecorderStage
from gpumon.recording.runs import marks_dir
from gpumon.slurm.job import Job, NodeAllocation, Resources
from gpumon.slurm.parts import parts_of
from gpumon.sources.watched import WatchedJob
from gpumon.store import Store
from gpumon.transport.fallback import Transports
from gpumon.transport.local import ChildStream
from gpumon.transport.stream import Stream
from gpumon.tui import app

COMPLETE, LOG = "complete", "log"
GPUS, CORES, GIB = 8, 64, 1 << 30
#: what the emulated driver and a job's node have in their environment
_KEPT = ("FAKE_NVML", "LD_LIBRARY_PATH")


def names(fed: int, real: int) -> tuple[list[str], list[str]]:
    """Of the nodes that are fed, and of those with a real agent."""
    every = [f"gpu{number:04d}" for number in range(1, fed + real + 1)]
    return every[:fed], every[fed:]


def made_job(nodes: list[str]) -> Job:
    count = len(nodes)
    return Job(
        raw_id="4711", id="4711", name="train", user="ada", partition="gpu", state="RUNNING",
        start=time.time() - 3600, time_limit_s=86_400, nodes=tuple(nodes),
        node_list=f"{nodes[0]}-{nodes[-1]}",
        allocated=Resources(
            cpus=CORES * count, mem_bytes=512 * GIB * count, gpus=GPUS * count, nodes=count
        ),
        allocations=tuple(NodeAllocation(node, cpus=CORES, gpus=GPUS) for node in nodes),
    )  # fmt: skip


class _Pipe:
    """A named pipe as a Stream; what is sent to it is dropped, as `cat` does."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)

    def read(self) -> bytes:
        return os.read(self._fd, 1 << 16)

    def descriptor(self) -> int | None:
        return self._fd

    def write(self, data: bytes) -> None:
        """Heartbeats; nobody hears them."""

    say = write

    def close(self) -> None:
        """The feeder ends it."""

    def complaint(self) -> str:
        return ""


class Fed:
    """No way at all: the pipes themselves, and agents as children of the dashboard."""

    name, lacks = "ssh", ""

    def __init__(self, folder: Path, fed: list[str]) -> None:
        self._folder = folder
        self._fed = set(fed)

    def open(self, node: str, argv: list[str]) -> Stream:
        if node in self._fed:
            return _Pipe(self._folder / node)
        env = {name: text for name, text in os.environ.items() if name.startswith(_KEPT)}
        env |= {"SLURM_JOB_ID": "4711", "SLURMD_NODENAME": node}
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(GPUS)))
        return ChildStream(["env", *(f"{a}={b}" for a, b in env.items()), *argv])

    def close(self) -> None:
        """Nothing is shared."""


class TimedStore(Store):
    """Notes for each sample when it was taken, when it was in the store: epoch s, in pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = array("d")

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        super().add(node, sample, received)
        self.stored.extend((sample.time, time.time()))


class TimedApp(app.GpumonApp):
    """Notes for each sample when the first screen with it was drawn, and what a drawing took."""

    CSS_PATH = str(Path(app.__file__).with_name("app.tcss"))

    drawn: array[float]
    draws: array[float]
    complete: Path  # is written when there is a sample of each of the nodes `wanted`
    wanted = 0
    _times: dict[str, float] = {}  # of the newest sample on screen, by node

    def draw(self) -> None:
        began = time.time()
        before = self._times
        times = {node.name: at for node in self._pipeline.nodes() if (at := node.last_time)}
        super().draw()
        now = time.time()
        self.draws.extend((began, now))
        for name, at in times.items():
            if before.get(name) != at:
                self.drawn.extend((at, now))
        if len(before) < self.wanted <= len(times):
            self.complete.write_text(repr(now))
        self._times = times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_screen")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fed", type=int, required=True)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--interval", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    heap.keep_little()
    fed, real = names(args.fed, args.real)
    job = made_job(fed + real)
    way = Transports([Fed(args.folder, fed)])
    watched = WatchedJob(
        [job],
        lambda soon: [job],
        lambda jobs: {part.name: way for part in parts_of(jobs)},
        args.interval,
    )
    stage = RecorderStage(watched, marks_dir(), record=args.record)
    store = TimedStore()
    pipeline = Pipeline(stage, job=watched, recorder=stage, store=store)
    screen = TimedApp(pipeline, load_settings())
    screen.drawn, screen.draws = array("d"), array("d")
    screen.complete, screen.wanted = args.folder / COMPLETE, len(job.nodes)
    try:
        screen.run()
    finally:
        pipeline.stop()
        for name, times in (
            ("stored", store.stored),
            ("drawn", screen.drawn),
            ("draws", screen.draws),
        ):
            (args.folder / f"{LOG}.{name}").write_bytes(times.tobytes())
        gc.freeze()  # as attach does
    if screen.fault is not None:
        raise screen.fault


if __name__ == "__main__":
    main()
