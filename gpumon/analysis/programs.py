"""Programs: whose ranks can be compared with each other, and which of them launch other jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpumon.analysis.once import once
from gpumon.analysis.rundata import DeviceData, ProcessData, ProgramData, RunData
from gpumon.analysis.signals import Span, all_processes, job_processes

#: frameworks whose ranks work in step
ML_FRAMEWORKS = frozenset(("torch", "tf", "jax"))
#: options that differ from rank to rank of one program
_RANK = re.compile(
    r"(?:^|\s)--?(?:(?:local|node|global|machine|world|task|process)[-_]?)?"
    r"(?:rank|id|device|gpu|cuda)(?:[-_]?(?:id|index|rank))?[= ]\s*\S+",
    re.IGNORECASE,
)


def program(process: ProcessData | ProgramData) -> str:
    """Its command without what names the rank."""
    return " ".join(_RANK.sub(" ", process.facts.command or process.facts.name).split())


def by_program(processes: Iterable[ProgramData]) -> list[list[ProgramData]]:
    """Those of one program together, in their order."""
    groups: dict[str, list[ProgramData]] = {}
    for each in processes:
        groups.setdefault(program(each), []).append(each)
    return list(groups.values())


@once
def programs_on(device: DeviceData) -> frozenset[str]:
    """Of the job's processes there; without one those of others, each apart by its user. Empty
    where none is known.
    """
    if own := job_processes(device):
        return frozenset(map(program, own))
    return frozenset(f"{each.facts.user}: {program(each)}" for each in all_processes(device))


def of_one_program(devices: Iterable[DeviceData]) -> list[list[DeviceData]]:
    """The devices apart by program; those that have one of several in common go together, as does
    what is not known with everything.
    """
    groups: list[tuple[frozenset[str], list[DeviceData]]] = []
    for device in devices:
        names, members = programs_on(device), [device]
        rest = []
        for known, others in groups:
            if names & known or not names or not known:
                names, members = names | known, [*others, *members]
            else:
                rest.append((known, others))
        groups = [*rest, (names, members)]
    return [members for _, members in groups]


def shared_time(run: RunData, devices: Sequence[DeviceData]) -> Span:
    """While all of these devices have a process of the job, as far as that is known."""
    first, last = 0, run.count
    for device in devices:
        if there := job_processes(device):
            first = max(first, run.bin_at(min(each.first for each in there)))
            if all(each.ended for each in there):
                last = min(last, run.bin_at(max(each.last for each in there)))
    return Span(first, max(first, last))


#: programs that start other jobs, or workers elsewhere, and wait for them
_COORDINATORS = re.compile(
    r"(?<![a-z])(snakemake|nextflow|cromwell|toil|cwltool|airflow|luigi|parsl|submitit|fireworks|"
    r"qlaunch|rlaunch|makeflow|pegasus|balsam|dask[-_]scheduler|prefect|cylc|aiida|verdi|sbatch|"
    r"salloc|drmaa)(?![a-z])"
)


#: cores of a job that may only launch others
OF_A_COORDINATOR = 2


@once
def coordinates(run: RunData) -> bool:
    """Whether the job launches others and waits for them, by the names of its programs or its own;
    False also where none is known.
    """
    names = [f"{p.name} {p.command}" for node in run.nodes for p, _ in node.processes.values()]
    if run.job is not None:
        names.append(run.job.name)
    return any(_COORDINATORS.search(name.lower()) for name in names)
