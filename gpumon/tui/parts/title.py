"""The first row: whose numbers these are, how old, and how they came."""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

from gpumon.model import clock
from gpumon.model.text import clean
from gpumon.model.units import age_text, plural, span_text
from gpumon.model.view import Silence
from gpumon.slurm.states import HELD_STATES
from gpumon.store import NodeView
from gpumon.tui.jobs import elapsed_s, job_id, restart_text
from gpumon.tui.lines import Row, row_width, spread
from gpumon.tui.moment import Moment
from gpumon.tui.picture import width_of

#: columns from which the right side says all; what is left of it gives way
_WIDE = 100


def short_name(name: str) -> str:
    """`A100-SXM4-80GB` for `NVIDIA A100-SXM4-80GB`."""
    for maker in ("NVIDIA GeForce ", "NVIDIA ", "Tesla ", "GeForce "):
        name = name.removeprefix(maker)
    return name


def devices_text(names: list[str]) -> str:
    """`8 × A100-SXM4-80GB`, `4 × H200 + 2 × L40S`."""
    counts: Counter[str] = Counter()
    for name, count in Counter(names).items():
        counts[short_name(name) or "unknown device"] += count
    return " + ".join(f"{count} × {name}" for name, count in counts.items())


def title_row(moment: Moment, width: int) -> Row:
    """The job, else the node; of several nodes how many there are."""
    nodes = [node for node in moment.nodes if node.header is not None]
    left: Row = [(" gpumon ", "title")]
    if not nodes and moment.job is None:
        doing = "starting the collectors"
        if moment.nodes:
            doing = f"connecting to {plural(len(moment.nodes), 'node')}"
        return spread([*left, (f" {doing} …", "dim")], [], width)
    about = _job_parts(moment, nodes, left)
    names = [device.device.name for _, device in moment.devices if device.device.mig is None]
    names = names or [device.device.name for _, device in moment.devices]
    if names:
        about.append(devices_text(names))
    if len(nodes) == 1 and moment.job_of(nodes[0]) is None and (header := nodes[0].header):
        about += [f"driver {header.driver}"] if header.driver else []
        about += [f"CUDA {header.cuda}"] if header.driver and header.cuda else []
    right = _right(moment, width)
    room = width - row_width(left) - row_width(right) - len("   ")
    left.append(("  " + " · ".join(_fitting([text for text in about if text], room)), "dim"))
    return spread(left, right, width)


def _fitting(parts: list[str], room: int) -> list[str]:
    """Those that have room, in their order, each whole; the last ones matter most."""
    shown: list[str] = []
    for part in reversed(parts):
        if width_of(" · ".join([part, *shown])) <= room:
            shown.insert(0, part)
    return shown


def _job_parts(moment: Moment, nodes: list[NodeView], left: Row) -> list[str]:
    """The job's identity goes to `left`; the rest is returned."""
    job = moment.job
    inside = moment.job_of(nodes[0]) if nodes else None
    if job is not None:
        left += [(f" {job_id(job)}", "title"), (f" {clean(job.name, 60)}", "")]
        where = clean(job.node_list, 60) or _where(nodes)
        state = [clean(job.state, 40), restart_text(job)]
        return [clean(job.user, 40), clean(job.partition, 40), *state, where]
    if inside is not None:
        left += [(f" {inside.id}", "title"), (f" {inside.name}", "")]
        where = inside.nodes if len(nodes) > 1 and inside.nodes else _where(nodes)
        return [inside.user, inside.partition, where]
    left += [(f" {_where(nodes)}", "title")]
    return []


def _where(nodes: list[NodeView]) -> str:
    return nodes[0].name if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else ""


def _right(moment: Moment, width: int) -> Row:
    shown = moment.now if moment.player is not None else clock.wall(moment.now)
    label = time.strftime("%H:%M:%S", time.localtime(shown))
    right: Row = []
    if moment.silence is not None:
        right.append((f"{_silence(moment, moment.silence, brief=width < _WIDE)} · ", "bad"))
    if moment.not_recorded:
        why = next(iter(moment.not_recorded.values())).why
        brief = width < _WIDE
        right.append(("not recorded · " if brief else f"not recorded: {clean(why, 60)} · ", "bad"))
    if moment.is_frozen:
        right.append(("frozen · ", "attention"))
    elif moment.has_ended:
        right.append(("ended · ", "dim"))
    else:
        right += _streams(moment, brief=width < _WIDE)
    player = moment.player
    if player is not None:
        how = "end" if player.at_end else "replay"
        if player.seeking:
            how = f"seeking {100 * player.progress:.0f} % (Esc stops)"
        elif player.paused and not player.at_end:
            how = "paused"
        speed = f" ×{player.speed:g}" if player.speed != 1 else ""
        played = age_text(moment.now - player.origin)
        if player.end is not None and width >= _WIDE:
            played += f" of {span_text(player.end - player.origin)}"
        right.append((f"{how}{speed} {played} · ", "attention" if how == "paused" else "dim"))
    elif any(moment.status(node).source == "replay" for node in moment.nodes):
        right.append(("replay · ", "dim"))
    interval_s = max((node.interval_s for node in moment.nodes), default=0.0)
    right += [(f"{interval_s:g} s · " if interval_s else "", "dim"), (label, ""), (" ", "")]
    return right


def _silence(moment: Moment, silence: Silence, *, brief: bool) -> str:
    """`Slurm not responding for 4 min, state as of 12:31`."""
    ago = age_text(moment.now - silence.since)
    if brief:
        return f"Slurm silent {ago}"
    as_of = time.strftime("%H:%M", time.localtime(clock.wall(silence.since)))
    return f"Slurm not responding for {ago}, state as of {as_of}"


def _streams(moment: Moment, *, brief: bool) -> Row:
    """What is not live: of one node its state, of several how many of each, or of all."""
    found = [moment.status(node) for node in moment.nodes]
    if moment.job is not None and moment.job.state in HELD_STATES:  # agents stand still with it
        found = [status for status in found if status.state != "stale"]
    if len(found) == 1:
        status = found[0]
        if status.state == "stale":
            return [(f"{status.detail} · ", "bad")]
        if status.state in ("lost", "ended"):
            return [(f"{status.state} · ", "bad" if status.state == "lost" else "dim")]
        return []
    counts = Counter(status.state for status in found)
    roles = {"lost": "bad", "stale": "bad", "connecting": "attention", "ended": "dim"}
    shown = [(name, role) for name, role in roles.items() if counts[name]]
    if brief and shown:
        return [(f"{counts['live']} of {len(found)} live · ", shown[0][1])]
    return [(f"{counts[name]} of {len(found)} {name} · ", role) for name, role in shown]


class _Times(NamedTuple):
    """Of the job: how long it has run, its limit, and when that ends it; s and epoch s."""

    elapsed_s: float
    limit_s: float | None
    end: float | None
    left_s: float
    is_held: bool = False  # suspended: its end is not known


def _times(moment: Moment) -> _Times | None:
    job = moment.job
    if job is not None:
        elapsed = elapsed_s(job, moment.now)
        if elapsed is None:
            return None
        limit = job.time_limit_s
        end = None if job.has_ended else job.end
        if limit is None and end is not None and job.start is not None:
            limit = end - job.start
        if job.elapsed_at(moment.now) is not None and limit:  # as Slurm counts, also of a held one
            left_s = limit - elapsed
        else:
            left_s = 0.0 if end is None else end - moment.now
        return _Times(elapsed, limit or None, end, left_s, job.state in HELD_STATES)
    inside = next((found for node in moment.nodes if (found := moment.job_of(node))), None)
    if inside is None or inside.start is None:
        return None
    limit = inside.end - inside.start if inside.end is not None else 0.0
    elapsed = max(0.0, moment.now - inside.start)
    return _Times(elapsed, limit if limit > 0 else None, inside.end, limit - elapsed)


def time_row(moment: Moment, width: int) -> Row | None:
    """Elapsed of the limit, with a bar and the end; None outside a job with known times."""
    times = _times(moment)
    if times is None:
        return None
    elapsed, limit = times.elapsed_s, times.limit_s
    if limit is None:
        return [(" time    ", "dim"), (age_text(elapsed), "")]
    share = min(1.0, elapsed / limit)
    role = "bar"
    tail = f" {span_text(limit)}  {share * 100:.0f} %"
    if times.end is not None:
        left_s = max(0.0, times.left_s)
        role = "bad" if left_s < 300 else "attention" if left_s < 1800 else "bar"
        ends = f"ends {time.strftime('%a %H:%M', time.localtime(times.end))}"
        tail += f"  {'suspended' if times.is_held else ends}, {age_text(left_s)} left"
    head = f" time    {age_text(elapsed)} "
    room = max(4, width - len(head) - len(tail) - 1)
    done = round(share * room)
    full, rest = ("=", "-") if moment.glyphs == "ascii" else ("━", "─")
    return [
        (head[:9], "dim"),
        (head[9:], ""),
        (full * done, role),
        (rest * (room - done), "track"),
        (tail, "dim"),
    ]
