"""The exporter as a process of its own, on the emulated driver."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.nvml.emulator import Emulated
from tests.support.waiting import until


class Exporter(NamedTuple):
    process: subprocess.Popen[bytes]
    url: str  # without a path
    log: Path

    def scrape(self, accept: str = "") -> str:
        request = urllib.request.Request(f"{self.url}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
            return str(answer.read().decode())

    def until(self, holds: Callable[[str], object]) -> str:
        """A scrape of which that is true."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [self.scrape()]
            return bool(holds(found[0]))

        until(look, lambda: found[-1][-4000:])
        return found[0]


Start = Callable[..., Exporter]


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Start]:
    """Starts exporters, which end with the test."""
    with ExitStack() as ending:

        def start(scenario: str | Emulated, *arguments: str) -> Exporter:
            driver = ending.enter_context(
                Emulated(scenario) if isinstance(scenario, str) else scenario
            )
            log = tmp_path / f"log-{os.urandom(4).hex()}"
            with log.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-m", "gpumon", "exporter", "--interval", "0.5",
                     "--listen", "127.0.0.1:0", *arguments],
                    env=driver.env, stderr=file, stdout=file,
                )  # fmt: skip

            def end() -> None:
                process.terminate()
                process.wait()

            ending.callback(end)
            found = until(
                lambda: (
                    re.search(r"(https?://\S+)/metrics", log.read_text())
                    or process.poll() is not None
                ),
                log.read_text,
            )
            assert isinstance(found, re.Match), log.read_text()
            return Exporter(process, found[1], log)

        yield start
