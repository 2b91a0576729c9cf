"""The report as one HTML file that needs nothing else: style and charts are inside.

Every text goes through `html.escape`; there are no scripts and no links to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as _escape

from gpumon.model.text import clean
from gpumon.model.units import bytes_text, clock_text
from gpumon.report.foot import foot_lines
from gpumon.report.model import DeviceRow, Report
from gpumon.report.page import SIGNS, busy_text, page, plain, star_note
from gpumon.report.sentences import sentences

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --busy: #0a7d55; --mem: #0b57d0; --bad: #c0392b;
  --attention: #b7791f; }
@media (prefers-color-scheme: dark) { :root { --busy: #4fd6a5; --mem: #6aa9ff; --bad: #ff7b72;
  --attention: #e3b341; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font: 13px ui-monospace, monospace; white-space: pre-wrap; }
.finding { border-left: 4px solid var(--line); padding: .2rem .8rem; margin: .7rem 0; }
.critical { border-color: var(--bad); } .warning { border-color: var(--attention); }
.dim { opacity: .7; } svg { width: 100%; height: 90px; } pre { overflow: auto; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); gap: 1rem; }
"""
_WIDTH, _HEIGHT = 320, 90


def html_page(reports: Sequence[Report]) -> str:
    """A whole document for one report or several."""
    titles = ", ".join(report.job.id or report.job.raw_id for report in reports)
    bodies = "\n<hr>\n".join(_body(report) for report in reports)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>gpumon report {_text(titles)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{bodies}\n</body></html>\n"
    )


def _text(text: str) -> str:
    return _escape(clean(text, 4000))


def _body(report: Report) -> str:
    rows = list(plain(page(report, 100)))
    head = [row.strip() for row in rows[: rows.index("")] if row.strip()]
    parts = [f"<h1>{_text(head[0])}</h1>", *(f"<p class=dim>{_text(row)}</p>" for row in head[1:])]
    parts += _findings(report) + _changes(report) + _devices(report)
    asked = next((n for n, row in enumerate(rows) if "used (peak)" in row), None)
    if asked is not None:
        table = "\n".join(rows[asked : rows.index("", asked)])
        parts += ["<h2>Asked and used</h2>", f"<pre>{_text_lines(table)}</pre>"]
    parts += [f"<p class=dim>{_text(line)}</p>" for line in foot_lines(report)]
    return "\n".join(parts)


def _text_lines(text: str) -> str:
    return "\n".join(_text(line) for line in text.split("\n"))


def _findings(report: Report) -> list[str]:
    if not report.findings:
        return [f"<p>{SIGNS['good']} Nothing found to change.</p>"]
    parts = []
    for each in report.findings:
        actions = "".join(
            f"<br>{_text(action.text)} <code>{_text(action.after)}</code>"
            for action in each.actions
        )
        title, rest = sentences(each)
        parts.append(
            f'<div class="finding {_text(each.level)}"><b>{SIGNS[each.level]} {_text(title)}'
            f"</b><br><span class=dim>{_text(rest)}</span>{actions}</div>"
        )
    return parts


def _changes(report: Report) -> list[str]:
    if not report.recommendations:
        return []
    rows = [
        f"<tr><td><code>{_text(each.directive or 'add to the script')}</code></td>"
        f"<td><code>{_text(each.before)}</code></td><td><code>{_text(each.after)}</code></td>"
        f"<td class=dim>{_text(each.basis)}</td></tr>"
        for each in report.recommendations
    ]
    head = "<tr><th>line</th><th>now</th><th>then</th><th>because</th></tr>"
    return ["<h2>Next time</h2>", "<table>", head, *rows, "</table>"]


def _devices(report: Report) -> list[str]:
    if not report.devices:
        return []
    head = "".join(
        f"<th{'' if n == 0 else ' class=n'}>{name}</th>"
        for n, name in enumerate(
            ("GPU", "busy mean / p50 / p95", "idle tail", "memory peak", "power", "energy")
        )
    )
    parts = ["<h2>GPUs</h2>", "<table>", f"<tr>{head}</tr>", *map(_row, report.devices), "</table>"]
    if note := star_note(report.devices):
        parts.append(f"<p class=dim>* {_text(note)}</p>")
    charts = [_chart(row) for row in report.devices if row.busy_over_time]
    if charts:
        what = "<p class=dim>Busy % (green) and memory % (blue) over the run; gaps are gaps.</p>"
        parts += [what, f"<div class=charts>{''.join(charts)}</div>"]
    return parts


def _row(row: DeviceRow) -> str:
    star = "*" if row.mem_truth == "unknown" and row.mem_peak_bytes else ""
    cells = (
        _text(row.note or busy_text(row)),
        "n/a" if row.idle_tail_s is None else clock_text(row.idle_tail_s),
        "n/a" if row.mem_peak_bytes is None else bytes_text(row.mem_peak_bytes) + star,
        "n/a" if row.power_mean_w is None else f"{row.power_mean_w:.0f} W",
        "n/a" if row.energy_j is None else f"{row.energy_j / 3.6e6:.2f} kWh",
    )
    return (
        f"<tr><td>{_text(row.label)}</td>"
        + "".join(f"<td class=n>{c}</td>" for c in cells)
        + "</tr>"
    )


def _chart(row: DeviceRow) -> str:
    lines = _line(row.mem_over_time, "var(--mem)") + _line(row.busy_over_time, "var(--busy)")
    frame = (
        f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT - 1}" y2="{_HEIGHT - 1}" stroke="var(--line)"/>'
    )
    return (
        f"<figure><figcaption>{_text(row.label)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="busy and memory of {_text(row.label)}">{frame}{lines}</svg></figure>'
    )


def _line(values: Sequence[float | None], colour: str) -> str:
    """One polyline for each stretch without a gap."""
    if not values:
        return ""
    step = _WIDTH / max(1, len(values) - 1)
    stretches: list[list[str]] = [[]]
    for n, value in enumerate(values):
        if value is None:
            stretches.append([])
        else:
            share = min(max(value, 0.0), 100.0) / 100
            stretches[-1].append(f"{n * step:.1f},{(1 - share) * (_HEIGHT - 4) + 2:.1f}")
    return "".join(
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(each)}"/>'
        for each in stretches
        if len(each) > 1
    )
