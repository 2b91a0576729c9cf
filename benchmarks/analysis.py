"""What findings and reports cost: judging a run, reading a recording for it, 10,000 jobs of sacct.

    python -m benchmarks.analysis [--only judge read sacct] [--samples N] [--jobs N]

Runs, samples and rows are made and seeded. CPU seconds of this process and its children, the least
of three rounds, since other work on the machine only adds. A node-day is extrapolated from
the samples that were made, so the first minute, in which processes come, counts too often.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from benchmarks.recording import record, stream
from benchmarks.table import rows_table
from gpumon.analysis.aggregate.device import TRACKED
from gpumon.analysis.aggregate.run import gather
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rundata import Coverage, DeviceData, NodeData, RunData, Track
from gpumon.model.fields import FIELDS
from gpumon.model.reading import Reading
from gpumon.model.sample import Device, Header, JobContext
from gpumon.recording import Recording
from gpumon.report.build import build, from_accounting
from gpumon.site import Site
from gpumon.slurm import records, sacct
from gpumon.slurm.job import Job

DAY = 86_400
START = 1_795_200_000.0
GIB = 1 << 30
ROUNDS = 3


def least(work: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float]:
    """Wall and CPU seconds, children included, of the quickest round."""
    found = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), os.times()
        work()
        now = os.times()
        took = [b - a for a, b in zip(cpu[:4], now[:4])]
        found.append((time.perf_counter() - wall, sum(took)))
    return min(each[0] for each in found), min(each[1] for each in found)


# -- judging ---------------------------------------------------------------------------------------

_SCALE = {"%": 100.0, "W": 700.0, "B": 64.0 * GIB, "MHz": 1980.0, "°C": 80.0, "B/s": 2e10}


@cache
def _loads(unit: str, count: int) -> tuple[array[float], array[float], array[float]]:
    """A load that steps now and then, with noise around it: mean, least and greatest."""
    rng = random.Random(unit)
    scale, level = _SCALE.get(unit, 8.0), rng.random()
    mean, low, high = array("f"), array("f"), array("f")
    for _ in range(count):
        if rng.random() < 0.01:
            level = rng.random()
        value = min(max(level + rng.gauss(0, 0.02), 0.0), 1.0)
        mean.append(scale * value)
        low.append(scale * value * 0.9)
        high.append(scale * min(value * 1.1, 1.0))
    return mean, low, high


def made_track(name: str, unit: str, count: int) -> Track:
    """The load of the unit, beginning elsewhere for each name."""
    at = random.Random(name).randrange(count)
    return Track(*(each[at:] + each[:at] for each in _loads(unit, count)))


def made_evidence(nodes: int, count: int, *, live: bool) -> RunData:
    """A run of `nodes` with 8 GPUs each over `count` bins of 10 s; every reading is known."""
    names = [f"gpu{n:02d}" for n in range(nodes)]
    end = START + count * 10.0
    return RunData(
        Job(raw_id="4711", id="4711", state="RUNNING" if live else "COMPLETED", start=START),
        START, end, live, 10.0,
        [made_device(name, n, count) for name in names for n in range(8)],
        [made_node(name, count) for name in names],
        [],
        Coverage("live" if live else "recording", 100.0, 1.0, from_start=True, to_end=not live),
        Site(),
        grid_start=START,
        count=count,
    )  # fmt: skip


def made_device(node: str, index: int, count: int) -> DeviceData:
    fields = FIELDS["device"]
    tracks = {
        name: made_track(f"{node} {index} {name}", fields[name].unit, count) for name in TRACKED
    }
    ones = array("f", [1.0]) * count
    facts: dict[str, Reading] = {
        "mem_total_bytes": 80 * GIB,
        "compute_capability": "9.0",
        "power_limit_default_w": 700,
    }
    return DeviceData(
        node,
        Device(index, index, f"GPU-{node}-{index}", "NVIDIA H100 80GB HBM3", index, None, facts),
        tracks,
        Track(ones, ones, ones),
        throttle={"sw_power_cap": made_track(f"{node} {index} cap", "", count)},
    )


def made_node(name: str, count: int) -> NodeData:
    context = JobContext(id="4711", cpus=64, mem_limit_bytes=512 * GIB, nodes=name, node_count=1)
    ones = array("f", [1.0]) * count

    def tracks(entity: str) -> dict[str, Track]:
        return {
            field: made_track(f"{name} {entity} {field}", known.unit, count)
            for field, known in FIELDS[entity].items()
        }

    return NodeData(
        name,
        Header(name, "boot", START, 0.0, 1.0, "0.1.0", job=context),
        tracks("job"),
        tracks("host"),
        covered=Track(ones, ones, ones),
        mem_limit_bytes=512 * GIB,
    )


def fresh(evidence: RunData) -> RunData:
    """The same run as nobody has looked at it: what a track keeps once computed is forgotten."""
    for track in all_tracks(evidence):
        for name in vars(track).keys() - {"mean", "low", "high"}:
            delattr(track, name)
    return evidence


def all_tracks(evidence: RunData) -> Iterator[Track]:
    for device in evidence.devices:
        yield from (*device.tracks.values(), *device.throttle.values(), device.active)
    for node in evidence.nodes:
        yield from (*node.job.values(), *node.host.values(), node.covered)


def judging(_args: argparse.Namespace) -> list[list[str]]:
    runs = {
        "judge, live, 8 GPUs, 1 h": (1, 360, True),
        "judge, report, 8 GPUs, a day": (1, 8640, False),
        "judge, live, 64 × 8 GPUs, 6 h": (64, 2160, True),
        "judge, report, 64 × 8 GPUs, 6 h": (64, 2160, False),
    }
    rows = []
    for name, (nodes, count, live) in runs.items():
        evidence = made_evidence(nodes, count, live=live)
        wall_s, cpu_s = least(lambda: evaluate(fresh(evidence)))  # noqa: B023
        rows.append([name, f"{wall_s:.3f}", f"{cpu_s:.3f}"])
    return rows


# -- reading a recording ---------------------------------------------------------------------------


def reading(args: argparse.Namespace) -> list[list[str]]:
    """A recording read for a report, to its evidence; extrapolated to a day."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made.gpumon")
        record(stream(None, args.samples), path)
        days = args.samples / DAY

        def items() -> object:
            with Recording(str(path)) as recording:
                return gather([("gpu01", recording.items())])

        def ticks() -> object:
            with Recording(str(path)) as recording:
                return gather([("gpu01", recording.batches())])

        def rolled() -> RunData:
            with Recording(str(path)) as recording:
                return gather([("gpu01", recording.rolled())])

        ways: dict[str, Callable[[], object]] = {
            "read a node-day, as samples": items,
            "read a node-day, in columns": ticks,
            "read a node-day, by rollups": rolled,
            "read a node-day, by rollups, and a report of it": lambda: build(rolled()),
        }
        return [
            [name, *(f"{each / days:.2f}" for each in least(work, 2))]
            for name, work in ways.items()
        ]


# -- accounting ------------------------------------------------------------------------------------


def made_rows(jobs: int, delimiter: str, names: list[str]) -> bytes:
    """A job's row, its batch step's, its extern step's, and so on; as sacct prints them."""
    rng = random.Random("sacct")
    lines = []
    for number in range(jobs):
        cpus, gpus = rng.choice((4, 8, 16)), rng.choice((0, 1, 2))
        elapsed = rng.randrange(60, 80_000)
        clock = f"{elapsed // 3600:02d}:{elapsed // 60 % 60:02d}:{elapsed % 60:02d}"
        start = 1_795_000_000 + 60 * number
        rss = rng.randrange(1 << 20, 1 << 24)
        gres = f",gres/gpu:a100={gpus},gres/gpu={gpus}" if gpus else ""
        tres = f"billing={cpus},cpu={cpus}{gres},mem={cpus * 4}G,node=1"
        job = {
            "Cluster": "made", "State": rng.choice(("COMPLETED", "FAILED", "TIMEOUT")),
            "ExitCode": "0:0", "DerivedExitCode": "0:0", "Elapsed": clock,
            "ElapsedRaw": str(elapsed), "Start": str(start), "End": str(start + elapsed),
            "Submit": str(start - 30), "Eligible": str(start - 30), "Timelimit": "1-00:00:00",
            "TimelimitRaw": "1440", "Partition": "gpu", "Account": "physics", "QOS": "normal",
            "User": f"user{number % 50}", "UID": str(20_000 + number % 50), "NNodes": "1",
            "NCPUS": str(cpus), "AllocCPUS": str(cpus), "ReqCPUS": str(cpus),
            "NodeList": f"gpu{number % 64:02d}", "ReqMem": f"{cpus * 4}G", "ReqTRES": tres,
            "AllocTRES": tres, "TotalCPU": clock, "Restarts": "0",
            "StdOut": f"/home/u/{number}.out",
            "JobName": f"train-{number % 7}", "WorkDir": "/home/u/project",
            "SubmitLine": f"sbatch --gres=gpu:{gpus} -c {cpus} --mem={cpus * 4}G train.sh",
        }  # fmt: skip
        raw = str(4_000_000 + number)
        used = f"cpu={clock},energy=0,fs/disk={rss},mem={rss}K,pages=0,vmem={rss}K"
        step = {
            **{name: job[name] for name in (
                "Cluster", "State", "ExitCode", "Elapsed", "ElapsedRaw", "Start", "End", "Submit",
                "Account", "NNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "NodeList", "TotalCPU")},
            "AllocTRES": tres, "NTasks": "1", "MaxRSS": f"{rss}K", "MaxRSSNode": job["NodeList"],
            "MaxRSSTask": "0", "AveRSS": f"{rss}K", "TRESUsageInTot": used, "TRESUsageInAve": used,
            "TRESUsageInMax": used, "TRESUsageInMaxNode": "cpu=gpu01,mem=gpu01",
            "TRESUsageInMaxTask": "cpu=0,mem=0",
        }  # fmt: skip
        for row, id in ((job, raw), (step, f"{raw}.batch"), (step, f"{raw}.extern")):
            row = {"JobIDRaw": id, "JobID": id, "JobName": id.partition(".")[2], **row}
            lines.append(delimiter.join(row.get(name, "") for name in names))
    return ("\n".join(lines) + "\n").encode()


def accounting(args: argparse.Namespace) -> list[list[str]]:
    """What sacct printed about many jobs, parsed and judged."""
    delimiter = records.new_delimiter()
    names = list(sacct.FIELDS)
    output = made_rows(args.jobs, delimiter, names)
    site = Site()

    def parsed() -> list[Job]:
        return sacct.parse(output, delimiter, names)

    works: dict[str, Callable[[], object]] = {
        f"sacct: {args.jobs:,} jobs parsed": parsed,
        f"sacct: {args.jobs:,} jobs parsed and judged": lambda: [
            evaluate(from_accounting(job, site)) for job in parsed()
        ],
        f"sacct: {args.jobs:,} jobs parsed, a report of each": lambda: [
            build(from_accounting(job, site)) for job in parsed()
        ],
    }
    return [[name, *(f"{each:.2f}" for each in least(work, 2))] for name, work in works.items()]


PARTS = {"judge": judging, "read": reading, "sacct": accounting}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.analysis", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--samples", type=int, default=3600, help="of the recording")
    parser.add_argument("--jobs", type=int, default=10_000, help="with two steps each")
    args = parser.parse_args()
    rows = [row for part in args.only for row in PARTS[part](args)]
    print(rows_table(["", "wall s", "CPU s"], rows))


if __name__ == "__main__":
    main()
