"""The report as rows of (text, role) runs: one page that fits 80 columns and a ticket.

The terminal colours the roles, the screen too; joined they are the plain text. Order: heading, what
to do, findings (worst first), a row for each GPU, events, requested against used, sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpumon.analysis.finding import Finding, Recommendation
from gpumon.model.text import clean
from gpumon.model.units import plural
from gpumon.report.advice import Box, Step, box_of, step_of
from gpumon.report.model import Report
from gpumon.report.provenance import provenance_lines
from gpumon.report.render import heading
from gpumon.report.render.devices import device_rows
from gpumon.report.render.events import event_rows
from gpumon.report.render.layout import Row, cut, flow, leveled, wrapped
from gpumon.report.render.steps import step_rows
from gpumon.report.render.used import attempt_rows, resource_rows, task_rows
from gpumon.report.sentences import parts, sentences
from gpumon.report.verdict import in_words

#: a page with plots is no longer than this
_MAX_ROWS = 60
#: what a page that is not whole has of each
_MOST_FINDINGS = 3
#: GPUs, ranks and events that are listed
_ALL, _SOME = (32, 8, 8), (8, 2, 3)


class Block(NamedTuple):
    """Rows of the page that belong together. `lines`: what is copied of them, where a cursor can
    stand on them; `finding`: the one that they are of.
    """

    rows: list[Row]
    lines: tuple[str, ...] = ()
    finding: Finding | None = None
    is_more: bool = False  # it stands for what a page that is not whole leaves out


def page(
    report: Report, width: int = 80, glyphs: str = "braille", *, plots: bool = False,
    whole: bool = True,
) -> list[Row]:  # fmt: skip
    """All rows, none wider than `width` cells as long as that is at least 40.

    `plots`: of up to four GPUs, where the page stays on one screen; they need colours. `whole`: all
    findings, and all that there is to say of each; else three in brief, and no reasons of checks
    that were skipped.
    """
    for with_plots in (True, False) if plots else (False,):
        made = blocks(report, width, glyphs, plots=with_plots, whole=whole)
        rows = [row for block in made for row in block.rows]
        if len(rows) <= _MAX_ROWS:
            break
    return rows


def blocks(
    report: Report, width: int, glyphs: str = "braille", *, plots: bool = False,
    whole: bool = True, key: str = "--all",
) -> list[Block]:  # fmt: skip
    """The page's rows, in blocks. `key`: with which the rest of it is seen."""
    gpus, ranks, events = _ALL if whole else _SOME
    rest = (
        task_rows(report.tasks, width) if report.tasks else [],
        attempt_rows("attempt", report.attempts, width),
        attempt_rows("segment", report.segments, width),
        device_rows(report, width, glyphs, plots, gpus),
        step_rows(report, width, ranks),
        event_rows(report, width, glyphs, events),
        resource_rows(report, width),
        _provenance(report, width, whole),
    )
    box = box_of(report)
    head, first = [Block(_head(report, width))], _do_this(report, box, width, glyphs)
    told = _findings(report, box, width, glyphs) if whole else _in_brief(report, width, glyphs, key)
    found: list[Block] = []
    for part in (head, first, told, *([Block(each)] for each in rest)):
        if any(block.rows for block in part):
            found += [Block([[]]), *part] if found else part
    return [block._replace(rows=[cut(row, width) for row in block.rows]) for block in found]


def finding_rows(finding: Finding, width: int, glyphs: str = "braille") -> list[Row]:
    """One finding with all that there is to do about it."""
    steps = map(step_of, finding.actions)
    return [row for each in _finding(finding, steps, width, glyphs) for row in each.rows]


def _finding(finding: Finding, steps: Iterable[Step], width: int, glyphs: str) -> Iterator[Block]:
    """What was measured, why it matters, and what to do; hanging behind its sign."""
    title, rest = sentences(finding)
    yield Block(leveled(finding.level, title, width, glyphs), (title,), finding)
    if rest:
        yield Block(wrapped("", rest, width, "dim", "dim"))
    for step in steps:
        yield _step(step, width, glyphs, finding)


def _step(step: Step, width: int, glyphs: str, finding: Finding | None = None) -> Block:
    """A line to write or to send stands on a row of its own, unless one row holds it and its
    sentence.
    """
    arrow = "->" if glyphs == "ascii" else "→"
    if step.text and step.line and len(f"{arrow} {step.text}  {step.line}") <= width:
        row: Row = [(f"{arrow} ", "key"), (clean(step.text, 2000), ""), (f"  {step.line}", "key")]
        return Block([row], (step.copied,), finding)
    rows: list[Row] = []
    for text, role in ((step.text, ""), (step.line, "key")):
        if text:
            rows += wrapped("" if rows else arrow, text, width, "key", role, 4 if rows else 2)
    return Block(rows, (step.copied,), finding)


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


def _findings(report: Report, box: Box, width: int, glyphs: str) -> list[Block]:
    found: list[Block] = []
    for each in report.findings:
        found += _finding(each, box.rest(each), width, glyphs)
    return found + _answer(report, width, glyphs)


def _in_brief(report: Report, width: int, glyphs: str, key: str) -> list[Block]:
    """Three findings, each with one more sentence, where a row holds it; and what is left out."""
    found: list[Block] = []
    for finding in report.findings[:_MOST_FINDINGS]:
        title, *rest = parts(finding)
        rows = leveled(finding.level, title, width, glyphs)
        found.append(Block(rows, (title,), finding))
        if len(rows) == 1 and (fit := [each for each in rest if len(each) <= width - 2]):
            found.append(Block([[(f"  {fit[0]}", "dim")]]))
    found += _answer(report, width, glyphs, counts=False)
    return found + _more(report, key)


def _more(report: Report, key: str) -> list[Block]:
    """What a page in brief leaves out."""
    findings, checks = len(report.findings) - _MOST_FINDINGS, len(report.not_evaluable)
    left = [plural(findings, "finding")] if findings > 0 else []
    left += ["reasons"] if report.findings else []
    left += [plural(checks, "skipped check")] if checks else []
    return [Block([[(f"  More ({key}): {', '.join(left)}", "dim")]], is_more=True)] if left else []


def _answer(report: Report, width: int, glyphs: str, *, counts: bool = True) -> list[Block]:
    sign, text = in_words(report, counts=counts)
    return [Block(leveled(sign, text, width, glyphs))] if text else []


def _do_this(report: Report, box: Box, width: int, glyphs: str) -> list[Block]:
    by_id = {each.id: each for each in report.findings}
    changes = [_change(each, width, by_id.get(each.finding)) for each in box.changes]
    steps = [_step(each, width, glyphs, box.cause(each, report.findings)) for each in box.steps]
    found: list[Block] = []
    for part in filter(None, box.in_order(changes, steps)):
        title = "Next time" if found and part is changes else "" if found else "Do this"
        title = f"{title:<27} {'now':<19} then" if part is changes else title
        found += [*([Block([[(title, "title")]])] if title else []), *part]
    return found


def _change(recommended: Recommendation, width: int, finding: Finding | None) -> Block:
    change = recommended.change
    name = f"#SBATCH {change.option}" if change.option else "add to the script"
    line = f"  {name:<25} {clean(change.before_line, 60):<19} "
    after = clean(change.after_line, 200)
    rows: list[Row] = []
    if len(line) + len(after) > width:
        rows.append([(line.rstrip(), "")])
        line = " " * 6
    rows.append([(line, ""), (after, "key")])
    basis = recommended.adds
    if recommended.confidence not in ("high", finding and finding.confidence):
        basis = ", ".join(filter(None, (basis, "an estimate")))
    if len(line) + len(after) + 2 + len(basis) <= width:
        rows[-1].append((f"  {basis}" if basis else "", "dim"))
    else:
        rows += wrapped("", basis, width, "dim", "dim", indent=6)
    return Block(rows, (change.line,) if change.line else (), finding)


# -- provenance ------------------------------------------------------------------------------------


def _provenance(report: Report, width: int, whole: bool) -> list[Row]:
    first, *more = provenance_lines(report, whole=whole)
    rows = wrapped("", first, width, "dim", "dim", indent=0)
    return rows + [row for line in more for row in wrapped("", line, width, "dim", "dim")]
