"""gpumon on a real GPU, beside its peers: `python -m tests.gpu.accept --out DIR`.

Each case runs a load, records gpumon's stream, lets the peers watch the same seconds, and compares.
A case that cannot run says why and the others go on; summary.json is whole after every case.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from gpumon.model.reading import Missing, number
from gpumon.model.text import clean
from gpumon.recording import Recording
from tests.gpu.compare import BAD, Stream, compare
from tests.gpu.peers import Heard, watch

Json = dict[str, Any]
#: torch and JAX may take a minute to import from a cold disk
_READY_S = 120.0
#: readings of the first seconds may still show what was before the load
_SETTLE_S = 2.0
_NOBODY = 65534
_PARAMS = Path("/proc/driver/nvidia/params")


class CannotRunError(Exception):
    """Why a case cannot run here."""


class Expect(NamedTuple):
    """A statistic of a reading of the first device (mem_percent: used of total) under a load."""

    case: str
    field: str
    statistic: str
    low: float
    high: float
    backend: str = ""  # only where the load ran on this one


STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "least": min,
    "most": max,
    "last": lambda values: values[-1],
}
#: case -> the programs of loads.py that run
CASES: dict[str, tuple[str, ...]] = {
    "idle": (),
    "training": ("train",),
    "jax": ("jax",),
    "tiny": ("tiny",),
    "oom": ("oom",),
    "two": ("share", "share"),
}
EXPECTED = [
    Expect("idle", "busy_percent", "mean", 0, 2),
    Expect("idle", "sm_active_percent", "mean", 0, 2),
    Expect("idle", "mem_percent", "most", 0, 5),
    Expect("idle", "power_w", "least", 1, 300),
    Expect("training", "busy_percent", "mean", 80, 100),
    Expect("training", "sm_active_percent", "mean", 30, 100),
    Expect("training", "dram_active_percent", "mean", 2, 100),
    Expect("training", "tensor_active_percent", "mean", 5, 100, "torch"),
    Expect("jax", "busy_percent", "mean", 80, 100),
    Expect("jax", "mem_percent", "most", 70, 100),  # JAX takes 75 % of what there is
    Expect("tiny", "busy_percent", "mean", 95, 100),
    Expect("tiny", "sm_active_percent", "mean", 0.1, 5),  # one SM of more than a hundred
    Expect("oom", "mem_percent", "most", 95, 100),
    Expect("oom", "mem_percent", "last", 0, 5),
    Expect("two", "processes", "most", 2, 2),
]


# -- a load, a recording -------------------------------------------------------------------------
@contextlib.contextmanager
def loading(kinds: tuple[str, ...], seconds: int) -> Iterator[list[Json]]:
    """Run loads (an out-of-memory ends half way); gives what each said when it was ready."""
    with contextlib.ExitStack() as stack:
        running = []
        for kind in kinds:
            lasting = seconds / 2 if kind == "oom" else _READY_S + 2 * seconds
            errors = stack.enter_context(tempfile.TemporaryFile())
            command = [sys.executable, "-m", "tests.gpu.loads", kind, "--seconds", str(lasting)]
            load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
            stack.enter_context(load)
            stack.callback(load.kill)
            running.append((kind, load, errors))
        yield [_ready(kind, load, errors) for kind, load, errors in running]


def _ready(kind: str, load: subprocess.Popen[bytes], errors: IO[bytes]) -> Json:
    assert load.stdout is not None
    said, _, _ = select.select([load.stdout], [], [], _READY_S)
    line = load.stdout.readline() if said else b""
    if not line:
        errors.seek(0)
        why = errors.read().decode(errors="replace").strip().splitlines() if said else []
        raise CannotRunError(f"load {kind}: {why[-1] if why else f'silent for {_READY_S:.0f} s'}")
    return {"kind": kind, **json.loads(line)}


def record(path: Path, seconds: int) -> tuple[Stream, Json, dict[str, Heard]]:
    """The stream of `gpumon collect` while the peers watch, its cost, and what the peers said."""
    with tempfile.TemporaryFile() as file:
        command = [sys.executable, "-m", "gpumon", "collect"]
        agent = subprocess.Popen(command, stdout=file)
        try:
            end = time.monotonic() + seconds
            said = watch(seconds)
            time.sleep(max(0.0, end - time.monotonic()))
            smaps = Path(f"/proc/{agent.pid}/smaps_rollup").read_text()
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait(10)
        file.seek(0)
        path.write_bytes(gzip.compress(file.read(), mtime=0))
    stream = Stream(Recording(str(path)).items())
    pss = re.search(r"^Pss:\s+(\d+) kB", smaps, re.M)
    return stream, {"pss_bytes": int(pss[1]) * 1024 if pss else None, **cost(stream)}, said


def cost(stream: Stream) -> Json:
    """What the agent says of itself: CPU in % of one core, collectors' ms as (median, most)."""
    rows = [(s.mono, s.rows["agent"][""]) for s in stream.samples if "agent" in s.rows]
    spent = [(mono, value) for mono, row in rows if (value := number(row["cpu_s"])) is not None]
    wall_s = spent[-1][0] - spent[0][0] if spent else 0.0
    took: dict[str, list[float]] = {}
    for sample in stream.samples:
        for name, row in sample.rows.get("collector", {}).items():
            took.setdefault(str(name), []).append(number(row["ms"]) or 0.0)
    return {
        "cpu_percent": round(100 * (spent[-1][1] - spent[0][1]) / wall_s, 2) if wall_s else None,
        "late_s": max((number(row["late_s"]) or 0.0 for _, row in rows), default=None),
        "collectors_ms": {n: (statistics.median(ms), max(ms)) for n, ms in took.items()},
    }


# -- the cases -----------------------------------------------------------------------------------
def observe(name: str, seconds: int, out: Path) -> Json:
    """One load, gpumon's stream of it, what it must show, and the peers beside it."""
    with loading(CASES[name], seconds) as loads:
        stream, spent, said = record(out / f"{name}.jsonl.gz", seconds)
    if stream.device(0) is None and not any(heard.rows for heard in said.values()):
        raise CannotRunError(" ".join(stream.header.notes if stream.header else ["no stream"]))
    lines = [line for peer, heard in said.items() for line in compare(stream, peer, heard.rows)]
    backends = ["", *(load["backend"] for load in loads)]
    wanted = [e for e in EXPECTED if e.case == name and e.backend in backends]
    return {
        "loads": loads,
        "agent": spent,
        "checks": [_shown(stream, e) for e in wanted] + [_listed(stream, load) for load in loads],
        "peers": {peer: heard.why or len(heard.rows) for peer, heard in said.items()},
        "raw": {peer: heard.raw for peer, heard in said.items() if heard.raw},
        "compare": [line._asdict() for line in lines],
    }


def _check(what: str, want: str, seen: Any, ok: bool) -> Json:
    return {"what": what, "want": want, "seen": seen, "ok": ok}


def _shown(stream: Stream, expect: Expect) -> Json:
    field, factor = expect.field, 1.0
    if field == "mem_percent":
        device = stream.device(0)
        total = number(device.facts.get("mem_total_bytes")) if device else None
        field, factor = "mem_used_bytes", 100 / (total or 1)
    found = stream.readings("device", 0, field)
    settled = [r for t, r in found if t >= stream.samples[0].time + _SETTLE_S]
    values = [n * factor for r in settled if (n := number(r)) is not None]
    seen: Any = str(settled[-1]) if settled else "nothing"
    if values:
        seen = round(STATISTICS[expect.statistic](values), 2)
    ok = bool(values) and expect.low <= seen <= expect.high
    return _check(f"{expect.field}, {expect.statistic}", f"{expect.low} to {expect.high}", seen, ok)


def _listed(stream: Stream, load: Json) -> Json:
    """The load's process on the device, its memory known, its framework recognised."""
    held = [number(r) or 0 for _, r in stream.readings("usage", load["pid"], "mem_bytes")]
    mib = round(max(held, default=0) / 2**20)
    events = [e for s in stream.samples for e in s.events if e.pid == load["pid"]]
    frameworks = [str(e.data["framework"]) for e in events if e.data.get("framework")]
    ok = mib > 0 and (load["backend"] == "cuda" or load["backend"] in frameworks)
    want = f"memory; framework {load['backend']}"
    return _check(f"process of load {load['kind']}", want, f"{mib} MiB; {frameworks}", ok)


#: everything is imported before: an ordinary user may not be allowed to read this folder
_AS_USER = """
import importlib, os, pkgutil, sys
import gpumon.collect
for found in pkgutil.walk_packages(gpumon.collect.__path__, "gpumon.collect."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
user = int(sys.argv[1])
if user != os.getuid():
    os.setgroups([]), os.setgid(user), os.setuid(user)
os._exit(gpumon.collect.stream.run(1.0, 5))
"""


def privilege(seconds: int, out: Path) -> Json:
    """What root and an ordinary user can read, GPM above all, while a kernel runs."""
    if os.getuid() != 0:
        raise CannotRunError("needs root, to become an ordinary user")
    with contextlib.ExitStack() as stack:
        try:
            load: Any = stack.enter_context(loading(("tiny",), seconds))
        except CannotRunError as error:
            load = str(error)
        root, nobody = _seen_by(0), _seen_by(_NOBODY)
    hidden = [name for name, seen in nobody["readings"].items() if isinstance(seen, str)]
    gpm = [user["readings"].get("sm_active_percent", "nothing") for user in (root, nobody)]
    params = _PARAMS.read_text().splitlines() if _PARAMS.exists() else []
    return {
        "load": load,
        "params": [line for line in params if "Profiling" in line] or f"nothing in {_PARAMS}",
        "only root": [n for n in hidden if not isinstance(root["readings"].get(n), str)],
        "root": root,
        "nobody": nobody,
        "checks": [
            _check("uid of the other", f"{_NOBODY}", nobody["uid"], nobody["uid"] == _NOBODY),
            _check("GPM: root, nobody", "alike, or no-permission", gpm, honest(*gpm)),
        ],
    }


def honest(root: Any, user: Any) -> bool:
    """Whether a user sees what root sees, or is told why not; 0 for something is a lie."""
    if isinstance(user, str):
        return user == root or user.startswith("no-permission")
    return isinstance(root, str) or (user > 0) == (root > 0)


def _seen_by(user: int) -> Json:
    """The last readings of the first device, as numbers or reasons."""
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, "-c", _AS_USER, str(user)]
        done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, timeout=60)
        stream = Stream(Recording(file.name).items())
    device = stream.device(0)
    if stream.header is None or device is None:
        raise CannotRunError(f"as {user}: no device; {done.stderr.decode(errors='replace')[-300:]}")
    rows = [s.rows.get("device", {}).get(device.key, {}) for s in stream.samples]
    latest = {name: reading for row in rows for name, reading in row.items()}
    return {
        "uid": stream.header.agent_uid,
        "gpm": _plain(device.facts.get("gpm")),
        "readings": {name: _plain(reading) for name, reading in latest.items()},
    }


def _plain(reading: Any) -> Any:
    if isinstance(reading, Missing):
        return f"{reading.reason} {reading.detail}".strip()
    return reading


def probe(seconds: int, out: Path) -> Json:
    """The driver's buffers, memory info and cost of calls, idle and beside a load."""
    found: Json = {"checks": []}
    rounds = min(200, 10 * seconds)
    for when, kinds in (("idle", ()), ("busy", ("train",))):
        try:
            with loading(kinds, seconds):
                command = [sys.executable, "-m", "tests.gpu.probe", "--rounds", str(rounds)]
                done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except CannotRunError as error:
            found[when] = str(error)
            continue
        if done.returncode:
            raise CannotRunError(f"probe: {done.stderr.strip().splitlines()[-1]}")
        found[when] = json.loads(done.stdout)
    return found


# -- the command ---------------------------------------------------------------------------------
def run_case(name: str, seconds: int, out: Path) -> Json:
    """One case's result; `ok` is None where it could not run."""
    began = time.monotonic()
    try:
        if name in CASES:
            result = observe(name, seconds, out)
        else:
            result = {"privilege": privilege, "probe": probe}[name](seconds, out)
        bad = [line for line in result.get("compare", []) if line["verdict"] in BAD]
        result["ok"] = not bad and all(check["ok"] for check in result["checks"])
    except Exception as error:  # one case never hides the others
        result = {"ok": None, "why": clean(f"{type(error).__name__}: {error}", 500)}
    return {**result, "took_s": round(time.monotonic() - began, 1)}


def report(summary: Json) -> str:
    """The summary as tables for people."""
    lines = ["# gpumon on a real GPU"]
    for name, case in summary["cases"].items():
        lines += ["", f"## {name}: {verdict(case)}", ""]
        for check in case.get("checks", []):
            sign = "ok" if check["ok"] else "**FAIL**"
            lines.append(f"- {sign} {check['what']}: {check['seen']} (want {check['want']})")
        for key in ("peers", "agent", "params", "only root"):
            lines += [f"- {key}: {json.dumps(case[key])}"] if key in case else []
        lines += table(case.get("compare", []))
        for when in ("idle", "busy"):
            found = case.get(when)
            lines += [f"- {when}: {found}"] if isinstance(found, str) else []
            if isinstance(found, dict):
                lines += [f"- {when}: {k} {json.dumps(found[k])}" for k in ("buffers", "memory")]
                lines += table(found["calls"])
    return "\n".join(lines) + "\n"


def table(rows: list[Json]) -> list[str]:
    """Markdown; the keys of the first row are the heads."""
    if not rows:
        return []
    cells = [[str(cell) for cell in row.values()] for row in rows]
    return ["", *("|".join(line) for line in ([*rows[0]], ["-"] * len(rows[0]), *cells)), ""]


def verdict(case: Json) -> str:
    return f"cannot run: {case['why']}" if case["ok"] is None else "pass" if case["ok"] else "FAIL"


def gpumon_says(*command: str) -> Any:
    """The JSON of a gpumon command that ends by itself, or its error."""
    argv = [sys.executable, "-m", "gpumon", *command, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def main() -> int:
    names = (*CASES, "privilege", "probe")
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.accept", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seconds", type=int, default=20, metavar="N", help="of each case (20)")
    parser.add_argument("--only", default=",".join(names), metavar="CASE,...", help=f"{names}")
    args = parser.parse_args()
    wanted = args.only.split(",")
    if args.seconds < 3 or not set(wanted) <= set(names):
        parser.error(f"give at least 3 seconds, and cases of {', '.join(names)}")
    args.out.mkdir(parents=True, exist_ok=True)
    cases: Json = {}
    summary = {"once": gpumon_says("once"), "doctor": gpumon_says("doctor"), "cases": cases}
    for name in wanted:
        cases[name] = run_case(name, args.seconds, args.out)
        (args.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        (args.out / "report.md").write_text(report(summary))
        print(f"{name}: {verdict(cases[name])} ({cases[name]['took_s']} s)", flush=True)
    print((args.out / "report.md").read_text())
    results = [case["ok"] for case in cases.values()]
    return 0 if True in results and False not in results else 1


if __name__ == "__main__":
    sys.exit(main())
