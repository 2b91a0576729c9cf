"""The series of one job, asked from a server: by the job's number, else by what its GPUs are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

from gpumon.prometheus.client import Series, Server, TooMuchError
from gpumon.prometheus.clocks import ahead_s, fitted
from gpumon.prometheus.gathered import Gpu, NodeColumns, gpu_of
from gpumon.prometheus.promql import hosts, job_ids, node_in, quoted, selector
from gpumon.site.prometheus import Family

#: s of one query times the nodes in it: an hour of 32 nodes is about 300,000 points at 30 s
_NODE_SECONDS = 32 * 3600.0
_MOST_NODES = 64
#: s; a shorter piece is not divided again
_SHORTEST_S = 60.0


@dataclass(frozen=True)
class Wanted:
    """Whose series: of a job on these nodes, from `start` to `end` (epoch s)."""

    ids: tuple[str, ...]  # its number, and its SLUID where it has one
    nodes: tuple[str, ...]
    start: float
    end: float
    gpus: dict[str, int | None] = field(default_factory=dict)  # of each node; None: not known
    has_gpus: bool = True
    slack_s: float = 0.0  # so far beyond these moments its scrapes are looked for, too


class Fetch:
    """One job's series from one server."""

    def __init__(self, server: Server, families: Sequence[Family], wanted: Wanted) -> None:
        job_ids(wanted.ids)
        hosts(wanted.nodes)
        self._server, self._families, self._wanted = server, families, wanted
        self._found = {node: NodeColumns(node) for node in wanted.nodes}
        self.missing: dict[str, str] = {}  # what there is no reading of, and why
        self._ahead_s = 0.0  # of Slurm's clock

    def run(self) -> list[NodeColumns]:
        """The nodes of which there is anything. Raises PrometheusError."""
        self._by_job([family for family in self._families if family.job])
        if self._wanted.has_gpus:
            self._devices_without_job()
        for family in self._families:
            if not family.job:
                self._take(family, self._of_nodes(family, [m.name for m in family.metrics]))
        return [each for each in self._found.values() if each.gpus or any(each.columns.values())]

    # -- by the job's number

    def _by_job(self, families: Sequence[Family]) -> None:
        slack_s, nodes = self._wanted.slack_s, len(self._wanted.nodes)
        told: list[tuple[Family, list[tuple[str, Series]]]] = []
        for family in families:
            names = list(dict.fromkeys(metric.name for metric in family.metrics))
            ids = quoted("|".join(self._wanted.ids))
            asked = selector(names, self._server.labels, {family.job: ids})
            told.append((family, list(self._placed(family, self._asked(asked, nodes, slack_s)))))
        start, end = self._wanted.start, self._wanted.end
        if slack_s:
            every = (series for _, found in told for _, series in found)
            self._set_clock(ahead_s(every, start, end))
        for family, found in told:
            fit = ((node, fitted(each, self._ahead_s, start, end)) for node, each in found)
            self._take(family, ((node, each) for node, each in fit if each.times))

    def _set_clock(self, by_s: float) -> None:
        self._ahead_s = by_s
        if by_s:
            how = f"{abs(by_s):.0f} s {'ahead of' if by_s > 0 else 'behind'}"
            self.missing["clock"] = (
                f"{self._server.host} is about {how} Slurm; its samples are shown by Slurm's time"
            )

    # -- by what GPUs it had

    def _devices_without_job(self) -> None:
        """Where no family names the job on its GPUs."""
        for family in self._families:
            if not self._lacking() or not family.has_devices or not family.uuid:
                continue
            if family.job_metric and self._by_value(family):
                continue
            self._whole_nodes(family)
        for node in self._lacking():
            if known := len(self._found[node].gpus):
                of = self._wanted.gpus.get(node)
                text = f"only {known} of the job's {of} GPUs are known to be its own"
                self.missing.setdefault(f"GPUs of {node}", text)

    def _lacking(self) -> list[str]:
        """Nodes with fewer GPUs than the job had there: a GPU without a process may name no job."""
        return [
            node
            for node, found in self._found.items()
            if len(found.gpus) < (self._wanted.gpus.get(node) or 1)
        ]

    def _by_value(self, family: Family) -> bool:
        """By a metric whose value is the job on each GPU; whether it has that."""
        told = list(self._of_nodes(family, [family.job_metric]))
        number = float(self._wanted.ids[0]) if self._wanted.ids[0].isdecimal() else -1.0
        held: dict[tuple[str, Gpu], set[float]] = defaultdict(set)
        for node, each in told:
            gpu = gpu_of(family, each.labels)
            if gpu is not None:
                points = zip(each.times, each.values)
                held[node, gpu].update(at for at, value in points if value == number)
        if not any(held.values()):
            return False
        names = [metric.name for metric in family.metrics]
        self._take(family, self._while_held(family, names, held))
        return True

    def _while_held(
        self, family: Family, names: Sequence[str], held: dict[tuple[str, Gpu], set[float]]
    ) -> Iterator[tuple[str, Series]]:
        """The points of scrapes in which the GPU was the job's."""
        for node, each in self._of_nodes(family, names):
            gpu = gpu_of(family, each.labels)
            times = held.get((node, gpu), set()) if gpu is not None else set()
            points = [(at, value) for at, value in zip(each.times, each.values) if at in times]
            if points:
                yield node, Series(each.labels, [at for at, _ in points], [v for _, v in points])

    def _whole_nodes(self, family: Family) -> None:
        """All GPUs of a node, where the job had as many as it has."""
        of_node: dict[str, list[Series]] = defaultdict(list)
        lacking = set(self._lacking())
        for node, each in self._of_nodes(family, [metric.name for metric in family.metrics]):
            is_others = each.labels.get(family.job, "") not in ("", *self._wanted.ids)
            if not is_others and node in lacking:
                of_node[node].append(each)
        for node, series in of_node.items():
            here = {gpu for each in series if (gpu := gpu_of(family, each.labels)) is not None}
            if len(here) == self._wanted.gpus.get(node):
                self._take(family, ((node, each) for each in series))
            elif here and not self._found[node].gpus:
                self.missing[f"GPUs of {node}"] = (
                    f"{family.about} does not show which of its {len(here)} GPUs the job had"
                )

    # -- asking

    def _of_nodes(self, family: Family, names: Sequence[str]) -> Iterator[tuple[str, Series]]:
        """By the first of the labels for nodes that names some of these."""
        nodes = self._wanted.nodes
        names = list(dict.fromkeys(names))
        for first in range(0, len(nodes), _MOST_NODES):
            some = nodes[first : first + _MOST_NODES]
            for label in family.node:
                asked = selector(names, self._server.labels, {label: hosts(some)})
                if found := list(self._placed(family, self._asked(asked, len(some)))):
                    yield from found
                    break

    def _placed(self, family: Family, series: Iterable[Series]) -> Iterator[tuple[str, Series]]:
        for each in series:
            node = node_in(each.labels, family.node, self._wanted.nodes)
            if node is not None:
                yield node, each

    def _take(self, family: Family, series: Iterable[tuple[str, Series]]) -> None:
        of_node: dict[str, list[Series]] = defaultdict(list)
        for node, each in series:
            of_node[node].append(each)
        for node, found in of_node.items():
            self._found[node].take(family, merged(found))

    def _asked(self, what: str, nodes: int, slack_s: float = 0.0) -> list[Series]:
        """The raw points of the whole time, asked in pieces; with slack by the server's clock."""
        by_s = self._ahead_s
        start, end = self._wanted.start + by_s - slack_s, self._wanted.end + by_s + slack_s
        piece_s = max(_SHORTEST_S, _NODE_SECONDS / max(1, nodes))
        count = max(1, ceil((end - start) / piece_s))
        found: list[Series] = []
        for place in range(count):
            first = start + (end - start) * place / count
            found += self._piece(what, first, start + (end - start) * (place + 1) / count)
        wanted = self._wanted
        return [fitted(each, by_s, wanted.start, wanted.end) for each in found] if by_s else found

    def _piece(self, what: str, start: float, end: float) -> list[Series]:
        """Halves it where the answer is too large."""
        range_s = max(1, ceil(end - start))
        try:
            return self._server.series(f"{what}[{range_s}s]", end)
        except TooMuchError:
            if end - start <= _SHORTEST_S:
                raise
            middle = (start + end) / 2
            return [*self._piece(what, start, middle), *self._piece(what, middle, end)]


def merged(series: Iterable[Series]) -> list[Series]:
    """The pieces of each series as one, in order of time, no point twice."""
    of_labels: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    for each in series:
        points = of_labels.setdefault(tuple(sorted(each.labels.items())), {})
        points.update(zip(each.times, each.values))
    return [
        Series(dict(labels), times := sorted(points), [points[at] for at in times])
        for labels, points in of_labels.items()
    ]
