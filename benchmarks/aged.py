"""The dashboard of this node as if it had run for a while; `screens` and `keys` measure it.

    python -m benchmarks.aged FILE

`FILE` has what the emulated driver would have answered since `FAKE_NVML_EPOCH`, a second a row
(`program`). Before the agent's first sample the store is given one for each of those seconds,
in which all that is not a device is a bit less than in the agent's. From there on it is `gpumon`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from benchmarks.bed import Bed
from gpumon import heap
from gpumon.collect.base import node_name
from gpumon.config import load_settings
from gpumon.model.reading import Missing, Reading, number
from gpumon.model.sample import Header, Sample
from gpumon.pipeline.pipeline import Pipeline
from gpumon.pipeline.tee import Tee
from gpumon.recording import marks_dir
from gpumon.sources.attach import AttachSource
from gpumon.sources.base import Sink
from gpumon.tui.app import run_app
from tests.nvml.oracle import expected

_LESS = 0.1  # of a reading, at most
_KEPT = ("host", "net", "disk", "job")  # what is read beside the devices
IS_GIVEN = Event()  # the past
_AT_ONCE = 4  # programs that are asked

Past = list[list[dict[str, Reading]]]  # second -> device -> readings


def program(on: Bed, age_s: int) -> tuple[list[str], dict[str, str]]:
    """Its command and its environment; it shall be started at once."""
    env = on.program_env()
    past = Path(env["FAKE_NVML_STATS"]).with_name("past")
    _write_past(past, env, age_s)
    # compiles what it imports, which would take longer than a start may
    subprocess.run([sys.executable, "-c", "import benchmarks.aged"], env=env, check=True)
    env["FAKE_NVML_EPOCH"] = repr(time.time() - age_s)
    return [sys.executable, "-m", "benchmarks.aged", str(past)], env


def _write_past(file: Path, env: Mapping[str, str], seconds: int) -> None:
    """What the driver of this environment answers in its first seconds."""

    def second(at: int) -> list[dict[str, Reading]]:
        devices = expected(env["FAKE_NVML_SCENARIO"], at, env)
        return [
            {
                field: value
                for field, value in device["readings"].items()
                if type(value) is not Missing
            }
            for device in devices
        ]

    with ThreadPoolExecutor(_AT_ONCE) as at_once:
        file.write_text(json.dumps(list(at_once.map(second, range(seconds)))))


class _WithPast:
    """A sink that gives another one the past before the first whole sample."""

    def __init__(self, sink: Sink, past: Past) -> None:
        self._sink = sink
        self._past = past
        self._epoch = float(os.environ["FAKE_NVML_EPOCH"])
        self.status, self.reset = sink.status, sink.reset

    def header(self, node: str, header: Header) -> None:
        ago_s = len(self._past)
        self._sink.header(node, header._replace(time=header.time - ago_s, mono=header.mono - ago_s))

    def add(self, node: str, sample: Sample, received: float | None = None) -> None:
        if self._past:
            if not _is_whole(sample):  # the past of what is missing could not be given later
                return
            age_s = int(sample.time - self._epoch)
            for second in range(age_s):
                devices = self._past[min(second, len(self._past) - 1)]
                self._sink.add(node, _before(sample, age_s - second, devices))
            self._past = []
            IS_GIVEN.set()
        self._sink.add(node, sample, received)


def _is_whole(sample: Sample) -> bool:
    """Whether rates are known, too: not in an agent's first sample."""
    host = sample.rows.get("host", {}).get("", {})
    return "device" in sample.rows and number(host.get("cpu_percent")) is not None


def _before(sample: Sample, ago_s: int, devices: list[dict[str, Reading]]) -> Sample:
    rows = {
        entity: {key: _less(row) for key, row in sample.rows.get(entity, {}).items()}
        for entity in _KEPT
    }
    rows["device"] = {
        key: {**row, **{field: then[field] for field in row if field in then}}
        for (key, row), then in zip(sample.rows["device"].items(), devices)
    }
    return Sample(sample.time - ago_s, sample.mono - ago_s, rows, {}, [])


def _less(row: dict[str, Reading]) -> dict[str, Reading]:
    return {
        field: value * random.uniform(1 - _LESS, 1) if isinstance(value, float) else value
        for field, value in row.items()
    }


class AgedSource(AttachSource):
    """This node's agent, with a past."""

    def start(self, sink: Sink) -> None:
        super().start(_WithPast(sink, json.loads(Path(sys.argv[1]).read_bytes())))


def main() -> None:
    settings = load_settings()
    heap.keep_little()
    source = AgedSource.of_this_node(node_name(os.environ), settings.interval_s)
    tee = Tee(source, marks_dir(), record=settings.record)
    pipeline = Pipeline(tee, tee=tee)
    pipeline.start()
    IS_GIVEN.wait()
    run_app(pipeline, settings)


if __name__ == "__main__":
    main()
