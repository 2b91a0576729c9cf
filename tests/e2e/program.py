"""Runs gpumon as its users do, and reads what it prints."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union

from gpumon.model.sample import Header, Sample
from gpumon.wire.decoder import Decoder
from tests.nvml.emulator import Emulated
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
GPUMON = [sys.executable, "-m", "gpumon"]

_STATE = tempfile.TemporaryDirectory(prefix="gpumon-state-")
_OF_THIS_SHELL = ("SLURM", "GPUMON", "CUDA_", "NO_COLOR", "XDG_CONFIG_HOME", "PYTHONUNBUFFERED")

Item = Union[Header, Sample]


def environment(env: Mapping[str, str] | None = None, **more: str) -> dict[str, str]:
    """The environment without a job and settings of whoever runs the tests, and `more`.

    The dashboard does not record, and nothing is kept in their home.
    """
    kept = {
        name: value
        for name, value in (os.environ if env is None else env).items()
        if not name.startswith(_OF_THIS_SHELL)
    }
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "GPUMON_STATE": _STATE.name,
        "GPUMON_RECORD": "0",
        **more,
    }


def gpumon(
    *args: str, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is captured as text."""
    settings: dict[str, Any] = {
        "capture_output": True,
        "text": True,
        "timeout": HANGS_S,
        "stdin": subprocess.DEVNULL,
        "env": environment() if env is None else env,
    }
    return subprocess.run([*GPUMON, *args], **{**settings, **options})


def once(gpus: Emulated, **more: str) -> dict[str, Any]:
    """What `gpumon once --json` prints over an emulated driver."""
    done = gpumon("once", "--json", env=environment(gpus.env, **more))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def once_text(gpus: Emulated, **more: str) -> str:
    """What `gpumon once` prints over an emulated driver."""
    done = gpumon("once", env=environment(gpus.env, **more))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class Collecting:
    """A running `gpumon collect`, ended when the block is left; its items in the order they come.

    `items` are the headers and samples so far; `lines` the same as they were written.
    """

    def __init__(self, *args: str, env: Mapping[str, str] | None = None, **options: Any) -> None:
        self.items: list[Item] = []
        self.lines: list[bytes] = []
        self._decoder = Decoder()
        self._queue: queue.Queue[bytes] = queue.Queue()
        self.process = subprocess.Popen(
            [*GPUMON, "collect", *args],
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "env": environment() if env is None else env,
                **options,
            },
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Collecting:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._queue.put(line)
        self._queue.put(b"")

    def next(self) -> Item | None:
        """The next header or sample; None at the end of the stream."""
        while line := self._queue.get(timeout=HANGS_S):
            self.lines.append(line)
            item = self._decoder.line(line)
            if item is not None:  # a signal in the middle of a line leaves a blank one
                self.items.append(item)
                return item
        return None

    def until(self, wanted: Callable[[Sample], object]) -> Sample:
        """Read on to the first sample that is wanted."""
        deadline = time.monotonic() + HANGS_S
        while (item := self.next()) is not None:
            if isinstance(item, Sample) and wanted(item):
                return item
            assert time.monotonic() < deadline, f"no such sample; the last: {self.items[-3:]}"
        raise AssertionError(f"the stream ended before; the last: {self.items[-3:]}")

    def rest(self) -> int:
        """Read to the end; the exit code."""
        while self.next() is not None:
            pass
        return self.process.wait(HANGS_S)

    @property
    def header(self) -> Header:
        """The newest header."""
        return [item for item in self.items if isinstance(item, Header)][-1]

    @property
    def samples(self) -> list[Sample]:
        """The samples with readings; the one that only says why the stream ends is none."""
        return [item for item in self.items if isinstance(item, Sample) and item.rows]

    @property
    def ended(self) -> str:
        """What the stream's own end says, "" where there is none."""
        last = self.items[-1] if self.items else None
        events = last.events if isinstance(last, Sample) else []
        return next((event.text for event in events if event.kind == "end"), "")
