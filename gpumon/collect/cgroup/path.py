"""Where a Slurm job's cgroup is: names of directories, hierarchies and their mounts.

Slurm's directories are `…/slurm*/…/job_N/step_S/…`; from 26.05 on, with cgroup v2, the job's own
is named by its SLUID (`s` and 13 of Crockford's base 32). In v1 and hybrid set-ups every
controller has a tree of its own, and Slurm may use some of them and leave others at `/`.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gpumon.collect.procfs import look, parse_count
from gpumon.model.reading import Missing

#: the name under which v2's one tree stands among v1's controllers
UNIFIED = ""

SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")
_JOB = re.compile(r"job_(\d{1,10})")
_STEP = re.compile(r"step_([\w.+-]{1,32})")


class JobPath(NamedTuple):
    """Where a process stands in a job's cgroup: the job's directory in each hierarchy.

    `paths` maps a v1 controller, or "" for the v2 tree, to the path as /proc/PID/cgroup gives it,
    cut behind the job's directory. `device_path` is v1's for devices, uncut: a step's or task's
    share of the job's GPUs.
    """

    name: str  # of the directory: job_4711, or a SLUID
    job: str  # the job's id; "" where only the SLUID is known
    step: str  # batch, extern, interactive, 0, …; "" at the job's own level
    uid: int | None  # of the job's owner; only v1 paths have it
    paths: dict[str, str]
    device_path: str = ""


def _split(path: str) -> JobPath | None:
    """The job in one path, or None."""
    parts = path.split("/")
    below_slurm = False
    for depth, part in enumerate(parts):
        if not below_slurm:
            below_slurm = "slurm" in part
            continue
        following = parts[depth + 1] if depth + 1 < len(parts) else ""
        step = _STEP.fullmatch(following)
        job = _JOB.fullmatch(part)
        if job or (step and SLUID.fullmatch(part)):
            above = parts[depth - 1]
            owner = parse_count(above[4:]) if above.startswith("uid_") else None
            return JobPath(
                part,
                job.group(1) if job else "",
                step.group(1) if step else "",
                owner,
                {UNIFIED: "/".join(parts[: depth + 1])},
            )
    return None


def find_job_cgroup(text: str, environ: Mapping[str, str]) -> JobPath | None:
    """The job in a text of /proc/PID/cgroup, or None outside of a Slurm job.

    `environ` is that process's environment: where the directory has the job's SLUID for a name,
    it knows the id.
    """
    found: JobPath | None = None
    paths: dict[str, str] = {}
    device_path = ""
    for line in text.splitlines():
        hierarchy, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        here = _split(path) if colon and second and hierarchy.isdigit() else None
        if here is None or (found is not None and here.name != found.name):
            continue
        if found is None or (here.step and not found.step):
            found = here
        for controller in controllers.split(","):
            paths[controller] = here.paths[UNIFIED]
            if controller == "devices":
                device_path = path
    if found is None:
        return None
    job = found.job
    if not job and environ.get("SLURM_JOB_SLUID") == found.name:
        job = environ.get("SLURM_JOB_ID", "")
        job = job if _JOB.fullmatch(f"job_{job}") else ""
    return found._replace(job=job, paths=paths, device_path=device_path)


def search_job_cgroup(names: Collection[str], mounts: Mapping[str, Mount]) -> JobPath | None:
    """The job's directories on this node, for a process that stands outside of them.

    `names` are the job's: its id, its SLUID. None where Slurm keeps none for it.
    """
    found: JobPath | None = None
    job = next((name for name in names if name.isdigit()), "")
    for controller, mount in mounts.items():
        directory = _search(names, mount.directory)
        if not directory or controller not in _CONTROLLERS:
            continue
        path = mount.root.rstrip("/") + directory[len(mount.directory.rstrip("/")) :]
        owner = os.path.basename(os.path.dirname(directory))
        uid = parse_count(owner[4:]) if owner.startswith("uid_") else None
        if found is None:
            found = JobPath(os.path.basename(directory), job, "", uid, {})
        if controller == "devices":
            found = found._replace(device_path=path)
        found.paths[controller] = path
    return found


#: a process of the job stands in all of these that Slurm uses
_CONTROLLERS = frozenset(
    (UNIFIED, "memory", "cpu", "cpuacct", "cpuset", "devices", "freezer", "pids", "blkio")
)
_WHERE = (
    "system.slice/*slurmstepd.scope",  # v2
    "*slurmstepd.scope",  # v2, IgnoreSystemd
    "slurm*/uid_*",  # v1
)


def _search(names: Collection[str], top: str) -> str:
    for where in _WHERE:
        for name in names:
            directory = f"job_{name}" if name.isdigit() else name
            found = glob.glob(f"{glob.escape(top.rstrip('/'))}/{where}/{directory}")
            if found:
                return found[0]
    return ""


def jobs_here(mounts: Mapping[str, Mount]) -> dict[str, JobPath]:
    """All jobs that have a cgroup on this node, by the names of their directories."""
    found: dict[str, JobPath] = {}
    for controller, mount in mounts.items():
        if controller not in _CONTROLLERS:
            continue
        for where in _WHERE:
            for directory in glob.glob(f"{glob.escape(mount.directory.rstrip('/'))}/{where}/*"):
                name = os.path.basename(directory)
                job = _JOB.fullmatch(name)
                if (job or SLUID.fullmatch(name)) and os.path.isdir(directory):
                    owner = os.path.basename(os.path.dirname(directory))
                    uid = parse_count(owner[4:]) if owner.startswith("uid_") else None
                    empty = JobPath(name, job.group(1) if job else "", "", uid, {})
                    path = directory[len(mount.directory.rstrip("/")) :]
                    found.setdefault(name, empty).paths[controller] = mount.root.rstrip("/") + path
    return {
        name: each._replace(device_path=each.paths.get("devices", ""))
        for name, each in found.items()
    }


class Mount(NamedTuple):
    """A mounted cgroup hierarchy. `root` is what of it is mounted, as seen from its top."""

    directory: str
    root: str


def parse_mounts(text: str) -> dict[str, Mount]:
    """Controller (or "" for v2) -> its mount, from a text of /proc/PID/mountinfo."""
    mounts: dict[str, Mount] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(kind) < 3:
            continue
        mount = Mount(_unescape(fields[4]), _unescape(fields[3]))
        if mount.root.startswith("/.."):  # from before our cgroup namespace, and most likely hidden
            continue
        if kind[0] == "cgroup2":
            mounts.setdefault(UNIFIED, mount)
        elif kind[0] == "cgroup":
            for option in kind[2].split(","):
                mounts.setdefault(option, mount)
    return mounts


def mounts_of(proc: str = "/proc") -> dict[str, Mount]:
    """This process's, by controller; none where that cannot be read."""
    text = look(f"{proc}/self/mountinfo")
    return {} if isinstance(text, Missing) else parse_mounts(text)


def own_job(environ: Mapping[str, str], proc: str = "/proc") -> JobPath | None:
    """The job in whose cgroup this process stands."""
    text = look(f"{proc}/self/cgroup")
    return None if isinstance(text, Missing) else find_job_cgroup(text, environ)


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)


def locate(path: str, mount: Mount) -> str:
    """The directory of a cgroup path, or "" when it lies outside of what is mounted."""
    parts = path.split("/")
    if ".." in parts:  # from another cgroup namespace
        return ""
    root = mount.root.rstrip("/")
    if root and path != root and not path.startswith(root + "/"):
        return ""
    return mount.directory.rstrip("/") + path[len(root) :]
