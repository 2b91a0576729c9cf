"""A case: a run, and what is right to say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gpumon.analysis.memory import mem_truth_of
from gpumon.analysis.rules.catalogue import Evaluation, evaluate
from gpumon.analysis.rules.phrasing import labels_text
from gpumon.analysis.rundata import RunData
from tests.corpus import scenarios
from tests.corpus.generator import Run, evidence_of
from tests.support.shared import shared


@dataclass(frozen=True)
class Case:
    """`finds`: each finding that must be raised, and its level (several: "info warning"); nothing
    else may be. `folds`: ids that must be there, folded in a root cause. `near`: rules that were
    asked and must be clear, close to their threshold or at a guard. `unknown`: rules that must
    answer "not evaluable". `devices`, `truth`: by finding and by device, where they are labelled.
    """

    name: str
    family: str
    about: str
    make: Callable[[], Run]
    finds: Mapping[str, str]
    folds: tuple[str, ...]
    near: tuple[str, ...]
    unknown: tuple[str, ...]
    devices: Mapping[str, str]
    truth: Mapping[str, str]
    healthy: bool

    @property
    def evidence(self) -> RunData:
        return _evidence(self.name)

    @property
    def evaluation(self) -> Evaluation:
        return _evaluation(self.name)

    def raised(self) -> set[tuple[str, str]]:
        return {(each.id, each.level) for each in self.evaluation.raised}

    def labelled(self) -> set[tuple[str, str]]:
        return {(id, level) for id, levels in self.finds.items() for level in levels.split()}

    def devices_of(self, id: str) -> str:
        """Of the raised findings of this id, as `gpu01:0,1`."""
        found = {d for each in self.evaluation.raised if each.id == id for d in each.devices}
        return labels_text(sorted(found))

    def truths(self) -> dict[str, str]:
        return {each.label: mem_truth_of(each).mem_truth for each in self.evidence.devices}


_CASES: dict[str, Case] = {}


def case(
    finds: Mapping[str, str] | str = "",
    *,
    folds: str = "",
    near: str = "",
    unknown: str = "",
    devices: Mapping[str, str] | None = None,
    truth: Mapping[str, str] | str = "",
    healthy: bool = False,
) -> Callable[[Callable[[], Run]], Callable[[], Run]]:
    """Register a function as a case. Ids are words; `finds` as text reads `id:level id:level`."""
    if isinstance(finds, str):
        pairs = [word.partition(":") for word in finds.split()]
        merged: dict[str, str] = {}
        for id, _, level in pairs:
            merged[id] = f"{merged.get(id, '')} {level}".strip()
        finds = merged
    if isinstance(truth, str):
        truth = {"gpu01:0": truth} if truth else {}
    known = dict(finds), tuple(folds.split()), tuple(near.split()), tuple(unknown.split())

    def register(make: Callable[[], Run]) -> Callable[[], Run]:
        name = make.__name__.strip("_")
        assert name not in _CASES, name
        about = " ".join((make.__doc__ or "").split())
        family = make.__module__.rpartition(".")[2]
        _CASES[name] = Case(
            name, family, about, make, *known, dict(devices or {}), dict(truth), healthy
        )
        return make

    return register


@cache
def all_cases() -> dict[str, Case]:
    """Every case of `scenarios`, by name."""
    for module in iter_modules(scenarios.__path__):
        import_module(f"{scenarios.__name__}.{module.name}")
    return dict(_CASES)


@cache
def _evidence(name: str) -> RunData:
    return shared(f"evidence-{name}", lambda: evidence_of(all_cases()[name].make(), name))


@cache
def _evaluation(name: str) -> Evaluation:
    return evaluate(_evidence(name))
