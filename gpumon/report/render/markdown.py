"""The report as Markdown, for tickets and wikis, where it may also be read as plain text.

Text from jobs cannot become markup; what cannot be markup stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from gpumon.analysis.summary import DeviceRow
from gpumon.chart.bars import spark_of_all
from gpumon.model.text import clean
from gpumon.report.advice import box_of, in_changes
from gpumon.report.model import Attempt, Report
from gpumon.report.provenance import provenance_lines
from gpumon.report.render import heading
from gpumon.report.render.devices import busy_text, idle_text, memory_text, star_note
from gpumon.report.render.events import MOST, clock, more_text, words, worst
from gpumon.report.render.forms import Medium
from gpumon.report.render.layout import SIGNS, watts
from gpumon.report.render.steps import listed, rank_table
from gpumon.report.render.table import HEAD, are_several, cells, ranked, total_lines
from gpumon.report.render.used import (
    Table,
    attempt_table,
    given_words,
    resources,
    states_text,
    task_notes,
    task_table,
)
from gpumon.report.sentences import sentences
from gpumon.report.verdict import in_words

#: what is markup wherever it stands: emphasis, code, links, tags, cells, strikethrough, formulas …
_ANYWHERE = r"[\\`*\[\]<|~$]"
#: … and what is only there: a mention or an address, an entity, emphasis of a word, an issue's
#: number, a link that needs no brackets, an emoji (`:smile:`; a clock is none)
_THERE = (
    r"@(?=\w)|&(?=#|\w)|(?<![^\W_])_|_(?![^\W_])|#(?=\d)|:(?=//)|(?<=\bwww)\."
    r"|(?<!\w):(?=(?:[A-Za-z+-][\w+-]*|100|1234|8ball):)"
)
#: what is markup at the beginning of a line: a heading, a quotation, a list, a rule
_FIRST = r"\A>|\A#(?=#*(?:\s|\Z))|\A[+-](?=\s|\Z)|\A[=-](?=[=\s-]*\Z)"
_MARKUP = re.compile(f"{_ANYWHERE}|{_THERE}|{_FIRST}")
_NUMBERED = re.compile(r"\A(\d{1,9})([.)])(?=\s|\Z)")


def render(reports: Sequence[Report], medium: Medium) -> str:
    """A page for each, or of several jobs a table."""
    if are_several(reports):
        return markdown_table(reports)
    return "\n".join(map(markdown, reports))


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in a table's cell too."""
    text = " ".join(clean(text, 2000).split())
    return _NUMBERED.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", text))


def code(text: str) -> str:
    """As code: fenced by more backticks than it holds."""
    text = " ".join(clean(text, 2000).split()).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def markdown(report: Report) -> str:
    """One report; ends with a newline."""
    parts = [f"## gpumon report {escape(heading.job_name(report))}", *_summary(report)]
    parts += [*_do_this(report), *_findings(report)]
    parts += _tasks(report)
    parts += [*_attempts("attempt", report.attempts), *_attempts("segment", report.segments)]
    parts += [*_devices(report), *_steps(report), *_events(report), *_used(report), ""]
    parts += [f"- {escape(line)}" for line in provenance_lines(report)]
    return "\n".join(parts).rstrip() + "\n"


def markdown_table(reports: Sequence[Report]) -> str:
    """Several jobs, the greatest waste first."""
    rows = [[escape(cell) for cell in cells(report)] for report in ranked(reports)]
    lines = [f"- {escape(line.strip())}" for line in total_lines(reports)]
    return "\n".join([*_table(HEAD, rows), "", *lines]) + "\n"


def _summary(report: Report) -> list[str]:
    """A paragraph each, so that they stay apart in every reader of Markdown."""
    rows = [heading.words(report), [heading.facts_text(report)], [heading.cost_text(report)]]
    rows += [[report.preliminary]]
    return [line for row in rows if any(row) for line in ("", " · ".join(map(escape, row)))]


def _findings(report: Report) -> list[str]:
    sign, told = in_words(report)
    lines = ["", f"{SIGNS[sign]} {escape(told)}"] if told else []
    lines += [""] if report.findings else []
    for each in report.findings:
        title, rest = sentences(each)
        text = f"- **{each.level.capitalize()}: {escape(title)}** {escape(rest)}"
        lines.append(text.rstrip())
        for action in each.actions:
            above = in_changes(action, report.recommendations)
            words = (escape(above), escape(action.text), "" if above else code(action.after))
            lines.append(f"  - {' '.join(filter(None, words))}")
    return lines


def _section(title: str, *parts: Sequence[str]) -> list[str]:
    """The title and the parts, a blank line before each; nothing where all parts are empty."""
    shown = [part for part in parts if part]
    heads = [[f"### {title}"]] if title and shown else []
    return [line for part in (*heads, *shown) for line in ("", *part)]


def _do_this(report: Report) -> list[str]:
    box = box_of(report)
    rows = [
        (code(option or "add"), code(before), code(after), escape(because))
        for option, before, after, because in box.table
    ]
    table = _table(("next time", "now", "then", ""), rows) if rows else []
    listed = [f"- {' '.join(filter(None, (escape(e.text), code(e.line))))}" for e in box.steps]
    return _section("Do this", *box.in_order(table, listed))


def _tasks(report: Report) -> list[str]:
    if report.tasks is None:
        return []
    table, states = task_table(report.tasks), [escape(states_text(report.tasks))]
    notes = [f"- {escape(note)}" for note in task_notes(report.tasks)]
    return _section("Tasks of the array", states, _figures(table) if table.rows else [], notes)


def _attempts(word: str, found: Sequence[Attempt]) -> list[str]:
    return _section("", _figures(attempt_table(word, found))) if found else []


def _steps(report: Report) -> list[str]:
    ranks, more = listed(report.ranks)
    if not ranks:
        return []
    table = rank_table(ranks)
    rows = [[*map(escape, cells), code(place)] for *cells, place in table.rows]
    figures = _table(table.head, rows, range(1, len(table.head) - 1))
    return _section("", figures, [escape(more)] if more else [])


def _figures(table: Table) -> list[str]:
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return _table(table.head, rows, range(1, len(table.head)))


def _devices(report: Report) -> list[str]:
    if not report.devices:
        return []
    rows = [_device(row) for row in report.devices]
    head = ("GPU", "busy mean / p50 / p95", "idle at end", "memory peak", "power", "over the run")
    note = star_note(report.devices)
    notes = [f"\\* {escape(note)}"] if note else []
    return _section("GPUs", _table(head, rows, range(1, 5)), notes)


def _device(row: DeviceRow) -> tuple[str, ...]:
    return (
        escape(row.label),
        busy_text(row) if row.busy_mean is not None else escape(row.note or "n/a"),
        idle_text(row),
        memory_text(row, "\\*"),
        watts(row.power_mean_w),
        spark_of_all(row.busy_over_time, 16),
    )


def _events(report: Report) -> list[str]:
    found, more = worst(report.happenings, MOST)
    if not found:
        return []
    rows = [
        (escape(clock(report, each)), each.level, escape(each.label), escape(words(each)))
        for each in found
    ]
    table = _table(("time", "level", "GPU", "event"), rows)
    return _section("Events", table, [more_text(more)] if more else [])


def _used(report: Report) -> list[str]:
    found = resources(report)
    if not found:
        return []
    rows = [
        (
            each.name, each.requested, each.peak, each.mean, each.seff,
            escape("; ".join(filter(None, (each.because, each.note)))),
        )
        for each in found
    ]  # fmt: skip
    word, title = given_words(report)
    head = ("", word, "used (peak)", "used (mean)", "seff", "because")
    return _section(title, _table(head, rows, range(1, 5)))


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> list[str]:
    """With columns of one width, for those who read the source; the last one may be long."""
    widths = [max(3, *map(len, column)) for column in zip(*[head, *rows])]
    widths[-1] = len(head[-1])

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if n in right else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(cells, widths))
        )
        return f"| {' | '.join(padded)} |"

    rule = ("-" * (width + 1) + (":" if n in right else "-") for n, width in enumerate(widths))
    return [line(head), f"|{'|'.join(rule)}|", *map(line, rows)]
