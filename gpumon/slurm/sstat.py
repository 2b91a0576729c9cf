"""`sstat`: usage of a job's running steps, queried from the nodes. Own jobs only.

It exits 0 on errors and then prints nothing but, at most, its header: no step is no answer. None
of its fields holds what users write, and it knows no other delimiter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpumon.slurm import records, sacct, values
from gpumon.slurm.job import Step

SOURCE = "sstat"
FIELDS = ("JobID", "NTasks", "Nodelist", "MaxRSS", "TRESUsageInTot", "TRESUsageInMax")


def fields(available: Collection[str]) -> list[str]:
    return sacct.fields(available, FIELDS)


def argv(available: Collection[str], ids: Sequence[str]) -> list[str]:
    """The call for all steps of these jobs (raw ids); without -a only numbered steps answer."""
    chosen = ",".join(fields(available))
    return ["sstat", "-a", "-P", "-n", "-o", chosen, "-j", ",".join(ids)]


def parse(output: bytes, names: Sequence[str]) -> dict[str, tuple[Step, ...]]:
    """Steps by their job's id; a step without any usage (`.extern` of 25.05 on) has None in it."""
    text = output.decode("utf-8", "replace")
    found: dict[str, tuple[Step, ...]] = {}
    for row in records.rows(text, "|", names):
        job, _, step = row.get("jobid", "").partition(".")
        if step:
            found[job] = (*found.get(job, ()), _step(step, row))
    return found


def _step(id: str, row: sacct.Row) -> Step:
    nodes = values.known(row.get("nodelist", ""))
    step = Step(
        id=values.known(id),
        state="RUNNING",
        node_list=nodes,
        node_count=len(sacct.nodes_of(nodes)) or None,
        tasks=values.count(row.get("ntasks", "")),
        source=SOURCE,
    )
    return sacct.with_usage(step, row)
