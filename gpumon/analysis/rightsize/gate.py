"""The one gate for whatever asks for less, of findings and of lines.

`recommend` alone works out what to ask for; a finding's action then shows its lines (`agreed`), or
says why there is none. So no page has two numbers for one option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gpumon.analysis.accounting import has_completed
from gpumon.analysis.finding import (
    Action,
    Change,
    Finding,
    Gpus,
    NotEvaluable,
    Recommendation,
    ask_for,
    to_do,
)
from gpumon.analysis.known import highest
from gpumon.analysis.ledger import ledger_of
from gpumon.analysis.rightsize.amounts import memory_need
from gpumon.analysis.rightsize.proof import PARTLY, is_whole, unproven
from gpumon.analysis.rightsize.tasks import Task, all_tasks, completed_tasks
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import is_interactive, job_devices
from gpumon.plain import replace
from gpumon.slurm.options import family

_MEMORY = ("--mem", "--mem-per-cpu", "--mem-per-gpu")
#: findings that rest on completed tasks alone
OF_TASKS = ("array-mem-over", "array-cpu-over", "array-time-over")
#: of an array's tasks, this part may have no figure
_FEW_TASKS = 0.1

_NO_GPU_WORKED = "no GPU was seen at work, and a run that uses them may need more"
_SESSION = "another session may need more"
_USES_MORE = "a run that uses more of its GPUs, nodes or cores, as advised, may need more"
#: what more ranks, parts or workers need more of
_OF_USE = {
    family(option)
    for option in (*_MEMORY, "--cpus-per-task", "--cpus-per-gpu", "--ntasks", "--ntasks-per-node")
}
_ONE_TASK = "other tasks of the array may need more"
_POLLED = "readings of the memory were up to {:g} s apart, and a short peak may need more"


class Refused(NamedTuple):
    """Why the run does not prove that less would do."""

    why: str
    is_plausible: bool = False  # it was enough whenever somebody looked: worth a try


#: (change, id of the finding that asks for it) -> why the line is refused, if it is
Refusal = Callable[[Change, str], "Refused | None"]


def asks_for_less(change: Change) -> bool:
    """Whether the next run gets less of anything by it."""
    before, after = change.before, change.after
    if isinstance(before, Gpus):
        if not isinstance(after, Gpus):
            return True
        return before.kind != after.kind or (after.count or 0) < (before.count or 0)
    return isinstance(before, int) and isinstance(after, int) and after < before


def refusals(run: RunData, found: Sequence[Finding], lines: Sequence[Recommendation]) -> Refusal:
    """Answers None where less is proven to do, or where the change asks for no less.

    `lines`: those that are recommended so far. Where GPUs or nodes that did nothing go by a line,
    what the others used is a measure; where the advice is to use them, it is none.
    """
    why = unproven(run)
    is_session = is_interactive(run, job_devices(run))
    unused = _no_gpu_worked(run, found)
    is_array = run.job is not None and bool(run.job.array_job_id)

    def refusal(change: Change, finding: str) -> Refused | None:
        if not asks_for_less(change):
            return None
        if finding in OF_TASKS:
            return _tasks_unproven(run, change)
        if is_session:
            return Refused(_SESSION)
        if why is not None:
            return Refused(why.detail)
        if unused and change.option != "--time":
            return Refused(_NO_GPU_WORKED)
        given_back = {finding, *(each.finding for each in lines)}
        uses_more = any(each.uses_more and each.id not in given_back for each in found)
        if family(change.option) in _OF_USE and uses_more:
            return Refused(_USES_MORE)
        if is_array:
            of_all = change.option == "--time"
            return _tasks_unproven(run, change) if of_all else Refused(_ONE_TASK)
        if change.option in _MEMORY:  # the kernel's own peak knows the whole run
            return _polled(polled_s(run))
        is_known = change.option == "--time" or family(change.option) == family("--cpus-per-task")
        is_part = run.has_samples and not is_known and not is_whole(run)
        return Refused(PARTLY.detail) if is_part else None

    return refusal


def _no_gpu_worked(run: RunData, found: Sequence[Finding]) -> bool:
    """By the ledger; without samples by a finding that rests on a summary."""
    if rows := ledger_of(run).rows:
        return all(row.is_known and row.never_worked for row in rows)
    return any(each.id == "gpu-never-used" for each in found)


def polled_s(run: RunData) -> float | None:
    """How far apart the looks at the memory were, by Slurm or by samples, where a peak of any size
    may lie between two; None where it may not.
    """
    need = memory_need(run)
    return None if isinstance(need, NotEvaluable) else need.polled_s


def _polled(period_s: float | None) -> Refused | None:
    return Refused(_POLLED.format(period_s), is_plausible=True) if period_s else None


def _tasks_unproven(run: RunData, change: Change) -> Refused | None:
    """One request is for all tasks: all must have completed, and nearly all be measured. One that
    failed may have had most to do, and it is the one that runs again.
    """
    jobs = all_tasks(run)
    if any(not each.has_ended for each in jobs):
        return Refused("some tasks have not ended and may need more")
    bad = sum(not has_completed(each) for each in jobs)
    if bad:
        return Refused(f"{bad} of {len(jobs)} tasks did not complete and may need more")
    done = completed_tasks(run)
    idle = sum(bool(each.gpu_idle) for each in done)
    if idle > _FEW_TASKS * len(done):
        unused = f"{idle} of {len(done)} tasks did not use their GPUs"
        return Refused(f"{unused}, and may need more with them")
    unknown = sum(_figure(each, change) is None for each in done)
    if unknown > _FEW_TASKS * len(done):
        return Refused(f"{unknown} of {len(done)} tasks were not measured and may need more")
    return _polled(highest(e.polled_s for e in done)) if change.option in _MEMORY else None


def _figure(task: Task, change: Change) -> float | None:
    if change.option == "--time":
        return task.job.elapsed_s
    return task.mem_bytes if change.option in _MEMORY else task.peak_cores


# -- one number for each option --------------------------------------------------------------------


def agreed(
    run: RunData, found: Sequence[Finding], lines: Sequence[Recommendation]
) -> list[Finding]:
    """The findings, each action with the recommended lines in place of its own proposal."""
    if not any(action.changes for each in found for action in each.actions):
        return list(found)
    refusal = refusals(run, found, lines)
    known = [each for each in lines if each.change.option]
    return [
        replace(each, actions=tuple(_agreed(each, known, refusal)))
        if any(action.changes for action in each.actions)
        else each
        for each in found
    ]


def _agreed(found: Finding, lines: Sequence[Recommendation], refusal: Refusal) -> Iterator[Action]:
    """All lines that follow from one finding stand in one action: they belong together."""
    shown: set[Change] = set()
    refused = {}
    for action in found.actions:
        families = {family(each.option) for each in action.changes}
        of = {each.finding for each in lines if family(each.change.option) in families}
        of |= {found.id} if of else set()
        kept = [each.change for each in lines if each.finding in of]
        why = next(filter(None, (refusal(each, found.id) for each in action.changes)), None)
        if not action.changes:
            yield action
        elif kept and shown.issuperset(kept):
            continue
        elif kept:
            shown.update(kept)
            yield ask_for(*kept, text="" if why else action.text)
        elif why and why.is_plausible:
            refused[why] = Action("try", action.after, action.before, f"Try once: {why.why}.")
        elif why:
            refused[why] = to_do(f"No smaller request is advised: {why.why}.")
        elif action.text:
            yield to_do(action.text)
    yield from refused.values()
