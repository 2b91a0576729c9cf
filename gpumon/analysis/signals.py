"""What the rules read off the tracks: the job's devices, activity, power, and spans of time.

Bins are counted on the run's grid. A bin without a reading is unknown: it makes no span idle and no
condition true, and where less than `MOST` of a window is known the window says nothing.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil, nan
from statistics import quantiles
from typing import NamedTuple

from gpumon.analysis.once import once
from gpumon.analysis.rundata import DeviceData, NodeData, ProcessData, RunData, Track
from gpumon.model.reading import Missing, number
from gpumon.model.sample import Process
from gpumon.slurm.job import Job

#: a window of which less is known says nothing (findings, `low-coverage`)
MOST = 0.8
#: warm-up: after the job's start and after the first activity; never longer than the last
WARM_UP_S = 120.0
WARM_UP_MOST_S = 1800.0
#: fields that tell whether a device worked
ACTIVITY = ("busy_percent", "sm_active_percent")
#: power without work, as a part of the limit, where the device never was idle (proposed)
IDLE_POWER_SHARE = 0.13
#: of an ended run, windows move by this part of themselves
_STEPS = 5
#: s that a level lasts at least, so that a change to it begins a phase (proposed)
PHASE_S = 900.0


class Span(NamedTuple):
    """Bins from `first` to before `last`."""

    first: int
    last: int


class Held(NamedTuple):
    """Where a condition held. `known`: it could be told, or the run is shorter than it asks."""

    spans: list[Span]
    known: bool


# -- devices -------------------------------------------------------------------------------------


@once
def job_devices(run: RunData) -> list[DeviceData]:
    """The devices that the job holds: those it sees as CUDA devices, else all of the node, as on a
    node without a job.

    A device cut into MIG instances is not counted beside them.
    """
    parents = {each.device.mig.parent for each in run.devices if each.device.mig}
    whole = [each for each in run.devices if each.device.uuid not in parents]
    found = []
    for node in run.nodes:
        here = [each for each in whole if each.node == node.node]
        seen = [each for each in here if each.device.cuda_index is not None]
        # CUDA_VISIBLE_DEVICES may name fewer than the job holds
        holds_all = node.header.job is not None and node.header.job.gpus == len(here)
        found += here if holds_all or not seen or not is_allocated(run) else seen
    return found


def devices_on(run: RunData, node: NodeData) -> list[DeviceData]:
    """Of the job's devices."""
    return [each for each in job_devices(run) if each.node == node.node]


def node_of(run: RunData, device: DeviceData) -> NodeData | None:
    return next((node for node in run.nodes if node.node == device.node), None)


@once
def is_allocated(run: RunData) -> bool:
    """A job holds these devices; on a machine without one, an idle device is nobody's waste."""
    return run.job is not None or any(node.header.job for node in run.nodes)


def busy_track(device: DeviceData) -> Track:
    """`busy_percent`; for a MIG instance, which has none, SM activity."""
    return device.track("sm_active_percent" if device.device.mig else "busy_percent")


def under_load(device: DeviceData, track: Track, busy_percent: float) -> Track:
    """A track's means in those bins in which the device was so busy; else NaN.

    Clocks and links rest with their device: a window that becomes idle half way is no mean of both.
    """
    busy = busy_track(device).mean
    return Track(array("f", [
        value if at < len(busy) and busy[at] >= busy_percent else nan
        for at, value in enumerate(track.mean)
    ]))  # fmt: skip


def why_missing(device: DeviceData, *names: str) -> str:
    """The reason why one of these fields was never read: `busy % n/a MIG`."""
    for name in names:
        if not device.track(name).known_count():
            reading = device.last.get(name)
            reason = str(reading) if isinstance(reading, Missing) else "not measured"
            return f"{name} {reason}"
    return "too few readings"


# -- bins and time -------------------------------------------------------------------------------


def seconds_of(run: RunData, spans: Iterable[Span]) -> float:
    return sum(last - first for first, last in spans) * run.bin_s


def window_of(run: RunData, span: Span) -> tuple[float, float]:
    """Epoch seconds; not beyond the end of the run."""
    start = run.grid_start + span.first * run.bin_s
    return start, max(start, min(run.end, run.grid_start + span.last * run.bin_s))


@once
def observed(run: RunData) -> Span:
    """From the first bin in which any node was sampled to the last; live, to now."""
    first, last = run.count, 0
    for node in run.nodes:
        covered = node.covered.mean
        known = (n for n, share in enumerate(covered) if share == share)
        first = min(first, next(known, first))
        backwards = (n for n in range(len(covered), last, -1) if covered[n - 1] == covered[n - 1])
        last = next(backwards, last)
    if run.live and last:
        last = run.count
    return Span(min(first, last), last)


def mean_of(track: Track, spans: Iterable[Span]) -> float | None:
    """Of the bins that are known."""
    total, bins = 0.0, 0
    for first, last in spans:
        added, known = track.total(first, last)
        total, bins = total + added, bins + known
    return total / bins if bins else None


def known_s(run: RunData, track: Track, first: int = 0, last: int | None = None) -> float:
    """So much time of the bins holds something."""
    return track.known_count(first, last) * run.bin_s


def growth_per_s(run: RunData, track: Track, seconds: float, least_s: float = 0.0) -> float | None:
    """Over the last `seconds`; None where less than `least_s` of them is known, or it shrinks."""
    first = max(0, run.count - run.bins(seconds))
    known = [(n, value) for n, value in enumerate(track.mean[first:]) if value == value]
    span_s = (known[-1][0] - known[0][0]) * run.bin_s if known else 0.0
    if not span_s or span_s < least_s:
        return None
    per_s = (known[-1][1] - known[0][1]) / span_s
    return per_s if per_s > 0 else None


def sustained(
    run: RunData,
    seconds: float,
    holds: Callable[[Sequence[float]], bool],
    tracks: Sequence[Track],
    first: int = 0,
) -> Held:
    """Where `holds` was true of the tracks' means over every window of `seconds`.

    Live only what lasts until now counts, so at most one span comes back, in whole windows; of an
    ended run every span, from the earliest, by windows that move by a fifth of their length, and
    none of them across a change of phase of any of the tracks.
    """
    return sustained_each(run, seconds, lambda means: [holds(means)], tracks, 1, first)[0]


def sustained_each(
    run: RunData,
    seconds: float,
    hold: Callable[[Sequence[float]], Sequence[bool]],
    tracks: Sequence[Track],
    count: int,
    first: int = 0,
) -> list[Held]:
    """As `sustained`, for `count` conditions over the same tracks; `hold` gives one bool each."""
    width = run.bins(seconds)
    most = width if run.live else max(1, width // _STEPS)
    step = next(n for n in range(most, 0, -1) if width % n == 0)
    spans: list[list[Span]] = [[] for _ in range(count)]
    open_ = list(range(count))  # live: those that held in every window up to now
    known = run.count - first < width
    lasts = range(run.count, first + width - 1, -step)
    windows = (_recent if run.live else _moving)(tracks, width, step, lasts)
    cuts = (
        [] if run.live else sorted({cut for each in tracks for cut in each.cuts(phase_bins(run))})
    )
    for last, means in zip(lasts, windows):
        while cuts and cuts[-1] >= last:
            cuts.pop()
        if cuts and cuts[-1] > last - width:
            continue
        known = known or means is not None
        true = hold(means) if means is not None else [False] * count
        for which in open_:
            if true[which]:
                _extend(spans[which], Span(last - width, last))
        if run.live:
            open_ = [which for which in open_ if true[which]]
            if not open_:
                break
    return [Held(each[::-1], known) for each in spans]


def phase_bins(run: RunData) -> int:
    return run.bins(PHASE_S)


def _extend(spans: list[Span], earlier: Span) -> None:
    """Add a span before the others; one with the last where they meet."""
    if spans and spans[-1].first <= earlier.last:
        spans[-1] = Span(earlier.first, spans[-1].last)
    else:
        spans.append(earlier)


_Means = Iterator["Sequence[float] | None"]


def _moving(tracks: Sequence[Track], width: int, step: int, lasts: range) -> _Means:
    """Means of the tracks over each window, the latest first; None where too little is known."""
    columns = [each.windows(width, step, lasts.start, MOST * width) for each in tracks]
    for means in zip(*columns):
        total = sum(means)
        yield means if total == total else None


def _recent(tracks: Sequence[Track], width: int, step: int, lasts: range) -> _Means:
    """The same window by window: of a live run few are asked for."""
    for last in lasts:
        means = []
        for track in tracks:
            total, known = track.total(last - width, last)
            if known < MOST * width:
                break
            means.append(total / known)
        yield means if len(means) == len(tracks) else None


# -- activity ------------------------------------------------------------------------------------


@once
def first_active(device: DeviceData) -> int | None:
    """The first bin in which the device worked."""
    return next((n for n, share in enumerate(device.active.mean) if share > 0), None)


@once
def last_active(device: DeviceData) -> int | None:
    active = device.active.mean
    return next((n for n in range(len(active) - 1, -1, -1) if active[n] > 0), None)


def active_share(device: DeviceData, first: int = 0, last: int | None = None) -> float | None:
    """Part of the known bins in which the device worked, 0 to 1."""
    if not first and last is None:
        return _active_share(device)
    return _positive_share(device.active.known(first, last))


@once
def _active_share(device: DeviceData) -> float | None:
    return _positive_share(device.active.known())


def _positive_share(known: Sequence[float]) -> float | None:
    return sum(share > 0 for share in known) / len(known) if known else None


def is_mostly_known(track: Track, span: Span) -> bool:
    return span.last > span.first and track.share(*span) >= MOST


def warm_up_end(run: RunData, device: DeviceData) -> int:
    """First bin after the warm-up: 120 s after start and first activity, at most 30 min.

    Where activity is never known, 120 s after the start.
    """
    most_s = WARM_UP_MOST_S if device.active.known_count() else WARM_UP_S
    worked = first_active(device)
    if worked is not None:
        at = run.grid_start + worked * run.bin_s
        most_s = min(most_s, max(0.0, at - run.start) + WARM_UP_S)
    return max(0, ceil((run.start + most_s - run.grid_start) / run.bin_s))


# -- power ---------------------------------------------------------------------------------------


@once
def power_limit_w(device: DeviceData) -> float | None:
    """The default limit where the device is capped below it."""
    facts = number(device.device.facts.get("power_limit_default_w"))
    known = [limit for limit in (facts, number(device.last.get("power_limit_w"))) if limit]
    return max(known) if known else None


@once
def idle_power_w(device: DeviceData) -> float | None:
    """5th percentile of power in bins without work, else 0.13 of the limit."""
    resting = [
        power
        for power, share in zip(device.track("power_w").mean, device.active.mean)
        if share == 0 and power == power
    ]
    if len(resting) >= 2:
        return quantiles(resting, n=20, method="inclusive")[0]
    limit = power_limit_w(device)
    return resting[0] if resting else limit * IDLE_POWER_SHARE if limit else None


def power_at(device: DeviceData, fraction: float) -> float | None:
    """The power in W that is this power fraction; None where `power_fraction` is."""
    limit, idle = power_limit_w(device), idle_power_w(device)
    if device.device.mig or limit is None or idle is None or limit <= idle:
        return None
    return idle + fraction * (limit - idle)


def power_fraction(device: DeviceData, power_w: float) -> float | None:
    """(P − P_idle) / (P_limit − P_idle) of a mean of at least 30 s (findings, 1.2).

    None without a limit, and for a MIG instance: its power is the whole device's.
    """
    idle, limit = power_at(device, 0.0), power_at(device, 1.0)
    return None if idle is None or limit is None else (power_w - idle) / (limit - idle)


# -- traffic -------------------------------------------------------------------------------------

LINKS = (
    "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s",
)  # fmt: skip


def link_tracks(device: DeviceData) -> list[Track]:
    """PCIe and NVLink, those that were read."""
    return [device.tracks[name] for name in LINKS if device.track(name).known_count()]


def io_tracks(run: RunData, node_name: str) -> list[Track]:
    """The job's reading and writing on a node, where it is known."""
    return [
        node.job[name]
        for node in run.nodes
        for name in ("read_bytes_per_s", "write_bytes_per_s")
        if node.node == node_name and name in node.job
    ]


def capability(device: DeviceData) -> float | None:
    """The compute capability, 8.6; None where it is not known."""
    try:
        return float(str(device.device.facts.get("compute_capability")))
    except ValueError:
        return None


# -- processes -----------------------------------------------------------------------------------

#: of a job or partition; `ood` as a word: Open OnDemand, and not "good"
_INTERACTIVE_NAME = re.compile(
    r"interactive$|sys/dashboard/|(.*[^a-z])?(ood|vnc|rserver)([^a-z]|$)"
    r"|.*(jupyter|rstudio|code-?server|vs-?code)",
    re.IGNORECASE,
)
#: what people work in; not the editor that a user attaches to a job by ssh
_SESSION_PROGRAM = re.compile(
    r"r(studio-?)?server|rsession|jupyterhub-singleuser|jupyter-?(lab|notebook|server)|notebook"
    r"|(openvs)?code-server|code-tunnel|X?(tiger|tight|turbo)?vnc(server)?",
    re.IGNORECASE,
)
_SESSION_COMMAND = re.compile(r".*(\bcode tunnel|\bjupyter (lab|notebook|server)\b|ipykernel)")
#: run a notebook from its first cell to its last, as a script
_NOTEBOOK_RUNNER = re.compile(r"papermill|nbconvert")
_SESSION = re.compile(r"\S*salloc\b|\S*srun\b.*\s--pty\b|.*\bjupyter", re.IGNORECASE)
_SERVERS = (
    "vllm", "ollama", "tritonserver", "text-generation-launcher", "text-generation-server",
    "sglang", "text-embeddings-router", "infinity_emb", "llama-server", "llama_cpp.server",
    "torchserve", "lmdeploy serve", "heavydb",
)  # fmt: skip
_DEVICE_SERVICES = ("Xorg", "Xwayland", "nvidia-cuda-mps", "nv-hostengine", "dcgm")


def is_of_job(process: Process) -> bool:
    """In the job's cgroup, or the user's own, or it cannot be told whose it is."""
    if process.name.startswith(_DEVICE_SERVICES):
        return False
    return process.in_job or process.own or bool(process.note)


def job_processes(device: DeviceData) -> list[ProcessData]:
    return [each for each in device.processes if is_of_job(each.facts)]


def all_processes(device: DeviceData) -> list[ProcessData]:
    """All that were on it, but services of the device itself."""
    return [e for e in device.processes if not e.facts.name.startswith(_DEVICE_SERVICES)]


def is_shared(device: DeviceData) -> bool:
    """Whether another user's process was on it, so that its use is not the job's alone."""
    return any(not is_of_job(each.facts) for each in all_processes(device))


def is_notebook(process: Process) -> bool:
    return "ipykernel" in process.command


def is_interactive(run: RunData, devices: Iterable[DeviceData]) -> bool:
    """By the name of the job (as jobstats does) or of its partition, by how it was submitted, or by
    its programs: a notebook's kernel on these devices, or what people work in on its nodes.
    """
    return _is_for_people(run) or any(
        is_notebook(each.facts) for device in devices for each in job_processes(device)
    )


@once
def _is_for_people(run: RunData) -> bool:
    job = run.job or Job()
    if _SESSION.match(job.submit_line):
        return True
    names = [job.name, job.partition]
    names += [node.header.job.name for node in run.nodes if node.header.job]
    return any(map(_INTERACTIVE_NAME.match, names)) or _runs_session(run)


def _runs_session(run: RunData) -> bool:
    shown = [facts for node in run.nodes for facts, _ in node.processes.values()]
    known = [each for each in shown if each.in_job or each.own]
    if any(_NOTEBOOK_RUNNER.search(each.command) for each in known):
        return False
    return any(map(_is_session, known))


def _is_session(process: Process) -> bool:
    if _SESSION_COMMAND.match(process.command):
        return True
    words = [word.rpartition("/")[2] for word in process.command.split(maxsplit=3)[:3]]
    return any(map(_SESSION_PROGRAM.fullmatch, (process.name, *words)))


@once
def is_server(device: DeviceData) -> bool:
    """A process answers requests: that it waits for them is its work."""
    return any(
        server in word
        for each in job_processes(device)
        for server in _SERVERS
        for word in (*each.frameworks, each.facts.framework, each.facts.command.lower())
    )
