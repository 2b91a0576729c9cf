"""Data quality: what could not be measured, and where two measurements differ."""

from __future__ import annotations

from gpumon.analysis.evidence import DeviceEvidence, Evidence, NodeEvidence
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import percent, staff_actions
from gpumon.analysis.reconcile import Difference, differences
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import job_devices
from gpumon.model.lines import Line, word
from gpumon.model.reading import Missing
from gpumon.model.text import clean
from gpumon.model.units import age_text

#: what every device can say; GPM and the rest only matter where a permission is all that lacks
_CORE = ("busy_percent", "mem_used_bytes", "power_w")
_OPTIONAL = ("sm_active_percent",)
_NAMES = {"busy_percent": "busy %", "mem_used_bytes": "memory", "power_w": "power",
          "sm_active_percent": "SM activity"}  # fmt: skip
#: reason -> level, worst first; `unsupported` and `mig` will never be otherwise
_LEVELS = {
    "lost": "critical", "no-driver": "critical", "error": "warning", "no-permission": "warning",
    "implausible": "warning", "unsupported": "info", "mig": "info",
}  # fmt: skip
_QUANTITY = {"mem": "memory", "cpu": "CPU", "gpu": "GPU busy"}


def data_stale(evidence: Evidence) -> Outcome:
    """A GPU whose newest reading is "no answer" or stale; a node without a sample for three periods
    (and 30 s) while it should send some.

    Guards: a value that never existed is `gpu-unreadable`; after the run a missing end only counts
    where the recording claims to reach it. 3 proposed.
    """
    if not evidence.has_samples:
        return NotEvaluable("no samples")
    found = [found for node in evidence.nodes if (found := _stopped(evidence, node))]
    for device in evidence.devices:
        reading = device.last.get("busy_percent")
        if isinstance(reading, Missing) and reading.reason in ("timeout", "stale"):
            detail = f" ({clean(reading.detail)})" if reading.detail else ""
            seen = _last_known(device.track("busy_percent").mean)
            age = None if seen is None else evidence.end - _bin_end(evidence, seen)
            since = f" for {age_text(age)}" if age is not None else " since it was first asked"
            found.append(
                _finding(evidence, "data-stale", "warning", device.label,
                         f"GPU {device.label}: no answer{since}{detail}",
                         Action("shell", Line("gpumon doctor"), text="Other GPUs keep moving."),
                         (device.label,))
            )  # fmt: skip
    return found


def _stopped(evidence: Evidence, node: NodeEvidence) -> Finding | None:
    seen = _last_known(node.covered.mean)
    if seen is None or not (evidence.live or evidence.coverage.to_end):
        return None
    silent_s = evidence.end - _bin_end(evidence, seen)
    periods = evidence.site.threshold("data-stale.periods", 3)
    interval_s = evidence.coverage.interval_s or 0.0
    if silent_s <= max(periods * interval_s, evidence.site.threshold("data-stale.least_s", 30)):
        return None
    name = clean(node.node)
    return _finding(evidence, "data-stale", "warning", name,
                    f"{name}: no samples for {age_text(silent_s)}",
                    Action("shell", Line("gpumon attach {}", _job_id(evidence)),
                           text="Numbers of this node are older than the rest."))  # fmt: skip


def _last_known(means: object) -> int | None:
    values = list(means) if hasattr(means, "__iter__") else []
    return next((n for n in range(len(values) - 1, -1, -1) if values[n] == values[n]), None)


def _bin_end(evidence: Evidence, n: int) -> float:
    return min(evidence.end, evidence.grid_start + (n + 1) * evidence.bin_s)


def gpu_unreadable(evidence: Evidence) -> Outcome:
    """A GPU that is lost (critical), or a reading that its driver refuses, with the reason.

    Guards: busy of a MIG instance is info, once; GPM only where nothing but a permission lacks.
    """
    if not evidence.has_samples:
        return NotEvaluable("no samples")
    found = []
    for device in job_devices(evidence):
        unread = _unread(device)
        if not unread:
            continue
        reasons = {reading.reason for reading in unread.values()}
        level = min((_LEVELS[reason] for reason in reasons), key=_rank)
        if "lost" in reasons:
            xid = f" (Xid {clean(device.xids[-1].text)})" if device.xids else ""
            detail = next(r.detail for r in unread.values() if r.reason == "lost")
            words = f"lost{xid}" if xid else f"lost {clean(detail)}".rstrip()
        else:
            words = ", ".join(
                f"{_NAMES[name]} {clean(str(reading))}" for name, reading in unread.items()
            )
        label = device.label
        actions = (
            staff_actions(device.node, f"GPU {label} {words}")
            if level == "critical"
            else (Action("shell", Line("gpumon doctor"), text="Says what would make it readable."),)
        )
        found.append(_finding(evidence, "gpu-unreadable", level, label, f"GPU {label}: {words}",
                              actions[0], (label,), actions[1:]))  # fmt: skip
    return found


def _unread(device: DeviceEvidence) -> dict[str, Missing]:
    core = {name: device.last.get(name) for name in _CORE}
    extra = {name: device.last.get(name) for name in _OPTIONAL}
    return {
        name: reading
        for name, reading in {**core, **extra}.items()
        if isinstance(reading, Missing)
        and reading.reason in _LEVELS
        and (name in core or reading.reason == "no-permission")
    }


def _rank(level: str) -> int:
    return ("critical", "warning", "info").index(level)


def wrong_job(evidence: Evidence) -> Outcome:
    """The agent's own job, by its cgroup, is another one than the job asked for.

    Guards: components of one het job are one. Source: pam_slurm_adopt puts a shell into any of the
    user's jobs on the node.
    """
    job = evidence.job
    if job is None or not job.raw_id:
        return NotEvaluable("which job was asked for is not known")
    contexts = [(each.node, each.header.job) for each in evidence.nodes if each.header.job]
    if not contexts:
        return NotEvaluable("which job the agent stands in is not known")
    target, found = job.raw_id, []
    for node, context in contexts:
        assert context is not None
        ours = {target, job.id, job.het_job_id} | {
            each.raw_id for each in evidence.siblings if job.het_job_id
        }
        if context.id and context.id not in ours and context.array != job.id:
            here = clean(context.id)
            found.append(
                _finding(
                    evidence, "wrong-job", "critical", clean(node),
                    f"{clean(node)}: this login was adopted into job {here}, not {clean(target)}",
                    Action("shell", Line("srun --jobid={} --overlap gpumon", word("job", target)),
                           text="Nothing of this is shown as the job's."),
                )
            )  # fmt: skip
    return found


def low_coverage(evidence: Evidence) -> Outcome:
    """Under 80 % of the run sampled, a gap of more than 10 min, or fewer than 3 samples."""
    coverage = evidence.coverage
    if not evidence.has_samples:
        return NotEvaluable("no samples: accounting has no coverage")
    limit = evidence.site.threshold
    interval_s = coverage.interval_s or evidence.bin_s
    samples = int(evidence.elapsed_s * coverage.covered_percent / 100 / interval_s)
    if (
        coverage.covered_percent >= limit("low-coverage.percent", 80)
        and coverage.longest_gap_s <= limit("low-coverage.gap_s", 600)
        and samples >= limit("low-coverage.samples", 3)
    ):
        return []
    gaps = f"{coverage.gaps} gap{'' if coverage.gaps == 1 else 's'}"
    longest = f" (longest {age_text(coverage.longest_gap_s)})" if coverage.gaps else ""
    text = f"{interval_s:g} s samples, {percent(coverage.covered_percent)} of run, {gaps}{longest}"
    text = text if samples >= 3 else f"too short: {samples} samples"
    return [
        _finding(evidence, "low-coverage", "info", "job", text,
                 Action("shell", Line("gpumon record -- COMMAND"),
                        text="In the job script, it records from start to end."))
    ]  # fmt: skip


def accounting_mismatch(evidence: Evidence) -> Outcome:
    """Seff's number and the measured one differ by more than 20 % of the larger and 5 points.

    Guards: only after the job ended, for until then Slurm has only ended steps. 20 % proposed.
    """
    job = evidence.job
    if job is None or not evidence.has_samples:
        return NotEvaluable("needs both a recording and Slurm's record")
    if not job.has_ended:
        return NotEvaluable("the job runs: Slurm's figures are not yet known")
    both = differences(evidence)
    if not both:
        return NotEvaluable("Slurm or the recording lacks the figures")
    share = evidence.site.threshold("accounting-mismatch.share", 0.2)
    points = evidence.site.threshold("accounting-mismatch.points", 5)
    return [_mismatch(evidence, each) for each in both if each.is_large(share, points)]


def _mismatch(evidence: Evidence, difference: Difference) -> Finding:
    theirs = "Slurm" if difference.quantity == "gpu" else "seff"
    text = (
        f"{theirs} {_QUANTITY[difference.quantity]} {percent(difference.theirs)}, "
        f"measured {percent(difference.ours)}: {'; '.join(difference.reasons)}"
    )
    return Finding(
        "accounting-mismatch", "info", text, text, "high", resource="data",
        start=evidence.start, end=evidence.end,
        numbers={"theirs_percent": difference.theirs, "ours_percent": difference.ours},
    )  # fmt: skip


def _job_id(evidence: Evidence) -> Line | None:
    return word("job", evidence.job.id) if evidence.job and evidence.job.id else Line("JOBID")


def _finding(
    evidence: Evidence, rule: str, level: str, subject: str, title: str, action: Action,
    devices: tuple[str, ...] = (), more: tuple[Action, ...] = (),
) -> Finding:  # fmt: skip
    return Finding(
        rule, level, title, title, "high", clean(subject), devices, "data",
        evidence.start, evidence.end, actions=(action, *more),
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule("data-stale", data_stale),
    Rule("gpu-unreadable", gpu_unreadable),
    Rule("wrong-job", wrong_job, report=False),
    Rule("low-coverage", low_coverage, live=False),
    Rule("accounting-mismatch", accounting_mismatch, live=False),
)
