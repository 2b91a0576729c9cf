"""The changed request that follows from a run's findings: one consistent set of lines.

Each resource has one line, in the form of the user's own request, and the lines fit each other:
memory per CPU is worked out for the CPUs that the same set asks for. Where the basis is thin there
is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpumon.analysis import rightsize
from gpumon.analysis.directives import apply, apply_to_submit_line, diff
from gpumon.analysis.evidence import Evidence
from gpumon.analysis.finding import CONFIDENCES, Finding, Recommendation
from gpumon.analysis.findings.arrays import array_cpus
from gpumon.analysis.findings.storage import merged_gpus
from gpumon.analysis.requested import requested
from gpumon.analysis.rules import NotEvaluable
from gpumon.analysis.tasks import ended_tasks
from gpumon.model.text import clean

__all__ = ["apply", "apply_to_submit_line", "diff", "recommend"]

_LESS_MEMORY = ("mem-over", "mem-per-gpu-high")
_MORE_MEMORY = ("oom-killed", "mem-near-limit")
_LESS_CPUS = ("serial-many-cores", "cpu-underused", "cores-per-gpu-high", "cpu-low")
_GPU_MODEL = ("smaller-gpu",)
_OPTION = re.compile(r"#SBATCH\s+(--[a-z][a-z-]*)[= ]([^\s]+)$")
_COUNT = re.compile(r"(?:^|[:=])(\d+)$")
_GRES = re.compile(r"(?:gpu:)?(?P<type>[A-Za-z_][\w.-]*|\d+g\.\d+gb[\w.+-]*)(?::\d+)?")


def recommend(evidence: Evidence, findings: Sequence[Finding]) -> list[Recommendation]:
    """One line per resource: nodes, GPUs, CPUs, memory, time, the rest; then export lines.

    `findings` are those raised, in their order; folded-in ones give no line.
    """
    raised: dict[str, Finding] = {}
    for finding in findings:
        if not finding.suppressed_by:
            raised.setdefault(finding.id, finding)
    return _Plan(evidence, raised).lines() if raised else []


class _Plan:
    """The new request, worked out in the order in which its parts hang on each other."""

    def __init__(self, evidence: Evidence, raised: dict[str, Finding]) -> None:
        self.evidence = evidence
        self.raised = raised
        self.request = requested(evidence)
        self.found: list[Recommendation] = []
        self.cpus: int | None = None  # new ones per node, None: as before
        self.gpus: int | None = None

    def lines(self) -> list[Recommendation]:
        if "frag-nodes" in self.raised or "few-cores-per-node" in self.raised:
            self._one_node()
        else:
            self._fewer_nodes()
            self._gpus()
            self._cpus()
            self._memory()
        self._time()
        self._exports()
        return self.found

    def _first(self, *ids: str) -> Finding | None:
        return next((self.raised[each] for each in ids if each in self.raised), None)

    def _add(
        self, line: Recommendation | None, finding: Finding, basis: str = "", confidence: str = ""
    ) -> None:
        if line is None:
            return
        known = (confidence, finding.confidence) if confidence else (finding.confidence,)
        self.found.append(
            replace(
                line,
                basis=clean(basis or finding.evidence),
                confidence=max(known, key=CONFIDENCES.index),
                finding=finding.id,
            )
        )

    # -- placement ---------------------------------------------------------------------------------

    def _one_node(self) -> None:
        """All on one node: its GPUs, tasks and memory are those of all nodes together."""
        finding = self._first("frag-nodes", "few-cores-per-node")
        assert finding is not None
        request = self.request
        self._add(rightsize.change("--nodes", str(request.nodes), "1"), finding)
        merged = merged_gpus(request)
        if merged is not None:
            self._add(rightsize.change(request.gpu_option, request.gpu_text, merged), finding)
        if request.tasks_per_node:
            in_all = request.tasks_per_node * request.nodes
            self._add(
                rightsize.change("--ntasks-per-node", str(request.tasks_per_node), str(in_all)),
                finding,
            )
        if request.mem_form == "node" and request.mem_bytes:
            need = rightsize.memory_need(self.evidence)
            before_all = request.mem_bytes * request.nodes
            wanted = before_all
            if not isinstance(need, NotEvaluable) and need.in_all is not None:
                if not rightsize.was_out_of_memory(self.evidence):
                    wanted = min(before_all, need.in_all * need.factor)
                floor = rightsize.site_default_bytes(
                    self.evidence, (request.cpus or 0) * request.nodes
                )
                wanted = max(wanted, floor)
            basis = f"memory of {request.nodes} nodes together"
            self._add(rightsize.memory_line(request, wanted), finding, basis)

    def _fewer_nodes(self) -> None:
        """Nodes that did nothing, where each has one task; GPUs asked for in all would stay."""
        finding, request = self._first("nodes-idle"), self.request
        change = dict(_options_of(finding)).get("--nodes") if finding else None
        if finding is None or change is None or request.gpu_form != "node":
            return
        if request.tasks in (None, request.nodes):
            self._add(rightsize.change("--nodes", *change), finding)
            if request.tasks is not None and not request.tasks_per_node:
                self._add(rightsize.change("--ntasks", str(request.tasks), change[1]), finding)

    # -- GPUs --------------------------------------------------------------------------------------

    def _gpus(self) -> None:
        request = self.request
        finding = self._first("gpu-never-used", "gpus-partly-idle")
        count = rightsize.gpus_need(self.evidence) if finding else None
        line = None
        if request.mem_form == "gpu" and request.mem_bytes is None:
            finding = None  # how much the new number would give is not known
        if finding is not None and finding.id == "gpu-never-used":
            seen = self.evidence.coverage.from_start or not self.evidence.has_samples
            if seen and not rightsize.thin(self.evidence):
                line, self.gpus = rightsize.gpus_line(request, 0, 0), 0
        elif finding is not None and count is not None and count[1]:
            line, self.gpus = rightsize.gpus_line(request, *count), count[0]
        if line is None:
            self.gpus = None
        model = self._first(*_GPU_MODEL)
        if model is not None and self.gpus != 0:
            line, finding = self._other_model(line, model), finding or model
        if line is not None and finding is not None:
            basis = finding.evidence
            if not line.after:
                basis += "; use a partition without GPUs"
            self._add(line, finding, basis, "medium" if not line.after else "")

    def _other_model(self, line: Recommendation | None, model: Finding) -> Recommendation | None:
        """The type that `smaller-gpu` names, with the count of this set; and its partition."""
        changes = dict(_options_of(model))
        for directive in ("--partition", "--constraint"):
            if directive in changes:
                self._add(rightsize.change(directive, *changes[directive]), model)
        request = self.request
        change = changes.get("--gres") or changes.get(request.gpu_option)
        match = _GRES.fullmatch(change[1]) if change else None
        if match is None or not request.gpu_text:
            return line
        count = _COUNT.search(line.after if line is not None else request.gpu_text)
        prefix = "gpu:" if request.gpu_option == "--gres" else ""
        after = f"{prefix}{match['type']}:{count.group(1) if count else 1}"
        return rightsize.change(request.gpu_option, request.gpu_text, after)

    # -- CPUs --------------------------------------------------------------------------------------

    def _cpus(self) -> None:
        request = self.request
        if not request.cpus or (request.mem_form == "cpu" and request.mem_bytes is None):
            return
        finding, wanted = self._cpus_wanted(request.cpus)
        if request.cpus_per_gpu and self.gpus is not None and self.gpus != request.gpus:
            finding = finding or self._cause()
            wanted = min(wanted or rightsize.cpus_need(self.evidence) or request.cpus, request.cpus)
        if finding is None or wanted is None:
            return
        line = rightsize.cpus_line(request, wanted, self.gpus)
        if line is not None:
            self.cpus = rightsize.cpus_given(request, line, wanted, self.gpus)
            self._add(line, finding)
        elif request.cpus_per_gpu and self.gpus:
            self.cpus = request.cpus // (request.gpus or 1) * self.gpus

    def _cpus_wanted(self, before: int) -> tuple[Finding | None, int | None]:
        """(finding, CPUs per node). One task of an array does not speak for the others."""
        array = self.raised.get("array-cpu-over")
        if array is not None:
            wanted = array_cpus(ended_tasks(self.evidence), self.request.gpus or 0)
            return array, wanted if wanted is not None and wanted < before else None
        finding = None if self._is_array() else self._first(*_LESS_CPUS)
        if "input-bound" in self.raised and finding is None:
            return self.raised["input-bound"], rightsize.more_cpus(self.evidence)
        if finding is None:
            return None, None
        wanted = rightsize.cpus_need(self.evidence, finding.id == "serial-many-cores")
        return finding, wanted if wanted is not None and wanted < before else None

    def _is_array(self) -> bool:
        job = self.evidence.job
        return bool(job and job.array_job_id)

    # -- memory ------------------------------------------------------------------------------------

    def _memory(self) -> None:
        request, evidence = self.request, self.evidence
        if request.mem_bytes is None:
            return
        finding, wanted, basis, confidence = self._memory_wanted()
        by_unit = (request.mem_form == "cpu" and self.cpus is not None) or (
            request.mem_form == "gpu" and self.gpus is not None
        )
        if finding is None and by_unit:  # fewer CPUs times the same memory each would be less
            need = rightsize.memory_need(evidence)
            finding, wanted = self._cause(), request.mem_bytes
            basis = "keeps the memory in all"
            alone = not self._is_array() and not rightsize.was_out_of_memory(evidence)
            if alone and not isinstance(need, NotEvaluable):
                wanted = min(wanted, max(need.with_margin, self._floor()))
                basis, confidence = f"{need.basis}; for the new number", need.confidence
        if finding is None or wanted is None:
            return
        line = rightsize.memory_line(request, wanted, self.cpus, self.gpus)
        self._add(line, finding, basis, confidence)

    def _memory_wanted(self) -> tuple[Finding | None, float | None, str, str]:
        """(finding, bytes per node, basis, confidence); no finding: memory may stay as it is."""
        evidence = self.evidence
        up = self._first(*_MORE_MEMORY)
        if up is not None:
            wanted = rightsize.more_memory(evidence)
            return (up if wanted else None), wanted, f"{up.evidence}; half as much again", ""
        if "array-mem-over" in self.raised:
            array = self.raised["array-mem-over"]
            tasks = [each for each in ended_tasks(evidence) if each.mem_bytes is not None]
            most = max((each.mem_bytes or 0.0) * each.mem_factor for each in tasks)
            return array, max(most, self._floor()), "", ""
        finding = self._first(*_LESS_MEMORY)
        need = rightsize.memory_need(evidence)
        if finding is None or isinstance(need, NotEvaluable) or self._is_array():
            return None, None, "", ""
        wanted = rightsize.less_memory(evidence, need, self.cpus)
        basis = f"{need.basis}; {need.factor:g} × the peak, rounded up"
        return (finding if wanted else None), wanted, basis, need.confidence

    def _floor(self) -> float:
        cpus = self.request.cpus if self.cpus is None else self.cpus
        return rightsize.site_default_bytes(self.evidence, cpus)

    def _cause(self) -> Finding | None:
        return self.raised.get(self.found[-1].finding) if self.found else None

    # -- time and the rest -------------------------------------------------------------------------

    def _time(self) -> None:
        limit_s, evidence = self.request.time_limit_s, self.evidence
        if not limit_s or evidence.live:
            return
        longer = self._first("timed-out")
        finding = longer or self._first("array-time-over", "time-over")
        if longer is not None:
            idle = "idle-tail" in self.raised or not any(
                action.kind == "sbatch" and "--time" in action.after for action in longer.actions
            )
            wanted: float | None = None if idle else 2 * limit_s
        elif finding is not None:
            wanted = rightsize.less_time(rightsize.completed(evidence) or [evidence.elapsed_s])
            wanted = wanted if wanted is not None and wanted < limit_s else None
        else:
            wanted = None
        if finding is not None and wanted is not None:
            self._add(rightsize.time_line(limit_s, wanted), finding)
        elif finding is None and "idle-tail" in self.raised:
            tail = self.raised["idle-tail"]
            change = dict(_options_of(tail)).get("--time")
            if change is not None:
                self._add(rightsize.change("--time", *change), tail)

    def _exports(self) -> None:
        """Lines for allocators and threads, each variable once."""
        seen = set()
        for finding in self.raised.values():
            for action in finding.actions:
                name = action.after.partition("=")[0]
                if action.kind == "export" and action.after and name not in seen:
                    seen.add(name)
                    self._add(
                        Recommendation("", action.before, action.after, ""), finding,
                        action.text or finding.evidence,
                    )  # fmt: skip


def _options_of(finding: Finding) -> Iterable[tuple[str, tuple[str, str]]]:
    """(directive, (before, after)) of a finding's own lines of one option each."""
    for action in finding.actions:
        after = _OPTION.fullmatch(action.after)
        before = _OPTION.fullmatch(action.before)
        if action.kind == "sbatch" and after:
            same = before is not None and before.group(1) == after.group(1)
            yield after.group(1), (before.group(2) if before and same else "", after.group(2))
