"""Size of the stream of `gpumon collect`: bytes per second on the wire and per node-day stored.

    python -m benchmarks.wire_size [--seconds N] [--interval S] [--keep FILE]

The day is extrapolated from the samples after the header. Compressed sizes are zstd's at its
default level (the program `zstd`): the stream as one frame, and as a frame every 10 s, the most a
recording may lose.
"""

from __future__ import annotations

import argparse
import select
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.bed import Bed, bed
from benchmarks.programs import GPUMON
from benchmarks.table import rows_table

DAY_S = 86_400
FRAME_S = 10
BUDGET_BYTES = 15_000_000  # of a recording per node-day at 1 s


def collect(on: Bed, seconds: float, interval_s: float) -> list[tuple[float, bytes]]:
    """Run the agent; returns its reads as (seconds since the first one, bytes)."""
    reads: list[tuple[float, bytes]] = []
    with subprocess.Popen(
        [*GPUMON, "collect", "--interval", f"{interval_s:g}"],
        env=on.program_env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as agent:
        assert agent.stdout is not None
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            readable = select.select([agent.stdout], [], [], left)[0]
            data = agent.stdout.read(1 << 20) if readable else b""
            if not data and (readable or not reads):
                agent.terminate()
                raise SystemExit(f"gpumon collect: no samples; status {agent.wait()}")
            if not data:
                break
            if not reads:
                began = time.monotonic()
            reads.append((time.monotonic() - began, data))
        agent.terminate()
    return reads


def zstd(data: bytes) -> int:
    return len(subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout)


def frames(reads: list[tuple[float, bytes]]) -> list[bytes]:
    """Join what arrived within each 10 s."""
    joined: dict[int, bytes] = {}
    for at_s, data in reads:
        joined[int(at_s // FRAME_S)] = joined.get(int(at_s // FRAME_S), b"") + data
    return list(joined.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.wire_size", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--interval", type=float, default=1)
    parser.add_argument("--keep", type=Path, help="write the raw stream to a file")
    args = parser.parse_args()
    with bed() as on:
        reads = collect(on, args.seconds, args.interval)
    stream = b"".join(data for _, data in reads)
    if args.keep:
        args.keep.write_bytes(stream)
    header, *rest = stream.splitlines(keepends=True)
    took_s = args.seconds + args.interval  # n + 1 samples stand in n intervals
    sizes = {"raw": (len(header), len(stream))}
    if shutil.which("zstd"):
        sizes["zstd, one frame"] = (zstd(header), zstd(stream))
        sizes[f"zstd, a frame every {FRAME_S} s"] = (zstd(header), sum(map(zstd, frames(reads))))
    rows = []
    for name, (head, whole) in sizes.items():
        rate = (whole - head) / took_s
        day = head + rate * DAY_S
        part = f"{day / BUDGET_BYTES:.2f}"
        rows.append([name, f"{head}", f"{rate:.0f}", f"{day / 1e6:.1f}", part])
    print(f"{len(rest)} lines after the header in {args.seconds:g} s at {args.interval:g} s\n")
    print(rows_table(["", "header bytes", "bytes/s", "MB per node-day", "of the budget"], rows))


if __name__ == "__main__":
    main()
