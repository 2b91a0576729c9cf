"""CPU: cores that nobody used, or that lie far from their GPU; `cpu_contention` has the rest.

A mean never proves that cores are too many: a short preprocessing may need all of them. So every
verdict downwards rests on the peak of a minute, which only a recording has.
"""

from __future__ import annotations

from gpumon.analysis import rightsize
from gpumon.analysis.evidence import Evidence, Track
from gpumon.analysis.finding import Action, Finding
from gpumon.analysis.findings import cpu_contention
from gpumon.analysis.findings.words import percent
from gpumon.analysis.requested import cores_of, node_types, requested
from gpumon.analysis.rules import NotEvaluable, Outcome, Rule
from gpumon.analysis.signals import active_share, job_devices
from gpumon.model.lines import Line, path, word
from gpumon.model.reading import number
from gpumon.model.text import clean
from gpumon.model.units import clock_text

_TOO_SHORT = NotEvaluable("too short to judge")


# -- what was used ---------------------------------------------------------------------------------


def _core_s(evidence: Evidence) -> tuple[float, str, str] | NotEvaluable:
    """CPU seconds of the whole job, who says so, and how sure that is."""
    known = [each.cpu_core_s for each in evidence.nodes]
    if known and None not in known and len(known) >= requested(evidence).nodes:
        sure = "high" if evidence.coverage.from_start else "medium"
        return sum(value or 0.0 for value in known), "recorded", sure
    figures = rightsize.accounted(evidence)
    if isinstance(figures, NotEvaluable):
        return figures
    if figures.cpu_core_s is None:
        return NotEvaluable(figures.missing.get("cpu", "no CPU time"))
    return figures.cpu_core_s, figures.source, "medium"


def _mean_cores(evidence: Evidence) -> float | None:
    """Over the time that was recorded; None as soon as a node is missing."""
    means = [each.job.get("cpu_cores_used", Track()).average() for each in evidence.nodes]
    if len(means) < requested(evidence).nodes or None in means:
        return None
    return sum(value or 0.0 for value in means)


def _elapsed_s(evidence: Evidence) -> float:
    """Of the job, without the time it was suspended, where Slurm tells."""
    told = evidence.job.elapsed_s if evidence.job and not evidence.live else None
    return evidence.elapsed_s if told is None else told


def _gpus_worked(evidence: Evidence) -> bool | None:
    """None where that is not known; False also for a job without GPUs."""
    shares = [active_share(each) for each in job_devices(evidence)]
    if any(shares):
        return True
    if None in shares:
        return None
    if shares or requested(evidence).gpus == 0:
        return False
    figures = rightsize.accounted(evidence)
    if isinstance(figures, NotEvaluable):
        return None
    busy = [gpu.busy_percent for node in figures.nodes.values() for gpu in node.gpus.values()]
    return any(busy) if busy and None not in busy else None


def _recorded_s(evidence: Evidence) -> float:
    return evidence.elapsed_s * evidence.coverage.covered_percent / 100


# -- not used --------------------------------------------------------------------------------------


def cpu_never_used(evidence: Evidence) -> Outcome:
    """Single-node job, elapsed > 300 s, under 1 % of one core, and no GPU active.

    Guards: GPUs of which nothing is known, and steps that still run in accounting, make it not
    evaluable. Source: jobstats ("did not use the CPU"), job_defense_shield; 1 % proposed.
    """
    if requested(evidence).nodes > 1:
        return []
    if _elapsed_s(evidence) <= evidence.site.threshold("cpu-never-used.elapsed_s", 300):
        return _TOO_SHORT
    worked = _gpus_worked(evidence)
    measured = _core_s(evidence)
    if isinstance(measured, NotEvaluable):
        return measured
    core_s, source, confidence = measured
    mean = core_s / _cpu_window_s(evidence, source)
    if mean >= evidence.site.threshold("cpu-never-used.cores", 0.01) or worked:
        return []
    if worked is None:
        return NotEvaluable("whether a GPU worked is not known")
    job_id = word("job", evidence.job.id) if evidence.job and evidence.job.id else Line("JOBID")
    file = evidence.job.std_out if evidence.job else ""
    output = path(file) if file and "%" not in file else Line("slurm-{}.out", job_id)
    hours = f"{core_s / 3600:.2f} core-hours used in {clock_text(_elapsed_s(evidence))}"
    actions = [Action("shell", Line("less {}", output), text="Read what the job printed.")]
    if evidence.live:
        actions.append(Action("shell", Line("scancel {}", job_id), text="If it hangs, end it."))
    return [
        Finding(
            "cpu-never-used", "critical", f"nothing runs: {hours}",
            f"{hours} ({source})", confidence, resource="cpu",
            start=evidence.start, end=evidence.end, numbers={"cpu_core_s": core_s},
            actions=tuple(actions),
        )
    ]  # fmt: skip


def _cpu_window_s(evidence: Evidence, source: str) -> float:
    """The time that the CPU seconds are spread over: since attach, or the whole job."""
    if source == "recorded" and not evidence.coverage.from_start and evidence.count:
        return max(evidence.bin_s, evidence.end - max(evidence.start, evidence.grid_start))
    return max(1.0, _elapsed_s(evidence))


def cpu_low(evidence: Evidence) -> Outcome:
    """CPU-only job, CPU time under 65 % (warning) or 80 % (info) of cores × time, over 300 s.

    Guards: never for jobs with GPUs, or of which that is not known; not where `serial-many-cores`
    or `cpu-never-used` says it better. Source: jobstats 65 and 80; job_defense_shield 60.
    """
    request = requested(evidence)
    if request.gpus or job_devices(evidence):
        return []
    if request.gpus is None:
        return NotEvaluable("whether it had GPUs is not known")
    if not request.cpus:
        return NotEvaluable("how many cores it had is not known")
    if _elapsed_s(evidence) <= evidence.site.threshold("cpu-low.elapsed_s", 300):
        return _TOO_SHORT
    measured = _core_s(evidence)
    if isinstance(measured, NotEvaluable):
        return measured
    core_s, source, confidence = measured
    job = evidence.job
    cores = (job.allocated.cpus if job else None) or request.cpus * request.nodes
    used_percent = 100 * core_s / (cores * _cpu_window_s(evidence, source))
    if used_percent >= evidence.site.threshold("cpu-low.info_percent", 80):
        return []
    if used_percent * cores < 1 or _is_serial(evidence):
        return []  # cpu-never-used, serial-many-cores
    needed = rightsize.cpus_need(evidence)
    line = rightsize.cpus_line(request, needed) if needed and needed < request.cpus else None
    text = "" if line else "Run it with 1, 2, 4, 8 cores and compare the times."
    warning = used_percent < evidence.site.threshold("cpu-low.warning_percent", 65)
    return [
        Finding(
            "cpu-low", "warning" if warning else "info",
            f"CPU {percent(used_percent)} of {cores} cores",
            f"CPU {percent(used_percent)} of {cores} cores × {clock_text(_elapsed_s(evidence))} "
            f"({source}, mean)",
            confidence, resource="cpu", start=evidence.start, end=evidence.end,
            numbers={"cpu_percent": used_percent, "cores": cores, "cpu_core_s": core_s},
            actions=(rightsize.action_of(line, text),),
        )
    ]  # fmt: skip


# -- too many cores --------------------------------------------------------------------------------


def _judge_peak(evidence: Evidence, rule: str) -> tuple[float, int] | NotEvaluable:
    """(peak cores of a minute on one node, cores per node), from at least 15 min of record."""
    cpus = requested(evidence).cpus
    if not evidence.has_samples:
        figures = rightsize.accounted(evidence)
        mean = None if isinstance(figures, NotEvaluable) else figures.cpu_cores_mean
        if mean is None or not cpus:
            return NotEvaluable("a peak needs a recording")
        used_percent = 100 * mean / (cpus * requested(evidence).nodes)
        return NotEvaluable(f"mean {percent(used_percent)} of the cores; a peak needs a recording")
    peak = rightsize.peak_cores(evidence)
    if peak is None or not cpus:
        return NotEvaluable("cores used are not known on every node")
    if reason := rightsize.thin(evidence):
        return NotEvaluable(reason)
    if _recorded_s(evidence) < evidence.site.threshold(f"{rule}.recorded_s", 900):
        return _TOO_SHORT
    return peak, cpus


def cpu_underused(evidence: Evidence) -> Outcome:
    """Peak of a minute under half of the cores, more than 2 cores, at least 15 min recorded.

    Guards: the peak and never the mean; one core and one per GPU are always kept; not where
    `serial-many-cores` says it better. Level info also for GPU jobs. Source: UVA's workshop ("you
    may need all cores for preprocessing"); 0.5 proposed.
    """
    judged = _judge_peak(evidence, "cpu-underused")
    if isinstance(judged, NotEvaluable):
        return judged
    peak, cpus = judged
    needed = rightsize.cpus_need(evidence)
    share = evidence.site.threshold("cpu-underused.share", 0.5)
    if cpus <= 2 or peak >= share * cpus or needed is None or needed >= cpus:
        return []
    if _is_serial(evidence):
        return []
    mean = _mean_cores(evidence)
    text = f"peak {peak:.1f} of {cpus} cores (60 s)"
    text += f", mean {mean:.1f}" if mean is not None else ""
    line = rightsize.cpus_line(requested(evidence), needed)
    return [
        _cpu_finding(evidence, "cpu-underused", "info", text, {"peak": peak, "cores": cpus},
                     rightsize.action_of(line))
    ]  # fmt: skip


def _is_serial(evidence: Evidence) -> bool:
    found = serial_many_cores(evidence)
    return isinstance(found, list) and bool(found)


def serial_many_cores(evidence: Evidence) -> Outcome:
    """More than one core, mean between 0.85 and 1.01 cores, and no minute above 1.3.

    Guards: info for GPU jobs, where one core feeds the GPU. Source: jobstats 0.85 to 1.01,
    job_defense_shield 0.85.
    """
    judged = _judge_peak(evidence, "serial-many-cores")
    if isinstance(judged, NotEvaluable):
        return judged
    peak, cpus = judged
    mean = _mean_cores(evidence)
    if mean is None:
        return NotEvaluable("cores used are not known on every node")
    limit = evidence.site.threshold
    low, high = limit("serial-many-cores.low", 0.85), limit("serial-many-cores.high", 1.01)
    in_all = cpus * requested(evidence).nodes
    if in_all <= 1 or not low <= mean <= high or peak >= limit("serial-many-cores.peak", 1.3):
        return []
    has_gpus = bool(job_devices(evidence))
    needed = rightsize.cpus_need(evidence, serial=True)
    line = rightsize.cpus_line(requested(evidence), needed) if needed and needed < cpus else None
    title = f"exactly one of {in_all} cores works"
    title += "; it feeds the GPU" if has_gpus else ""
    return [
        _cpu_finding(
            evidence, "serial-many-cores", "info" if has_gpus else "warning",
            f"{title} (mean {mean:.2f}, peak {peak:.1f})",
            {"mean": mean, "peak": peak, "cores": in_all},
            rightsize.action_of(line, "Or switch threading on in the program."),
        )
    ]  # fmt: skip


def cores_per_gpu_high(evidence: Evidence) -> Outcome:
    """More cores per GPU than the node's cores ÷ its GPUs, and the peak below that share.

    Guards: whole nodes; at least 15 min recorded; what the peak reached is needed. The share is the
    site's. Source: jobstats 12 per GPU on two clusters, job_defense_shield 12 and 18.
    """
    request = requested(evidence)
    if not request.gpus:
        return []
    judged = _judge_peak(evidence, "cores-per-gpu-high")
    if isinstance(judged, NotEvaluable):
        return judged
    peak, cpus = judged
    shares = [each.cores / each.gpus for each in node_types(evidence) if each.gpus]
    if not shares:
        return NotEvaluable("the site has not said how many cores a GPU's share is")
    share = int(max(shares))
    whole = [cores_of(each) for each in evidence.nodes] + [
        float(each.cores) for each in node_types(evidence)
    ]
    if any(cores is not None and cpus >= cores for cores in whole):
        return []
    if cpus / request.gpus <= share or peak >= share * request.gpus:
        return []
    needed = rightsize.cpus_need(evidence)
    wanted = min(share * request.gpus, needed or cpus)
    line = rightsize.cpus_line(request, wanted)
    gpus = f"{request.gpus} GPU{'s' if request.gpus > 1 else ''}"
    return [
        _cpu_finding(
            evidence, "cores-per-gpu-high", "info",
            f"{cpus} cores for {gpus} (share is {share} each), peak {peak:.1f}",
            {"cores": cpus, "gpus": request.gpus, "share": share, "peak": peak},
            rightsize.action_of(line),
        )
    ]  # fmt: skip


def _cpu_finding(
    evidence: Evidence, rule: str, level: str, text: str, numbers: dict[str, float], action: Action
) -> Finding:
    confidence = "high" if rightsize.is_whole(evidence) and not evidence.live else "medium"
    return Finding(
        rule, level, text, f"{text}, over {clock_text(evidence.elapsed_s)}", confidence,
        resource="cpu", start=evidence.start, end=evidence.end, numbers=numbers, actions=(action,),
    )  # fmt: skip


# -- placement of CPUs -----------------------------------------------------------------------------


def numa_mismatch(evidence: Evidence) -> Outcome:
    """None of the job's CPUs is among those next to a GPU of the job.

    The GPU's are its `cpu_affinity`, the job's the node's fact `job_cpus` (lists like `0-7,16`).
    Guards: a GPU without a NUMA node is not evaluable; whole nodes have all CPUs. Source: the
    affinity of `nvidia-smi topo -m`.
    """
    found: list[Finding] = []
    missing = "the job's CPUs, or those next to its GPUs, are not recorded"
    devices = job_devices(evidence)
    for node in evidence.nodes:
        held = _cpu_list(node.header.facts.get("job_cpus"))
        for device in devices:
            near = _cpu_list(device.device.facts.get("cpu_affinity"))
            place = number(device.device.facts.get("numa_node"))
            if device.node != node.node or not held or not near or place is None or place < 0:
                continue
            missing = ""
            if not held & near:
                text = f"GPU {device.device.label} is on NUMA node {place:.0f}, your CPUs are not"
                found.append(
                    Finding(
                        "numa-mismatch", "info", f"{clean(node.node)}: {text}", text, "high",
                        device.label, (device.label,), "cpu", evidence.start, evidence.end,
                        numbers={"numa_node": place},
                        actions=(Action("sbatch", Line("#SBATCH --gpu-bind=closest")),
                                 Action("shell", Line("srun --accel-bind=g ..."))),
                    )
                )  # fmt: skip
    return found if not missing else NotEvaluable(missing)


def _cpu_list(reading: object) -> set[int]:
    """`0-7,16` as numbers; empty where it is no such list."""
    cpus: set[int] = set()
    for part in reading.split(",") if isinstance(reading, str) else ():
        first, _, last = part.strip().partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(last) > 1 << 16:
            return set()
        cpus.update(range(int(first), int(last) + 1))
    return cpus


RULES: tuple[Rule, ...] = (
    Rule("cpu-never-used", cpu_never_used),
    Rule("cpu-low", cpu_low, live=False),
    Rule("cpu-underused", cpu_underused),
    Rule("serial-many-cores", serial_many_cores),
    *cpu_contention.RULES,
    Rule("cores-per-gpu-high", cores_per_gpu_high),
    Rule("numa-mismatch", numa_mismatch, report=False),
)
