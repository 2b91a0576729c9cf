"""The first row: whose numbers these are, how old, and how they came."""

from __future__ import annotations

import time
from collections import Counter

from gpumon.model.units import age_text, clock_text
from gpumon.store import NodeView
from gpumon.tui.lines import Row, spread
from gpumon.tui.state import ViewState


def short_name(name: str) -> str:
    """`A100-SXM4-80GB` for `NVIDIA A100-SXM4-80GB`."""
    for maker in ("NVIDIA GeForce ", "NVIDIA ", "Tesla ", "GeForce "):
        name = name.removeprefix(maker)
    return name


def devices_text(names: list[str]) -> str:
    """`8 × A100-SXM4-80GB`, `4 × H200 + 2 × L40S`."""
    counts = Counter(short_name(name) or "unknown device" for name in names)
    return " + ".join(f"{count} × {name}" for name, count in counts.items())


def title_row(state: ViewState, width: int) -> Row:
    node = state.nodes[0] if state.nodes else None
    left: Row = [(" gpumon ", "title")]
    if node is None or node.header is None:
        return spread([*left, (" starting the collectors …", "dim")], [], width)
    header = node.header
    names = [device.device.name for _, device in state.devices if device.device.mig is None]
    names = names or [device.device.name for _, device in state.devices]
    job = state.job_of(node)
    if job is not None:
        left += [(f" {job.id}", "title"), (f" {job.name}", "")]
        about = [job.user, job.partition, header.node]
    else:
        left += [(f" {header.node}", "title")]
        about = []
    if names:
        about.append(devices_text(names))
    if job is None and header.driver:
        about.append(f"driver {header.driver}")
        if header.cuda:
            about.append(f"CUDA {header.cuda}")
    left.append(("  " + " · ".join(text for text in about if text), "dim"))
    return spread(left, _right(state, node), width)


def _right(state: ViewState, node: NodeView) -> Row:
    clock = time.strftime("%H:%M:%S", time.localtime(state.now))
    status = node.status(state.now)
    right: Row = []
    if state.frozen_at is not None:
        right.append(("frozen · ", "attention"))
    elif status.state == "stale":
        right.append((f"{status.detail} · ", "bad"))
    elif status.state in ("lost", "ended"):
        right.append((f"{status.state} · ", "bad" if status.state == "lost" else "dim"))
    player = state.player
    if player is not None:
        how = "seeking" if player.seeking else "end" if player.at_end else "replay"
        if player.paused and not player.at_end:
            how = "paused"
        speed = f" ×{player.speed:g}" if player.speed != 1 else ""
        played = clock_text(state.now - player.origin)
        right.append((f"{how}{speed} {played} · ", "attention" if how == "paused" else "dim"))
    elif status.source == "replay":
        right.append(("replay · ", "dim"))
    right += [(f"{node.interval_s:g} s · ", "dim"), (clock, ""), (" ", "")]
    return right


def time_row(state: ViewState, width: int, glyphs: str) -> Row | None:
    """Elapsed of the limit, with a bar and the end; None outside a job with known times."""
    node = state.nodes[0] if state.nodes else None
    job = state.job_of(node) if node else None
    if job is None or job.start is None:
        return None
    elapsed = max(0.0, state.now - job.start)
    if job.end is None or job.end <= job.start:
        return [(" time    ", "dim"), (clock_text(elapsed), "")]
    limit = job.end - job.start
    share = min(1.0, elapsed / limit)
    left_s = max(0.0, job.end - state.now)
    role = "bad" if left_s < 300 else "attention" if left_s < 1800 else "bar"
    ends = time.strftime("%a %H:%M", time.localtime(job.end))
    tail = f" {clock_text(limit)}  {share * 100:.0f} %  ends {ends}, {age_text(left_s)} left"
    head = f" time    {clock_text(elapsed)} "
    room = max(4, width - len(head) - len(tail) - 1)
    done = round(share * room)
    full, rest = ("=", "-") if glyphs == "ascii" else ("━", "─")
    return [
        (head[:9], "dim"),
        (head[9:], ""),
        (full * done, role),
        (rest * (room - done), "track"),
        (tail, "dim"),
    ]
