"""The page's tables of what was requested and used: by the job, an array's tasks, its attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, span_text
from gpumon.report.model import Attempt, Report, Spread, Tasks
from gpumon.report.render.layout import NOT_KNOWN, Row, columns, percent, size, wrapped
from gpumon.report.usage import Use
from gpumon.slurm.job import Job


def memory_given(job: Job) -> str:
    """Of all nodes; "all" where --mem=0 asked for whatever they have, and nobody knows it."""
    given = job.allocated.mem_bytes
    return "all" if given is None and job.requested.mem_form_bytes == 0 else size(given)


class Resource(NamedTuple):
    """One resource, requested against used: in words, and as shares of the request (0 to 1)."""

    name: str
    use: Use
    text: Callable[[float | None], str]
    requested: str
    note: str = ""
    seff: str = ""
    because: str = ""  # why seff's figure differs

    @property
    def peak(self) -> str:
        return self.text(self.use.peak)

    @property
    def mean(self) -> str:
        return "" if self.name == "time" else self.text(self.use.used)


def resources(report: Report) -> list[Resource]:
    """What the job requested and used; empty for an array, whose tasks have tables of their own."""
    used, seff, job = report.used, report.seff, report.job
    if report.tasks or job.is_pending:
        return []
    cores, mem, gpus = used.cores, used.mem, used.gpus._replace(given=report.gpus)
    cpu = _seff_share(seff.cpu_percent), seff.cpu_because
    memory = _seff_share(seff.mem_percent), seff.mem_because
    found = [
        Resource("CPU", cores, _cores, _cores(cores.given), _note(cores, used.cpu_note), *cpu),
        Resource("memory", mem, size, memory_given(job), _note(mem, used.mem_note), *memory),
    ]
    found = [each for each in found if each.use.given or each.use.is_known]
    if gpus.is_known or gpus.why:
        found.append(Resource("GPUs", gpus, _cores, _cores(gpus.given), gpus.why))
    if report.elapsed_s is not None and job.time_limit_s:
        time = Use(given=job.time_limit_s, peak=report.elapsed_s)
        found.append(
            Resource(
                "time", time, lambda _: age_text(time.peak or 0.0), span_text(job.time_limit_s)
            )
        )
    return found


def _seff_share(value: float | None) -> str:
    """What seff says, where it says anything."""
    return "" if value is None else f"{value:.1f} %"


def given_words(report: Report) -> tuple[str, str]:
    """What there was of each resource: in a word, and in a title with its use."""
    if report.has_job:
        return "requested", "Requested and used"
    return "on node", "On the node and used"


def _note(use: Use, note: str) -> str:
    """Why it is not known, and on what it rests."""
    return "; ".join(each for each in (use.why if use.why not in note else "", note) if each)


def resource_rows(report: Report, width: int) -> list[Row]:
    lines = resources(report)
    if not lines:
        return []
    has_seff = report.seff.cpu_percent is not None
    widths = (10, 12, 12, 10) if has_seff else (10, 12, 12)
    head = columns(("", given_words(report)[0], "used (peak)", "used (mean)", "seff"), 7, widths)
    head += "  because" if any(0 < len(each.because) < width - 53 for each in lines) else ""
    rows: list[Row] = [[(head, "title")]]
    for each in lines:
        cells = columns((each.name, each.requested, each.peak, each.mean, each.seff), 7, widths)
        fits = len(each.because) <= width - len(cells) - 2
        rows.append([(cells, ""), (f"  {each.because}" if each.because and fits else "", "dim")])
        if not fits:
            text = f"seff differs: {each.because}"
            rows += wrapped("", text, width, "dim", "dim", indent=8)
    for each in lines:
        if each.note:
            rows += wrapped("", f"{each.name}: {each.note}", width, "dim", "dim", indent=8)
    return rows


def _cores(value: float | None) -> str:
    if value is None:
        return NOT_KNOWN
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


class Table(NamedTuple):
    """The cells of a table; the first column is of names, the others are of figures."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def task_table(tasks: Tasks) -> Table:
    """How figures are spread over an array's tasks."""
    return Table(
        ("", "min", "p50", "p95", "max", "requested"), [_spread(each) for each in tasks.spreads]
    )


def task_notes(tasks: Tasks) -> list[str]:
    """Which figures some tasks lack, and which tasks are far from the rest."""
    notes, in_all = [], sum(tasks.states.values())
    for count in sorted({each.count for each in tasks.spreads} - {in_all}):
        names = ", ".join(each.name for each in tasks.spreads if each.count == count)
        notes.append(f"{names}: known of {count} of {in_all} tasks")
    for each in tasks.spreads:
        if each.outliers:
            named = ", ".join(each.outliers[:8])
            more = len(each.outliers) - 8
            named += f" and {more} more" if more > 0 else ""
            notes.append(f"far from the rest in {each.name}: {named}")
    return notes


def states_text(tasks: Tasks) -> str:
    return ", ".join(f"{count} {state}" for state, count in tasks.states.items())


def task_rows(tasks: Tasks, width: int) -> list[Row]:
    rows: list[Row] = [[("Tasks of the array  ", "title"), (states_text(tasks), "")]]
    table = task_table(tasks)
    for n, cells in enumerate([table.head, *table.rows] if table.rows else []):
        rows.append([(f"  {columns(cells, 14, [11] * 5)}", "" if n else "dim")])
    for note in task_notes(tasks):
        rows += wrapped("", note, width, "dim", "dim")
    return rows


def _spread(each: Spread) -> tuple[str, ...]:
    def text(value: float | None) -> str:
        if value is None:
            return ""
        if each.unit == "B":
            return bytes_text(value)
        if each.unit == "s":
            return age_text(value)
        return f"{value:.0f} %" if each.unit == "%" else _cores(value)

    return (each.name, *map(text, (each.low, each.p50, each.p95, each.high, each.asked)))


def attempt_table(word: str, attempts: Sequence[Attempt]) -> Table:
    rows = []
    for each in attempts:
        lasted = None if each.start is None or each.end is None else each.end - each.start
        rows.append((
            " ".join(part for part in (clean(each.name, 60), each.state) if part),
            NOT_KNOWN if lasted is None else age_text(lasted), _cores(each.cpu_cores_peak),
            size(each.mem_peak_bytes), size(each.gpu_mem_peak_bytes),
            percent(each.gpu_busy_percent),
        ))  # fmt: skip
    return Table((word, "length", "cores", "memory", "GPU mem", "busy"), rows)


def attempt_rows(word: str, attempts: Sequence[Attempt], width: int) -> list[Row]:
    if not attempts:
        return []
    table = attempt_table(word, attempts)

    def line(cells: Sequence[str]) -> str:
        return columns((cells[0][:28], *cells[1:]), 28, (11, 7, 9, 9, 6), " ")

    rows: list[Row] = [[(line(table.head), "title")]]
    for cells, each in zip(table.rows, attempts):
        rows.append([(line(cells), "")])
        rows += wrapped("", each.note, width, "dim", "dim") if each.note else []
    return rows
