"""A node-day of recording: bytes, the writer's CPU, reading, seeking.

    python -m benchmarks.recording [--samples N] [--stream FILE] [--no-rollups]
    python -m benchmarks.recording --memory RECORDERS [--no-rollups]

The samples are made (`tests/recording/made.py`: eight H100 with GPM, 16 busy processes, every field
moves) or, with --stream, those of a file of lines that `gpumon collect` printed,
again and again (sizes hold only for as many samples as it has). Sizes are extrapolated
to 86,400 samples where there are fewer. Each benchmark of memory is a run of its own: what one way
has freed the other would take.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.processes import memory
from benchmarks.table import MIB, rows_table
from gpumon import heap
from gpumon.analysis.run import run_of
from gpumon.model.sample import Header, Sample
from gpumon.pipeline.recorder import spread
from gpumon.recording import Recorder, Recording
from gpumon.recording.reader import frames_of
from gpumon.sources.files import tracks_of
from gpumon.sources.replay import ReplaySource
from gpumon.store import Store
from gpumon.wire.decoder import Decoder
from tests.frames.framing import FramedRecorder
from tests.recording import made

DAY = 86_400
FLUSH = 10  # samples between two flushes, the most that may be lost


def stream(path: Path | None, count: int) -> Iterator[Header | Sample]:
    if path is None:
        yield made.header()
        yield from made.samples(count)
        return
    decoder = Decoder()
    items = [decoder.line(line) for line in path.read_bytes().splitlines()]
    samples = [item for item in items if isinstance(item, Sample) and item.rows]
    assert decoder.header is not None
    yield decoder.header
    span_s = len(samples) * decoder.header.interval_s
    for n in range(count):  # a short stream again and again
        sample, shift_s = samples[n % len(samples)], n // len(samples) * span_s
        yield sample._replace(time=sample.time + shift_s, mono=sample.mono + shift_s)


def timed(work: Callable[[], object]) -> tuple[float, object]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def record(
    items: Iterator[Header | Sample], path: Path, *, rollups: bool = True
) -> tuple[int, float, int]:
    """Samples, CPU seconds for each (the making of them apart), and the file's bytes."""
    clock = [0.0]
    kind = FramedRecorder if rollups else Recorder
    recorder = kind(str(path), clock=lambda: clock[0])

    def write(part: list[Header | Sample]) -> None:
        for item in part:
            clock[0] = item.mono
            recorder.header(item) if isinstance(item, Header) else recorder.add(item)
        while recorder.pending_bytes:
            time.sleep(0.001)

    cpu_s, count = 0.0, -1  # the header is no sample
    while part := list(itertools.islice(items, 600)):
        cpu_s += timed(lambda part=part: write(part))[0]
        count += len(part)
    cpu_s += timed(lambda: recorder.close("end of the benchmark"))[0]
    if recorder.failed:
        raise SystemExit(recorder.failed)
    return count, cpu_s / count, path.stat().st_size


def memory_of(recorders: int, *, rollups: bool) -> str:
    """PSS of a recorder in a process that keeps many and feeds them in step, as `attach` does."""
    heap.keep_little()
    items, clock = list(stream(None, 700)), [0.0]
    own = [os.getpid()]
    before, said = memory(own).pss_bytes, []
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        kept = [
            (FramedRecorder if rollups else Recorder)(
                f"{folder}/{n}.gpumon", clock=lambda: clock[0], phase=spread(n)
            )
            for n in range(recorders)
        ]
        for n, item in enumerate(items):
            clock[0] = item.mono
            for recorder in kept:
                recorder.header(item) if isinstance(item, Header) else recorder.add(item)
            while any(recorder.pending_bytes for recorder in kept):
                time.sleep(0.001)
            if n in (120, 560, 690):
                said.append(f"{(memory(own).pss_bytes - before) / recorders / MIB:.2f} after {n} s")
        for recorder in kept:
            recorder.close()
    return "MiB a recorder: " + ", ".join(said)


def reading(path: Path, days: float) -> list[list[str]]:
    """Rows of what, CPU seconds, and the same for a day."""
    with Recording(str(path)) as recording:
        middle = (recording.start + recording.end) / 2
        works: list[tuple[str, Callable[[], object], bool]] = [
            ("open: header, start, end, state", lambda: Recording(str(path)).close(), False),
            ("`frames`: a report's run data",
             lambda: run_of([("gpu01", frames_of(recording.stretches()))]).data(), True),
            ("`items`: every sample", lambda: sum(1 for _ in recording.items()), True),
            ("seek to the middle, first item", lambda: next(recording.items(middle)), False),
        ]  # fmt: skip
        rows = []
        for name, work, grows in works:
            cpu_s, _ = timed(work)
            rows.append([name, f"{cpu_s:.3f}", f"{cpu_s / days:.2f}" if grows else ""])
    return rows


def seeks(path: Path) -> list[list[str]]:
    """Far seeks of a replay: where to, CPU seconds, seconds on the clock."""
    source, rows = ReplaySource(tracks_of([str(path)])), []
    with Recording(str(path)) as recording:
        span_s = recording.end - recording.start
    source.start(Store())
    source.pause()
    for share in (0.9, 0.4, 0.95, 0.2):
        cpu, wall = time.process_time(), time.monotonic()
        source.seek(source.origin + share * span_s)
        while source.seeking:
            time.sleep(0.005)
        took = time.process_time() - cpu, time.monotonic() - wall
        rows.append([f"to {share:.0%} of it", *(f"{each:.2f}" for each in took)])
    source.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recording")
    parser.add_argument("--samples", type=int, default=DAY)
    parser.add_argument("--stream", type=Path)
    parser.add_argument("--no-rollups", action="store_true")
    parser.add_argument("--memory", type=int, metavar="RECORDERS")
    args = parser.parse_args()
    if args.memory:
        print(memory_of(args.memory, rollups=not args.no_rollups))
        return
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        path = Path(folder) / "day.gpumon"
        samples = stream(args.stream, args.samples)
        count, each_s, size = record(samples, path, rollups=not args.no_rollups)
        days = count / DAY
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{count} samples\n\nfile: {size / days / 1e6:.2f} MB a node-day")
        print(f"writer: {each_s * 1e6:.0f} µs CPU a sample ({each_s * 100:.3f} % at 1 s)")
        rows = reading(path, days)
        after_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"peak memory: {before_kib / 1024:.0f} MiB before, {after_kib / 1024:.0f} MiB after\n"
        )
        print(rows_table(["reading", "CPU s", "s a node-day"], rows))
        print("\n" + rows_table(["replay, one seek after the other", "CPU s", "s"], seeks(path)))


if __name__ == "__main__":
    main()
