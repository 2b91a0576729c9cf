"""What `gpumon record` left in a user's home on the cluster."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from gpumon.errors import GpumonError
from gpumon.model.sample import Event, Header, Sample
from gpumon.recording import Recording
from tests.slurm.cluster import Cluster
from tests.support.waiting import HANGS_S, until


def waits(words: str, then: str = "true", beside: Sequence[str] = ()) -> str:
    """A line of a script: a command, wrapped by these words, that ends once it may `go_on`; the
    lines `beside` run in its background and end with it.
    """
    task = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
    line = "".join(f'{each.strip()} & pids="$pids $!"\n' for each in beside)
    line += f"until [ -e go-on-{task} ]; do sleep 0.2; done; kill $pids 2>/dev/null; {then}"
    return f"{words} sh -c {shlex.quote(line)}\n"


def go_on(cluster: Cluster, job: str) -> None:
    """Let what `waits` in a job end."""
    (cluster.home() / f"go-on-{job}").touch()


def go_on_as_whole(cluster: Cluster, job: str, count: int = 1, least_s: float = 0.0) -> None:
    """Let it end once so many recorders have missed but a small part of it at its start, and so
    many seconds are recorded: only a run that is recorded as a whole proves what it needs.
    """
    first = max(samples(path)[0].time for path in begun(cluster, job, count))
    argv = ["squeue", "-h", "-j", job, "-o", "%S"]
    start = float(cluster.run("ctl", argv, "root", env={"SLURM_TIME_FORMAT": "%s"}).stdout)
    end = first + max(least_s, 15 * (first - start + 1))
    until(lambda: time.time() > end, f"{end - start} s of {job}", 10 * HANGS_S)
    go_on(cluster, job)


def paths(cluster: Cluster, job: str) -> list[Path]:
    """The recordings of a job, by node and time."""
    folder = cluster.home() / ".local/state/gpumon/jobs" / cluster.name / job
    return sorted(folder.glob("*.gpumon"))


def begun(cluster: Cluster, job: str, count: int = 1) -> list[Path]:
    """Wait until so many recordings of it hold a sample."""

    def there() -> list[Path]:
        found = paths(cluster, job)
        return found if len(found) == count and all(map(_has_sample, found)) else []

    return until(there, f"{count} recordings of {job}\n{cluster.log(job)}")


def _has_sample(path: Path) -> bool:
    try:
        return bool(samples(path))
    except GpumonError:  # nothing flushed yet
        return False


def ended(path: Path) -> bool:
    """Whether the file is whole and says that it ended."""
    recording = Recording(str(path))
    return recording.state == "ended" and not recording.problems


def header(path: Path) -> Header:
    with Recording(str(path)) as recording:
        return recording.header


def samples(path: Path) -> list[Sample]:
    """Those with readings."""
    with Recording(str(path)) as recording:
        items = list(recording.items())
    return [item for item in items if isinstance(item, Sample) and item.rows]


def events(path: Path, kind: str) -> list[Event]:
    with Recording(str(path)) as recording:
        items = list(recording.items())
    found = [event for item in items if isinstance(item, Sample) for event in item.events]
    return [event for event in found if event.kind == kind]
