"""The page's rows of GPUs: one each, with what was used and, where there is room, over the run."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.accounting import gpus_unknown
from gpumon.analysis.rules.phrasing import labels_text, range_text
from gpumon.analysis.summary import DeviceRow
from gpumon.chart.bars import spark_of_all
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, plural
from gpumon.report.model import Report
from gpumon.report.render.layout import NOT_KNOWN, SIGNS, Row, percent, size, watts, wrapped
from gpumon.report.render.plots import plot_rows
from gpumon.report.usage import Use

_MAX_DEVICES = 32
_SPARK = 14


def device_rows(
    report: Report, width: int, glyphs: str, plots: bool, most: int = _MAX_DEVICES
) -> list[Row]:
    """Of more than `most` those that did least."""
    gpus = report.job.gpus
    if not report.devices:
        # of an array, recordings of its tasks may have it
        is_known = report.tasks is not None and "gpu" not in report.coverage.missing
        if not gpus or report.job.is_pending or is_known:
            return []
        what = f"{plural(gpus, 'GPU')}: {gpus_unknown(report.job)}"
        text = f"{what}. Record the next run: gpumon record -- COMMAND"
        return wrapped("?" if glyphs == "ascii" else SIGNS["unknown"], text, width, "unknown", "")
    label_width = max(8, *(len(clean(row.label, 24)) for row in report.devices))
    head = f"{'GPU':<{label_width}}  busy mean/p50/p95  idle at end  mem peak    power"
    drawn = plot_rows(report.devices, report.elapsed_s, width, glyphs) if plots else []
    sparks = width >= 78 and not drawn and any(row.busy_over_time for row in report.devices)
    rows: list[Row] = [[(head + ("   over the run" if sparks else ""), "title")]]
    least = sorted(report.devices, key=lambda row: row.busy_mean or 0.0)[:most]
    shown = [row for row in report.devices if row in least]
    rows += [_device(row, label_width, width if sparks else 0, glyphs) for row in shown]
    if len(shown) < len(report.devices):
        text = f"the {len(shown)} least busy of {len(report.devices)}; --format json lists all"
        rows.append([(text, "dim")])
    note = star_note(report.devices)
    notes = [f"* {note}"] if note else []
    for each in (*notes, *need_notes(shown, len(report.devices))):
        rows += wrapped("", each, width, "", "dim", 0)
    return rows + drawn


def star_note(devices: Sequence[DeviceRow]) -> str:
    """What the star behind a peak of memory means; nothing where none has one."""
    starred = [row for row in devices if row.has_unproven_need]
    if not starred:
        return ""
    if all(row.framework for row in starred):
        return "preallocated by the framework; the real need is unknown"
    return "may be preallocated by a framework; the real need is unknown"


def need_notes(devices: Sequence[DeviceRow], count: int) -> list[str]:
    """What was in use of what frameworks reserved, where that was measured, once for all GPUs that
    need as much: `gpu01:0: 9.4 GiB in use, 77.4 GiB reserved; needs at least 10.1 GiB`. `count`: of
    all GPUs.
    """
    alike: dict[tuple[str, str], list[DeviceRow]] = {}
    for row in devices:
        if row.mem_in_use_peak_bytes is not None:
            alike.setdefault((bytes_text(row.mem_in_use_peak_bytes), _need(row)), []).append(row)
    found = []
    for (used, need), rows in alike.items():
        who = labels_text(clean(row.label, 24) for row in rows)
        if len(rows) == count > 1:
            who = "each GPU"
        peaks = [row.mem_peak_bytes for row in rows if row.mem_peak_bytes is not None]
        reserved = range_text(peaks, bytes_text) if peaks else NOT_KNOWN
        found.append(f"{who}: {used} in use, {reserved} reserved{need}")
    return found


def _need(row: DeviceRow) -> str:
    """With what lies beside the pool."""
    need = row.mem_need_bytes
    return "" if need is None else f"; needs at least {bytes_text(need)}"


def memory_text(row: DeviceRow, star: str = "*") -> str:
    """`9.4 GiB in use, 77.4 GiB reserved` where that was measured; else the peak. With a star where
    the need is not proven: see `star_note`.
    """
    text = size(row.mem_peak_bytes)
    if row.mem_peak_bytes is not None and row.mem_in_use_peak_bytes is not None:
        text = f"{bytes_text(row.mem_in_use_peak_bytes)} in use, {text} reserved"
    return text + (star if row.has_unproven_need else "")


def _device(row: DeviceRow, label_width: int, width: int, glyphs: str) -> Row:
    """`width` 0: without the course over the run."""
    busy = busy_text(row)
    share = Use(row.mem_peak_bytes, row.mem_total_bytes).share
    star = "*" if row.has_unproven_need else ""
    memory = size(row.mem_peak_bytes) if share is None else f"{100 * share:.0f} %"
    cells: Row = [
        (f"{clean(row.label, 24):<{label_width}}  ", ""),
        (f"{busy:>17}  ", "busy"),
        (f"{idle_text(row):>11}  ", ""),
        (f"{memory + star:>8}", "mem"),
        (f"{watts(row.power_mean_w):>9}", ""),
    ]
    if row.note:
        cells.append((f"  {clean(row.note, 30)}", "bad"))
    elif row.busy_over_time and width:
        room = min(_SPARK, width - label_width - 54)
        cells.append(("   " + spark_of_all(row.busy_over_time, room, glyphs), "busy"))
    return cells


def busy_text(row: DeviceRow) -> str:
    """`91/94/99 %`: mean, median and 95th percentile, as far as they are known."""
    if row.busy_mean is None:
        return NOT_KNOWN
    if row.busy_p50 is None:
        return f"mean {row.busy_mean:.0f} %"
    return "/".join(percent(each) for each in (row.busy_mean, row.busy_p50, row.busy_p95)) + " %"


def idle_text(row: DeviceRow) -> str:
    """How long it had been idle when the run ended."""
    return NOT_KNOWN if row.idle_tail_s is None else age_text(row.idle_tail_s)
