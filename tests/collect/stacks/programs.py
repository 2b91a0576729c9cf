"""Python programs that stand still somewhere, to be looked at."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

STANDS = """
import sys, threading, time

def beside():
    time.sleep(1000)

def {function}():
    print("here", flush=True)
    time.sleep(1000)

def main(password):
    threading.Thread(target=beside, daemon=True, name={thread!r}).start()
    {function}()

main("hunter2")
"""


@contextlib.contextmanager
def standing(
    folder: Path, *, file: str = "train.py", function: str = "wait_here", thread: str = "loader",
    python: str = sys.executable, **environ: str,
) -> Iterator[subprocess.Popen[str]]:  # fmt: skip
    """A program whose main thread stands in this function, and one thread beside it."""
    path = folder / file
    path.write_text(STANDS.format(function=function, thread=thread))
    child = subprocess.Popen(
        [python, str(path)], stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )
    try:
        assert child.stdout.readline() == "here\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
