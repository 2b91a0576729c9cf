"""Data quality: what could not be measured, and where two measurements differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpumon.analysis.finding import LEVELS, Action, Finding, Lack, NotEvaluable
from gpumon.analysis.reconcile import Difference, differences
from gpumon.analysis.rightsize.proof import unrecorded_text
from gpumon.analysis.rules.needs import samples
from gpumon.analysis.rules.phrasing import alike, finding, gpus_text, percent
from gpumon.analysis.rules.rule import Answers, Checked, rule
from gpumon.analysis.rundata import DeviceData, RunData, Track
from gpumon.analysis.signals import Span, job_devices, window_of
from gpumon.analysis.thresholds import Count, LowCoverage, Percent, Seconds, Share
from gpumon.analysis.whole_run import why_partly
from gpumon.model.lines import Line, word
from gpumon.model.reading import Missing
from gpumon.model.text import clean
from gpumon.model.units import age_text, plural

#: GPM only matters where a permission is all that lacks; what every device can say, always
_OPTIONAL = ("sm_active_percent",)
_NAMES = {"busy_percent": "busy %", "mem_used_bytes": "memory", "power_w": "power",
          "sm_active_percent": "SM activity"}  # fmt: skip
#: reason -> level, worst first; `unsupported` and `mig` will never be otherwise
_LEVELS = {
    "no-driver": "critical", "error": "warning", "no-permission": "warning",
    "implausible": "warning", "unsupported": "info", "mig": "info",
}  # fmt: skip
_WHY = {
    "no-driver": "no NVIDIA driver answers", "error": "the driver answered with an error",
    "no-permission": "it needs a permission", "implausible": "the driver's figure cannot be",
    "unsupported": "this GPU or its driver does not report it",
    "mig": "the driver does not report it for MIG instances",
}  # fmt: skip
#: nodes that are named one by one
_MOST_NODES = 8
_QUANTITY = {"mem": "memory use", "cpu": "CPU use", "gpu": "GPU use"}


class DataStale(NamedTuple):
    periods: Count = 3
    least_s: Seconds = 30


@rule(
    "data-stale",
    title="a GPU or a node stopped responding",
    why="Nothing is known about it since then.",
    remedy="reattach, or check the GPU with `gpumon doctor`",
    needs=(samples,),
)
def data_stale(run: RunData, t: DataStale) -> Answers:
    """A GPU whose newest reading is hung or stale; a node without a sample for some periods
    while it should send some.

    Guards: a value that never existed is `gpu-unreadable`; after the run a missing end only counts
    where the recording claims to reach it. 3 proposed.
    """
    least_s = max(t.periods * (run.coverage.interval_s or 0.0), t.least_s)
    for node in run.nodes if run.live or run.coverage.to_end else ():
        silent_s = _silent_s(run, node.covered) or 0.0
        if silent_s > least_s:
            job = word("job", run.job.id) if run.job and run.job.id else Line("JOBID")
            text = "Attach again; until then the values shown for this node are old."
            title = f"{clean(node.node)}: no samples for {age_text(silent_s)}"
            attach = Action("shell", Line("gpumon attach {}", job), text=text)
            yield finding(run, "warning", title, subject=node.node, actions=[attach])
    silent = [(each, what) for each in run.devices if (what := _unanswered(run, each, least_s))]
    for same in alike(silent, lambda each: (each[0].node, each[1])):
        devices, what = [device for device, _ in same], same[0][1]
        text = "Find out why; other GPUs are unaffected."
        doctor = Action("shell", Line("gpumon doctor"), text=text)
        title = f"{gpus_text(run, devices)}: {what}"
        yield finding(run, "warning", title, devices=devices, actions=[doctor])


def _unanswered(run: RunData, device: DeviceData, least_s: float) -> str:
    """`hung for 3 min`; "" of a GPU that answers, or that failed to do so for a moment."""
    reading = device.last.get("busy_percent")
    if not isinstance(reading, Missing) or reading.reason not in ("timeout", "stale"):
        return ""
    age_s = _silent_s(run, device.track("busy_percent"))
    if age_s is not None and age_s <= least_s:
        return ""
    since = " since the first reading" if age_s is None else f" for {age_text(age_s)}"
    what = "hung" if reading.reason == "timeout" else "no readings"
    return f"{what}{since}" + (f" ({clean(reading.detail)})" if reading.detail else "")


def _silent_s(run: RunData, track: Track) -> float | None:
    """Since the last bin that holds something; None where none does."""
    values = track.mean
    last = next((n for n in range(len(values) - 1, -1, -1) if values[n] == values[n]), None)
    return None if last is None else max(0.0, run.end - window_of(run, Span(last, last + 1))[1])


@rule(
    "gpu-unreadable",
    title="a reading of a GPU is not available",
    why="Some checks of this GPU are not possible.",
    remedy="run `gpumon doctor`",
    needs=(samples,),
)
def gpu_unreadable(run: RunData) -> Answers:
    """A reading that the driver refuses, with the reason.

    Guards: a GPU that is lost is `gpu-health`; busy of a MIG instance is info, once; GPM only where
    nothing but a permission lacks.
    """
    found = [(each, unread) for each in job_devices(run) if (unread := _unread(each))]
    for same in alike(found, lambda each: (each[0].node, _why(each[1]))):
        devices, why = [device for device, _ in same], _why(same[0][1])
        level = min((_LEVELS[each.reason] for each in same[0][1].values()), key=LEVELS.index)
        doctor = Action("shell", Line("gpumon doctor"), text="Check what is missing, and why.")
        title = f"{gpus_text(run, devices)}: {why}"
        yield finding(run, level, title, devices=devices, actions=[doctor])


def _why(unread: Mapping[str, Missing]) -> str:
    """`busy % and power are not available: this GPU does not support it`, each reason once."""
    names: dict[str, list[str]] = {}
    for name, reading in unread.items():
        detail = clean(reading.detail)
        why = _WHY[reading.reason] + (f" ({detail})" if detail else "")
        names.setdefault(why, []).append(_NAMES[name])
    return "; ".join(
        f"{' and '.join(each)} {'is' if len(each) == 1 else 'are'} not available: {why}"
        for why, each in names.items()
    )


def _unread(device: DeviceData) -> dict[str, Missing]:
    return {
        name: reading
        for name in _NAMES
        if isinstance(reading := device.last.get(name), Missing)
        and reading.reason in _LEVELS
        and (name not in _OPTIONAL or reading.reason == "no-permission")
    }


@rule(
    "wrong-job",
    title="the login runs inside another job than the one requested",
    why="Its readings would be those of the other job, so they are left out.",
    remedy="use `--via srun`",
    when="live",
)
def wrong_job(run: RunData) -> Answers:
    """The agent's own job, by its cgroup, is another one than the job asked for.

    Guards: components of one het job are one. Source: pam_slurm_adopt puts a shell into any of the
    user's jobs on the node.
    """
    job = run.job
    if job is None or not job.raw_id:
        yield NotEvaluable(Lack.SLURM, "the requested job is unknown")
        return
    contexts = [(each.node, each.header.job) for each in run.nodes if each.header.job]
    if not contexts:
        yield NotEvaluable(Lack.READINGS, "the agent's job is unknown")
    ours = {job.raw_id, job.id, job.het_job_id}
    ours |= {each.raw_id for each in run.siblings if job.het_job_id}
    for node, context in contexts:
        if context.id and context.id not in ours and context.array != job.id:
            here, asked = clean(context.id), clean(job.raw_id)
            title = f"{clean(node)}: this login runs inside job {here}, not {asked}"
            attach = Line("srun --jobid={} --overlap gpumon", word("job", job.raw_id))
            action = Action("shell", attach, text="Attach to this node through srun.")
            yield finding(run, "critical", title, subject=node, actions=[action])


@rule(
    "low-coverage",
    title="samples cover under {percent} of the run, or not all nodes",
    why="Most checks need the whole run.",
    remedy="start the program with `gpumon record --` in the job script",
    when="report",
    needs=(samples,),
)
def low_coverage(run: RunData, t: LowCoverage) -> Checked:
    """Or a long gap, or few samples."""
    coverage = run.coverage
    interval_s = coverage.interval_s or run.bin_s
    count = max(1, int(run.elapsed_s * coverage.covered_percent / 100 / interval_s))
    covered = coverage.covered_percent >= t.percent and coverage.longest_gap_s <= t.gap_s
    if covered and count >= t.samples and not coverage.unrecorded:
        return None
    seen = f"{percent(coverage.covered_percent)} of the run observed"
    longest = f"longest {age_text(coverage.longest_gap_s)}"
    lacks = f"{plural(coverage.gaps, 'gap')} ({longest})" if coverage.gaps else why_partly(run)
    text = f"{', '.join(filter(None, (seen, lacks)))}; a sample every {interval_s:g} s"
    text = text if count >= t.samples else f"too short: {plural(count, 'sample')}"
    record = Line("gpumon record -- COMMAND")
    advice = "To record the whole run, start your program with:"
    if coverage.unrecorded:
        named, more = coverage.unrecorded[:_MOST_NODES], len(coverage.unrecorded) - _MOST_NODES
        text = f"{unrecorded_text(run)}: {', '.join(map(clean, named))}"
        text += f" and {more} more" if more > 0 else ""
        record = Line("srun gpumon record -- COMMAND")
        advice = "To record every node, start your program with:"
    actions = [] if covered and not coverage.unrecorded else [Action("shell", record, text=advice)]
    return finding(run, "info", text, actions=actions)


class AccountingMismatch(NamedTuple):
    share: Share = 0.2  # of the larger
    points: Percent = 5


@rule(
    "accounting-mismatch",
    title="the value of `seff` and the measured value differ",
    why="They count different things.",
    remedy="use the one that counts what you need",
    when="report",
)
def accounting_mismatch(run: RunData, t: AccountingMismatch) -> Checked:
    """Guards: only after the job ended; until then Slurm has only ended steps. 20 % proposed."""
    if run.job is None or not run.has_samples:
        kind = Lack.SLURM if run.has_samples else Lack.RECORDING
        return NotEvaluable(kind, "needs both a recording and Slurm's record")
    if not run.job.has_ended:
        return NotEvaluable(Lack.END, "the job runs: Slurm's figures are not yet known")
    both = differences(run)
    if not both:
        return NotEvaluable(Lack.SLURM, "Slurm or the recording lacks the figures")
    return [_mismatch(run, each) for each in both if each.is_large(t.share, t.points)]


def _mismatch(run: RunData, difference: Difference) -> Finding:
    theirs = "Slurm" if difference.quantity == "gpu" else "seff"
    text = (
        f"{theirs} reports {percent(difference.theirs)} {_QUANTITY[difference.quantity]}, "
        f"gpumon measured {percent(difference.ours)}"
    )
    text += f": {'; '.join(difference.reasons)}" if difference.reasons else ""
    numbers = {"theirs_percent": difference.theirs, "ours_percent": difference.ours}
    return finding(run, "info", text, numbers=numbers)
