"""A minimal NVML client for tests: the official Python binding in a fresh process."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

from tests.nvml.emulator import Emulated, binding_dir

_PRELUDE = """
import ctypes, json, os, signal, threading, time
import pynvml as N

def code(function, *arguments):
    "The code of the error that a call gives, 0 if it gives none."
    try:
        function(*arguments)
    except N.NVMLError as error:
        return error.value
    return 0

def devices():
    N.nvmlInit()
    return [N.nvmlDeviceGetHandleByIndex(i) for i in range(N.nvmlDeviceGetCount())]

"""


def ask(gpus: Emulated, program: str, **options: Any) -> Any:
    """Run lines of Python with the binding as N; what they assign to `answer` comes back."""
    lines = _PRELUDE + textwrap.dedent(program) + "\nprint(json.dumps(answer))\n"
    env = {**gpus.env, "PYTHONPATH": str(binding_dir())}
    done = gpus.run([sys.executable, "-c", lines], env=env, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
