"""The last transport: no agent on the node, only `sstat`'s figures for the running steps.

Its figures come as the lines that an agent would write, so that the rest is the same for all
ways. It asks the node's slurmd each time, so not more often than once a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpumon import __version__
from gpumon.analysis.accounting import Meaning, meaning_of
from gpumon.model import clock
from gpumon.model.reading import MEASURING, Missing, Reading
from gpumon.model.sample import Header, Sample
from gpumon.slurm.client import SSTAT_PERIOD_S, Slurm
from gpumon.slurm.job import Job, Step
from gpumon.slurm.runner import SlurmError
from gpumon.slurm.sacct import nodes_of
from gpumon.transport.agentless import AgentlessStream, line_of
from gpumon.transport.stream import Failure
from gpumon.wire.encoder import Encoder

#: after so many answers a way that shows more may work again
_ANSWERS = 10


class SstatTransport:
    """Figures of the steps that run on one node alone: over several, sstat adds them up."""

    name = "sstat"
    lacks = "No figures of GPUs or the node: only sstat's of the job's steps, once a minute."

    def __init__(self, job: Job, slurm: Slurm, period_s: float = SSTAT_PERIOD_S) -> None:
        self._job = job
        self._slurm = slurm
        self._asked = _Asked(job.raw_id, slurm, period_s)

    def open(self, node: str, argv: list[str]) -> SstatStream:
        """Asks once, to see whether sstat tells anything of this node. Raises Failure."""
        command = f"sstat -a -j {self._job.raw_id}"
        try:
            config = self._slurm.config()
            answer = self._asked.newest()
            if not answer.steps:
                raise SlurmError(answer.trouble or "it reports nothing about the job")
            steps_of(self._job, node, answer.steps)
        except SlurmError as error:
            raise Failure(str(error), command) from None
        known = replace(
            self._job,
            slurm_version=config.version,
            acct_gather=config.gathered_by,
            acct_params=config.gather_params,
        )
        return SstatStream(node, known, self._asked)

    def close(self) -> None:
        """Nothing is shared that must be given up."""


class _Answer(NamedTuple):
    """sstat's figures for a job's running steps, with their time; without any, the reason."""

    time: float
    mono: float
    steps: Sequence[Step] = ()
    trouble: str = ""


class _Asked:
    """sstat, asked once for all nodes of a job: it asks them all each time."""

    def __init__(self, raw_id: str, slurm: Slurm, period_s: float) -> None:
        self.period_s = period_s
        self._raw_id = raw_id
        self._slurm = slurm
        self._lock = threading.Lock()
        self._answer: _Answer | None = None

    def newest(self) -> _Answer:
        with self._lock:
            last = self._answer
            if last is None or clock.since_boot() - last.mono >= self.period_s:
                last = self._answer = self._ask()
            return last

    def _ask(self) -> _Answer:
        steps: Sequence[Step] = ()
        trouble = ""
        try:
            steps = self._slurm.usage([self._raw_id]).get(self._raw_id, ())
        except SlurmError as error:
            trouble = str(error)
        return _Answer(clock.now(), clock.since_boot(), steps, trouble)


def steps_of(job: Job, node: str, steps: Sequence[Step]) -> list[Step]:
    """The steps that run on this node and on no other.

    Raises SlurmError where that is not all that the job does there: of a step on several nodes
    sstat tells sums, and which task used most. `extern` is on all nodes and is left out.
    """
    if len(job.nodes) == 1:
        return list(steps)
    on = {step.id: nodes_of(step.node_list) for step in steps}
    spread = [id for id, nodes in on.items() if nodes != (node,) and (node in nodes or not nodes)]
    for id in spread:
        if id != "extern":
            raise SlurmError(f"step {id} runs on several nodes, and sstat reports only their sum")
    alone = [step for step in steps if on[step.id] == (node,)]
    if not alone:
        raise SlurmError("no step runs on this node")
    return alone


class SstatStream(AgentlessStream):
    """Lines of an agent that is not there."""

    def __init__(self, node: str, job: Job, asked: _Asked) -> None:
        self._node = node
        self._job = job
        self._meaning = meaning_of(job)
        self._asked = asked
        super().__init__("trying transports that show more")

    def _told(self) -> Iterator[bytes]:
        encoder, rates, period_s = Encoder(), _Cores(), self._asked.period_s
        ours = {step.id for step in self._job.steps if step.is_own}  # sstat tells no names
        notes = [SstatTransport.lacks, f"Memory is {self._meaning.words}."]
        if len(self._job.nodes) > 1:
            notes.append("Without ssh sessions (step extern), which sstat sums over all nodes.")
        header = Header(
            self._node, "", clock.now(), clock.since_boot(), period_s, __version__, notes=notes
        )
        yield line_of(encoder.header(header))
        told = 0.0
        for _ in range(_ANSWERS):
            answer = self._asked.newest()
            if answer.steps and answer.mono > told and not self._closed.is_set():  # else a gap
                told = answer.mono
                try:
                    steps = steps_of(self._job, self._node, answer.steps)
                    steps = [step for step in steps if step.id not in ours]
                except SlurmError as error:
                    self._trouble = str(error)
                    return
                row = {
                    "cpu_cores_used": rates.of(steps, answer.mono), **memory(steps, self._meaning)
                }  # fmt: skip
                yield line_of(encoder.sample(Sample(answer.time, answer.mono, {"job": {"": row}})))
            if self._closed.wait(max(0.0, answer.mono + period_s - clock.since_boot())):
                return


class _Cores:
    """Cores used between two answers, over the steps that are in both: others began or ended."""

    def __init__(self) -> None:
        self._at = 0.0
        self._cpu_s: Mapping[str, float] = {}

    def of(self, steps: Sequence[Step], mono: float) -> Reading:
        told = {step.id: step.cpu_s for step in steps if step.cpu_s is not None}
        grown = [told[id] - before for id, before in self._cpu_s.items() if id in told]
        elapsed_s = mono - self._at
        self._at, self._cpu_s = mono, told
        return max(0.0, sum(grown)) / elapsed_s if grown else MEASURING


def memory(steps: Sequence[Step], meaning: Meaning) -> dict[str, Reading]:
    """What the steps' memory together is, under the name that says what it counts."""
    figures = [total for step in steps if (total := step.usage.total.get("mem")) is not None]
    if not figures:
        return {"mem_used_bytes": Missing("unsupported", "sstat reports no memory")}
    total = int(sum(figures))
    if not meaning.polled:
        name = "mem_peak_bytes"
    else:
        name = "mem_charged_bytes" if meaning.is_upper_bound else "mem_used_bytes"
    with_cache = Missing("unsupported", "sstat includes page cache")
    return {"mem_used_bytes": with_cache, name: total}
