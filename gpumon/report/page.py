"""The report as rows of (text, role) runs: one page that fits 80 columns and a ticket.

The terminal colours the roles, the screen too; joined they are the plain text. Order: what it is,
what is wrong (worst first), what to change, each GPU, requested against used, and on what all of
it rests.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from gpumon.analysis.finding import Finding, Recommendation
from gpumon.chart import spark
from gpumon.model.text import clean
from gpumon.model.units import bytes_text, clock_text
from gpumon.report.foot import foot_lines
from gpumon.report.model import Attempt, DeviceRow, Report, Spread, Tasks
from gpumon.report.plots import plot_rows
from gpumon.report.sentences import action_text, sentences, steps_of

Row = list[tuple[str, str]]

SIGNS = {"critical": "●", "warning": "▲", "info": "·", "good": "✓", "unknown": "?"}
ASCII_SIGNS = {"critical": "!", "warning": "^", "info": "-", "good": "+", "unknown": "?"}
ROLES = {"critical": "bad", "warning": "attention", "info": "dim"}
_MAX_DEVICES = 32
_SPARK = 14
#: a page with plots is no longer than this
_MAX_ROWS = 60
_NOT_KNOWN = "n/a"


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
        _verdicts(report, width, glyphs),
        _next_time(report, width),
        _tasks(report.tasks, width) if report.tasks else [],
        _attempts("attempt", report.attempts, width),
        _attempts("segment", report.segments, width),
        _devices(report, width, glyphs, plots),
        _resources(report, width),
        _foot(report, width),
    )
    rows: list[Row] = []
    for part in parts:
        if part:
            rows += [[], *part] if rows else part
    return [_cut(row, width) for row in rows]


def finding_rows(
    finding: Finding,
    width: int,
    glyphs: str = "braille",
    steps: Sequence[str] | None = None,
) -> list[Row]:
    """One finding: what was measured, why it matters, and what to do; hanging behind its sign.

    `steps`: what to do, a line each; without it all of the finding's actions.
    """
    signs = ASCII_SIGNS if glyphs == "ascii" else SIGNS
    role = ROLES[finding.level]
    title, rest = sentences(finding)
    rows = _wrapped(signs[finding.level], title, width, role, "" if role == "dim" else role)
    if rest:
        rows += _wrapped("", rest, width, "dim", "dim")
    arrow = "->" if glyphs == "ascii" else "→"
    for step in map(action_text, finding.actions) if steps is None else steps:
        rows += _wrapped(arrow, step, width, "key", "", indent=2)
    return rows


# -- head ----------------------------------------------------------------------------------------


def _head(report: Report, width: int) -> list[Row]:
    job = report.job
    who = "/".join(each for each in (job.user, job.account) if each)
    state = job.state or ("RUNNING" if report.running else "")
    if report.running:
        state = f"{state} (so far)" if state else "so far"
    elif job.exit_code and (job.exit_code.code or job.exit_code.signal):
        state = f"{state} {job.exit_code}"
    title = f"gpumon report  {job.id or job.raw_id or 'this node'}"
    words = [clean(job.name, 40), clean(who, 40), clean(job.partition, 24), state, _time(report)]
    rows = _flow([(title, "title"), *((word, "") for word in words if word)], width, "  ")
    facts = _facts(report)
    cost = _cost(report)
    if facts or cost:
        rows += _flow([(facts, "dim"), (cost, "bad" if report.waste_gpu_hours else "dim")], width)
    return rows


def _time(report: Report) -> str:
    job = report.job
    limit = clock_text(job.time_limit_s) if job.time_limit_s else job.time_limit_words
    if report.elapsed_s is None:
        return f"limit {limit}" if limit and job.is_pending else ""
    return f"{clock_text(report.elapsed_s)} of {limit}" if limit else clock_text(report.elapsed_s)


def _facts(report: Report) -> str:
    job, words = report.job, []
    if job.nodes:
        plural = "s" if len(job.nodes) > 1 else ""
        words.append(f"{len(job.nodes)} node{plural} {clean(job.node_list or job.nodes[0], 40)}")
    names = sorted({row.name for row in report.devices if row.name})
    gpus = len(report.devices) or job.gpus
    if gpus:
        kinds = "/".join(job.allocated.gpu_types) or "GPUs"
        words.append(f"{gpus} × {short_model(names[0]) if len(names) == 1 else kinds}")
    if job.allocated.cpus:
        words.append(f"{job.allocated.cpus} core{'s' if job.allocated.cpus > 1 else ''}")
    if job.allocated.mem_bytes:
        words.append(bytes_text(job.allocated.mem_bytes))
    return " · ".join(words)


def _cost(report: Report) -> str:
    if not report.gpu_hours:
        return ""
    text = f"{hours_text(report.gpu_hours)} GPU-h"
    return (
        f"{text}, {hours_text(report.waste_gpu_hours)} wasted" if report.waste_gpu_hours else text
    )


def short_model(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` as `A100-SXM4-80GB`."""
    return clean(name.removeprefix("NVIDIA "), 32)


def hours_text(hours: float) -> str:
    """GPU-hours: `0.25`, `4.5`, `120`."""
    return f"{hours:.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 0.95 else f"{hours:.2g}"


# -- findings and changes ------------------------------------------------------------------------


def _verdicts(report: Report, width: int, glyphs: str) -> list[Row]:
    if report.findings:
        return [
            row
            for each in report.findings
            for row in finding_rows(each, width, glyphs, steps_of(each, report.recommendations))
        ]
    signs = ASCII_SIGNS if glyphs == "ascii" else SIGNS
    if report.job.is_pending:
        return []
    what = "Nothing found to change"
    what += " in what could be judged: see the end." if report.not_evaluable else "."
    return _wrapped(signs["good"], what, width, "good", "good")


def _next_time(report: Report, width: int) -> list[Row]:
    if not report.recommendations:
        return []
    said = {each.id: each for each in report.findings}
    rows: list[Row] = [[(f"{'Next time':<27} {'now':<19} then", "title")]]
    for each in report.recommendations:
        name = f"#SBATCH {each.directive}" if each.directive else "add to the script"
        line = f"  {name:<25} {clean(each.before, 60) or '':<19} "
        after = clean(each.after, 200) or "(delete the line)"
        if len(line) + len(after) > width:
            rows.append([(line.rstrip(), "")])
            line = " " * 6
        rows.append([(line, ""), (after, "key")])
        basis = _basis(each, said.get(each.finding))
        if len(line) + len(after) + 2 + len(basis) <= width:
            rows[-1].append((f"  {basis}" if basis else "", "dim"))
        else:
            rows += _wrapped("", basis, width, "dim", "dim", indent=6)
    return rows


def _basis(change: Recommendation, finding: Finding | None) -> str:
    """On what the new value rests, as far as its finding has not said so above."""
    basis, sure = change.basis, change.confidence
    if finding is not None:
        basis = basis.removeprefix(finding.evidence).lstrip(" ,;")
        basis = "" if any(basis == action.text for action in finding.actions) else basis
        sure = "high" if sure == finding.confidence else sure
    return ", ".join(
        part for part in (basis, "" if sure == "high" else f"{sure} confidence") if part
    )


# -- GPUs ----------------------------------------------------------------------------------------


def _devices(report: Report, width: int, glyphs: str, plots: bool) -> list[Row]:
    gpus = report.job.gpus
    if not report.devices:
        if not gpus:
            return []
        if report.job.is_pending:
            return []
        how = f"how the {gpus} were used" if gpus > 1 else "how the one was used"
        text = (
            f"GPUs: Slurm's accounting does not say {how}."
            " Record next time: gpumon record -- COMMAND"
        )
        return _wrapped("?" if glyphs == "ascii" else SIGNS["unknown"], text, width, "unknown", "")
    label_width = max(8, *(len(clean(row.label, 24)) for row in report.devices))
    head = f"{'GPU':<{label_width}}  busy mean/p50/p95  idle tail  mem peak    power"
    drawn = plot_rows(report.devices, report.elapsed_s, width, glyphs) if plots else []
    sparks = width >= 78 and not drawn and any(row.busy_over_time for row in report.devices)
    rows: list[Row] = [[(head + ("   over the run" if sparks else ""), "title")]]
    for row in report.devices[:_MAX_DEVICES]:
        rows.append(_device(row, label_width, width if sparks else 0, glyphs))
    if len(report.devices) > _MAX_DEVICES:
        more = len(report.devices) - _MAX_DEVICES
        rows.append([(f"and {more} more; --format json lists all", "dim")])
    note = star_note(report.devices)
    return [*rows, *([[(f"* {note}", "dim")]] if note else []), *drawn]


def star_note(devices: Sequence[DeviceRow]) -> str:
    """What the star behind a peak of memory means; nothing where none has one."""
    starred = [row for row in devices if row.mem_truth == "unknown" and row.mem_peak_bytes]
    if not starred:
        return ""
    if all(row.framework for row in starred):
        return "reserved by the framework, not proven need"
    return "may be a framework's reservation: the need is not known"


def _device(row: DeviceRow, label_width: int, width: int, glyphs: str) -> Row:
    """`width` 0: without the course over the run."""
    busy = busy_text(row)
    tail = _NOT_KNOWN if row.idle_tail_s is None else _minutes(row.idle_tail_s)
    percent = row.mem_peak_percent
    star = "*" if row.mem_truth == "unknown" and row.mem_peak_bytes else ""
    memory = (
        f"{percent:.0f} %{star}"
        if percent is not None
        else bytes_text(row.mem_peak_bytes) + star
        if row.mem_peak_bytes is not None
        else _NOT_KNOWN
    )
    power = _NOT_KNOWN if row.power_mean_w is None else f"{row.power_mean_w:.0f} W"
    cells: Row = [
        (f"{clean(row.label, 24):<{label_width}}  ", ""),
        (f"{busy:>17}  ", "busy"),
        (f"{tail:>9}  ", ""),
        (f"{memory:>8}", "mem"),
        (f"{power:>9}", ""),
    ]
    if row.note:
        cells.append((f"  {clean(row.note, 30)}", "bad"))
    elif row.busy_over_time and width:
        room = min(_SPARK, len(row.busy_over_time), width - label_width - 52)
        cells.append(("   " + spark(row.busy_over_time, room, glyphs=glyphs), "busy"))
    return cells


def busy_text(row: DeviceRow) -> str:
    """`91/94/99 %`: mean, median and 95th percentile, as far as they are known."""
    if row.busy_mean is None:
        return _NOT_KNOWN
    if row.busy_p50 is None:
        return f"mean {row.busy_mean:.0f} %"
    return "/".join(_percent(each) for each in (row.busy_mean, row.busy_p50, row.busy_p95)) + " %"


def _percent(value: float | None) -> str:
    return _NOT_KNOWN if value is None else f"{value:.0f}"


def _minutes(seconds: float) -> str:
    """Hours and minutes as `5:10`."""
    return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02d}"


# -- requested against used ----------------------------------------------------------------------


def _resources(report: Report, width: int) -> list[Row]:
    used, seff, job = report.used, report.seff, report.job
    lines: list[tuple[str, str, str, str, str, str]] = []
    if job.allocated.cpus or used.cpu_cores_mean is not None:
        lines.append((
            "CPU", _cores(job.allocated.cpus), _cores(used.cpu_cores_peak),
            _cores(used.cpu_cores_mean), _share(seff.cpu_percent), seff.cpu_because,
        ))  # fmt: skip
    if job.allocated.mem_bytes or used.mem_peak_bytes is not None:
        lines.append((
            "memory", _bytes(job.allocated.mem_bytes), _bytes(used.mem_peak_bytes),
            _bytes(used.mem_mean_bytes), _share(seff.mem_percent), seff.mem_because,
        ))  # fmt: skip
    if report.elapsed_s is not None and job.time_limit_s:
        lines.append((
            "time", clock_text(job.time_limit_s), clock_text(report.elapsed_s), "",
            "", "",
        ))  # fmt: skip
    if not lines or report.tasks or job.is_pending:
        return []
    head = f"{'':<7}{'asked':>10}{'used (peak)':>12}{'used (mean)':>12}"
    head += f"{'seff says':>10}" if seff.cpu_percent is not None else ""
    head += "  because" if any(each[5] and len(each[5]) < width - 53 for each in lines) else ""
    rows: list[Row] = [[(head, "title")]]
    for name, asked, peak, mean, says, because in lines:
        cells = f"{name:<7}{asked:>10}{peak:>12}{mean:>12}"
        cells += f"{says:>10}" if seff.cpu_percent is not None else ""
        room = width - len(cells) - 2
        if len(because) <= room:
            rows.append([(cells, ""), (f"  {because}" if because else "", "dim")])
        else:
            rows.append([(cells, "")])
            rows += _wrapped("", f"seff differs: {because}", width, "dim", "dim", indent=8)
    if used.mem_note:
        rows += _wrapped("", f"memory: {used.mem_note}", width, "dim", "dim", indent=8)
    if used.cpu_note:
        rows += _wrapped("", f"CPU: {used.cpu_note}", width, "dim", "dim", indent=8)
    return rows


def _cores(value: float | None) -> str:
    if value is None:
        return _NOT_KNOWN
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _bytes(value: float | None) -> str:
    return _NOT_KNOWN if value is None else bytes_text(value)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


# -- arrays, attempts, segments ------------------------------------------------------------------


def _tasks(tasks: Tasks, width: int) -> list[Row]:
    states = ", ".join(f"{count} {state}" for state, count in tasks.states.items())
    rows: list[Row] = [[("Tasks of the array  ", "title"), (states, "")]]
    if tasks.spreads:
        rows.append(
            [(f"  {'':<14}{'min':>11}{'p50':>11}{'p95':>11}{'max':>11}{'asked':>11}", "dim")]
        )
        rows += [_spread(each) for each in tasks.spreads]
        for each in tasks.spreads:
            if each.outliers:
                named = ", ".join(each.outliers[:8])
                more = len(each.outliers) - 8
                named += f" and {more} more" if more > 0 else ""
                rows += _wrapped("", f"far from the rest in {each.name}: {named}", width, "dim", "")
    return rows


def _spread(each: Spread) -> Row:
    def text(value: float | None) -> str:
        if value is None:
            return ""
        if each.unit == "B":
            return bytes_text(value)
        if each.unit == "s":
            return clock_text(value)
        return f"{value:.0f} %" if each.unit == "%" else _cores(value)

    values = (each.low, each.p50, each.p95, each.high, each.asked)
    return [(f"  {each.name:<14}" + "".join(f"{text(value):>11}" for value in values), "")]


def _attempts(word: str, attempts: Sequence[Attempt], width: int) -> list[Row]:
    if not attempts:
        return []
    head = f"{word:<28} {'length':>11} {'cores':>7} {'memory':>9} {'GPU mem':>9} {'busy':>6}"
    rows: list[Row] = [[(head, "title")]]
    for each in attempts:
        lasted = None if each.start is None or each.end is None else each.end - each.start
        name = " ".join(part for part in (clean(each.name, 60), each.state) if part)
        cells = (
            f"{name[:28]:<28} {_NOT_KNOWN if lasted is None else clock_text(lasted):>11}"
            f" {_cores(each.cpu_cores_peak):>7} {_bytes(each.mem_peak_bytes):>9}"
            f" {_bytes(each.gpu_mem_peak_bytes):>9} {_percent(each.gpu_busy_percent):>6}"
        )
        rows.append([(cells, "")])
        rows += _wrapped("", each.note, width, "dim", "dim") if each.note else []
    return rows


# -- foot ----------------------------------------------------------------------------------------


def _foot(report: Report, width: int) -> list[Row]:
    first, *more = foot_lines(report)
    rows = _wrapped("", first, width, "dim", "dim", indent=0)
    return rows + [row for line in more for row in _wrapped("", line, width, "dim", "dim")]


# -- rows ----------------------------------------------------------------------------------------


def _wrapped(
    sign: str, text: str, width: int, sign_role: str, role: str, indent: int = 2
) -> list[Row]:
    """`text` wrapped behind a hanging `sign`."""
    text = clean(text, 2000)
    lead = " " * (indent if not sign else max(0, indent - 2))
    head = f"{lead}{sign} " if sign else lead
    hang = " " * len(head)
    lines = textwrap.wrap(text, max(20, width - len(head)), break_long_words=True) or [""]
    rows: list[Row] = [[(head, sign_role), (lines[0], role)]]
    rows += [[(hang, ""), (line, role)] for line in lines[1:]]
    return rows


def _cut(row: Row, width: int) -> Row:
    """The row in at most `width` cells; only tables in a narrow terminal are ever longer."""
    kept: Row = []
    for text, role in row:
        if text[:width]:
            kept.append((text[:width], role))
        width -= len(text[:width])
    return kept


def _flow(parts: Sequence[tuple[str, str]], width: int, gap: str = "   ") -> list[Row]:
    """Parts side by side, on as many rows as they need."""
    rows: list[Row] = []
    used = 0
    for text, role in parts:
        if not text:
            continue
        if rows and used + len(gap) + len(text) <= width:
            rows[-1] += [(gap, ""), (text, role)]
            used += len(gap) + len(text)
        else:
            rows.append([("  " if rows else "", ""), (text[:width], role)])
            used = len(rows[-1][0][0]) + len(text)
    return rows


def plain(rows: Sequence[Row]) -> Iterator[str]:
    """The rows as lines of text."""
    for row in rows:
        yield "".join(text for text, _ in row).rstrip()
