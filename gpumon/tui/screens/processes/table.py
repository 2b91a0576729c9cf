"""The rows of the table of processes."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model.units import age_text, bytes_text, plural
from gpumon.tui import columns
from gpumon.tui.lines import Row, add_run, fit_row
from gpumon.tui.moment import Moment
from gpumon.tui.parts.phrasing import cursor
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.screens.processes.entries import (
    COLUMNS,
    Column,
    Entry,
    Listing,
    Order,
    framework_name,
)
from gpumon.tui.screens.processes.filter import parse_filter
from gpumon.tui.values import brief, percent

_STATES = {"Z": "zombie", "T": "stopped", "D": "waiting for I/O"}
_COMMAND_SHARE = 3 / 8  # of the width that the command has at least


def summary_row(found: list[Entry], listings: list[Listing], order: Order, width: int) -> Row:
    alive = [entry for entry in found if entry.process.ended is None]
    on_devices = sum(1 for entry in alive if entry.process.usage)
    text = f" {plural(len(alive), 'process', 'es')}, {on_devices} on GPUs"
    if len(found) > len(alive):
        text += f", {len(found) - len(alive)} ended"
    plumbing = sum(listing.plumbing for listing in listings)
    if plumbing:
        text += f" (+{plumbing} of Slurm or gpumon)"
    by = next(column.look.title for column in COLUMNS if column.name == order.sort)
    row: Row = [(text, ""), (f"   sorted by {by}{', reversed' if order.reverse else ''}", "dim")]
    if order.tree:
        row.append(("   tree", "dim"))
    if order.filter_text:
        _, wrong = parse_filter(order.filter_text)
        row.append((f"   filter: {order.filter_text}", "key"))
        if wrong:
            row.append((f"   {wrong}", "bad"))
    return fit_row(row, width)


def process_table(
    entries: Sequence[Entry], order: Order, moment: Moment, width: int, *, selected: int = -1
) -> View:
    """Headings, then a row for each; the command has all the room that the rest leaves.

    A click on a heading sorts by it. `selected`: the place of the cursor in `entries`.
    """
    wanted = _wanted(entries, several=len(moment.nodes) > 1)
    command = columns.Column("command", most=width, least=int(width * _COMMAND_SHARE))
    looks = [*(column.look for column in wanted), command]
    texts = [_cells(wanted, entry, moment) for entry in entries]
    usual = [*(column.usual for column in wanted), ""]
    shown = columns.placed(looks, [*texts, usual], width - 1)
    heading, zones = _headings(wanted, looks, shown, order, moment.glyphs)
    rows = [fit_row(heading, width)]
    for place, (entry, cells) in enumerate(zip(entries, texts)):
        here = place == selected
        sign = cursor(moment.glyphs) if here else " "
        fitted = columns.cells(looks, shown, cells)
        rows.append(fit_row([(sign, "key"), *_runs(wanted, shown, entry, fitted, here)], width))
    return View(rows, zones)


def _wanted(entries: Sequence[Entry], *, several: bool) -> list[Column]:
    """Without a column that is the same or empty for all."""
    empty = set() if several else {"node"}
    if not any(entry.process.usage for entry in entries):
        empty |= {"gpu", "mem", "sm"}
    if not any(framework_name(entry) for entry in entries):
        empty.add("framework")
    return [column for column in COLUMNS if column.name not in empty]


def _headings(
    wanted: list[Column],
    looks: Sequence[columns.Column],
    shown: Sequence[columns.Placed],
    order: Order,
    glyphs: str,
) -> tuple[Row, list[Zone]]:
    """The arrow of the order stands in the gap behind its heading."""
    row: Row = [(" ", "")]
    zones: list[Zone] = []
    x = 1
    for each, title in zip(shown, columns.titles(looks, shown)):
        is_last, gap = each.number == len(wanted), columns.GAP
        is_sorted = not is_last and wanted[each.number].name == order.sort
        if is_sorted:
            column = wanted[each.number]
            arrow = "*" if glyphs == "ascii" else "↑" if column.descending == order.reverse else "↓"
            title = title.rstrip()
            gap = (arrow + columns.GAP[1:]).ljust(each.width - len(title) + len(columns.GAP))
        row.append((title if is_last else title + gap, "key" if is_sorted else "dim"))
        if not is_last:
            action = f"sort_by('{wanted[each.number].name}')"
            zones.append(Zone(x, 0, each.width + 1, 1, action))
        x += each.width + len(columns.GAP)
    return row, zones


def _runs(
    wanted: list[Column],
    shown: Sequence[columns.Placed],
    entry: Entry,
    cells: Sequence[str],
    selected: bool,
) -> Row:
    """A row's cells in their colours."""
    role = "title" if selected else "" if entry.process.ended is None else "dim"
    runs: Row = []
    for each, cell in zip(shown, cells):
        if each.number == len(wanted):
            runs.append((cell, "dim" if not (selected or entry.process.facts.own) else role))
        elif wanted[each.number].name == "framework":
            runs.append((cell + columns.GAP, "third"))
        else:
            add_run(runs, cell + columns.GAP, role)
    return runs


def _cells(wanted: list[Column], entry: Entry, moment: Moment) -> list[str]:
    """Of each column that is wanted, then the command."""
    facts, on_device = entry.process.facts, entry.process.usage
    cells = {
        "pid": str(facts.pid),
        "user": facts.user or "?",
        "node": entry.node.name,
        "gpu": ",".join(entry.devices) or "-",
        "framework": framework_name(entry),
        "mem": brief(entry.mem, bytes_text) if on_device else "-",
        "sm": brief(entry.sm, percent) if on_device else "-",
        "cpu": brief(entry.reading("cpu_percent"), percent),
        "rss": brief(entry.reading("rss_bytes"), bytes_text),
        "threads": brief(entry.reading("threads"), lambda value: f"{value:.0f}"),
        "time": age_text(moment.now - facts.start) if facts.start else "?",
    }
    if entry.process.ended is not None:  # what it held, it holds no more
        cells |= dict.fromkeys(("mem", "sm", "cpu", "rss", "threads"), "-")
    return [*(cells[column.name] for column in wanted), _command(entry, moment.glyphs, moment.now)]


def _command(entry: Entry, glyphs: str, now: float) -> str:
    """Its command, after the branches of the tree, and its state if it is unusual."""
    facts, ended, state = entry.process.facts, entry.process.ended, state_name(entry)
    branch = "└ " if entry.depth and glyphs != "ascii" else ""
    command = facts.command or facts.name or facts.note or "?"
    if facts.note and facts.command:
        command += f"  ({facts.note})"
    command = "  " * min(entry.depth, 12) + branch + command
    if ended is not None:
        return f"ended {age_text(now - ended)} ago: {command}"
    return f"({state}) {command}" if state else command


def state_name(entry: Entry) -> str:
    """In words, if it is unusual."""
    return _STATES.get(str(entry.reading("state")), "")
