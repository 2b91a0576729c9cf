"""Busy GPUs that stand still: ranks that wait for one that does not come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

from gpumon.analysis.finding import Action, Finding, to_write
from gpumon.analysis.hang import Hang, Stuck, SuspectedHang, hang_of, standstill
from gpumon.analysis.ledger import State, ledger_of
from gpumon.analysis.rules.needs import gpus
from gpumon.analysis.rules.phrasing import finding, gpus_text, least
from gpumon.analysis.rules.rule import Checked, rule
from gpumon.analysis.rules.stands import mostly_in, probed_of, seen, where_text
from gpumon.analysis.rundata import DeviceData, ProgramData, RunData
from gpumon.analysis.signals import Span, job_processes, window_of
from gpumon.model.lines import EMPTY, Line, word
from gpumon.model.units import age_text, plural

_WATCHDOG = re.compile(r"watchdog caught collective operation timeout", re.IGNORECASE)
_CONSEQUENCES = (
    "low-power-high-busy", "low-sm", "comm-bound", "gpu-imbalance", "low-busy", "no-tensor",
    "gpu-mem-headroom", "smaller-gpu", "idle-tail", "gpus-partly-idle", "straggler",
    "input-bound", "host-stall", "time-short",
)  # fmt: skip


@rule(
    "suspected-hang",
    title="GPUs at 100 % busy, low power and no traffic for {seconds}; in a report, to its end",
    why="A job that hangs holds its GPUs without computing.",
    remedy="find where each rank stands; set a timeout for collectives",
    needs=(gpus,),
    folds=_CONSEQUENCES,
    is_event=True,
    wastes=(State.HUNG,),
)
def suspected_hang(run: RunData, t: SuspectedHang) -> Checked:
    """`standstill` of the ranks of a program: live until now; of an ended run until its end, unless
    it COMPLETED. Other ranks at 0 % fit the pattern (nccl#1033).

    Confidence: medium where neither link counters nor a rank that ended back it; low, hence no more
    than a warning, where the GPUs never worked otherwise, where power is not known, or another
    program of the job still works.

    With the probe also `stuck`: ranks that make no more steps, whatever their GPUs show; a warning
    where one that the others wait for may go on.

    Source: nccl#968 (70 W), horovod#3611 (40 to 47 W of 250 W); the numbers are proposed.
    """
    found = hang_of(run)
    if found is None:
        unknown = standstill(run)
        return unknown if isinstance(unknown, list) else None
    return _finding(run, found) if found.stuck is None else _of_ranks(run, found, found.stuck)


def _finding(run: RunData, found: Hang) -> Finding:
    devices = found.devices
    watts = [each.power_w for each in found.still if each.power_w is not None]
    now_w = fmean(watts) if watts else None
    befores = [each.power_before_w for each in found.still if each.power_before_w is not None]
    before_w = fmean(befores) if befores else None
    seconds = ledger_of(run).seconds([found.span])
    links_known = all(each.links_known for each in found.still)
    spinning = gpus_text(run, [each.device for each in found.still])
    was = f" ({before_w:.0f} W before)" if before_w is not None else ""
    power = f" at {now_w:.0f} W{was}" if now_w is not None else ""
    quiet = ", no PCIe or NVLink traffic" if links_known else ""
    what = f"{spinning} busy 100 %{power}{quiet} for {age_text(seconds)}"
    if probed := probed_of(run, devices):
        what = f"{what}; {_says(probed, found.span)}"
    backed = links_known or found.lost or found.ended is not None
    return finding(
        run,
        "critical",
        f"Suspected hang: {what}",
        f"{_began(run, found)}{_lost(run, found)}",
        devices=devices,
        spans=[found.span],
        subject="job",
        confidence=least(
            "high" if before_w and found.is_alone else "low", "high" if backed else "medium"
        ),
        numbers={
            "power_w": now_w,
            "power_before_w": before_w,
            "seconds": seconds,
            "began_s": window_of(run, found.span)[0] - run.start,
            "ended_pid": found.ended[0].facts.pid if found.ended else None,
        },
        actions=_actions(run, devices),
    )


def _of_ranks(run: RunData, found: Hang, ranks: Stuck) -> Finding:
    """What the probe alone shows."""
    at = age_text(window_of(run, found.span)[0] - run.start)
    head = "No step for" if ranks.works else "Suspected hang: no step for"
    says = _says(ranks.programs, ranks.span)
    return finding(
        run,
        "warning" if ranks.works or len(ranks.programs) < 2 else "critical",
        f"{head} {age_text(ranks.seconds)}; {says}",
        f"it began {at} after the job's start{_lost(run, found)}",
        devices=found.devices,
        spans=[found.span],
        subject="job",
        confidence="medium" if ranks.works else "high",
        numbers={"seconds": ranks.seconds, "began_s": window_of(run, found.span)[0] - run.start},
        actions=_actions(run, found.devices),
    )


def _says(programs: Sequence[ProgramData], span: Span) -> str:
    """`rank 3 stands in train.py:131; ranks 0, 1 and 2 in train.py:120 → all_reduce`; what the
    loader's workers do of one that waits for data.
    """
    text = where_text(programs)
    for each in programs:
        if each.place.waits_for == "data" and each.workers:
            where = mostly_in(seen([each], [span], workers=True))
            if where:
                return f"{text}; its {plural(each.workers, 'worker')} in {where}"
    return text


def _began(run: RunData, found: Hang) -> str:
    """Since when, and with whom it began."""
    at = age_text(window_of(run, found.span)[0] - run.start)
    if found.ended is not None and not found.lost:
        process, device = found.ended
        name = gpus_text(run, [device])
        return f"process {process.facts.pid} on {name} ended first, {at} after the job's start"
    began = f"it began {at} after the job's start"
    if found.lost:
        return f"{began}, when {gpus_text(run, found.lost)} was lost"
    if found.stopped:
        return f"{began}, when {gpus_text(run, found.stopped)} stopped working"
    return began


def _lost(run: RunData, found: Hang) -> str:
    """What it cost, and what ended it."""
    lost_s = len(found.devices) * ledger_of(run).seconds([found.span])
    return f"; {lost_s / 3600:.1f} GPU-h lost{_until(run)}"


def _until(run: RunData) -> str:
    state = run.job.state if run.job is not None else ""
    if _timed_out(run):
        return " until a timeout of the program ended it"
    if state == "TIMEOUT":
        return " until the time limit"
    return " until the job was cancelled" if state == "CANCELLED" else ""


def _timed_out(run: RunData) -> bool:
    """By the end of its output: PyTorch's watchdog of collectives ended it."""
    return not run.live and bool(_WATCHDOG.search(run.log_tail))


def _actions(run: RunData, devices: Sequence[DeviceData]) -> tuple[Action, ...]:
    if _timed_out(run):
        text = "Find out from the job's output which rank did not come to the collective, and why."
        return (to_write(text),)
    tags = {p.facts.framework for each in devices for p in job_processes(each)}
    timeout = Line("dist.init_process_group(timeout=timedelta(minutes=10))")
    next_time = Action(
        "code",
        timeout if "torch" in tags else EMPTY,
        text="Let a hang end the job: set a timeout for collectives.",
    )
    if not run.live:
        return (next_time,)
    job = word("job", run.job.id) if run.job is not None else None
    where = Action("shell", Line("gpumon stack {}", job), text="Show where each rank stands.")
    cancel = Action("shell", Line("scancel {}", job), text="Then end the job.")
    return (where, cancel, next_time)
