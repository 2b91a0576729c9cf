"""Runs other monitors beside gpumon for a while; each gives rows, or the reason why not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from gpumon.model.text import clean
from tests.gpu import compare
from tests.gpu.compare import PeerRow

#: of a peer's first output, kept so that a mistake of its parser can be found later
_RAW_CHARACTERS = 1000
#: nvitop through its Python interface
_NVITOP = """
import json, sys, time
from nvitop import Device
devices, end = Device.all(), time.time() + float(sys.argv[1])
while time.time() < end:
    for device in devices:
        values = [getattr(device, name)() for name in sys.argv[2].split(",")]
        print(json.dumps([time.time(), device.index, values]))
    time.sleep(1)
"""


class Peer(NamedTuple):
    """A command that is run every second, or `once` for the whole time (`SECONDS` is filled in)."""

    command: tuple[str, ...]
    parse: Callable[[str, float], list[PeerRow]]
    once: bool = False


_CSV = ("nvidia-smi", "--format=csv,noheader,nounits")
_DMON = ("nvidia-smi", "dmon", "-s", "u", "-o", "T", "-c", "SECONDS", "--gpm-metrics")
PEERS = {
    "nvidia-smi": Peer(
        (*_CSV, f"--query-gpu=index,{','.join(compare.SMI_GPU)}"), compare.parse_smi_gpu
    ),
    "nvidia-smi apps": Peer(
        (*_CSV, "--query-compute-apps=pid,used_memory"), compare.parse_smi_apps
    ),
    "nvidia-smi dmon": Peer((*_DMON, ",".join(compare.DMON)), compare.parse_dmon, once=True),
    "nvitop": Peer(
        (sys.executable, "-c", _NVITOP, "SECONDS", ",".join(compare.NVITOP)),
        compare.parse_nvitop,
        once=True,
    ),
    "nvtop": Peer(("nvtop", "-s"), compare.parse_nvtop),
}


class Heard(NamedTuple):
    """A peer's rows, the beginning of what it printed, and why there is no more."""

    rows: list[PeerRow]
    raw: str = ""
    why: str = ""


def watch(seconds: int) -> dict[str, Heard]:
    """Run all peers side by side."""
    with ThreadPoolExecutor(len(PEERS)) as pool:
        running = {name: pool.submit(_hear, peer, seconds) for name, peer in PEERS.items()}
    return {name: done.result() for name, done in running.items()}


def _hear(peer: Peer, seconds: int) -> Heard:
    if shutil.which(peer.command[0]) is None:
        return Heard([], why=f"{peer.command[0]}: not found")
    heard = Heard([])
    end = time.time() + seconds
    try:
        while True:
            began = time.time()
            text = _output(peer, seconds)
            heard = heard._replace(raw=heard.raw or text[:_RAW_CHARACTERS])
            heard.rows.extend(peer.parse(text, began))
            if peer.once or time.time() >= end - 1:
                return heard
            time.sleep(max(0.0, began + 1 - time.time()))
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        return heard._replace(why=clean(f"{type(error).__name__}: {error}", 500))


def _output(peer: Peer, seconds: int) -> str:
    command = [str(seconds) if part == "SECONDS" else part for part in peer.command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word"]
        raise ValueError(f"exit code {done.returncode}: {said[-1]}")
    return done.stdout
