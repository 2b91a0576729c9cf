"""What a report is about, as the head of each form shows it: the job, its size, its cost."""

from __future__ import annotations

from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text, measured_text, plural, span_text
from gpumon.report.model import Report
from gpumon.report.verdict import is_unused

#: of the GPU-hours, from which on waste is told: what a finding explains, and what none does, as in
#: every run some time is unused between kernels
_EXPLAINED, _UNEXPLAINED = 0.01, 0.1
_WHOLE = 0.95  # of the run, observed
#: s; Slurm counts whole seconds
_LEAST_SUSPENDED_S = 5.0


def job_name(report: Report) -> str:
    """`4711`; `this node` where no job is known."""
    return clean(report.job.id or report.job.raw_id or "this node")


def words(report: Report) -> list[str]:
    """The job's name, user, partition, state and time, as far as they are known."""
    job = report.job
    who = "/".join(each for each in (job.user, job.account) if each)
    found = (clean(job.name, 40), clean(who, 40), clean(job.partition, 24), state_text(report),
             time_text(report))  # fmt: skip
    return [each for each in found if each]


def state_text(report: Report) -> str:
    job = report.job
    state = job.state or ("RUNNING" if report.running else "")
    if report.running:
        return f"{state} (so far)" if state else "so far"
    failed = job.exit_code and (job.exit_code.code or job.exit_code.signal)
    return f"{state} {job.exit_code}" if failed else state


def time_text(report: Report) -> str:
    """`2 h 14 min of 1 d 0 h`."""
    job = report.job
    limit = span_text(job.time_limit_s) if job.time_limit_s else job.time_limit_words
    if report.elapsed_s is None:
        return f"limit {limit}" if limit and job.is_pending else ""
    ran = age_text(report.elapsed_s)
    suspended_s = job.suspended_s or 0.0
    suspended = f", suspended {age_text(suspended_s)}" if suspended_s > _LEAST_SUSPENDED_S else ""
    return f"{ran} of {limit}{suspended}" if limit else f"{ran}{suspended}"


def facts_text(report: Report) -> str:
    """`1 node gpu07 · 4 × H100 80GB HBM3 · 16 cores · 64 GiB`."""
    job, found = report.job, []
    if job.nodes:
        named = clean(job.node_list or job.nodes[0], 40)
        found.append(f"{plural(len(job.nodes), 'node')} {named}")
    names = sorted({row.device.name for row in report.devices if row.device.name})
    if report.gpus:
        kinds = "/".join(job.allocated.gpu_types)
        model = short_model(names[0]) if len(names) == 1 else kinds
        if model and report.devices and all(row.device.mig for row in report.devices):
            model = f"MIG slice of {model}"
        found.append(f"{report.gpus} × {model}" if model else plural(report.gpus, "GPU"))
    if job.allocated.cpus:
        found.append(plural(job.allocated.cpus, "core"))
    if job.allocated.mem_bytes:
        found.append(bytes_text(job.allocated.mem_bytes))
    elif job.requested.mem_form_bytes == 0:
        found.append("all memory")
    return " · ".join(found)


def cost_text(report: Report) -> str:
    """`4.5 of 18 GPU-h wasted`: both of the same time; *not used* where no finding explains any of
    it. Of a run that was observed in part, both of that part, and what the whole run holds.
    """
    held, rest = report.gpu_hours, report.unattributed_gpu_hours
    if not held:
        return ""
    explained = _is_much(report, report.waste_gpu_hours - rest, _EXPLAINED)
    is_much = _is_much(report, rest, _UNEXPLAINED)
    if not explained and not is_much:
        return f"{hours_text(held)} GPU-h"
    wasted, share = hours_text(report.waste_gpu_hours), report.coverage.covered_percent / 100
    in_all = f" ({hours_text(held)} GPU-h in all)"
    is_part = report.coverage.interval_s is not None and share < _WHOLE
    what = "GPU-h wasted" if explained else "GPU-h not used"
    if report.coverage.unrecorded:
        text = f"{wasted} {what} on the nodes recorded{in_all}"
    elif is_part and report.elapsed_s is not None:
        observed = measured_text(share * report.elapsed_s)
        text = f"{wasted} of {hours_text(share * held)} {what} in the {observed} observed{in_all}"
    else:
        text = f"{wasted} of {hours_text(held)} {what}"
    if explained and is_much:
        text += f", {hours_text(rest)} of it unexplained"
    if _is_much(report, others := report.others_gpu_hours, _UNEXPLAINED):
        text += f", {hours_text(others)} used by others"
    return text


def is_wasteful(report: Report) -> bool:
    """Whether so much was wasted that it matters."""
    explained = report.waste_gpu_hours - report.unattributed_gpu_hours
    return _is_much(report, explained, _EXPLAINED) or is_unused(report)


def _is_much(report: Report, hours: float, least: float) -> bool:
    """Of what was observed."""
    return hours > 0 and hours >= least * report.observed_gpu_hours


def short_model(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` as `A100-SXM4-80GB`."""
    return clean(name.removeprefix("NVIDIA "), 32)


def hours_text(hours: float) -> str:
    """GPU-hours: `0.25`, `4.5`, `120`."""
    return f"{hours:.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 0.95 else f"{hours:.2g}"
