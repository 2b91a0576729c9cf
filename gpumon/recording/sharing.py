"""The file by which a process that records is known to others: a line about it, and marks to it.

It is named after the job and the first node, and lies in two folders: in that of the user's state,
which machines share, and, for processes of the same machine, in a folder of that machine. There the
file is locked, and looking costs nothing. In the shared folder every call may be a question to a
busy file server: the file's time of change is renewed seldom, and a process whose file did not
change for a while is taken for dead. The owner alone replaces the line, and gives the file another
name then, so that a list of names shows which lines are new; who sends a mark appends to the file.
Both lock it meanwhile, as NFS appends safely only under a lock.

A mark is one line of JSON. `gpumon mark` sends it to the file of this machine if the recorder runs
here, which is read at each sample, else to the one in the shared folder, which is read as seldom as
it is renewed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

from gpumon import private
from gpumon.model.sample import Event
from gpumon.model.text import clean

SUFFIX = ".live"
#: before the owner has any to tell
NOTHING = b"{}\n"
#: of a file that is read at a time: 64 nodes of eight GPUs take 25 KB of the line
_MAX_READ, _MAX_LINE = 1 << 16, 1 << 22
#: who writes locks this byte, far behind the lines
_WRITING = 1 << 40
_ABANDONED_S = 86_400.0
MAX_MARK = 200  # characters
NO_JOB = "node"  # in names of files
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")
#: s; a process of another machine that was renewed so lately lives, as far as marks go
_YOUNG_S = 60.0


class Spool(NamedTuple):
    """A process's file, as another one sees it."""

    path: str
    job: str
    node: str
    lease: str = ""  # which process, of which machine
    changed_ns: int = 0  # when it was renewed
    line: bytes = b""  # of a file of this machine, if its process lives


class SpoolFile:
    """The owner's end. Used by one thread at a time."""

    def __init__(self, folder: str, name: str, *, is_here: bool, number: int = 0) -> None:
        """Raises OSError where the folder cannot be written, or is not the user's alone.

        `name`: all but the end. `is_here`: it is one of this machine. `number`: of its lines.
        """
        self._folder, self._stem, self._number = folder, name, number
        self._is_here = is_here
        self.told = NOTHING
        self._at = len(NOTHING)  # of the marks that were not taken yet
        private.make_folder(folder)
        self.within = private.open_folder(folder)
        # nobody finds it before it is held
        first = f".{self._name}" if is_here else self._name
        try:
            self._file = private.new_file(self.within, first)
        except BaseException:
            os.close(self.within)
            raise
        try:
            os.write(self._file, NOTHING)
            if is_here:
                fcntl.flock(self._file, fcntl.LOCK_EX)  # until it is closed: its process lives
                os.rename(first, self._name, src_dir_fd=self.within, dst_dir_fd=self.within)
        except BaseException:
            self.close()
            raise

    def made_again(self) -> SpoolFile:
        """A new one, as somebody removed it. Raises OSError, and then this one stays open: its
        numbers shall not come to stand for other files.
        """
        made = SpoolFile(self._folder, self._stem, is_here=self._is_here, number=self._number)
        os.close(self._file)
        os.close(self.within)
        return made

    @property
    def _name(self) -> str:
        return f"{self._stem},{self._number}{SUFFIX}"

    @property
    def path(self) -> str:
        return os.path.join(self._folder, self._name)

    @property
    def is_gone(self) -> bool:
        """Whether somebody removed it."""
        return os.fstat(self._file).st_nlink == 0

    def tell(self, line: bytes) -> bytes:
        """Show that this process lives, and this line about it; gives the marks that came. Raises
        OSError.
        """
        if line == self.told:
            os.utime(self._file)
            return self.take()
        with _writing(self._file):
            marks = self.take()
            self._at = len(line)
            os.pwrite(self._file, line, 0)
            os.ftruncate(self._file, len(line))
            if not self._is_here:
                os.fdatasync(self._file)
                before = self._name
                self._number += 1
                os.rename(before, self._name, src_dir_fd=self.within, dst_dir_fd=self.within)
        self.told = line
        return marks

    def take(self) -> bytes:
        """The lines that came since the last call."""
        try:
            data = os.pread(self._file, _MAX_READ, self._at)
        except OSError:
            return b""
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _MAX_READ:  # no line of ours is as long
            end = len(data)
        self._at += end
        return data[:end]

    def close(self) -> bytes:
        """Remove it; gives the last lines."""
        with _writing(self._file):
            _remove(self.within, self._name)
            marks = self.take()
        os.close(self._file)  # and with it the locks
        os.close(self.within)
        return marks


# -- looking for others


@contextmanager
def opened(folder: str) -> Iterator[int]:
    """A descriptor of a folder of the user's alone. Raises OSError."""
    within = private.open_folder(folder)
    try:
        yield within
    finally:
        os.close(within)


def listed(folder: str, within: int, key: str = "") -> list[Spool]:
    """Those in a folder, by their names, which begin with `key`. Raises OSError."""
    found = []
    for name in sorted(os.listdir(within)):
        parts = name[len(key) : -len(SUFFIX)].split(",")
        if name.startswith(key) and name.endswith(SUFFIX) and len(parts) == 4:
            found.append(Spool(os.path.join(folder, name), parts[0], parts[1], parts[2]))
    return found


def here(folder: str, local: str | None) -> Iterator[Spool]:
    """Those of this machine that belong to the shared folder; a dead one's has no `line` and is
    removed. Raises OSError where the folder of this machine is not the user's alone.
    """
    dead = []
    with suppress(FileNotFoundError), opened(local or "") as within:
        for each in listed(local or "", within, key(folder)):
            found = read(within, each, if_held=True)
            if found is not None:
                yield found
                if not found.line:
                    dead.append(found.lease)
                    _remove(within, found.path)
    if dead:  # what they left in the shared folder
        with suppress(OSError), opened(folder) as within:
            for each in listed(folder, within):
                if each.lease in dead:
                    _remove(within, each.path)


def there(within: int, spools: Iterable[Spool], but: Container[str]) -> Iterator[Spool]:
    """Those in the shared folder, by its descriptor, but for some leases; who of them lives must be
    seen by its time. Those that are a day old are removed.
    """
    for spool in spools:
        if spool.lease in but:
            continue
        try:
            status = os.stat(os.path.basename(spool.path), dir_fd=within, follow_symlinks=False)
        except OSError:
            continue
        if time.time() - status.st_mtime > _ABANDONED_S:
            _remove(within, spool.path)
        elif private.is_own(status):
            yield spool._replace(changed_ns=status.st_mtime_ns)


def read(within: int, spool: Spool, *, if_held: bool = False) -> Spool | None:
    """With its line and its time, which NFS answers afresh where a file is opened; None where it is
    gone. `if_held`: without a line where no process holds it.
    """
    try:
        with open(private.open_file(within, os.path.basename(spool.path)), "rb", 0) as file:
            status, line = os.fstat(file.fileno()), b""
            if not if_held or _is_held(file.fileno()):
                line = file.read(min(status.st_size, _MAX_LINE)).partition(b"\n")[0] or NOTHING
            return spool._replace(line=line, changed_ns=status.st_mtime_ns)
    except OSError:
        return None


def _remove(within: int, path: str) -> None:
    with suppress(OSError):
        os.unlink(os.path.basename(path), dir_fd=within)


# -- marks


class Mark(NamedTuple):
    """A line on the time axis."""

    time: float  # epoch s
    text: str


def mark_text(text: str) -> str:
    """One clean line of at most 200 characters; "" where nothing is left."""
    return clean(" ".join(text.split()), MAX_MARK).strip()


def mark_event(mark: Mark) -> Event:
    """A mark as it travels in a sample."""
    return Event(mark.time, "mark", text=mark.text)


def running(folder: str, *, local: str | None = None) -> list[Spool]:
    """The files of recorders that live; those of dead ones are removed.

    `local`: as of `Claims`. Raises OSError where the folder is not the user's alone.
    """
    found = list(here(folder, local or private.local_folder()))
    known = {spool.lease for spool in found}
    living = [spool for spool in found if spool.line]
    oldest_ns = (time.time() - _YOUNG_S) * 1e9
    with suppress(FileNotFoundError), opened(folder) as within:
        others = there(within, listed(folder, within), known)
        living += [each for each in others if each.changed_ns > oldest_ns]
    return [each._replace(job="" if each.job == NO_JOB else each.job) for each in living]


def send(spool: Spool, mark: Mark) -> bool:
    """Append a mark; False when the recorder has ended meanwhile."""
    line = json.dumps({"t": round(mark.time, 3), "text": mark.text}).encode("ascii") + b"\n"
    folder, name = os.path.split(spool.path)
    try:
        with opened(folder) as within:
            found = private.open_file(within, name, os.O_APPEND)
        with open(found, "ab", buffering=0) as file, _writing(found):
            return os.fstat(found).st_nlink > 0 and file.write(line) == len(line)
    except OSError:
        return False


def choose(spools: list[Spool], job: str, node: str) -> list[Spool]:
    """The recorders that a mark made on `node` in `job` ("": outside) is for.

    The recorders of the job, on this node if there are any here; outside of a job all of this
    node, or, where there is none, those of the only job that is being recorded.
    """
    mine = [spool for spool in spools if not job or spool.job == safe(job)]
    here = [spool for spool in mine if spool.node == safe(node)]
    if here or job:
        return here or mine
    return mine if len({spool.job for spool in mine}) == 1 else []


def mark_of(line: bytes) -> Mark | None:
    """None where it is not a mark."""
    try:
        body = json.loads(line)
        time, text = float(body["t"]), mark_text(str(body["text"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    return Mark(time, text) if text and 0 < time < 1e11 else None


# -- locks and names


def safe(text: str, default: str = "") -> str:
    """A part of a file's name: no separators, no blanks, no leading dot, not too long."""
    return _UNSAFE.sub("-", text).strip("-.")[:100] or default


@cache
def key(folder: str) -> str:
    """What the names of a shared folder's files begin with in a folder of this machine."""
    import hashlib  # loading it would delay the first screen

    return hashlib.sha256(os.path.realpath(folder).encode()).hexdigest()[:12] + ","


@contextmanager
def _writing(file: int) -> Iterator[None]:
    """Nobody else writes to it meanwhile; where locks do not work, somebody may."""
    with suppress(OSError):
        fcntl.lockf(file, fcntl.LOCK_EX, 1, _WRITING)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_UN, 1, _WRITING)


def _is_held(file: int) -> bool:
    """Whether a living process holds a file of this machine."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


@cache
def machine() -> str:
    """Identifies this machine among those that share its folders."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except OSError:
        return safe(os.uname().nodename)
