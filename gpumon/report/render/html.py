"""The report as one HTML file that needs nothing else: style and charts are inside.

Every text goes through `html.escape`. The page loads nothing, and its policy forbids it to. Its
only script shows a button that copies the lines to change; they can be selected without it.
"""

from __future__ import annotations

import hashlib
import time
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape as _escape
from pathlib import Path

from gpumon.analysis.finding import Finding
from gpumon.analysis.summary import DeviceRow
from gpumon.model.text import clean
from gpumon.model.units import plural
from gpumon.report.advice import box_of, in_changes
from gpumon.report.model import Attempt, Report
from gpumon.report.provenance import missing_text, provenance_lines
from gpumon.report.render import heading
from gpumon.report.render.devices import busy_text, idle_text, memory_text, star_note
from gpumon.report.render.forms import Medium
from gpumon.report.render.html_chart import Axis, axis_of, chart, heat_map, windows_of
from gpumon.report.render.html_events import Flag, events_list, flags_of, flags_on
from gpumon.report.render.layout import NOT_KNOWN, SIGNS, watts
from gpumon.report.render.steps import listed, rank_table
from gpumon.report.render.table import HEAD, cells, ranked, total_lines
from gpumon.report.render.used import (
    Resource,
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

#: GPUs with a chart each; more share a heat map, which has at most so many rows
_MOST_CHARTS, _MOST_ROWS = 8, 128


def render(reports: Sequence[Report], medium: Medium) -> str:
    return html_page(ranked(reports))


def html_page(reports: Sequence[Report]) -> str:
    titles = ", ".join(heading.job_name(report) for report in reports)
    bodies = "\n<hr>\n".join(_body(report) for report in reports)
    style, script = (
        Path(__file__).with_name(f"report.{kind}").read_text("utf-8") for kind in ("css", "js")
    )
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>gpumon report {_text(titles)}</title>\n<style>{style}</style></head>\n"
        f"<body>\n{_overview(reports)}{bodies}\n<script>{script}</script>\n</body></html>\n"
    )


def _text(text: str) -> str:
    return _escape(clean(text, 4000))


def _dim(*texts: str) -> list[str]:
    """A paragraph each, unless it is empty."""
    return [f'<p class="dim">{_text(each)}</p>' for each in texts if each]


def _code(line: str) -> str:
    return f"<code>{_text(line)}</code>" if line else ""


def _overview(reports: Sequence[Report]) -> str:
    """Of several jobs the table that the terminal shows."""
    if len(reports) < 2:
        return ""
    table = _table(Table(HEAD, [cells(each) for each in reports]))
    totals = "".join(f"<p>{_text(line.strip())}</p>" for line in total_lines(reports))
    return f"<h1>gpumon report: {plural(len(reports), 'job')}</h1>{table}{totals}\n<hr>\n"


def _body(report: Report) -> str:
    parts = [
        *_head(report), *_do_this(report), *_findings(report), *_used(report),
        *_tasks(report), *_attempts("Attempts", report.attempts),
        *_attempts("Segments", report.segments),
        *_charts(report), *events_list(report), *_devices(report), *_steps(report),
        *_provenance(report),
    ]  # fmt: skip
    return "\n".join(parts)


def _head(report: Report) -> list[str]:
    name, *words = [f"job {heading.job_name(report)}", *heading.words(report)]
    if report.job.name:
        name, words = words[0], [name, *words[1:]]
    rows = [" · ".join(words), heading.facts_text(report), report.preliminary]
    parts = [f"<h1>{_text(name)}</h1>", *_dim(*rows)]
    if cost := heading.cost_text(report):
        wasteful = " wasteful" if heading.is_wasteful(report) else ""
        parts.append(f'<p class="cost{wasteful}">{_text(cost)}</p>')
    return parts


# -- findings and changes ------------------------------------------------------------------------


def _findings(report: Report) -> list[str]:
    sign, told = in_words(report)
    said = [f'<p class="{sign}">{SIGNS[sign]} {_text(told)}</p>'] if told else []
    return [_finding(each, report) for each in report.findings] + said


def _finding(each: Finding, report: Report) -> str:
    title, rest = sentences(each)
    steps = []
    for action in each.actions:
        above = in_changes(action, report.recommendations)
        line = "" if above else _code(action.after)
        steps.append(f"<li>{' '.join(filter(None, (_text(above), _text(action.text), line)))}</li>")
    return (
        f'<div class="finding {_text(each.level)}"><span class="level">{SIGNS[each.level]}'
        f" {_text(each.level)}</span><b>{_text(title)}</b>"
        + (f'<span class="dim">{_text(rest)}</span>' if rest else "")
        + (f"<ul>{''.join(steps)}</ul>" if steps else "")
        + "</div>"
    )


def _do_this(report: Report) -> list[str]:
    box = box_of(report)
    items = "".join(f"<li>{_text(each.text)} {_code(each.line)}</li>" for each in box.steps)
    listed = [f"<ul>{items}</ul>"] if items else []
    if not box.changes:
        return ["<h2>Do this</h2>", *listed] if listed else []
    lines = "\n".join(map(_text, box.changed))
    rows = [
        f"<tr><td>{_code(option or 'add to the script')}</td>"
        f"<td>{_code(before)}</td><td>{_code(after)}</td>"
        f'<td class="dim words">{_text(because)}</td></tr>'
        for option, before, after, because in box.table
    ]
    head = "<tr><th>next time</th><th>now</th><th>then</th><th></th></tr>"
    copy = '<button type="button" hidden>Copy</button>'
    shown = f'<div class="lines"><pre>{lines}</pre>{copy}</div>' if lines else ""
    table = f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'
    first, then = box.in_order([shown, table], listed)
    return ["<h2>Do this</h2>", *first, *then]


# -- figures -------------------------------------------------------------------------------------


def _used(report: Report) -> list[str]:
    found = resources(report)
    if not found:
        return []
    word, title = given_words(report)
    key = _key(("--mem", "", "mean"), ("--peak", "", "peak"), ("--none", "", word))
    return [f"<h2>{title}</h2>", key, f'<div class="bars">{"".join(map(_bar, found))}</div>']


def _bar(each: Resource) -> str:
    use = each.use
    shares = [share for share in (use.peak_share, use.share) if share is not None]
    if use.share is None:
        shares = [0.0, *shares]  # time has no mean and no peak: it is what was used
    bars = "".join(f'<i style="width:{100 * share:.1f}%"></i>' for share in shares)
    parts = [f"peak {each.peak}", f"mean {each.mean}"] if each.mean else [each.peak]
    figures = f"{', '.join(parts)} of {each.requested}"
    notes = [each.note] if each.note else []
    if each.seff:
        notes.append(f"seff: {each.seff}" + (f", because {each.because}" if each.because else ""))
    note = f'<span class="dim note">{_text("; ".join(notes))}</span>' if notes else ""
    return (
        f'<span>{_text(each.name)}</span><span class="bar">{bars}</span>'
        f'<span class="figure">{_text(figures)}</span>{note}'
    )


def _key(*entries: tuple[str, str, str]) -> str:
    """What the colours mean: (colour, kind of swatch, words)."""
    spans = (
        f'<span class="{kind}" style="--swatch:var({colour})">{_text(words)}</span>'
        for colour, kind, words in entries
    )
    return f'<div class="key dim">{"".join(spans)}</div>'


def _table(table: Table, words: Iterable[int] = ()) -> str:
    """Figures stand at the right; the columns in `words` are text."""
    names = {0, *words}

    def row(cell: str, texts: Sequence[str]) -> str:
        body = "".join(
            f"<{cell}{'' if n in names else ' class=n'}>{_text(text)}</{cell}>"
            for n, text in enumerate(texts)
        )
        return f"<tr>{body}</tr>"

    rows = "".join(row("td", each) for each in table.rows)
    return f'<div class="wide"><table>{row("th", table.head)}{rows}</table></div>'


def _tasks(report: Report) -> list[str]:
    if report.tasks is None:
        return []
    table = task_table(report.tasks)
    return [
        "<h2>Tasks of the array</h2>",
        f"<p>{_text(states_text(report.tasks))}</p>",
        _table(table) if table.rows else "",
        *_dim(*task_notes(report.tasks)),
    ]


def _attempts(title: str, found: Sequence[Attempt]) -> list[str]:
    return [f"<h2>{title}</h2>", _table(attempt_table("", found))] if found else []


def _steps(report: Report) -> list[str]:
    ranks, more = listed(report.ranks)
    if not ranks:
        return []
    return ["<h2>Steps</h2>", _table(rank_table(ranks), [6]), *_dim(more)]


# -- GPUs ----------------------------------------------------------------------------------------


def _charts(report: Report) -> list[str]:
    axis = axis_of(report)
    if axis is None:
        return []
    day = time.strftime("%A, %d %B %Y", time.localtime(axis.start))
    title = f'<h2>GPUs over the run <span class="dim">{_text(day)}</span></h2>'
    if len(report.devices) > _MOST_CHARTS:
        shown = report.devices[:_MOST_ROWS]
        labels = [f"{_text(row.label)} {_mean(row):>5}" for row in shown]
        key = _key(("--sm", "", "busy (full colour: 100 %)"), ("--none", "", "not observed"))
        more = len(report.devices) - len(shown)
        note = f'<p class="dim">and {more} more; --format json lists all</p>' if more else ""
        over = "".join(
            flags_on(_flags(report, row, with_marks=False), axis, 100 * (n + 0.5) / len(shown))
            for n, row in enumerate(shown)
        )
        return [title, key, heat_map(shown, labels, axis, over), note]
    figures = "".join(_chart(report, row, axis) for row in report.devices if row.busy_over_time)
    return [title, _legend(report), f'<div class="charts">{figures}</div>']


def _flags(report: Report, row: DeviceRow, *, with_marks: bool = True) -> list[Flag]:
    """Those about this GPU, and the user's marks."""
    labels = {row.label, ""} if with_marks else {row.label}
    return [flag for flag in flags_of(report)[0] if flag.happening.label in labels]


def _legend(report: Report) -> str:
    rows = report.devices
    entries = [("--busy", "", "busy %")]
    if any(any(v is not None for v in row.sm_over_time) for row in rows):
        entries.append(("--sm", "", "of its multiprocessors (SMs) active %"))
    entries.append(("--mem", "stroke", "memory %"))
    if any(row.has_unproven_need for row in rows):
        entries.append(("--mem", "stroke dashed", "memory that may be preallocated"))
    elif any(any(row.need_over_time) for row in rows):
        entries.append(("--mem", "stroke dashed", "memory reserved, of which the line is needed"))
    if any(None in row.busy_over_time for row in rows):
        entries.append(("--none", "", "not observed"))
    levels = {each.level for row in rows for each in windows_of(report, row)}
    entries += [
        (f"--{level}-ground", "edged", f"time of a finding ({level})") for level in sorted(levels)
    ]
    return _key(*entries)


def _chart(report: Report, row: DeviceRow, axis: Axis) -> str:
    words = [f"busy {_mean(row)}", f"memory {memory_text(row)}", watts(row.power_mean_w), row.note]
    flags = _flags(report, row)
    plot = chart(report, row, axis, [flag.happening for flag in flags], flags_on(flags, axis))
    figures = "".join(f'<span class="dim">{_text(word)}</span>' for word in words if word)
    caption = f"<figcaption><b>{_text(row.label)}</b>{figures}</figcaption>"
    return f"<figure>{caption}{plot}</figure>"


def _mean(row: DeviceRow) -> str:
    return NOT_KNOWN if row.busy_mean is None else f"{row.busy_mean:.0f} %"


def _devices(report: Report) -> list[str]:
    if not report.devices:
        return []
    head = ("GPU", "busy mean/p50/p95", "idle at end", "memory peak", "power", "energy", "")
    shown = report.devices[:_MOST_ROWS]
    table = _table(Table(head, [_row(row) for row in shown]), words=(6,))
    note = star_note(report.devices)
    parts = [table, f'<p class="dim">* {_text(note)}</p>' if note else ""]
    if len(report.devices) > _MOST_CHARTS:
        return ["<details><summary>Figures of each GPU</summary>", *parts, "</details>"]
    return ["<h2>GPUs</h2>", *parts]


def _row(row: DeviceRow) -> tuple[str, ...]:
    energy = NOT_KNOWN if row.energy_j is None else f"{row.energy_j / 3.6e6:.2f} kWh"
    return (
        row.label, busy_text(row), idle_text(row), memory_text(row), watts(row.power_mean_w),
        energy, row.note,
    )  # fmt: skip


def _provenance(report: Report) -> list[str]:
    """The source; every check that was skipped, folded away."""
    skipped = "".join(
        f"<li>{_text(id)}: {_text(missing_text(each))}</li>"
        for id, each in report.not_evaluable.items()
    )
    title = "<summary>All checks that were skipped</summary>"
    return [
        "<h2>What this rests on</h2>",
        *_dim(*provenance_lines(report)),
        f'<details class="dim">{title}<ul>{skipped}</ul></details>' if skipped else "",
    ]
