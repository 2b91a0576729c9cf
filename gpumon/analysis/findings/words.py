"""How findings about devices name them, and the actions that several families share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpumon.analysis.evidence import DeviceEvidence, Evidence
from gpumon.analysis.finding import CONFIDENCES, Action, Finding
from gpumon.analysis.requested import requested
from gpumon.analysis.rightsize import action_of, gpus_line
from gpumon.analysis.rules import NotEvaluable
from gpumon.analysis.signals import Span, window_of
from gpumon.model.lines import Line, word, words
from gpumon.model.text import clean

_MOST_NAMES = 8


# -- names ---------------------------------------------------------------------------------------


def labels_text(labels: Iterable[str]) -> str:
    """`gpu01:0,1 gpu02:0` from `gpu01:0`, `gpu01:1`, `gpu02:0`."""
    by_node: dict[str, list[str]] = {}
    for label in labels:
        node, _, name = label.rpartition(":")
        by_node.setdefault(node, []).append(name)
    return " ".join(f"{node}:{','.join(names)}" for node, names in by_node.items())


def gpus_text(evidence: Evidence, devices: Sequence[DeviceEvidence]) -> str:
    """`GPU 0`, `GPUs 1,2`; with the node where the run has several."""
    if len(devices) > _MOST_NAMES:
        return f"{len(devices)} GPUs"
    several = len({each.node for each in evidence.devices}) > 1
    names = ",".join(each.device.label for each in devices)
    if several:
        names = labels_text(each.label for each in devices)
    return clean(f"{'GPU' if len(devices) == 1 else 'GPUs'} {names}")


def model_text(devices: Sequence[DeviceEvidence]) -> str:
    """`A100-SXM4-80GB`, of several models each."""
    names = dict.fromkeys(each.device.name.removeprefix("NVIDIA ") or "GPU" for each in devices)
    return clean(" and ".join(names))


def percent(value: float) -> str:
    """`97 %`; a small one with a decimal, so that little does not read as nothing."""
    return f"{value:.1f} %" if 0.05 <= abs(value) < 1 else f"{value:.0f} %"


# -- findings ------------------------------------------------------------------------------------


def least(*confidences: str) -> str:
    """The weakest of them."""
    return max(confidences, key=CONFIDENCES.index)


def finding(
    evidence: Evidence,
    devices: Sequence[DeviceEvidence],
    spans: Sequence[Span],
    *,
    id: str,
    level: str,
    title: str,
    text: str,
    numbers: Mapping[str, float | None],
    confidence: str = "high",
    actions: Iterable[Action | None] = (),
    wasted_s: float = 0.0,
    harm_in_s: float | None = None,
    subject: str = "",
) -> Finding:
    """A finding about devices over spans of the grid; `wasted_s` are GPU-seconds of them all."""
    windows = [window_of(evidence, span) for span in spans]
    return Finding(
        id,
        level,
        title,
        text,
        confidence,
        subject=subject or clean(labels_text(each.label for each in devices)) or "job",
        devices=tuple(each.label for each in devices),
        resource="gpu",
        start=min((start for start, _ in windows), default=evidence.start),
        end=max((end for _, end in windows), default=evidence.end),
        numbers={name: value for name, value in numbers.items() if value is not None},
        actions=tuple(action for action in actions if action is not None),
        waste_gpu_hours=wasted_s / 3600,
        harm_in_s=harm_in_s,
    )


def outcome(found: list[Finding], unknown: Mapping[str, str]) -> list[Finding] | NotEvaluable:
    """What was found; nothing found, and some devices unknown: not evaluable, and why.

    `unknown`: label of a device -> what is missing there.
    """
    if found or not unknown:
        return found
    by_reason: dict[str, list[str]] = {}
    for label, reason in unknown.items():
        by_reason.setdefault(reason, []).append(label)
    return NotEvaluable(
        "; ".join(f"{labels_text(labels)}: {reason}" for reason, labels in by_reason.items())
    )


# -- actions -------------------------------------------------------------------------------------


def staff_actions(node: str, what: str) -> tuple[Action, ...]:
    """Hardware is not the user's to mend: a line for the staff, and a way around it."""
    name = word("node", node)
    return (
        Action("staff", Line("node {}: {}", name, words(what)) or words(what),
               text=f"Not your code: report {f'node {name}' if name else 'it'} with this line to "
                    "the site's staff."),
        Action("sbatch", Line("#SBATCH --exclude={}", name),
               text="Until then, keep off that node."),
    )  # fmt: skip


def fewer_gpus(evidence: Evidence, working: Sequence[DeviceEvidence], text: str) -> Action:
    """The request for the GPUs that worked, or none of them; only `text` where it is not known."""
    nodes = [each.node for each in working]
    per_node = max(map(nodes.count, nodes), default=0)
    return action_of(gpus_line(requested(evidence), per_node, len(nodes)), text)


# -- without readings ----------------------------------------------------------------------------


def without_devices(
    evidence: Evidence, summary: list[Finding] | NotEvaluable | None = None
) -> list[Finding] | NotEvaluable:
    """The answer of a rule about devices where there is none: clear for a job without GPUs.

    `summary`: what a summary of the whole job says instead, where there is one.
    """
    if summary is not None:
        return summary
    if requested(evidence).gpus == 0:
        return []
    if not evidence.has_samples:
        return NotEvaluable("no samples")
    if evidence.devices or requested(evidence).gpus:
        return NotEvaluable("no GPU of the job could be read")
    return []
