"""Where recordings lie, which there are, and which are old enough to go."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import escape, glob
from itertools import groupby
from math import inf
from typing import NamedTuple

from gpumon.errors import GpumonError, NotFoundError, UsageError
from gpumon.files import reason
from gpumon.model.sample import Header, JobContext
from gpumon.model.text import clean
from gpumon.recording.reader import Recording
from gpumon.recording.sharing import NO_JOB, safe

SUFFIX = ".gpumon"
#: a file without an end that nobody wrote to for so long: its writer is gone
_ABANDONED_S = 86_400.0
_JOB = re.compile(r"\d+([_+](\d+|\[.*\]))?(\.(\d+(\+\d+)?|batch|extern|interactive))?")
#: what Slurm appends to a job's id: a step, or the tasks of an array that still wait
_STEP = re.compile(r"\.[A-Za-z0-9+]+$|\[.*\]$")
#: entries of a folder named by the user that are looked at, and recordings from which it takes long
_MAX_ENTRIES, _MANY = 10_000, 50
_FEW = 5  # jobs that an error names
#: s; clocks of nodes and of Slurm's controller differ by less, and one job's starts by more
_NEAR_S = 30.0


class Run(NamedTuple):
    """The recordings of one job on one cluster, or one recording outside of any job."""

    cluster: str
    job: str  # as Slurm prints it (4711, 4711_3), "" outside of a job
    nodes: list[str]
    start: float  # epoch s
    end: float
    size_bytes: int
    paths: list[str]
    state: str  # recording, ended or torn
    name: str = ""  # the job's
    raw_id: str = ""  # the number behind a task of an array (4715 for 4711_3)
    unread: tuple[str, ...] = ()  # files that belong to it and could not be read: why, each
    devices: tuple[str, ...] = ()  # names of the GPUs on all nodes, MIG instances left out
    id: str = ""  # what `resolve` takes for it: the job's ID, else its file's name or a path


class SeveralJobsError(UsageError):
    """A folder holds recordings of several jobs. `runs`: of each, with an ID that `resolve` takes;
    recordings outside of any job are a run each.
    """

    def __init__(self, folder: str, runs: list[Run]) -> None:
        self.folder = folder
        ids = [os.path.join(folder, run.job) if is_job(run.job) else run.paths[0] for run in runs]
        runs = [run._replace(id=id) for run, id in zip(runs, ids)]
        self.runs = sorted(runs, key=lambda run: run.start, reverse=True)
        jobs = sorted((clean(run.job, 40), run.id) for run in runs if run.job)
        some = ", ".join(job for job, _ in jobs[:_FEW]) + (", …" if len(jobs) > _FEW else "")
        super().__init__(
            f"{folder} has recordings of several jobs ({some}); name one of them: {jobs[0][1]}"
        )


class UnclearError(NotFoundError):
    """Something was recorded, but no file of it can be read, or it is not clear which is meant."""


def state_dir() -> str:
    """Where recordings are kept: $GPUMON_STATE, $XDG_STATE_HOME/gpumon or ~/.local/state/gpumon."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.environ.get("GPUMON_STATE") or os.path.join(home, "gpumon")


def _jobs_dir() -> str:
    return os.path.join(state_dir(), "jobs")


def marks_dir() -> str:
    """The folder that recorders and `gpumon mark` share."""
    return os.path.join(state_dir(), "marks")


def new_path(header: Header, start: float) -> str:
    """Where the recording of a stream that begins at `start` (epoch s) goes; nothing lies there."""
    stem = f"{safe(header.node, 'node')}-{time.strftime('%Y%m%dT%H%M%S', time.localtime(start))}"
    folder = job_folder(header.job.cluster if header.job else "", _id_of(header.job))
    path = os.path.join(folder, stem + SUFFIX)
    number = 2
    while os.path.lexists(path):
        path = os.path.join(folder, f"{stem}-{number}{SUFFIX}")
        number += 1
    return path


def find_runs(unread: list[str] | None = None) -> list[Run]:
    """All recordings below the state folder, newest first.

    Why a file or folder could not be read is appended to `unread`, a sentence each.
    """
    runs: list[Run] = []
    why = [] if unread is None else unread
    paths = (path for path, _ in _recordings_in(_jobs_dir(), why))
    for folder, those in groupby(paths, os.path.dirname):
        recordings, refused = opened(those)
        if os.path.basename(folder) == NO_JOB:
            runs += (_of_recordings([each], ()) for each in recordings)
        elif recordings:
            runs.append(_of_recordings(recordings, refused))
        why += refused
    ids = Counter(run.id for run in runs)
    for at, run in enumerate(runs):
        if ids[run.id] > 1:  # another cluster has it, too
            path = run.paths[0]
            runs[at] = run._replace(id=os.path.dirname(path) if run.job else path)
    return sorted(runs, key=lambda run: run.start, reverse=True)


def is_job(run: str) -> bool:
    """Whether a word is a job's id: then it is none of a file of that name (`./4711` is)."""
    return _JOB.fullmatch(run.strip()) is not None


def resolve(run: str, say: Callable[[str], None] = lambda _: None) -> Run:
    """The run of a file, a folder, a job ID as Slurm prints it or an ID of `gpumon runs`; of one
    job in a folder (`FOLDER/4711`), also where its recordings have no folder of their own.

    Raises NotFoundError; SeveralJobsError; UsageError for what is none of these. A path that
    contains no recording raises what `Recording` says about it. `say` gets a line about what will
    take a while.
    """
    if is_job(run):
        return _of_job(run)
    if os.path.isdir(run):
        return _of_folder(run, say)
    folder, job = os.path.split(run)
    if is_job(job) and os.path.isdir(folder) and not os.path.exists(run):
        with suppress(UsageError, NotFoundError):
            return _of_folder(folder, say, job)
    if os.path.exists(run) or os.sep in run or run.endswith(SUFFIX):
        return _of_recordings([Recording(run)], [])
    path = path_outside(run)
    return _of_job(run) if path is None else _of_recordings([Recording(path)], [])


def path_outside(id: str) -> str | None:
    """The file of a run outside of any job, by its ID; None where there is none."""
    pattern = os.path.join(escape(_jobs_dir()), "*", NO_JOB, escape(id) + SUFFIX)
    paths = [] if os.sep in id else glob(pattern)
    return paths[0] if len(paths) == 1 else None


def _of_folder(folder: str, say: Callable[[str], None], job: str = "") -> Run:
    """Of this job, else of the only one; raises SeveralJobsError."""
    closed: list[str] = []
    paths = [path for path, _ in _recordings_in(folder, closed, _MAX_ENTRIES)]
    if len(paths) > _MANY:
        say(f"reading {len(paths)} recordings in {folder} …")
    recordings, unread = opened(paths)
    unread = closed + unread
    by_job: dict[str, list[Recording]] = {}  # by its path what is outside of any job
    for each in recordings:
        by_job.setdefault(_id_of(each.header.job) or each.path, []).append(each)
    if job:
        recordings = by_job.get(job, [])
    elif len(by_job.keys() - set(paths)) > 1:
        raise SeveralJobsError(folder, [_of_recordings(each, ()) for each in by_job.values()])
    if recordings:
        return _of_recordings(recordings, unread)
    nothing = f"no recordings (*{SUFFIX}) in folder {folder}"
    raise _unclear(nothing, unread) if unread else NotFoundError(nothing)


def job_folder(cluster: str, job: str) -> str:
    """Where the recordings of a job (as Slurm prints it) on this cluster are, if there are any."""
    return os.path.join(_jobs_dir(), safe(cluster, "local"), safe(job, NO_JOB))


def recorded_before(header: Header, time: float, folders: Iterable[str] = ()) -> list[Recording]:
    """Recordings of the same node in the same attempt of its job that begin before `time`.

    In the job's own folder and in `folders`. What cannot be read is left out. Outside of a job: [].
    """
    job = header.job
    if job is None:
        return []
    begin = escape(safe(header.node, "node")) + "-*"
    own = job_folder(job.cluster, _id_of(job))
    paths = [
        path
        for folder in dict.fromkeys([own, *folders])
        for path in sorted(glob(os.path.join(escape(folder), begin + SUFFIX)))
    ]
    return [
        each
        for each in opened(paths)[0]
        if each.header.node == header.node
        and is_same_attempt(each.header.job, job)
        and each.start < time
    ]


def prune(max_age_s: float, max_bytes: int, now: float) -> list[str]:
    """Remove recordings that are older than `max_age_s`, then the oldest above `max_bytes`.

    Never one that is being written, never one without an end that was written to within a day.
    Returns the paths that were removed. Age is that of the last write.
    """
    found = _recordings_in(_jobs_dir(), [])
    kept = sorted((status.st_mtime, status.st_size, path) for path, status in found)
    total = sum(size for _, size, _ in kept)
    removed: list[str] = []
    for written, size, path in kept:
        if now - written <= max_age_s and total <= max_bytes:
            break
        if now - written < _ABANDONED_S and [r.state for r in opened([path])[0]] != ["ended"]:
            continue
        with suppress(OSError):
            _unlink(path)
            removed.append(path)
            total -= size
    return removed


def remove(run: Run) -> None:
    """Remove the recordings of a run. Raises GpumonError for one that is being written, and where
    a file cannot be removed.
    """
    if run.state == "recording":
        raise GpumonError(f"{run.id} is still being recorded; end the recording first")
    for path in run.paths:
        try:
            with suppress(FileNotFoundError):
                _unlink(path)
        except OSError as error:
            raise GpumonError(f"cannot remove {path}: {error.strerror}") from None


def _of_job(job: str) -> Run:
    unread: list[str] = []
    runs = find_runs(unread)
    wanted = _STEP.sub("", job.strip()).rstrip("_")
    found = [run for run in runs if run.job == wanted]
    found = found or [run for run in runs if run.job and run.raw_id == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        clusters = ", ".join(os.path.dirname(run.paths[0]) for run in found)
        raise UnclearError(f"job {wanted} was recorded more than once; name a folder: {clusters}")
    tasks = sorted(run.job for run in runs if run.job.startswith(f"{wanted}_"))
    if len(tasks) == 1:
        return next(run for run in runs if run.job == tasks[0])
    if tasks:
        raise NotFoundError(f"job {wanted} is an array; recorded are {', '.join(tasks)}: name one")
    lists = "'gpumon runs' lists the recordings"
    nothing = f"no recording of job {job} in {state_dir()}"
    jobs = re.escape(_jobs_dir())
    hides_it = rf"{jobs}(?:/[^/]*)?(?:/{NO_JOB})?: |/{re.escape(wanted)}[/:]"
    own = [why for why in unread if re.search(hides_it, why)]
    if own:
        raise _unclear(nothing if is_job(job) else f"nothing called {clean(job, 80)}", own)
    if not is_job(job):
        raise UsageError(f"{clean(job, 80)!r} is neither a file nor a job ID; {lists}")
    raise NotFoundError(f"{nothing}; {lists}")


def _unclear(nothing: str, unread: list[str]) -> UnclearError:
    return UnclearError(f"{nothing} can be read ({len(unread)} cannot): {unread[0]}")


def opened(paths: Iterable[str]) -> tuple[list[Recording], list[str]]:
    """Those of these files that are recordings; why others are not read."""
    recordings: list[Recording] = []
    unread: list[str] = []
    for path in paths:
        try:
            with Recording(path) as recording:
                recordings.append(recording)
        except GpumonError as error:
            unread.append(str(error))
    return recordings, unread


def _id_of(job: JobContext | None) -> str:
    """As Slurm prints it; "" of none."""
    return (job.array or job.id) if job else ""


def _of_recordings(recordings: Iterable[Recording], unread: Sequence[str]) -> Run:
    recordings = sorted(recordings, key=lambda recording: recording.start)
    job = recordings[0].header.job
    newest = {recording.header.node: recording for recording in recordings}
    states = {recording.state for recording in newest.values()}
    headers = [recording.header for recording in newest.values()]
    id = _id_of(job) or os.path.basename(recordings[0].path)[: -len(SUFFIX)]
    return Run(
        cluster=job.cluster if job else "",
        job=id if job else "",
        nodes=sorted(newest),
        start=recordings[0].start,
        end=max(recording.end for recording in recordings),
        size_bytes=sum(recording.size_bytes for recording in recordings),
        paths=[recording.path for recording in recordings],
        state=next(state for state in ("recording", "torn", "ended") if state in states),
        name=job.name if job else "",
        raw_id=job.id if job else "",
        unread=tuple(unread),
        devices=tuple(each.name for header in headers for each in header.devices if not each.mig),
        id=id,
    )


# -- attempts: Slurm starts a requeued job again under the same ID


def by_attempt(
    recordings: Iterable[Recording], starts: Mapping[int, float] | None = None
) -> dict[int, list[Recording]]:
    """The recordings of each attempt, by the number of restarts before it, in its order.

    A recording tells that number, or (in a step from outside of the job) only when it began.
    `starts`: when each attempt started (epoch s), as Slurm's accounting says.
    """
    ordered = sorted(recordings, key=lambda each: each.start)
    begins = dict(starts or {})
    for each in ordered:
        job = each.header.job
        if job is not None and job.restarts is not None:
            known = each.start, job.start, begins.get(job.restarts)
            begins[job.restarts] = min(at for at in known if at is not None)
    begins = begins or _by_start(ordered)
    found: dict[int, list[Recording]] = {}
    for each in ordered:
        number = each.header.job.restarts if each.header.job else None
        if number is None:
            begun = [n for n, at in begins.items() if at <= each.start + _NEAR_S]
            number = max(begun, default=min(begins))
        found.setdefault(number, []).append(each)
    return dict(sorted(found.items()))


def is_same_attempt(one: JobContext | None, other: JobContext | None) -> bool:
    """Whether two headers of a stream are of one attempt, as far as they tell."""
    if one is None or other is None:
        return one is other
    if one.restarts is not None and other.restarts is not None:
        return (one.id, one.restarts) == (other.id, other.restarts)
    both = one.start is not None and other.start is not None
    is_near = abs((one.start or 0.0) - (other.start or 0.0)) <= _NEAR_S
    return one.id == other.id and (is_near or not both)


def _by_start(recordings: Iterable[Recording]) -> dict[int, float]:
    """By the starts of the job that the recordings tell, where they tell any."""
    jobs = [each.header.job for each in recordings]
    told = sorted(job.start for job in jobs if job is not None and job.start is not None)
    apart = [at for n, at in enumerate(told) if n == 0 or at - told[n - 1] > _NEAR_S]
    return dict(enumerate(apart)) or {0: 0.0}


# -- folders, by the names in them


def _recordings_in(
    folder: str, unread: list[str], most: float = inf
) -> Iterator[tuple[str, os.stat_result]]:
    """Why a folder or file in it may not be looked at is appended to `unread`. Raises UsageError
    where more than so many entries would have to be looked at.
    """

    def cannot_read(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            unread.append(f"cannot read {error.filename}: {reason(error)}")

    seen = 0
    for parent, folders, names in os.walk(folder, onerror=cannot_read):
        folders.sort()
        seen += len(folders) + len(names)
        if seen > most:
            raise UsageError(
                f"{folder} has more than {most:,} entries; name a folder with recordings alone"
            )
        for path in (os.path.join(parent, n) for n in sorted(names) if n.endswith(SUFFIX)):
            try:
                status = os.lstat(path)
            except OSError as error:
                cannot_read(error)
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status


def _unlink(path: str) -> None:
    """Also the folder of a job and of a cluster, where nothing is left in them. Raises OSError
    where the file stays.
    """
    os.unlink(path)
    folder = os.path.dirname(path)
    with suppress(OSError):
        os.rmdir(folder)
        os.rmdir(os.path.dirname(folder))
