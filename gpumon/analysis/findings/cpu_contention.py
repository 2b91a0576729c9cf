"""CPU contention: cores that are the limit, and threads in each other's way."""

from __future__ import annotations

from gpumon.analysis import rightsize
from gpumon.analysis.evidence import Evidence, NodeEvidence, Track
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings.words import percent
from gpumon.analysis.requested import cores_of, requested
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import Held, sustained
from gpumon.model.lines import Line
from gpumon.model.reading import number
from gpumon.model.text import clean

_THREADS = Line("export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}")


def cpu_starved(evidence: Evidence) -> Outcome:
    """At least 95 % of a node's cores busy for 5 min, more threads than cores, and some of them
    waiting: the quota hit in 1 % of the periods, or CPU pressure of 20 % (mean of 10 s).

    Variant: the recorder, and so the command beside it, may run on one CPU of several.
    Guards: pressure or throttling must be known, for waiting threads that spin look busy and those
    that sleep count as threads. Source: ClusterCockpit's high load; numbers proposed.
    """
    found: list[Finding] = []
    missing = "no samples"
    for node in evidence.nodes:
        answer = _bound_to_one(evidence, node) or _starved(evidence, node)
        if isinstance(answer, Finding):
            found.append(answer)
        elif answer:
            missing = answer
        else:
            missing = ""
    return found if found or not missing else NotEvaluable(missing)


def _starved(evidence: Evidence, node: NodeEvidence) -> Finding | str | None:
    """A finding; why it cannot be judged; or None."""
    limit = evidence.site.threshold
    cores = node.job.get("cpu_cores_used", Track())
    throttled = node.job.get("cpu_throttled_percent", Track())
    pressure = node.job.get("cpu_pressure_percent", Track())
    if not node.cpus or not cores.known():
        return "cores used are not known"
    if not node.threads.known():
        return "the job's threads are not known"
    if not throttled.known() and not pressure.known():
        return "neither throttling nor CPU pressure is known"
    cpus, busy = node.cpus, limit("cpu-starved.busy_percent", 95) / 100
    held = sustained(
        evidence, limit("cpu-starved.for_s", 300),
        lambda means: means[0] >= busy * cpus and means[1] > cpus, (cores, node.threads),
    )  # fmt: skip
    for span in reversed(held.spans):
        quota, waiting = throttled.average(*span), pressure.average(*span)
        if (quota or 0) >= limit("cpu-starved.throttled_percent", 1) or (waiting or 0) >= limit(
            "cpu-starved.pressure_percent", 20
        ):
            threads = node.threads.average(*span) or 0.0
            return _starved_finding(evidence, node, cpus, threads, quota, waiting)
    return None


def _starved_finding(
    evidence: Evidence, node: NodeEvidence, cpus: int, threads: float,
    quota: float | None, waiting: float | None,
) -> Finding:  # fmt: skip
    text = f"{cpus}/{cpus} cores busy, {threads:.0f} threads"
    text += f", throttled {percent(quota)} of periods" if quota else ""
    text += f", some wait {percent(waiting)} of the time" if waiting else ""
    line = rightsize.cpus_line(requested(evidence), 2 * cpus)
    return Finding(
        "cpu-starved", "warning", f"{clean(node.node)}: {text}",
        f"{text}; threads that spin look busy, so compare with more cores",
        "medium", clean(node.node), resource="cpu", start=evidence.start, end=evidence.end,
        numbers={"cores": cpus, "threads": threads}, actions=(rightsize.action_of(line),),
    )  # fmt: skip


def _bound_to_one(evidence: Evidence, node: NodeEvidence) -> Finding | None:
    usable = number(node.header.facts.get("cpus"))
    mean = node.job.get("cpu_cores_used", Track()).average()
    threads = node.threads.average()
    if usable != 1 or not node.cpus or node.cpus < 2 or mean is None or threads is None:
        return None
    if not 0.85 <= mean <= 1.05 or threads < 2:
        return None
    text = f"{node.cpus} cores allocated, but pinned to one CPU: {threads:.0f} threads share it"
    return Finding(
        "cpu-starved", "warning", f"{clean(node.node)}: {text}", f"{text} (mean {mean:.2f} cores)",
        "low", clean(node.node), resource="cpu", start=evidence.start, end=evidence.end,
        numbers={"cores": node.cpus, "threads": threads, "mean": mean},
        actions=(
            Action("shell", Line("srun --cpu-bind=cores -c $SLURM_CPUS_PER_TASK ...")),
            Action("export", _THREADS),
        ),
    )  # fmt: skip


def cpu_oversubscribed(evidence: Evidence) -> Outcome:
    """More than 1.2 runnable threads per core for 10 min: threads that exist, while the job's CPU
    pressure shows that some wait (10 %); or the node's load, where the job has the whole node.

    Guards: threads that sleep or wait for I/O are no fault, hence the pressure. Source:
    ClusterCockpit 1.2; the duration and 10 % proposed.
    """
    found: list[Finding] = []
    judged = False
    for node in evidence.nodes:
        held, counted = _crowded(evidence, node)
        judged = judged or held.known
        if held.spans and node.cpus:
            threads = counted.average(*held.spans[-1]) or 0.0
            found.append(_oversubscribed(evidence, node, node.cpus, threads))
    return found if judged else NotEvaluable("runnable threads are not known long enough")


def _crowded(evidence: Evidence, node: NodeEvidence) -> tuple[Held, Track]:
    """Where there were too many, and the track that counts them."""
    limit = evidence.site.threshold
    pressure, load = (
        node.job.get("cpu_pressure_percent", Track()),
        node.host.get("load1", Track()),
    )
    most = limit("cpu-oversubscribed.ratio", 1.2) * (node.cpus or 0)
    waits = limit("cpu-oversubscribed.pressure_percent", 10)
    seconds = limit("cpu-oversubscribed.for_s", 600)
    if most and node.threads.known() and pressure.known():
        tracks = (node.threads, pressure)
        held = sustained(evidence, seconds, lambda m: m[0] > most and m[1] >= waits, tracks)
        return held, node.threads
    if most and cores_of(node) == node.cpus:
        return sustained(evidence, seconds, lambda m: m[0] > most, (load,)), load
    return Held([], False), load


def _oversubscribed(evidence: Evidence, node: NodeEvidence, cpus: int, threads: float) -> Finding:
    text = f"{threads:.0f} threads on {cpus} cores ({threads / cpus:.1f}×)"
    return Finding(
        "cpu-oversubscribed", "info", f"{clean(node.node)}: {text}", f"{text}, and some wait",
        "medium", clean(node.node), resource="cpu", start=evidence.start, end=evidence.end,
        numbers={"threads": threads, "cores": cpus},
        actions=(
            Action("export", _THREADS),
            Action("code", Line("DataLoader(num_workers={})", max(1, cpus - 1))),
        ),
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule("cpu-starved", cpu_starved),
    Rule("cpu-oversubscribed", cpu_oversubscribed),
)
