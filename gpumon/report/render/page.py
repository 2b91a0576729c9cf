"""The report as rows of (text, role) runs: one page that fits 80 columns and a ticket.

The terminal colours the roles, the screen too; joined they are the plain text. Order: heading, what
to do, findings (worst first), a row for each GPU, events, requested against used, sources.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.finding import Finding
from gpumon.model.text import clean
from gpumon.report.model import Report
from gpumon.report.provenance import provenance_lines
from gpumon.report.render import heading
from gpumon.report.render.devices import device_rows
from gpumon.report.render.events import event_rows
from gpumon.report.render.layout import ASCII_SIGNS, ROLES, SIGNS, Row, cut, flow, wrapped
from gpumon.report.render.steps import step_rows
from gpumon.report.render.used import attempt_rows, resource_rows, task_rows
from gpumon.report.sentences import Step, first_steps, sentences, step_of, steps_of
from gpumon.report.verdict import in_words

#: a page with plots is no longer than this
_MAX_ROWS = 60


def page(
    report: Report, width: int = 80, glyphs: str = "braille", plots: bool = False
) -> list[Row]:
    """All rows, none wider than `width` cells as long as that is at least 40.

    `plots`: of up to four GPUs, where the page stays on one screen; they need colours.
    """
    if plots:
        rows = _page(report, width, glyphs, plots=True)
        if len(rows) <= _MAX_ROWS:
            return rows
    return _page(report, width, glyphs, plots=False)


def _page(report: Report, width: int, glyphs: str, plots: bool) -> list[Row]:
    parts = (
        _head(report, width),
        _do_this(report, width, glyphs),
        _findings(report, width, glyphs),
        task_rows(report.tasks, width) if report.tasks else [],
        attempt_rows("attempt", report.attempts, width),
        attempt_rows("segment", report.segments, width),
        device_rows(report, width, glyphs, plots),
        step_rows(report, width),
        event_rows(report, width, glyphs),
        resource_rows(report, width),
        _provenance(report, width),
    )
    rows: list[Row] = []
    for part in parts:
        if part:
            rows += [[], *part] if rows else part
    return [cut(row, width) for row in rows]


def finding_places(report: Report, width: int = 80, glyphs: str = "braille") -> list[int]:
    """The row of the page on which each finding begins."""
    do_this = _do_this(report, width, glyphs)
    at, found = len(_head(report, width)) + 1 + (len(do_this) + 1 if do_this else 0), []
    for each in report.findings:
        found.append(at)
        at += len(finding_rows(each, width, glyphs, _further_steps(report, each)))
    return found


def _further_steps(report: Report, finding: Finding) -> list[Step]:
    """Those that do not stand first."""
    first = first_steps(report.findings, report.recommendations)
    return [each for each in steps_of(finding, report.recommendations) if each not in first]


def finding_rows(
    finding: Finding, width: int, glyphs: str = "braille", steps: Sequence[Step] | None = None
) -> list[Row]:
    """One finding: what was measured, why it matters, and what to do; hanging behind its sign.

    `steps`: what to do; without it all of the finding's actions. A line to write or to send stands
    on a row of its own, unless one row holds it and its sentence.
    """
    signs = ASCII_SIGNS if glyphs == "ascii" else SIGNS
    role = ROLES[finding.level]
    title, rest = sentences(finding)
    rows = wrapped(signs[finding.level], title, width, role, "" if role == "dim" else role)
    if rest:
        rows += wrapped("", rest, width, "dim", "dim")
    arrow = "->" if glyphs == "ascii" else "→"
    for step in map(step_of, finding.actions) if steps is None else steps:
        rows += _step(step, arrow, width)
    return rows


def _step(step: Step, arrow: str, width: int) -> list[Row]:
    if step.text and step.line and len(f"{arrow} {step.text}  {step.line}") <= width:
        return [[(f"{arrow} ", "key"), (clean(step.text, 2000), ""), (f"  {step.line}", "key")]]
    rows: list[Row] = []
    for text, role in ((step.text, ""), (step.line, "key")):
        if text:
            rows += wrapped("" if rows else arrow, text, width, "key", role, 4 if rows else 2)
    return rows


# -- head ----------------------------------------------------------------------------------------


def _head(report: Report, width: int) -> list[Row]:
    title = f"gpumon report  {heading.job_name(report)}"
    rows = flow([(title, "title"), *((word, "") for word in heading.words(report))], width, "  ")
    facts, cost = heading.facts_text(report), heading.cost_text(report)
    if facts or cost:
        role = "bad" if heading.is_wasteful(report) else "dim"
        rows += flow([(facts, "dim"), (cost, role)], width)
    if report.preliminary:
        rows += wrapped("", f"{report.preliminary}.", width, "dim", "dim", indent=0)
    return rows


# -- findings and changes ------------------------------------------------------------------------


def _findings(report: Report, width: int, glyphs: str) -> list[Row]:
    rows = [
        row
        for each in report.findings
        for row in finding_rows(each, width, glyphs, _further_steps(report, each))
    ]
    sign, text = in_words(report)
    signs = ASCII_SIGNS if glyphs == "ascii" else SIGNS
    role = ROLES.get(sign, sign)
    return rows + (wrapped(signs[sign], text, width, role, role) if text else [])


def _do_this(report: Report, width: int, glyphs: str) -> list[Row]:
    steps = first_steps(report.findings, report.recommendations)
    if not steps and not report.recommendations:
        return []
    rows = _next_time(report, width) or [[("Do this", "title")]]
    for step in steps:
        rows += _step(step, "->" if glyphs == "ascii" else "→", width)
    return rows


def _next_time(report: Report, width: int) -> list[Row]:
    if not report.recommendations:
        return []
    sure = {each.id: each.confidence for each in report.findings}
    rows: list[Row] = [[(f"{'Do this':<27} {'now':<19} then", "title")]]
    for each in report.recommendations:
        change = each.change
        name = f"#SBATCH {change.option}" if change.option else "add to the script"
        line = f"  {name:<25} {clean(change.before_line, 60):<19} "
        after = clean(change.after_line, 200)
        if len(line) + len(after) > width:
            rows.append([(line.rstrip(), "")])
            line = " " * 6
        rows.append([(line, ""), (after, "key")])
        basis = each.adds
        if each.confidence not in ("high", sure.get(each.finding)):
            basis = ", ".join(filter(None, (basis, "an estimate")))
        if len(line) + len(after) + 2 + len(basis) <= width:
            rows[-1].append((f"  {basis}" if basis else "", "dim"))
        else:
            rows += wrapped("", basis, width, "dim", "dim", indent=6)
    return rows


# -- provenance ------------------------------------------------------------------------------------


def _provenance(report: Report, width: int) -> list[Row]:
    first, *more = provenance_lines(report)
    rows = wrapped("", first, width, "dim", "dim", indent=0)
    return rows + [row for line in more for row in wrapped("", line, width, "dim", "dim")]
