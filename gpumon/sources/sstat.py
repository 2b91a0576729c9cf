"""The last way: no agent on the node, only what Slurm's `sstat` tells of the running steps.

Its figures come as the lines that an agent would write, so that the rest is the same for all
ways. It asks the node's slurmd each time, so not more often than once a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpumon import __version__
from gpumon.analysis.accounting import Meaning, meaning_of
from gpumon.model.reading import MEASURING, Missing, Reading
from gpumon.model.sample import Header, Sample
from gpumon.slurm.client import SSTAT_PERIOD_S, Slurm
from gpumon.slurm.job import Job, Step
from gpumon.slurm.runner import SlurmError
from gpumon.sources.stream import Failure
from gpumon.wire import Encoder

#: after so many answers a way that shows more may work again
_ANSWERS = 10


class SstatLauncher:
    """Figures of a job that has one node: of several, sstat tells only all of them together."""

    name = "sstat"
    lacks = "No GPUs and nothing of the node: only what sstat says of the job's steps each minute."

    def __init__(self, job: Job, slurm: Slurm, period_s: float = SSTAT_PERIOD_S) -> None:
        self._job = job
        self._slurm = slurm
        self._period_s = period_s

    def open(self, node: str, argv: list[str]) -> SstatStream:
        """Asks once, to see whether sstat answers. Raises Failure."""
        raw_id = self._job.raw_id
        command = f"sstat -a -j {raw_id}"
        if len(self._job.nodes) != 1:
            text = "it tells the usage of all the job's nodes together, not of one"
            raise Failure(text, command, final=True)
        try:
            config = self._slurm.config()
            steps = self._slurm.usage([raw_id]).get(raw_id, ())
        except SlurmError as error:
            raise Failure(str(error), command) from None
        if not steps:
            raise Failure("it tells nothing of the job", command)
        known = replace(
            self._job,
            slurm_version=config.version,
            acct_gather=config.gathered_by,
            acct_params=config.gather_params,
        )
        return SstatStream(node, raw_id, meaning_of(known), self._slurm, self._period_s)

    def close(self) -> None:
        """Nothing is shared."""


class SstatStream:
    """Lines of an agent that is not there."""

    def __init__(
        self, node: str, raw_id: str, meaning: Meaning, slurm: Slurm, period_s: float
    ) -> None:
        self._node = node
        self._raw_id = raw_id
        self._meaning = meaning
        self._slurm = slurm
        self._period_s = period_s
        self._closed = threading.Event()
        self._lines = self._told()

    def read(self) -> bytes:
        return next(self._lines, b"")

    def write(self, data: bytes) -> None:
        """Nobody is there to read it."""

    def close(self) -> None:
        self._closed.set()

    def complaint(self) -> str:
        return "looking for a way that shows more"

    def _told(self) -> Iterator[bytes]:
        encoder, rates = Encoder(), _Cores()
        header = Header(
            self._node, "", time.time(), time.monotonic(), self._period_s, __version__,
            notes=[SstatLauncher.lacks, f"Memory is {self._meaning.words}."],
        )  # fmt: skip
        yield _line(encoder.header(header))
        for _ in range(_ANSWERS):
            steps = self._steps()
            if steps and not self._closed.is_set():
                now, mono = time.time(), time.monotonic()
                row = {"cpu_cores_used": rates.of(steps, mono), **memory(steps, self._meaning)}
                yield _line(encoder.sample(Sample(now, mono, {"job": {"": row}})))
            if self._closed.wait(self._period_s):
                return

    def _steps(self) -> Sequence[Step]:
        """Those that run; none while Slurm does not answer: a gap."""
        try:
            return self._slurm.usage([self._raw_id]).get(self._raw_id, ())
        except SlurmError:
            return ()


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
        return {"mem_used_bytes": Missing("unsupported", "sstat tells no memory")}
    total = int(sum(figures))
    if not meaning.polled:
        name = "mem_peak_bytes"
    else:
        name = "mem_charged_bytes" if meaning.is_upper_bound else "mem_used_bytes"
    with_cache = Missing("unsupported", "sstat counts page cache in")
    return {"mem_used_bytes": with_cache, name: total}


def _line(text: str) -> bytes:
    return text.encode("ascii") + b"\n"
