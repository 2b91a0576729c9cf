"""Processes as entries of a table: sorted, filtered, or as a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gpumon.model.reading import NOT_SAMPLED, Missing, Reading, number
from gpumon.model.sample import Key
from gpumon.model.view import ProcessView
from gpumon.store import NodeView
from gpumon.tui import columns
from gpumon.tui.parts.phrasing import FRAMEWORK_NAMES
from gpumon.tui.screens.processes.filter import matches, parse_filter

#: the process of the extern step that Slurm starts to hold it (slurmstepd's mgr.c)
_EXTERN_COMMAND = "sleep 100000000"
_LABEL_CELLS = 8  # `2` before `10`


class Entry(NamedTuple):
    """One row of the table: a process. Its node is asked for a reading when that is seen or sorted
    by; `told` holds what it said. `process` is without readings; `labels`: of the node's devices.
    """

    node: NodeView
    process: ProcessView
    labels: dict[int, str]
    now: float
    told: dict[str, Reading]
    depth: int = 0

    @property
    def identity(self) -> tuple[str, int]:
        return self.node.name, self.process.facts.pid

    @property
    def devices(self) -> list[str]:
        """Labels of the devices that it is on."""
        return [self.labels.get(key, str(key)) for key in sorted(self.process.usage)]

    @property
    def place(self) -> Reading:
        """That it is sorted by: its devices in their order."""
        return ",".join(label.rjust(_LABEL_CELLS) for label in self.devices) or NOT_SAMPLED

    @property
    def mem(self) -> Reading:
        """Of all its devices together."""
        return self._once("mem_bytes", lambda name: self._together(name, sum))

    @property
    def sm(self) -> Reading:
        """Of the device on which it is most."""
        return self._once("sm_percent", lambda name: self._together(name, max))

    def reading(self, name: str) -> Reading:
        """One that is not of a device."""
        return self._once(name, lambda name: self._ask("process", self.process.facts.pid, name))

    def _once(self, name: str, ask: Callable[[str], Reading]) -> Reading:
        if name not in self.told:
            self.told[name] = ask(name)
        return self.told[name]

    def _ask(self, entity: str, key: Key, name: str) -> Reading:
        latest = self.node.latest(entity, key, name, self.now)
        if latest.fresh or isinstance(latest.reading, Missing):
            return latest.reading
        return Missing("stale")

    def _together(self, name: str, join: Callable[[list[float]], float]) -> Reading:
        """One number of several devices; missing if one of them is: a partial sum misleads."""
        values = []
        for device in self.process.usage:
            reading = self._ask("usage", (device, self.process.facts.pid), name)
            value = number(reading)
            if value is None:
                return reading
            values.append(value)
        return join(values) if values else NOT_SAMPLED


class Listing(NamedTuple):
    """Of one node: what the table may show, and how many processes are none of the user's."""

    entries: list[Entry]
    plumbing: int


class Column(NamedTuple):
    """`get`: what it is sorted by; numbers may be missing, which comes last.

    usual: as wide as it mostly becomes, so that columns seldom move.
    """

    name: str
    look: columns.Column
    get: Callable[[Entry], Reading]
    usual: str = ""
    descending: bool = True

    def key(self, entry: Entry) -> tuple[bool, float | str]:
        value = self.get(entry)
        if isinstance(value, Missing):
            return not self.descending, 0.0
        return self.descending, value


def framework_name(entry: Entry) -> str:
    """`PyTorch`; "" where it is not known, or only that it uses CUDA."""
    name = entry.process.facts.framework
    return "" if name == "cuda-other" else FRAMEWORK_NAMES.get(name, "")


def _right(title: str, rank: int = 0) -> columns.Column:
    return columns.Column(title, rank, right=True)


COLUMNS = (
    Column("pid", _right("PID"), lambda entry: entry.process.facts.pid, "123456", False),
    Column("user", columns.Column("user", 3, most=12),
           lambda entry: entry.process.facts.user, "", False),
    Column("node", columns.Column("node", most=16, least=8),
           lambda entry: entry.node.name, "", False),
    Column("gpu", columns.Column("GPU", most=9), lambda entry: entry.place, "", False),
    Column("framework", columns.Column("framework", 5), framework_name, "", False),
    Column("mem", _right("GPU memory"), lambda entry: entry.mem, "77.7 GiB"),
    Column("sm", _right("SM", 2), lambda entry: entry.sm, "100 %"),
    Column("cpu", _right("CPU"), lambda entry: entry.reading("cpu_percent"), "100 %"),
    Column("rss", _right("memory", 6), lambda entry: entry.reading("rss_bytes"), "77.7 GiB"),
    Column("threads", _right("threads", 7), lambda entry: entry.reading("threads")),
    Column("time", _right("age", 4), lambda entry: -entry.process.facts.start, "59 min"),
)  # fmt: skip
SORTS = tuple(column.name for column in COLUMNS)


class Order(NamedTuple):
    """How the processes are listed, and which."""

    sort: str
    reverse: bool = False
    tree: bool = False
    filter_text: str = ""


def ordered(listings: Iterable[Listing], order: Order) -> list[Entry]:
    found = [entry for listing in listings for entry in listing.entries]
    terms, _ = parse_filter(order.filter_text)
    if terms:
        fields = {term.field for term in terms}
        found = [entry for entry in found if matches(terms, *_filterable(entry, fields))]
    found = in_order(found, order)
    return _as_tree(found) if order.tree else found


def in_order(found: Iterable[Entry], order: Order) -> list[Entry]:
    """Sorted, whatever the rest of the order says."""
    column = next(column for column in COLUMNS if column.name == order.sort)
    found = sorted(found, key=lambda entry: entry.process.facts.pid)
    return sorted(found, key=column.key, reverse=column.descending != order.reverse)


def entries_on(node: NodeView, device: int, now: float) -> list[Entry]:
    """The processes on one device that live, and of their usage what is there."""
    return [
        each._replace(process=each.process._replace(usage={device: {}}))
        for each in listing(node, now).entries
        if device in each.process.usage and each.process.ended is None
    ]


def listing(node: NodeView, now: float) -> Listing:
    labels = {device.key: device.device.label for device in node.devices()}
    every = node.processes(None)
    shown = [Entry(node, each, labels, now, {}) for each in every if not _is_plumbing(node, each)]
    return Listing(shown, len(every) - len(shown))


def _is_plumbing(node: NodeView, process: ProcessView) -> bool:
    """Slurm's own processes of a step, and the agent itself, if they use no device."""
    if process.usage:
        return False
    facts = process.facts
    agent = node.header.agent_pid if node.header is not None else 0
    holds_extern = facts.uid == 0 and facts.command == _EXTERN_COMMAND
    return facts.pid == agent or facts.name == "slurmstepd" or holds_extern


def _filterable(entry: Entry, fields: set[str]) -> tuple[dict[str, str], dict[str, list[float]]]:
    """All texts, and of the numbers those of `fields`."""
    facts = entry.process.facts
    state = entry.reading("state")
    texts = {
        "user": facts.user,
        "command": f"{facts.command} {facts.name}",
        "node": entry.node.name,
        "framework": f"{facts.framework} {FRAMEWORK_NAMES.get(facts.framework, '')}",
        "state": "" if state == NOT_SAMPLED else str(state),
    }
    numbers = {
        column.name: [value]
        for column in COLUMNS
        if column.name in fields and (value := number(column.get(entry))) is not None
    }
    if "gpu" in fields:
        numbers["gpu"] = [float(each.split(":")[-1].split("/")[0]) for each in entry.devices]
    return texts, numbers


def _as_tree(found: list[Entry]) -> list[Entry]:
    """Children behind their parents, in the order of the sort among siblings."""
    by_id = {entry.identity: entry for entry in found}
    children: dict[tuple[str, int], list[Entry]] = {}
    roots = []
    for entry in found:
        parent = (entry.node.name, entry.process.facts.ppid)
        if parent in by_id and parent != entry.identity:
            children.setdefault(parent, []).append(entry)
        else:
            roots.append(entry)
    ordered: list[Entry] = []
    seen: set[tuple[str, int]] = set()
    stack = [(entry, 0) for entry in reversed(roots)]
    while stack:
        entry, depth = stack.pop()
        if entry.identity in seen:
            continue
        seen.add(entry.identity)
        ordered.append(entry._replace(depth=depth))
        below = children.get(entry.identity, [])
        stack += [(child, depth + 1) for child in reversed(below)]
    # a cycle of forged parents has no root: such rows are shown flat
    return ordered + [entry for entry in found if entry.identity not in seen]
