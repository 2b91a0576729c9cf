"""The changed request that follows from a run's findings: one consistent set of lines.

Each resource has one line, in the form of the user's own request, and the lines fit each other:
memory per CPU is worked out for the CPUs that the same set asks for. A line that is safe only
together with another follows from the same finding, whose lines are shown as one. What asks for
less passes the gate of `gate`. Where the basis is thin there is no line.

Two things are never lines, but words of their findings: another type of GPU, of which only a run
there shows how long the program takes; and no GPU at all, as a program that failed to find one
looks like one that needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from gpumon.analysis.finding import CONFIDENCES, Change, Finding, NotEvaluable, Recommendation
from gpumon.analysis.rightsize import amounts, changes, cores, nodes
from gpumon.analysis.rightsize.gate import asks_for_less, refusals
from gpumon.analysis.rightsize.gpus import gpus_need
from gpumon.analysis.rightsize.leaking import host_leaks
from gpumon.analysis.rightsize.proof import unproven
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rightsize.tasks import array_cpus, ended_tasks
from gpumon.analysis.rundata import RunData
from gpumon.model.text import clean
from gpumon.model.units import bytes_text
from gpumon.slurm.options import family

_LESS_MEMORY = ("mem-over", "mem-per-gpu-high")
_MORE_MEMORY = ("oom-killed", "mem-near-limit", "swap-io")
_LESS_CPUS = (
    "serial-many-cores", "cpu-underused", "cores-per-gpu-high", "cpu-low", "cpu-mostly-idle",
)  # fmt: skip
_ONE_NODE = ("frag-nodes", "few-cores-per-node")
_WAITING = ("input-bound", "cpu-environments")
#: more time helps none of these
_HUNG = ("suspected-hang", "idle-tail")


def recommend(run: RunData, findings: Sequence[Finding]) -> list[Recommendation]:
    """One line per resource: nodes, GPUs, CPUs, memory, time, the rest; then export lines.

    `findings` are those raised, in their order; folded-in ones give no line.
    """
    raised: dict[str, Finding] = {}
    for finding in findings:
        if not finding.suppressed_by:
            raised.setdefault(finding.id, finding)
    return _Plan(run, raised).lines() if raised else []


class _Memory(NamedTuple):
    """Memory to ask for; `basis`, `adds` and `confidence` as `_Plan._add` takes them."""

    finding: Finding
    node_bytes: float
    adds: str = ""
    confidence: str = ""
    basis: str | None = None


class _Plan:
    """The new request, worked out in the order in which its parts hang on each other."""

    def __init__(self, run: RunData, raised: dict[str, Finding]) -> None:
        self.run = run
        self.raised = raised
        self.request = requested(run)
        self.may_shrink = unproven(run) is None
        self.found: list[Recommendation] = []
        self.refusal = refusals(run, list(raised.values()), self.found)
        self.cpus: int | None = None  # new ones per node, None: as before
        self.gpus: int | None = None
        self.cpus_by: Finding | None = None  # whose line changes them
        self.gpus_by: Finding | None = None

    def lines(self) -> list[Recommendation]:
        if not self._nodes():
            self._gpus()
            self._cpus()
            self._memory()
        self._time()
        self._more()
        self._exports()
        return self.found

    def _first(self, *ids: str) -> Finding | None:
        return next((self.raised[each] for each in ids if each in self.raised), None)

    def _add(
        self, change: Change | None, finding: Finding, adds: str = "", confidence: str = "",
        basis: str | None = None,
    ) -> None:  # fmt: skip
        """It rests on the finding's evidence (else on `basis`), and on what `adds` says."""
        if change is None or self.refusal(change, finding.id):
            return
        basis = finding.evidence if basis is None else basis
        known = (confidence, finding.confidence) if confidence else (finding.confidence,)
        self.found.append(
            Recommendation(
                change,
                clean("; ".join(filter(None, (basis, adds)))),
                max(known, key=CONFIDENCES.index),
                finding.id,
                clean(adds),
            )
        )

    # -- placement ---------------------------------------------------------------------------------

    def _nodes(self) -> bool:
        """Whether all goes on one node: then the other resources follow from that."""
        together, idle = self._first(*_ONE_NODE), self._first("nodes-idle")
        for finding, found in (
            (together, nodes.on_one_node(self.run) if together else []),
            (idle, nodes.without_idle_nodes(self.run) if idle and not together else []),
        ):
            if finding is None or any(self.refusal(each, finding.id) for each in found):
                continue
            for change in found:
                self._add(change, finding, confidence="medium")
        return together is not None and bool(self.found)

    # -- GPUs --------------------------------------------------------------------------------------

    def _gpus(self) -> None:
        """Fewer of them."""
        finding = self._first("gpus-partly-idle")
        if finding is None or not self.may_shrink or (count := gpus_need(self.run)) is None:
            return
        if self.request.mem_form == "gpu" and (self.request.mem_bytes is None or self._leaks()):
            return  # how much the new number would give is not known
        line = changes.gpus_line(self.request, *count)
        if line is not None and not self.refusal(line, finding.id):
            self.gpus, self.gpus_by = count[0], finding
            self._add(line, finding)

    # -- CPUs --------------------------------------------------------------------------------------

    def _cpus(self) -> None:
        request = self.request
        if not request.cpus or (request.mem_form == "cpu" and request.mem_bytes is None):
            return
        finding, wanted, because = self._cpus_wanted()
        if request.cpus_per_gpu and self.gpus_by is not None:
            finding, need = self.gpus_by, cores.cpus_need(self.run)
            wanted = wanted or min(need.cpus if need else request.cpus, request.cpus)
        if finding is None or wanted is None:
            return
        line = self._for_tasks(changes.cpus_line(request, wanted, self.gpus))
        if line is not None and not self.refusal(line, finding.id):
            self.cpus = changes.cpus_given(request, line, wanted, self.gpus)
            self.cpus_by = finding
            self._add(line, finding, because)
        elif request.cpus_per_gpu and self.gpus:
            self.cpus = request.cpus // (request.gpus or 1) * self.gpus
            self.cpus_by = self.gpus_by

    def _for_tasks(self, line: Change | None) -> Change | None:
        """Fewer cores for several tasks: only where it is known what each process used, as one of
        them may use more than its share of the sum.
        """
        if line is None or not asks_for_less(line) or changes.tasks_per_node(self.request) == 1:
            return line
        most = cores.largest_process(self.run)
        if most is None or not isinstance(line.before, int) or not isinstance(line.after, int):
            return None
        if line.option != "--cpus-per-task":
            return line
        after = max(line.after, ceil(1.1 * most))
        return replace(line, after=after) if after < line.before else None

    def _cpus_wanted(self) -> tuple[Finding | None, int | None, str]:
        """(finding, CPUs per node, why so many). One task of an array does not speak for the
        others.
        """
        array = self.raised.get("array-cpu-over")
        if array is not None:
            return array, array_cpus(self.run, ended_tasks(self.run)), ""
        shrinks = self.may_shrink and not self._is_array()
        finding = self._first(*_LESS_CPUS) if shrinks else None
        waiting = self._first(*_WAITING)
        if finding is None and waiting is not None and any(a.changes for a in waiting.actions):
            return waiting, cores.more_cpus(self.run), ""
        need = cores.fewer_cpus(self.run) if finding is not None else None
        return finding, need.cpus if need else None, need.because if need else ""

    def _is_array(self) -> bool:
        job = self.run.job
        return bool(job and job.array_job_id)

    # -- memory ------------------------------------------------------------------------------------

    def _memory(self) -> None:
        if self.request.mem_bytes is None or self.request.is_whole_memory:
            return
        for wanted in (self._memory_wanted(), self._same_memory()):
            if wanted is None:
                continue
            change = changes.memory_line(self.request, wanted.node_bytes, self.cpus, self.gpus)
            # more for each of fewer CPUs may still be less
            node = Change("--mem", int(self.request.mem_bytes), ceil(wanted.node_bytes))
            if change is None or not self.refusal(node, wanted.finding.id):
                self._add(change, *self._owned(wanted))
                return

    def _owned(self, wanted: _Memory) -> tuple[Finding, str, str, str | None]:
        """With the finding that changes the number of CPUs or GPUs for each of which memory is
        requested: neither that line nor the one of memory is safe alone.
        """
        owner, basis = self._units_by(), wanted.basis
        if owner is None or owner is wanted.finding:
            return wanted.finding, wanted.adds, wanted.confidence, basis
        basis = wanted.finding.evidence if basis is None else basis
        return owner, "; ".join(filter(None, (basis, wanted.adds))), wanted.confidence, ""

    def _memory_wanted(self) -> _Memory | None:
        """More, or less; None: memory may stay as it is."""
        up = next(
            (e for id in _MORE_MEMORY if (e := self.raised.get(id)) and _wants_memory(e)), None
        )
        if up is not None:
            more, before = amounts.more_memory(self.run), self.request.mem_bytes
            return _Memory(up, more, self._why_more(more, before or 0.0)) if more else None
        if "array-mem-over" in self.raised:
            tasks = [each for each in ended_tasks(self.run) if each.mem_bytes is not None]
            most = max((each.mem_bytes or 0.0) * each.mem_factor for each in tasks)
            return _Memory(self.raised["array-mem-over"], max(most, self._floor()))
        finding = self._first(*_LESS_MEMORY)
        if finding is None or self._is_array() or not self.may_shrink:
            return None
        need = amounts.memory_need(self.run)
        if isinstance(need, NotEvaluable):
            return None
        less = amounts.less_memory(self.run, need, self.cpus)
        if not less:
            return None
        cached = need.cache_bytes >= amounts.GIB
        cache = f" and {bytes_text(need.cache_bytes)} of page cache" if cached else ""
        factor = f"{need.factor:.2g} × the peak{cache}, rounded up"
        if need.grown_bytes > need.factor * need.amount:
            factor = f"as it grows, for a run half as long again{cache}, rounded up"
        if less > need.with_margin:
            factor = "the site's default for its cores, rounded up"
        if finding.id == "mem-over":  # which says on what the need rests
            return _Memory(finding, less, factor, need.confidence, need.basis)
        return _Memory(finding, less, f"{need.basis}; {factor}", need.confidence, "")

    def _why_more(self, more: float, before: float) -> str:
        need = amounts.memory_need(self.run)
        if host_leaks(self.run):
            return "as it grows, until the time limit"
        if more == 1.5 * before:
            return "half as much again"
        if isinstance(need, NotEvaluable) or more != need.with_margin:
            return "all that a node has"
        return f"{need.factor:.2g} × the peak"

    def _leaks(self) -> bool:
        return self._first("host-leak") is not None

    def _units_by(self) -> Finding | None:
        """Whose line changes the number of CPUs or GPUs for each of which memory is requested."""
        return {"cpu": self.cpus_by, "gpu": self.gpus_by}.get(self.request.mem_form)

    def _same_memory(self) -> _Memory | None:
        """Fewer CPUs or GPUs times the same memory each would be less than before."""
        finding, in_all = self._units_by(), self.request.mem_bytes
        if finding is None or in_all is None:
            return None
        need = amounts.memory_need(self.run)
        no_proof = self._leaks() or self._is_array() or amounts.was_out_of_memory(self.run)
        if isinstance(need, NotEvaluable) or need.polled_s or no_proof:
            return _Memory(finding, in_all, "keeps the memory in all", "", "")
        wanted = min(in_all, max(need.with_margin, self._floor()))
        return _Memory(finding, wanted, f"{need.basis}; for the new number", need.confidence, "")

    def _floor(self) -> float:
        cpus = self.request.cpus if self.cpus is None else self.cpus
        return amounts.site_default_bytes(self.run, cpus)

    # -- time and the rest -------------------------------------------------------------------------

    def _time(self) -> None:
        limit_s = self.request.time_limit_s
        if not limit_s or self.run.live:
            return
        longer = self.raised.get("timed-out")
        if longer is not None:
            if self._first(*_HUNG) is None and longer.change("--time") is not None:
                self._add(changes.time_line(limit_s, 2 * limit_s), longer, changes.IF_ALLOWED)
            return
        finding = self._first("array-time-over", "time-over")
        tail = self.raised.get("idle-tail")
        without = tail.change("--time") if tail is not None else None
        if tail is not None and without is not None:
            self._add(without, tail, "without the idle end", "medium")
        elif finding is not None and finding.change("--time") is not None:
            known = amounts.completed(self.run) or [self.run.elapsed_s]
            more = 1.0 if self.cpus is None else cores.LONGER
            if wanted := amounts.less_time(known, limit_s, more):
                self._add(changes.time_line(limit_s, wanted), finding)

    def _more(self) -> None:
        """What findings ask more of, where nothing above is about it."""
        above = {family("--mem")} | ({family("--time")} if not self.run.live else set())
        above |= {family("--cpus-per-task")} if self._first(*_WAITING) else set()
        for finding in self.raised.values():
            for change in (each for action in finding.actions for each in action.changes):
                stated = above | {family(each.change.option) for each in self.found}
                if not asks_for_less(change) and family(change.option) not in stated:
                    self._add(change, finding)

    def _exports(self) -> None:
        """Lines for allocators and threads, each variable once."""
        seen = set()
        for finding in self.raised.values():
            for action in finding.actions:
                if action.kind == "export" and action.after and action.after not in seen:
                    seen.add(action.after)
                    change = Change("", None, action.after)
                    basis = clean(action.text or finding.evidence)
                    self.found.append(Recommendation(change, basis, finding.confidence, finding.id))


def _wants_memory(finding: Finding) -> bool:
    return any(finding.change(each) for each in ("--mem", "--mem-per-cpu", "--mem-per-gpu"))
