"""The dashboard that `benchmarks.scale` measures: `gpumon attach` on nodes of a job that is made.

Everything right of the launchers is gpumon's own: the ladder, a thread per node, the tee with its
recordings, findings, store, screen. A node that is fed runs `cat` on its named pipe instead of the
agent; a real one runs the agent, which ships itself. Lists are kept beside: when each sample was
in the store, when the first screen with it was drawn, and each drawing. They are written at the
end.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from array import array
from pathlib import Path

from gpumon.cli.attach import return_what_is_freed
from gpumon.cli.prompting import Prompting
from gpumon.cli.record import marks_dir
from gpumon.config import load_settings
from gpumon.model.sample import Sample
from gpumon.slurm.job import Job, NodeAllocation, Resources
from gpumon.sources.ladder import Ladder
from gpumon.sources.local import ChildStream
from gpumon.sources.openssh import OpensshLauncher
from gpumon.sources.ship import cargo
from gpumon.sources.srun import SrunLauncher
from gpumon.sources.ssh import SshLauncher
from gpumon.sources.stream import Launcher, Stream
from gpumon.sources.supervisor import AttachSource
from gpumon.sources.tee import Tee
from gpumon.sources.watched import WatchedJob, tasks_of
from gpumon.store import Store
from gpumon.tui import app

JOINED = "joined"  # the pipe that all nodes share under srun
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


_CAT = "cat"


class _Pipe:
    """A named pipe as a Stream; what is sent to it is dropped, as `cat` does."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)

    def read(self) -> bytes:
        return os.read(self._fd, 1 << 16)

    def write(self, data: bytes) -> None:
        """Heartbeats; nobody hears them."""

    def close(self) -> None:
        """The feeder ends it."""

    def complaint(self) -> str:
        return ""


class Pipes:
    """No way at all: the pipes themselves, and agents as children of the dashboard."""

    name, lacks = "ssh", ""

    def open(self, node: str, argv: list[str]) -> Stream:
        return _Pipe(Path(argv[-1])) if argv[-2:-1] == [_CAT] else ChildStream(argv)

    def close(self) -> None:
        """Nothing is shared."""


class Fed:
    """A way on which fed nodes run `cat` in the agent's place."""

    def __init__(self, way: Launcher, folder: Path, fed: list[str]) -> None:
        self.name, self.lacks = way.name, way.lacks
        self._way = way
        self._folder = folder
        self._fed = set(fed)

    def open(self, node: str, argv: list[str]) -> Stream:
        if node in self._fed:
            first = f'head -c {len(cargo())} >/dev/null; exec cat "$1"'
            return self._way.open(node, ["/bin/sh", "-c", first, _CAT, str(self._folder / node)])
        env = {name: text for name, text in os.environ.items() if name.startswith(_KEPT)}
        env |= {"SLURM_JOB_ID": "4711", "SLURMD_NODENAME": node}
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(GPUS)))
        return self._way.open(node, ["env", *(f"{a}={b}" for a, b in env.items()), *argv])

    def close(self) -> None:
        self._way.close()


def ladder(via: str, folder: Path, fed: list[str]) -> Ladder:
    if via == "srun":
        return Ladder([SrunLauncher("4711", lambda _: _Pipe(folder / JOINED))])
    ways: dict[str, type] = {"pipe": Pipes, "openssh": OpensshLauncher}
    way = SshLauncher(Prompting()) if via == "ssh" else ways[via]()
    return Ladder([Fed(way, folder, fed)])


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

    CSS_PATH = Path(app.__file__).with_name("app.tcss")

    drawn: array[float]
    draws: array[float]
    complete: Path  # is written when there is a sample of each of the nodes `wanted`
    wanted = 0
    _times: dict[str, float] = {}  # of the newest sample on screen, by node

    def draw(self) -> None:
        began = time.time()
        before = self._times
        times = {node.name: at for node in self._store.nodes() if (at := node.last_time)}
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
    parser.add_argument("--via", choices=("pipe", "ssh", "openssh", "srun"), default="pipe")
    parser.add_argument("--interval", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    return_what_is_freed()
    fed, real = names(args.fed, args.real)
    job = made_job(fed + real)
    way = ladder(args.via, args.folder, fed)
    watched = WatchedJob(
        [job], lambda soon: [job], lambda jobs: AttachSource(tasks_of(jobs, ()), way, args.interval)
    )
    source = Tee(watched, marks_dir(), record=args.record)
    store = TimedStore()
    screen = TimedApp(source, store, load_settings(), job=watched)
    screen.drawn, screen.draws = array("d"), array("d")
    screen.complete, screen.wanted = args.folder / COMPLETE, len(job.nodes)
    try:
        screen.run()
    finally:
        source.stop()
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
