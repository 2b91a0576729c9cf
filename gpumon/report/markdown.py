"""The report as Markdown, for tickets and wikis. Text from jobs cannot become markup."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpumon.chart import spark
from gpumon.model.text import clean
from gpumon.model.units import bytes_text, clock_text
from gpumon.report.foot import foot_lines
from gpumon.report.model import DeviceRow, Report
from gpumon.report.page import SIGNS, busy_text, hours_text, page, plain, star_note
from gpumon.report.sentences import in_changes, sentences

_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&$@:])")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in a table's cell too."""
    return _MARKUP.sub(r"\\\1", " ".join(clean(text, 2000).split()))


def code(text: str) -> str:
    """As code: fenced by more backticks than it holds."""
    text = " ".join(clean(text, 2000).split()).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def markdown(report: Report) -> str:
    """One report; ends with a newline."""
    rows = list(plain(page(report, 100)))
    title = escape(rows[0].strip())
    parts = [f"## {title}", *_summary(report), *_findings(report), *_changes(report)]
    parts += _devices(report)
    parts += _used(report)
    parts += ["", *[f"_{escape(line)}_  " for line in foot_lines(report)]]
    return "\n".join(parts).rstrip() + "\n"


def _summary(report: Report) -> list[str]:
    job, words = report.job, []
    if job.name:
        words.append(f"**{escape(job.name)}**")
    words += [escape(each) for each in (job.user, job.partition, job.state) if each]
    if report.gpu_hours:
        wasted = hours_text(report.waste_gpu_hours) if report.waste_gpu_hours else "0"
        words.append(escape(f"{hours_text(report.gpu_hours)} GPU-h, {wasted} wasted"))
    return ["", " · ".join(words)] if words else []


def _findings(report: Report) -> list[str]:
    if not report.findings:
        return ["", f"{SIGNS['good']} Nothing found to change\\."]
    lines = [""]
    for each in report.findings:
        title, rest = sentences(each)
        lines.append(f"- {SIGNS[each.level]} **{escape(title)}** {escape(rest)}".rstrip())
        for action in each.actions:
            below = in_changes(action, report.recommendations)
            words = (escape(below), escape(action.text), "" if below else code(action.after))
            lines.append(f"  - {' '.join(filter(None, words))}")
    return lines


def _changes(report: Report) -> list[str]:
    if not report.recommendations:
        return []
    rows = [
        (code(each.directive or "add"), code(each.before), code(each.after), escape(each.basis))
        for each in report.recommendations
    ]
    return ["", "### Next time", "", *_table(("line", "now", "then", "because"), rows)]


def _devices(report: Report) -> list[str]:
    if not report.devices:
        return []
    rows = [_device(row) for row in report.devices]
    head = ("GPU", "busy mean / p50 / p95", "idle tail", "memory peak", "power", "over the run")
    lines = ["", "### GPUs", "", *_table(head, rows)]
    if note := star_note(report.devices):
        lines += ["", f"\\* {escape(note)}"]
    return lines


def _device(row: DeviceRow) -> tuple[str, ...]:
    star = "\\*" if row.mem_truth == "unknown" and row.mem_peak_bytes else ""
    return (
        escape(row.label),
        busy_text(row) if row.busy_mean is not None else escape(row.note or "n/a"),
        "n/a" if row.idle_tail_s is None else clock_text(row.idle_tail_s),
        "n/a" if row.mem_peak_bytes is None else bytes_text(row.mem_peak_bytes) + star,
        "n/a" if row.power_mean_w is None else f"{row.power_mean_w:.0f} W",
        spark(row.busy_over_time, min(16, len(row.busy_over_time))),
    )


def _used(report: Report) -> list[str]:
    used, job, seff = report.used, report.job, report.seff
    rows = []
    if job.allocated.cpus or used.cpu_cores_mean is not None:
        rows.append((
            "CPU cores", _number(job.allocated.cpus), _number(used.cpu_cores_peak),
            _number(used.cpu_cores_mean), _share(seff.cpu_percent), escape(seff.cpu_because),
        ))  # fmt: skip
    if job.allocated.mem_bytes or used.mem_peak_bytes is not None:
        rows.append((
            "memory", _bytes(job.allocated.mem_bytes), _bytes(used.mem_peak_bytes),
            _bytes(used.mem_mean_bytes), _share(seff.mem_percent),
            escape(" ".join(each for each in (seff.mem_because, used.mem_note) if each)),
        ))  # fmt: skip
    if job.time_limit_s and report.elapsed_s is not None:
        limit, elapsed = clock_text(job.time_limit_s), clock_text(report.elapsed_s)
        rows.append(("time", limit, elapsed, "", "", ""))
    if not rows:
        return []
    head = ("", "asked", "used (peak)", "used (mean)", "seff says", "because")
    return ["", "### Asked and used", "", *_table(head, rows)]


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3g}"


def _bytes(value: float | None) -> str:
    return "n/a" if value is None else bytes_text(value)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    line = "| " + " | ".join(head) + " |"
    rule = "|" + "---|" * len(head)
    return [line, rule, *("| " + " | ".join(row) + " |" for row in rows)]
