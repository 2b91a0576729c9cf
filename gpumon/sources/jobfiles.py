"""The ends of a job's output files, read ahead by a thread: a dead file server holds up no key."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gpumon.slurm.runner import Runner, SlurmError

if TYPE_CHECKING:
    from gpumon.slurm.job import Job

#: bytes from the end of a file, and s between two looks at it
TAIL_BYTES = 65536
LOCAL_PERIOD_S, REMOTE_PERIOD_S = 1.0, 3.0
#: s without a question after which nobody is looking any more
_UNASKED_S = 10.0
_PATTERN = re.compile(r"%(?P<width>\d*)(?P<what>[%AaJjNnstux])")


def expanded(path: str, job: Job) -> str:
    """The path with Slurm's patterns filled in, as sbatch documents them ("filename pattern")."""
    values = {
        "%": "%", "A": job.array_job_id or job.raw_id, "a": job.array_task, "j": job.raw_id,
        "J": job.raw_id, "N": job.batch_node or (job.nodes[0] if job.nodes else ""), "n": "0",
        "s": "batch", "t": "0", "u": job.user, "x": job.name,
    }  # fmt: skip

    def fill(match: re.Match[str]) -> str:
        value = values[match["what"]]
        width = min(int(match["width"] or 0), 10)
        return value.zfill(width) if value.isdigit() else value

    return _PATTERN.sub(fill, path)


def read_local(path: str) -> bytes:
    """The end of a file of this host. Raises OSError; a pipe or device is refused."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        size = os.fstat(handle).st_size
        if not os.path.isfile(f"/proc/self/fd/{handle}"):
            raise OSError(0, "not a plain file")
        file.seek(max(0, size - TAIL_BYTES))
        return file.read(TAIL_BYTES)


def read_by(runner: Runner, path: str) -> bytes:
    """The same on the host where `runner` runs commands."""
    try:
        argv = ["tail", "-c", str(TAIL_BYTES), "--", path]
        answer = runner.run(argv, env={"LC_ALL": "C"}, timeout_s=10.0)
    except SlurmError as error:
        raise OSError(0, str(error)) from error
    if answer.code:
        said = answer.err.strip().splitlines() or ["it cannot be read"]
        raise OSError(0, said[-1].removeprefix("tail: "))
    return answer.out


class JobFiles:
    """Output and error file of a job, as the screen follows them; by `runner` those of its host."""

    def __init__(self, job: Callable[[], Job | None], runner: Runner | None = None) -> None:
        self._job = job
        self._read = read_local if runner is None else partial(read_by, runner)
        self._period_s = LOCAL_PERIOD_S if runner is None else REMOTE_PERIOD_S
        self._wanted, self._asked = "", 0.0
        self._moved = threading.Event()  # another file is wanted
        self._found: dict[str, list[str] | OSError] = {}
        self._thread: threading.Thread | None = None

    def path(self, stream: str) -> str:
        """Where `out` or `err` goes; "" when that is not known."""
        job = self._job()
        return expanded(job.std_out if stream == "out" else job.std_err, job) if job else ""

    def tail(self, stream: str) -> list[str]:
        """The last lines as they were at the last look. Raises OSError with why there are none."""
        path = self.path(stream)
        if not path:
            raise OSError(0, "Slurm does not report where the job writes")
        moved, self._wanted, self._asked = path != self._wanted, path, time.monotonic()
        if moved:
            self._moved.set()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._follow, daemon=True, name="job files")
            self._thread.start()
        found = self._found.get(path, [])
        if isinstance(found, OSError):
            raise found
        return found

    def _follow(self) -> None:
        while time.monotonic() - self._asked < _UNASKED_S:
            self._moved.clear()
            path = self._wanted
            try:
                data = self._read(path)
                lines = data.decode("utf-8", "replace").splitlines()
                self._found[path] = lines[1:] if len(data) == TAIL_BYTES else lines
            except OSError as error:
                self._found[path] = error
            self._moved.wait(self._period_s)
