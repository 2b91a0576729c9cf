"""The host of a node over time, for what a job needs of it: cores, memory, disks and network.

What is of the node and what of the job stands beside each other, each with its name.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.model.reading import Missing, number
from gpumon.model.units import bytes_text, rate_text
from gpumon.store import NodeView
from gpumon.tui.lines import Row, add_run
from gpumon.tui.moment import Moment
from gpumon.tui.parts.aligned import Fact
from gpumon.tui.parts.lanes import Lane, lane_of, short_bytes
from gpumon.tui.values import Format, percent, shown, value_of

_BARS = "▁▁▂▃▄▅▆▇▇█"  # of a CPU, by the tenths of its time
_SIGNS = {"-": " ", "?": "·"}
_LEAST_RATE = float(1 << 20)  # B/s that a scale ends at
_INTERFACES = 2  # those with the most traffic
_NAME_CELLS = 10  # of an interface


def core_rows(moment: Moment, node: NodeView, width: int) -> list[Row]:
    """A bar for each CPU of the node, those of the job in colour, under a line that says so."""
    levels = node.latest("host", "", "core_levels", moment.now)
    if not isinstance(levels.reading, str) or not levels.fresh:
        return []
    facts = node.header.facts if node.header is not None else {}
    known = facts.get("job_cpus")
    own = _cpus(known) if isinstance(known, str) and moment.job_of(node) is not None else set()
    count = sum(level != "-" for level in levels.reading)
    about = f", {len(own)} of them the job's ({known})" if own and len(own) < count else ""
    rows: list[Row] = [[(f" {count} CPUs{about}", "dim")]]
    gap = " " if 2 * len(levels.reading) < width else ""
    each = max(1, (width - 2) // (1 + len(gap)))
    for start in range(0, len(levels.reading), each):
        row: Row = [(" ", "")]
        for cpu, level in enumerate(levels.reading[start : start + each], start):
            role = "busy" if not own or cpu in own else "dim"
            text = (level if moment.glyphs == "ascii" else _bar(level)) + gap
            add_run(row, text, role)
        rows.append(row)
    return rows


def _bar(level: str) -> str:
    return _BARS[int(level)] if level.isdecimal() else _SIGNS.get(level, "·")


def _cpus(text: str) -> set[int]:
    """`0-3,8`; nothing of what is odd."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), 1 << 16) + 1))
    return found


def host_lanes(moment: Moment, node: NodeView) -> list[Lane]:
    """Those of which anything is known; related ones are neighbours."""
    found = [*_cpu(moment, node), *_memory(moment, node), *_rates(moment, node)]
    return [lane for lane in found if _is_known(node, lane)]


def _is_known(node: NodeView, lane: Lane) -> bool:
    return node.first_time(lane.entity, lane.key, lane.layers[0].field) is not None


def _cpu(moment: Moment, node: NodeView) -> Iterator[Lane]:
    now = moment.now
    yield lane_of(node, "host", "", "cpu_percent", "node CPU", "busy", percent, 100.0, "100", now)
    job = moment.job_of(node)
    cores = float(job.cpus) if job is not None and job.cpus else 0.0
    cores = max(1.0, cores, node.peak("job", "", "cpu_cores_used", past=True) or 0.0)
    yield lane_of(
        node, "job", "", "cpu_cores_used", "job CPU", "busy", _cores, cores, f"{cores:.0f}", now
    )


def _cores(value: float) -> str:
    return f"{value:.1f} cores"


def _memory(moment: Moment, node: NodeView) -> Iterator[Lane]:
    """In use, and the page cache, which is given back when memory is short."""
    facts = node.header.facts if node.header is not None else {}
    limit = moment.mem_limit(node)
    for entity, total in (("host", number(facts.get("mem_total_bytes"))), ("job", limit)):
        name = "node" if entity == "host" else "job"
        fields = (("mem_used_bytes", "memory", "mem"), ("mem_cache_bytes", "cache", "third"))
        for field, what, role in fields:
            high = total or max(1.0, node.peak(entity, "", field, past=True) or 0.0)
            yield lane_of(
                node, entity, "", field, f"{name} {what}", role, bytes_text, high,
                short_bytes(high), moment.now,
            )  # fmt: skip


def _rates(moment: Moment, node: NodeView) -> Iterator[Lane]:
    """What the job reads and writes, what local disks do, and the node's network."""
    pairs = [
        ("job", "", ("read_bytes_per_s", "write_bytes_per_s"), ("job reads", "job writes")),
        (
            "host",
            "",
            ("disk_read_bytes_per_s", "disk_write_bytes_per_s"),
            ("node reads", "node writes"),
        ),
        *(
            ("net", name, ("rx_bytes_per_s", "tx_bytes_per_s"), (f"{label} ↓", f"{label} ↑"))
            for name in _interfaces(node)
            for label in (name[:_NAME_CELLS],)
        ),
    ]
    for entity, key, fields, labels in pairs:
        peaks = [node.peak(entity, key, field, past=True) or 0.0 for field in fields]
        high = max(_LEAST_RATE, *peaks)
        for field, label, role in zip(fields, labels, ("busy", "mem")):
            yield lane_of(
                node, entity, key, field, label, role, rate_text, high, short_bytes(high),
                moment.now,
            )  # fmt: skip


def _interfaces(node: NodeView) -> list[str]:
    names = [key for key in node.keys("net") if isinstance(key, str)]

    def traffic(name: str) -> float:
        ways = ("rx_bytes_per_s", "tx_bytes_per_s")
        return sum(node.peak("net", name, way) or 0.0 for way in ways)

    most = sorted(names, key=traffic, reverse=True)[:_INTERFACES]
    return [name for name in names if name in most]


def host_facts(moment: Moment, node: NodeView) -> Iterator[Fact]:
    """What has no course: load and waiting of the node, and how full its file systems are."""
    for label, field, form in _READINGS:
        latest = node.latest("host", "", field, moment.now)
        if not isinstance(latest.reading, Missing):
            yield label, shown(latest, form)
    for key in node.keys("disk"):
        used = node.latest("disk", key, "used_bytes", moment.now)
        total = value_of(node.latest("disk", key, "total_bytes", moment.now))
        text, role = shown(used, bytes_text)
        value = value_of(used)
        share = f" ({value / total * 100:.0f} % full)" if value is not None and total else ""
        yield str(key), (text + share, role)


_READINGS: tuple[tuple[str, str, Format], ...] = (
    ("load", "load1", lambda value: f"{value:.1f}"),
    ("waiting for I/O", "iowait_percent", percent),
    ("swap", "swap_used_bytes", bytes_text),
)
