"""What of one page, or of its JSON, contradicts another part of it.

Reads what is told and nothing of what is true: two values of one quantity, advice against a
finding, a verdict against the events below it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.analysis.finding import Change
from gpumon.report.model import Report
from gpumon.report.render.json import document
from gpumon.report.render.text import text

_WIDTH = 100
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = r"((?:\d+ (?:min|s|h|d)\b ?)+)"
_LAST = re.compile(rf"\b(idle|hung|hung up|computed|spun|stood)\b[^.;()]*? for the last {_SPAN}")
_WASTED = re.compile(r"([\d.]+)(?: of ([\d.]+))? GPU-h (?:wasted|not used)")
_WORKERS = re.compile(r"\b(num_workers|OMP_NUM_THREADS|--num-workers)=(\d+)")
_DIRECTIVE = re.compile(r"(?<![\w-])(--[a-z-]+)=([\w:.-]*\w)")
_FALSE_COMFORT = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")
#: s that a GPU was idle at the end, from which on it did not work until then
_IDLE_S = 600.0
#: of the GPU-hours; of percent, for values that cannot be more than all
_ROUNDING, _ALL = 0.1, 101.0
#: GPU-hours, which pages round
_ROUNDED_HOURS = 0.02


class Contradiction(NamedTuple):
    kind: str
    text: str


class Page(NamedTuple):
    """What a reader has: the page, its JSON, and the model that both are made of."""

    report: Report
    text: str  # with single spaces
    body: Mapping[str, Any]


def contradictions(report: Report) -> list[Contradiction]:
    page = Page(report, " ".join(text(report, _WIDTH).split()), document(report))
    return [Contradiction(name, each) for name, check in CHECKS.items() for each in check(page)]


# -- one quantity, two values ------------------------------------------------------------------


def _until_the_end(page: Page) -> Iterator[str]:
    """How long the same GPUs did nothing at the end."""
    known: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for each in page.report.findings:
        subject = _subject(page.report, each.subject, each.devices)
        for words in {each.title, each.evidence}:
            for what, span in _LAST.findall(words):
                known[f"{_kind(what)} {subject}"].append((*seconds(span), f"{each.id}: {span}"))
    tails = {row.label: row.idle_tail_s for row in page.report.devices}
    every = [each for each in tails.values() if each is not None]
    if every and len(every) == len(tails) and known.get("idle all"):
        known["idle all"].append((min(every), 60.0, f"table: {min(every):.0f} s"))
    for quantity, values in known.items():
        low, high = min(values), max(values)
        if high[0] - low[0] > max(60.0, low[1], high[1], 0.01 * high[0]):
            yield f"{quantity} for the last: {low[2]}, {high[2]}"


def _subject(report: Report, subject: str, devices: Sequence[str]) -> str:
    every = {row.label for row in report.devices}
    return "all" if not devices or set(devices) == every else ",".join(devices)


def _kind(word: str) -> str:
    return "hung" if word in ("hung", "hung up", "spun") else word


def seconds(span: str) -> tuple[float, float]:
    """Of `2 h 05 min`; and the smallest unit of it."""
    parts = re.findall(r"(\d+) (min|s|h|d)\b", span)
    return sum(int(n) * _UNITS[unit] for n, unit in parts), min(_UNITS[unit] for _, unit in parts)


def _waste(page: Page) -> Iterator[str]:
    """GPU-hours: in all, wasted, of these unexplained, and how many GPUs would have done."""
    report, body = page.report, page.body
    held, wasted = report.gpu_hours, report.waste_gpu_hours
    if held is None:
        return
    if wasted > held * 1.01 + 0.01:
        yield f"{wasted:.2f} GPU-h wasted of {held:.2f}"
    named = sum(each.waste_gpu_hours for each in report.findings)
    total = named + report.unattributed_gpu_hours
    if abs(total - wasted) > 0.02 * held + 0.01:
        yield f"{wasted:.2f} GPU-h wasted, and {total:.2f} in its findings and unexplained"
    shown = _WASTED.search(page.text)
    if shown and abs(float(shown[1]) - body["waste_gpu_hours"]) > 0.06 * wasted + 0.05:
        yield f"page: {shown[1]} GPU-h wasted, JSON: {body['waste_gpu_hours']}"


def _worth(page: Page) -> Iterator[str]:
    """GPUs that would have done the work, and the hours in which they did none, of those seen, nor
    others did.
    """
    report = page.report
    worth, gpus, held = report.used.gpus.used, report.gpus, report.gpu_hours
    if worth is None or not gpus or not held or report.coverage.interval_s is None:
        return
    seen = held * report.coverage.covered_percent / 100
    unused = (1 - worth / gpus) * seen - report.others_gpu_hours
    if abs(unused - report.waste_gpu_hours) > _ROUNDING * seen + _ROUNDED_HOURS:
        yield (f"{worth:.1f} of {gpus} GPUs' worth leaves {unused:.2f} GPU-h unused, and "
               f"{report.waste_gpu_hours:.2f} are called wasted")  # fmt: skip


def _lines(page: Page) -> Iterator[str]:
    """Two lines with different values of one option."""
    values: dict[str, set[str]] = defaultdict(set)
    for change in _changes(page.report):
        if change.option:
            values[change.option].add(str(change.after_line) or "none")
    shown = [each.text for found in page.report.findings for each in found.actions]
    shown += [str(each.after) for found in page.report.findings for each in found.actions]
    for words in shown:
        for option, value in _DIRECTIVE.findall(words):
            if option in values:
                values[option].add(value)
    for option, found in values.items():
        if len(found) > 1:
            yield f"{option}: {', '.join(sorted(found))}"


def _changes(report: Report) -> list[Change]:
    found = [each.change for each in report.recommendations]
    return found + [change for each in report.findings for action in each.actions
                    for change in action.changes]  # fmt: skip


def _json(page: Page) -> Iterator[str]:
    """The page and the JSON."""
    gpus, allocated = page.report.gpus, page.body["allocated"]["gpus"]
    if gpus and allocated is not None and allocated != gpus and not page.report.tasks:
        yield f"page: {gpus} GPUs, JSON: {allocated}"
    for each in page.body["recommendations"]:
        if each["after"] and str(each["after"]) not in page.text:
            yield f"JSON: {each['directive']}={each['after']}, not on the page"


def _beyond(page: Page) -> Iterator[str]:
    """More than all of it."""
    for name, value in page.body["efficiency"].items():
        if value is not None and value > _ALL and not name.startswith("mem"):
            yield f"{name} {value:.0f}"


# -- advice against a finding ------------------------------------------------------------------


def _longer(page: Page) -> Iterator[str]:
    """A longer limit, where the page has a hang, a lost GPU, or an idle end."""
    report = page.report
    longer = [change for change in _changes(report) if change.option == "--time"
              and isinstance(change.before, int) and isinstance(change.after, int)
              and change.after > change.before]  # fmt: skip
    ids = {each.id for each in report.findings}
    if not longer and "time-short" not in ids:
        return
    about = f"{longer[0].setting}" if longer else "time-short"
    yield from (f"{about} beside {each}" for each in _stopped(report))
    if longer and "time-over" in ids:
        yield f"{about} beside time-over"


def _stopped(report: Report) -> Iterator[str]:
    """Why a run did nothing at its end, as the page has it."""
    yield from (each.id for each in report.findings if each.id in ("suspected-hang", "idle-tail"))
    yield from (f"{each.label} {each.text}" for each in report.happenings
                if each.kind == "state" and each.level == "critical")  # fmt: skip


def _worked(page: Page) -> Iterator[str]:
    """GPUs that worked until the end, and did not."""
    if "GPUs worked until the end" not in page.text:
        return
    yield from (f"worked until the end beside {each}" for each in _stopped(page.report))
    for row in page.report.devices:
        if row.note.startswith("lost") or (row.idle_tail_s or 0.0) >= _IDLE_S:
            yield f"worked until the end, and {row.label}: {row.note or f'{row.idle_tail_s:.0f} s'}"


def _workers(page: Page) -> Iterator[str]:
    """Workers of one process, or threads, beyond the cores that its node would have."""
    job, found = page.report.job, page.report.findings
    cores = (job.allocated.cpus or 0) / max(1, len(job.nodes))
    for change in _changes(page.report):
        if change.option == "--cpus-per-task" and isinstance(change.after, int):
            tasks = (job.requested.tasks or 1) / max(1, len(job.nodes))
            cores = change.after * max(1.0, tasks)
    processes = len(page.report.ranks) / max(1, len(job.nodes)) or 1.0
    lines = [f"{each.text} {each.after}" for one in found for each in one.actions]
    for option, count in {each for line in lines for each in _WORKERS.findall(line)}:
        if cores and int(count) * processes > cores:
            yield f"{processes:.0f} × {option}={count} on {cores:.0f} cores"


# -- the verdict -------------------------------------------------------------------------------


def _comfort(page: Page) -> Iterator[str]:
    """No problems, above its own events or after a bad end."""
    if "No problems found" not in page.text:
        return
    if page.report.job.state in _FALSE_COMFORT:
        yield f"no problems, and {page.report.job.state}"
    for each in page.report.happenings:
        if each.level in ("critical", "warning"):
            yield f"no problems, and {each.level}: {each.label} {each.text}"


CHECKS: dict[str, Callable[[Page], Iterator[str]]] = {
    "until the end": _until_the_end,
    "waste": _waste,
    "GPUs' worth": _worth,
    "lines": _lines,
    "JSON": _json,
    "beyond all": _beyond,
    "longer limit": _longer,
    "worked until the end": _worked,
    "workers": _workers,
    "no problems": _comfort,
}
