"""All processes: on the devices, and those of the job; sorted, filtered, or as a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpumon.model.reading import NOT_SAMPLED, Missing, Reading, number
from gpumon.model.sample import Key
from gpumon.model.units import age_text, bytes_text
from gpumon.model.view import ProcessView
from gpumon.store import NodeView
from gpumon.tui.filter import matches, parse_filter
from gpumon.tui.lines import Row, fit, fit_row
from gpumon.tui.state import View, ViewState, Zone
from gpumon.tui.values import brief, percent
from gpumon.tui.views.request import FRAMEWORK_NAMES

#: the process of the extern step that Slurm starts to hold it (slurmstepd's mgr.c)
_EXTERN_COMMAND = "sleep 100000000"


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
        """One number of several devices; missing when one of them is, for a part is no total."""
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
    name: str
    title: str
    width: int
    right: bool
    key: Callable[[Entry], tuple[bool, float | str]]
    descending: bool = True


def _by_number(get: Callable[[Entry], Reading]) -> Callable[[Entry], tuple[bool, float | str]]:
    def key(entry: Entry) -> tuple[bool, float | str]:
        value = number(get(entry))
        return (value is not None, value if value is not None else 0.0)

    return key


def _reading(name: str) -> Callable[[Entry], Reading]:
    return lambda entry: entry.reading(name)


COLUMNS = (
    Column("pid", "PID", 8, True, _by_number(lambda e: e.process.facts.pid), descending=False),
    Column("user", "user", 10, False, lambda e: (True, e.process.facts.user), descending=False),
    Column("node", "node", 12, False, lambda e: (True, e.node.name), descending=False),
    Column("gpu", "GPU", 7, False, lambda e: (True, ",".join(e.devices)), descending=False),
    Column("mem", "GPU mem", 10, True, _by_number(lambda e: e.mem)),
    Column("sm", "SM", 6, True, _by_number(lambda e: e.sm)),
    Column("cpu", "CPU", 7, True, _by_number(_reading("cpu_percent"))),
    Column("rss", "memory", 10, True, _by_number(_reading("rss_bytes"))),
    Column("threads", "thr", 5, True, _by_number(_reading("threads"))),
    Column("time", "since", 9, True, _by_number(lambda e: -e.process.facts.start)),
)
SORTS = tuple(column.name for column in COLUMNS)


def entries(state: ViewState) -> list[Entry]:
    """The processes to show, filtered and in order."""
    found = _filtered(state)
    _sort(found, state.sort, reverse=state.reverse)
    return _as_tree(found) if state.tree else found


def process_rows(state: ViewState, width: int, height: int, sort: str) -> list[Row]:
    """The first rows by a column, without a cursor: a part of another screen."""
    found = _filtered(state)
    _sort(found, sort, reverse=False)
    header, _ = _header(state, width, sort)
    return [header, *(_row(state, entry, width, selected=False) for entry in found[: height - 1])]


def _filtered(state: ViewState) -> list[Entry]:
    found = [entry for listing in _listings(state) for entry in listing.entries]
    terms, _ = parse_filter(state.filter_text)
    if not terms:
        return found
    fields = {term.field for term in terms}
    return [entry for entry in found if matches(terms, *_filterable(entry, fields))]


def _listings(state: ViewState) -> list[Listing]:
    return [
        state.listings.of(node, state.now, lambda node: _listing(node, state.now))
        for node in state.nodes
    ]


def _listing(node: NodeView, now: float) -> Listing:
    labels = {device.key: device.device.label for device in node.devices()}
    every = node.listed()
    shown = [Entry(node, each, labels, now, {}) for each in every if not _is_plumbing(node, each)]
    return Listing(shown, len(every) - len(shown))


def _is_plumbing(node: NodeView, process: ProcessView) -> bool:
    """Slurm's own part of a step, and the agent that tells all this, where it is on no device."""
    if process.usage:
        return False
    facts = process.facts
    agent = node.header.agent_pid if node.header is not None else 0
    holds_extern = facts.uid == 0 and facts.command == _EXTERN_COMMAND
    return facts.pid == agent or facts.name == "slurmstepd" or holds_extern


def _sort(found: list[Entry], name: str, *, reverse: bool) -> None:
    column = next(column for column in COLUMNS if column.name == name)
    found.sort(key=lambda entry: entry.process.facts.pid)
    found.sort(key=column.key, reverse=column.descending != reverse)


def _filterable(entry: Entry, fields: set[str]) -> tuple[dict[str, str], dict[str, list[float]]]:
    """All texts, and of the numbers those of `fields`."""
    facts = entry.process.facts
    state = entry.reading("state")
    texts = {
        "user": facts.user, "command": f"{facts.command} {facts.name}", "node": entry.node.name,
        "framework": f"{facts.framework} {FRAMEWORK_NAMES.get(facts.framework, '')}",
        "state": "" if state == NOT_SAMPLED else str(state),
    }  # fmt: skip
    return texts, {name: get(entry) for name, get in _NUMBERS.items() if name in fields}


def _known(get: Callable[[Entry], Reading]) -> Callable[[Entry], list[float]]:
    def values(entry: Entry) -> list[float]:
        value = number(get(entry))
        return [] if value is None else [value]

    return values


_NUMBERS: dict[str, Callable[[Entry], list[float]]] = {
    "pid": lambda entry: [float(entry.process.facts.pid)],
    "gpu": lambda entry: [float(each.split(":")[-1].split("/")[0]) for each in entry.devices],
    "mem": _known(lambda entry: entry.mem),
    "sm": _known(lambda entry: entry.sm),
    "cpu": _known(_reading("cpu_percent")),
    "rss": _known(_reading("rss_bytes")),
    "threads": _known(_reading("threads")),
}


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


def process_view(state: ViewState, width: int, height: int) -> View:
    """A header, then the rows around the cursor, which follows its process."""
    found = entries(state)
    _place_cursor(state, found, height - 2)
    rows: list[Row] = [_summary(state, found, width)]
    header, zones = _header(state, width, state.sort)
    rows.append(header)
    for position in range(state.top, min(len(found), state.top + height - 2)):
        zones.append(Zone(0, len(rows), width, 1, f"point({position})"))
        rows.append(_row(state, found[position], width, selected=position == state.cursor))
    if not found:
        text = "nothing matches the filter; Esc clears it" if state.filter_text else "no processes"
        rows.append([(f"  {text}", "dim")])
    return View(rows, zones)


def _place_cursor(state: ViewState, found: list[Entry], room: int) -> None:
    if state.cursor_pid is not None:
        name, pid = state.cursor_pid
        places = (
            place
            for place, entry in enumerate(found)
            if entry.process.facts.pid == pid and entry.node.name == name
        )
        state.cursor = next(places, state.cursor)
    state.cursor = min(max(state.cursor, 0), max(0, len(found) - 1))
    state.cursor_pid = found[state.cursor].identity if found else None
    room = max(1, room)
    state.top = min(max(state.top, state.cursor - room + 1, 0), state.cursor)
    state.top = min(state.top, max(0, len(found) - room))


def _summary(state: ViewState, found: list[Entry], width: int) -> Row:
    alive = [entry for entry in found if entry.process.ended is None]
    on_devices = sum(1 for entry in alive if entry.process.usage)
    text = f" {len(alive)} processes, {on_devices} on GPUs"
    if len(found) > len(alive):
        text += f", {len(found) - len(alive)} ended"
    plumbing = sum(listing.plumbing for listing in _listings(state))
    if plumbing:
        text += f" (+{plumbing} of Slurm or gpumon)"
    order = "ascending" if state.reverse else "largest first"
    row: Row = [(text, ""), (f"   sorted by {state.sort}, {order}", "dim")]
    if state.tree:
        row.append(("   tree", "dim"))
    if state.filter_text:
        _, wrong = parse_filter(state.filter_text)
        row.append((f"   filter: {state.filter_text}", "key"))
        if wrong:
            row.append((f"   {wrong}", "bad"))
    return fit_row(row, width)


def _header(state: ViewState, width: int, sort: str) -> tuple[Row, list[Zone]]:
    row: Row = [(" ", "")]
    zones = []
    x = 1
    for column in _columns(state, width):
        arrow = (
            ("↑" if column.descending == state.reverse else "↓") if state.glyphs != "ascii" else "*"
        )
        title = column.title + (arrow if column.name == sort else "")
        row.append((fit(title, column.width, right=column.right) + " ", "dim"))
        if x + column.width <= width:
            zones.append(Zone(x, 1, column.width, 1, f"sort_by('{column.name}')"))
        x += column.width + 1
    return [*row, ("command", "dim")], zones


def _columns(state: ViewState, width: int) -> list[Column]:
    """All columns where there is room, the most telling ones at 80."""
    shown = {"pid", "gpu", "mem", "sm", "cpu"}
    shown |= {"node"} if len(state.nodes) > 1 else {"user"}
    if width >= 110:
        shown |= {"user", "rss", "threads", "time"}
    return [column for column in COLUMNS if column.name in shown]


def _row(state: ViewState, entry: Entry, width: int, *, selected: bool) -> Row:
    facts, ended = entry.process.facts, entry.process.ended
    role = "" if ended is None else "dim"
    cells = {
        "pid": str(facts.pid),
        "user": facts.user or "?",
        "node": entry.node.name,
        "gpu": ",".join(entry.devices) or "-",
        "mem": brief(entry.mem, bytes_text) if entry.process.usage else "-",
        "sm": brief(entry.sm, percent) if entry.process.usage else "-",
        "cpu": brief(entry.reading("cpu_percent"), percent),
        "rss": brief(entry.reading("rss_bytes"), bytes_text),
        "threads": brief(entry.reading("threads"), lambda value: f"{value:.0f}"),
        "time": age_text(state.now - facts.start) if facts.start else "?",
    }
    if ended is not None:  # what it held, it holds no more
        cells |= dict.fromkeys(("mem", "sm", "cpu", "rss", "threads"), "-")
    marker = (">" if state.glyphs == "ascii" else "▶") if selected else " "
    text = marker + "".join(
        fit(cells[column.name], column.width, right=column.right) + " "
        for column in _columns(state, width)
    )
    command = "  " * min(entry.depth, 12) + (
        "└ " if entry.depth and state.glyphs != "ascii" else ""
    )
    command += facts.command or facts.name or facts.note or "?"
    if facts.note and facts.command:
        command += f"  ({facts.note})"
    process_state = entry.reading("state")
    if ended is not None:
        command = f"ended {age_text(state.now - ended)} ago: {command}"
    elif process_state in ("Z", "T", "D"):
        words = {"Z": "zombie", "T": "stopped", "D": "waiting for a device"}
        command = f"({words[str(process_state)]}) {command}"
    name = FRAMEWORK_NAMES.get(facts.framework, "")
    row: Row = [(text, "title" if selected else role)]
    if name and facts.framework != "cuda-other":
        row.append((f"[{name}] ", "third"))
    row.append((command, "title" if selected else "dim" if not facts.own else role))
    return fit_row(row, width)
