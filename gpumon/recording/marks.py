"""Marks: how `gpumon mark` reaches the recorder of this job, on this node or another.

A mark is one line of JSON appended to the recorder's file (`sharing`): to the one of this machine
if it runs here, which is read at each sample, else to the one in the shared folder, which is read
as seldom as it is renewed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from gpumon import private
from gpumon.model.sample import Event
from gpumon.model.text import clean
from gpumon.recording import sharing
from gpumon.recording.sharing import Spool, SpoolFile, machine, safe

MAX_MARK = 200  # characters
_NO_JOB = "node"
#: s; a process of another machine that was renewed so lately lives, as far as marks go
_YOUNG_S = 60.0
#: how long the end waits for a renewal that hangs
_BEAT_S = 1.0


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


class MarkSpool:
    """A recorder's end: its files from its start to `close`. Thread-safe."""

    def __init__(self, folder: str, job: str, node: str, *, local: str | None = None) -> None:
        """Raises OSError where the folder cannot be written, or is not the user's alone.

        `local`: the folder of this machine; by default the user's, where there is one.
        """
        self.folder = folder
        self.local = local or private.local_folder()
        self.lease = f"{os.getpid()}-{os.urandom(6).hex()}@{machine()}"  # which process it is
        self._name = f"{job_name(job)},{safe(node)},{self.lease}"
        self._line = sharing.NOTHING
        self._arrived: deque[Mark] = deque()
        self._is_closed = False
        self._locking, self._beating = threading.Lock(), threading.Lock()
        self._here: SpoolFile | None = None
        # that of this machine first: who finds it locked leaves the other one alone
        with suppress(OSError):
            if self.local:
                name = sharing.key(folder) + self._name
                self._here = SpoolFile(self.local, name, is_here=True)
        try:
            self._there = SpoolFile(folder, self._name, is_here=False)
        except BaseException:
            if self._here is not None:
                self._here.close()
            raise

    @property
    def path(self) -> str:
        """Of the file in the shared folder."""
        return self._there.path

    def publish(self, line: bytes) -> None:
        """What others shall know of this process; on other machines, after the first time, from
        the next beat on.
        """
        is_first = self._there.told == sharing.NOTHING
        self._line = line
        with self._locking:
            self._tell(self._here)
        if is_first:
            self.beat()

    def beat(self) -> None:
        """Show other machines that this process lives, and take their marks; a file system that
        hangs may take long.
        """
        with self._beating:
            self._tell(self._there)

    def _tell(self, file: SpoolFile | None) -> None:
        if file is not None and not self._is_closed:
            with suppress(OSError):
                self._keep(file.tell(self._line))

    def look(self, but: frozenset[str]) -> list[Spool]:
        """Files of others in the shared folder but for some leases; who of them lives must be seen
        by their time. Raises OSError.
        """
        with self._beating:
            if self._is_closed:
                return []
            found = sharing.listed(self.folder, self._there.within)
            if all(each.lease != self.lease for each in found):  # somebody emptied or moved it
                self._keep(self._there.make_again())
                found = sharing.listed(self.folder, self._there.within)
            return list(sharing.there(self._there.within, found, {*but, self.lease}))

    def read(self, spool: Spool) -> Spool | None:
        """Another's file afresh, with its line; None where it is gone."""
        return sharing.read(self._there.within, spool)

    def take(self) -> list[Mark]:
        """The marks that came since the last call; what is not a mark is passed over."""
        with self._locking:
            if self._here is not None and not self._is_closed:
                self._keep(self._here.take())
                if self._here.is_gone:
                    try:
                        self._keep(self._here.make_again())
                    except OSError:
                        self._here = None
                    self._tell(self._here)
        return self._taken()

    def _keep(self, lines: bytes) -> None:
        self._arrived.extend(mark for line in lines.splitlines() if (mark := _parsed(line)))

    def _taken(self) -> list[Mark]:
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def close(self) -> list[Mark]:
        """Remove the files; returns the last marks."""
        with self._locking:
            if self._here is not None and not self._is_closed:
                self._keep(self._here.close())
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._beating.acquire(timeout=_BEAT_S):
            self._keep(self._there.close())
            self._beating.release()
        return self._taken()


def running(folder: str, *, local: str | None = None) -> list[Spool]:
    """The files of recorders that live; those of dead ones are removed.

    `local`: as of `MarkSpool`. Raises OSError where the folder is not the user's alone.
    """
    found = list(sharing.here(folder, local or private.local_folder()))
    known = {spool.lease for spool in found}
    living = [spool for spool in found if spool.line]
    oldest_ns = (time.time() - _YOUNG_S) * 1e9
    with suppress(FileNotFoundError), sharing.opened(folder) as within:
        others = sharing.there(within, sharing.listed(folder, within), known)
        living += [each for each in others if each.changed_ns > oldest_ns]
    return [each._replace(job="" if each.job == _NO_JOB else each.job) for each in living]


def send(spool: Spool, mark: Mark) -> bool:
    """Append a mark; False when the recorder has ended meanwhile."""
    line = json.dumps({"t": round(mark.time, 3), "text": mark.text}) + "\n"
    return sharing.append(spool, line.encode("ascii"))


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


def _parsed(line: bytes) -> Mark | None:
    try:
        body = json.loads(line)
        time, text = float(body["t"]), mark_text(str(body["text"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    return Mark(time, text) if text and 0 < time < 1e11 else None


def job_name(job: str) -> str:
    """A job in a file's name."""
    return safe(job or _NO_JOB)
