"""How findings about devices name them, and the actions that several families share."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import inf
from typing import TypeVar

from gpumon.analysis.finding import CONFIDENCES, Action, Change, Finding, Lack, NotEvaluable, to_do
from gpumon.analysis.memory.need import Need
from gpumon.analysis.rightsize import amounts
from gpumon.analysis.rightsize.changes import action_of, gpus_line, memory_line
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rules.instant import use_or_return
from gpumon.analysis.rundata import DeviceData, NodeData, RunData
from gpumon.analysis.signals import Span, why_missing, window_of
from gpumon.model.lines import Line, word, words
from gpumon.model.text import clean
from gpumon.model.units import age_text, bytes_text

_T = TypeVar("_T")
_MOST_NAMES = 8

#: what several findings cost the user
GPU_HELD = "An idle GPU delays other users and your own next job."
CORES_HELD = "Unused cores make the job wait longer in the queue."
MEM_HELD = "Unused memory keeps other jobs, including your own, off the node."
SHORT_FIRST = "The scheduler backfills short jobs: with a lower limit the job starts earlier."


# -- names ---------------------------------------------------------------------------------------


def labels_text(labels: Iterable[str]) -> str:
    """`gpu01:0,1 gpu02:0 gpu03` from `gpu01:0`, `gpu01:1`, `gpu02:0`, `gpu03`."""
    by_node: dict[str, list[str]] = {}
    for label in labels:
        node, colon, name = label.rpartition(":")
        by_node.setdefault(f"{node}:" if colon else "", []).append(name)
    return " ".join(f"{node}{','.join(names)}" for node, names in by_node.items())


def _ranges(names: Sequence[str]) -> str:
    """`0–3,6,7` from these numbers in their order; three in a row are a range."""
    found: list[list[str]] = []
    for name in names:
        last = found[-1][-1] if found else ""
        if name.isdecimal() and last.isdecimal() and int(name) == int(last) + 1:
            found[-1].append(name)
        else:
            found.append([name])
    return ",".join(f"{each[0]}–{each[-1]}" if len(each) > 2 else ",".join(each) for each in found)


def gpus_text(run: RunData, devices: Sequence[DeviceData]) -> str:
    """`GPU 0`, `GPUs 1,2`, `GPUs 0–3`; with the node where the run has several."""
    if len(devices) > _MOST_NAMES:
        return f"{len(devices)} GPUs"
    several = len({each.node for each in run.devices}) > 1 or run.coverage.unrecorded
    names = _ranges([each.device.label for each in devices])
    if several:
        names = labels_text(each.label for each in devices)
    return clean(f"{'GPU' if len(devices) == 1 else 'GPUs'} {names}")


def model_text(devices: Sequence[DeviceData]) -> str:
    """`A100-SXM4-80GB`, of several models each."""
    names = dict.fromkeys(each.device.name.removeprefix("NVIDIA ") or "GPU" for each in devices)
    return clean(" and ".join(names))


def alike(items: Iterable[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Items with the same key together, in their order: equal findings of several GPUs are one."""
    groups: dict[Hashable, list[_T]] = {}
    for each in items:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def range_text(values: Iterable[float], text: Callable[[float], str]) -> str:
    """`60–72 %` from the least and the greatest, each by `text`; `60 %` where both read alike."""
    known = list(values)
    low, high = text(min(known)), text(max(known))
    number, _, unit = low.partition(" ")
    if low == high:
        return low
    return f"{number if unit == high.partition(' ')[2] else low}–{high}"


def ages_text(seconds: Iterable[float]) -> str:
    """`50 min to 3 h 00 min`; `50 min` where all last as long."""
    known = sorted(seconds)
    return " to ".join(dict.fromkeys(map(age_text, (known[0], known[-1]))))


def percent(value: float) -> str:
    """`97 %`; a small one with a decimal, so that little does not read as nothing."""
    return f"{value:.1f} %" if 0.05 <= abs(value) < 1 else f"{value:.0f} %"


def elapsed_s(run: RunData) -> float:
    """Of the job, without the time it was suspended, where Slurm tells."""
    told = run.job.elapsed_s if run.job and not run.live else None
    return run.elapsed_s if told is None else told


def filling_text(per_s: float | None, left_s: float | None) -> str:
    """`, +2 GiB/min, full in 8 min`, of what grows by so many bytes per second."""
    if per_s is None or left_s is None:
        return ""
    return f", +{bytes_text(60 * per_s)}/min, full in {age_text(left_s)}"


def used_text(need: Need) -> str:
    """`TensorFlow used 9.4 of the 77.4 GiB it reserved`."""
    used, reserved = bytes_text(need.in_use_bytes), bytes_text(need.reserved_bytes)
    amount, _, unit = used.partition(" ")
    used = amount if unit == reserved.partition(" ")[2] else used
    they = "they" if len(need.pids) > 1 else "it"
    return f"{need.by} used {used} of the {reserved} {they} reserved"


def beside_text(need: Need) -> str:
    """`620 MiB beside it (CUDA context, libraries)`."""
    about = "" if need.is_beside_known else "about "
    return f"{about}{bytes_text(need.beside_bytes)} beside it (CUDA context, libraries)"


def most_on_a_node(devices: Sequence[DeviceData]) -> int:
    nodes = [each.node for each in devices]
    return max(map(nodes.count, nodes), default=0)


# -- findings ------------------------------------------------------------------------------------


def least(*confidences: str) -> str:
    """The weakest of them."""
    return max(confidences, key=CONFIDENCES.index)


def finding(
    run: RunData,
    level: str,
    what: str,
    text: str = "",
    *,
    head: str = "",
    tail: str = "",
    rest: str = "",
    adds: str | None = None,
    node: NodeData | None = None,
    devices: Sequence[DeviceData] = (),
    spans: Sequence[Span] = (),
    subject: str = "",
    numbers: Mapping[str, float | None] | None = None,
    confidence: str = "high",
    actions: Iterable[Action | None] = (),
    wasted_s: float = 0.0,
    harm_in_s: float | None = None,
    mem_truth: str = "",
    uses_more: bool = False,
) -> Finding:
    """A finding over spans of the grid (none: the whole run); the frame adds the rule's id.

    The title is `what` between `head` and `tail`; the evidence is `what` and the `rest`, or in
    other words the `text`, of which `adds` is what the title leaves unsaid. `node`: is the subject,
    and the title begins with it. `wasted_s` are GPU-seconds of all devices together.
    """
    if node is not None:
        head, subject = f"{clean(node.node)}: ", node.node
    windows = [window_of(run, span) for span in spans]
    return Finding(
        "",
        level,
        f"{head}{what}{tail}",
        text or what + rest,
        confidence,
        subject=clean(subject or labels_text(each.label for each in devices)) or "job",
        devices=tuple(each.label for each in devices),
        start=min((start for start, _ in windows), default=run.start),
        end=max((end for _, end in windows), default=run.end),
        spans=tuple(windows),
        held_s=_together_s(windows) if windows else None,
        numbers={name: value for name, value in (numbers or {}).items() if value is not None},
        actions=tuple(action for action in actions if action is not None),
        waste_gpu_hours=wasted_s / 3600,
        harm_in_s=harm_in_s,
        mem_truth=mem_truth,
        adds=adds if text else rest,
        goes_on=not text,
        uses_more=uses_more,
    )


def _together_s(windows: Sequence[tuple[float, float]]) -> float:
    """How long any of them lasts, each second once."""
    seconds, until = 0.0, -inf
    for start, end in sorted(windows):
        seconds += max(0.0, end - max(start, until))
        until = max(until, end)
    return seconds


#: of a GPU: what was read of it is not the job's alone
SHARED = "another user's process used it as well"


def missing(where: DeviceData | str, detail: str, kind: Lack = Lack.READINGS) -> NotEvaluable:
    """What is missing of a device, or of a node."""
    return NotEvaluable(kind, detail, (where if isinstance(where, str) else where.label,))


def unread(device: DeviceData, *names: str) -> NotEvaluable:
    """The first of these fields that was never read, and why."""
    return missing(device, why_missing(device, *names))


# -- actions -------------------------------------------------------------------------------------


def staff_actions(run: RunData, node: str, what: str) -> tuple[Action, ...]:
    """Hardware is not the user's to mend: a line for the staff, and a way around it."""
    name, job = word("node", node), run.job
    if job is not None and job.id and job.start:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.start))
        what += f", job {job.id} (began {began})"
    what = what.replace(";", ",")  # a shell could act on the other
    return (
        Action("staff", Line("node {}: {}", name, words(what)) or words(what),
               text="Not caused by your program: send this line to the site's staff."),
        Action("sbatch", Line("#SBATCH --exclude={}", name),
               text="Exclude this node until it is fixed."),
    )  # fmt: skip


def fewer_gpus(run: RunData, working: Sequence[DeviceData], text: str) -> Action:
    """The request for the GPUs that worked, or none of them; only `text` where it is not known."""
    return action_of(gpus_line(requested(run), most_on_a_node(working), len(working)), text)


def use_or_request_fewer(devices: Sequence[DeviceData]) -> Action:
    """About a GPU that idles beside others, before it is known how many of `devices` the job
    needs.
    """
    text = f"{use_or_return(len(devices))}, whichever the rest of the run needs."
    return to_do(text)


def more_memory(run: RunData) -> Change | None:
    """The request for more host memory than was asked for."""
    wanted = amounts.more_memory(run)
    return None if wanted is None else memory_line(requested(run), wanted)
