"""GPUs that wait for their node: what the rules on that share."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from math import nan
from statistics import correlation, fmean

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.ledger import IDLE, ledger_of, runs_of
from gpumon.analysis.rules.gpu_ineffective import Shown
from gpumon.analysis.rules.phrasing import SHARED, missing, unread
from gpumon.analysis.rundata import DeviceData, NodeData, RunData, Track
from gpumon.analysis.signals import (
    Held,
    Span,
    busy_track,
    devices_on,
    first_active,
    is_interactive,
    is_server,
    is_shared,
    job_devices,
    job_processes,
    mean_of,
    node_of,
)

#: of a live run so much is looked at for whether host and GPU work in turns
_ALTERNATES_S = 3600.0
_MORE_IN_DIPS = 1.2
_TURNS = 4
#: s: without work, a GPU pauses; since its first work, a running job has settled (proposed)
_PAUSE_S, _SETTLED_S = 60.0, 900.0
#: bytes per second from which on a job moves data (also where only others wait for their disks)
MOVES_BYTES_PER_S = 1e6
NO_CORES = "the job's number of cores is unknown"

_Look = Callable[[DeviceData, NodeData], tuple[Held, str]]


def by_node(run: RunData, look: _Look) -> Iterator[NotEvaluable | tuple[NodeData, str, Shown]]:
    """(node, variant, the devices that wait there); and what is unknown of others.

    None of servers, which wait for requests, and of interactive jobs, which wait for people. Of a
    GPU that another user's process worked on too, it is unknown how busy the job kept it.
    """
    devices = [each for each in job_devices(run) if not is_server(each)]
    groups: dict[tuple[str, str], tuple[NodeData, str, Shown]] = {}
    for device in () if is_interactive(run, devices) else devices:
        node = node_of(run, device)
        if node is None:
            continue
        if is_shared(device):
            yield missing(device, SHARED)
            continue
        held, variant = look(device, node)
        if held.spans:
            busy = mean_of(busy_track(device), held.spans) or 0.0
            group = groups.setdefault((node.node, variant), (node, variant, Shown()))
            group[2].add(device, held.spans, busy_percent=busy)
        elif not held.known:
            yield missing(device, variant) if variant else unread(device, "busy_percent")
    yield from groups.values()


def level_of(run: RunData, shown: Shown) -> str:
    """A warning; in a running job that began its work minutes ago information: it may still
    prepare its data.
    """
    begun = [first for each in shown.devices if (first := first_active(each)) is not None]
    worked_s = (run.count - min(begun, default=0)) * run.bin_s
    return "info" if run.live and worked_s < _SETTLED_S else "warning"


def busy_between_pauses(run: RunData, device: DeviceData) -> Track:
    """Busy, but unknown where the device rested for a minute and longer: who waits for a thread
    works again and again. A pause is a checkpoint, or a phase without GPU work, which `idle-time`
    is about.
    """
    values = array("f", busy_track(device).mean)
    row = ledger_of(run).row_of(device.label)
    for first, last in runs_of([state in IDLE for state in row.states]) if row else ():
        if last - first >= run.bins(_PAUSE_S):
            values[first:last] = array("f", [nan]) * (last - first)
    return Track(values)


def in_turns(run: RunData, node: NodeData, device: DeviceData, spans: Sequence[Span]) -> str:
    """What the host does while the GPU does not: `computes`, `fetches`, "" where neither shows, or
    `unknown`: which of them, depends on how many cores there are.

    In turns, at least two dips and the work between; anticorrelated by ≤ −0.3 over the bins; and a
    fifth more cores work in the dips than beside them, because few bins of noise correlate by
    chance. With half of the cores (at least 4) in the dips it computes there (an optimizer on the
    CPU, environments of reinforcement learning); else it fetches or prepares data, unless the job
    is known to read less than 1 MB/s.
    """
    track = node.job.get("cpu_cores_used")
    if track is None:
        return ""
    recent = run.bins(_ALTERNATES_S) if run.live else run.count
    pairs = [
        (busy, cores)
        for first, last in (Span(max(first, last - recent), last) for first, last in spans)
        for busy, cores in zip(busy_track(device).mean[first:last], track.mean[first:last])
        if busy == busy and cores == cores
    ]
    if len(pairs) < 6:
        return ""
    busy_values, core_values = zip(*pairs)
    if len(set(busy_values)) < 2 or len(set(core_values)) < 2:  # no correlation is defined
        return ""
    if correlation(busy_values, core_values) > -0.3:
        return ""
    middle = fmean(busy_values)
    dips = fmean(cores for busy, cores in pairs if busy <= middle)
    working = [busy > middle for busy in busy_values]
    if sum(a != b for a, b in zip(working, working[1:])) < _TURNS:
        return ""
    if dips < _MORE_IN_DIPS * fmean(cores for busy, cores in pairs if busy > middle):
        return ""
    if dips >= 4.0:
        if node.cpus is None:
            return "unknown"  # half of how many?
        if dips >= 0.5 * node.cpus:
            return "computes"
    reads = mean_of(node.job.get("read_bytes_per_s", Track()), spans)
    return "" if reads is not None and reads < MOVES_BYTES_PER_S else "fetches"


def says(shown: Shown, verb: str, rest: str) -> str:
    return f"{verb}{'s' if len(shown.devices) == 1 else ''} {rest}: "


def beside_share(run: RunData, node: NodeData, spans: Sequence[Span]) -> float | None:
    """Part of the CPU use that is of processes not on the GPUs: of workers and not of the program
    itself. None where no process is known.
    """
    ranks = {each.facts.pid for on in devices_on(run, node) for each in job_processes(on)}
    used = {pid: mean_of(cpu, spans) or 0.0 for pid, (_, cpu) in node.processes.items()}
    in_all = sum(used.values())
    return sum(used[pid] for pid in used.keys() - ranks) / in_all if in_all else None
