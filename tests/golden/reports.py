"""A report as its page, and as the numbers, ids and lines of its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpumon.report.build import build
from gpumon.report.model import Report
from gpumon.report.render.json import document
from gpumon.report.render.text import text
from tests.corpus.cases import Case
from tests.golden import files
from tests.simulator.array import SimArray
from tests.simulator.draw import make
from tests.simulator.job import SimJob
from tests.simulator.judge import report_of
from tests.simulator.score import score

#: of simulated jobs; the first 30 are those of `tests.simulator.test_verdicts`
SEED, JOBS = 7, 300
WIDTH, DIGITS = 80, 4
#: of JSON: sentences, what a page has too, and what differs from one version to the next
_PROSE = {
    "title", "evidence", "why", "action", "text", "basis", "note", "notes", "missing", "gpumon",
    "version", "differs_because", "cpu_because", "mem_because", "refs", "submit_line", "work_dir",
}  # fmt: skip
#: parts of JSON that are lists, as lines of their own
_LISTS = {
    "findings": "finding", "recommendations": "line", "devices": "device", "ranks": "rank",
    "events": "event", "attempts": "attempt", "segments": "segment",
}  # fmt: skip


class Said(NamedTuple):
    """What is said of one run: `group` and `title` say where it stands."""

    group: str  # corpus-cpu
    title: str
    page: str
    verdict: str

    def difference(self) -> str:
        return "".join(
            files.difference(f"{folder}/{self.group}", self.title, text)
            for folder, text in (("verdicts", self.verdict), ("pages", self.page))
        )


def of_case(case: Case) -> Said:
    report = build(case.evidence)
    return Said(f"corpus-{case.family}", case.name, text(report, WIDTH), verdict(report))


def of_job(number: int) -> Said:
    """Of a simulated job, also what is wrong with it."""
    job = make(SEED, number)
    report = report_of(job)
    group, title = where(job)
    wrong = [f"{each.kind} {each.level} {each.what}" for each in score(job, report).misses]
    said = "\n".join([verdict(report), *wrong])
    return Said(group, title, text(report, WIDTH), said)


def where(job: SimJob | SimArray) -> tuple[str, str]:
    """The file and the title of a simulated job."""
    kind = job.story.partition(": ")[0]
    return f"simulated-{kind.partition('.')[0]}", f"{job.seed}/{job.number} {kind}"


def verdict(report: Report) -> str:
    """A line for each finding, line to copy, device and group of numbers."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    body = document(report)
    for name, value in body.items():
        if name in _LISTS:
            yield from (_line(_LISTS[name], each) for each in value)
        elif name == "not_evaluable":
            for id, each in report.not_evaluable.items():
                lacks = [(one.kind.value, one.detail) for one in (each, *each.more)]
                yield _line("unknown", {"id": id, "lacks": sorted(map(" ".join, lacks))})
        elif name not in _PROSE:
            yield _line(name, value)


def _line(name: str, value: Any) -> str:
    found = _brief(value)
    if isinstance(found, dict) and (id := found.pop("id", "")):
        name = f"{name} {id}"
    return f"{name} {json.dumps(found, ensure_ascii=False)}"


def _brief(value: Any) -> Any:
    """Without sentences and what is empty; numbers to a few digits."""
    if isinstance(value, dict):
        pairs = ((name, _brief(each)) for name, each in value.items() if name not in _PROSE)
        return {name: each for name, each in pairs if each not in (None, "", [], {})}
    if isinstance(value, (list, tuple)):
        return [_brief(each) for each in value]
    if isinstance(value, float):
        return _round(value)
    return value


def _round(value: float) -> float | int:
    """Times of day to the second, all else to a few digits."""
    found = round(value) if 1e9 < value < 1e10 else float(f"{value:.{DIGITS}g}")
    return int(found) if found == int(found) else found
