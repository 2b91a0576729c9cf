"""What `gpumon record` left in a user's home on the cluster."""

from __future__ import annotations

from pathlib import Path

from gpumon.errors import GpumonError
from gpumon.model.sample import Event, Header, Sample
from gpumon.recording import Recording
from tests.slurm.cluster import Cluster, until


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
