"""What is gathered of one node's job cgroup, host, interfaces and disks: their readings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.analysis.aggregate.grid import Window
from gpumon.analysis.aggregate.process import Row, columns_of
from gpumon.analysis.rundata import Track
from gpumon.model.batch import Cut, KeyRows
from gpumon.model.fields import FIELDS
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Sample
from gpumon.model.text import clean

#: entity -> its fields on the grid; counters grow and limits stand still, which other places tell
TRACKED = {
    "job": tuple(
        name for name in FIELDS["job"]
        if name not in ("cpu_s", "mem_peak_bytes", "mem_limit_bytes", "oom_events", "oom_kills")
    ),
    "host": tuple(FIELDS["host"]),
    "net": tuple(FIELDS["net"]),
    "disk": ("total_bytes", "used_bytes", "free_bytes"),
}  # fmt: skip
#: those of them that no rule asks for; what replays show of them they have from rollup lines
SHOWN = {
    "job": ("mem_pressure_percent",),
    "host": ("load5", "load15", "mem_pressure_percent"),
    "net": TRACKED["net"],
    "disk": (),
}
_JUDGED = {
    entity: tuple(name for name in names if name not in SHOWN[entity])
    for entity, names in TRACKED.items()
}
MAX_SERIES = 512  # of one node


class SeriesAggregate:
    """The series of one node, and where its disks are mounted."""

    def __init__(self, *, with_shown: bool) -> None:
        """`with_shown`: also readings that no rule asks for."""
        self._tracked = TRACKED if with_shown else _JUDGED
        self.bins: dict[tuple[str, str, str], Rollup] = {}  # (entity, key, field)
        self.paths: dict[str, str] = {}
        self.left_out = 0  # readings that there was no room for

    def take(self, index: int, samples: list[Sample]) -> None:
        """The samples of one bin."""
        for entity, names in self._tracked.items():
            rows: dict[str, list[Row]] = {}
            for sample in samples:
                for key, row in sample.rows.get(entity, {}).items():
                    rows.setdefault(str(key), []).append(row)
            for label, of_key in rows.items():
                read = columns_of(of_key)
                for name in names:
                    bins = self._kept((entity, label, name)) if name in read else None
                    if bins is not None:
                        bins.put(index, read[name])
                self._keep_path(label, of_key[-1])

    def take_columns(self, entity: str, key: str, series: KeyRows, cuts: list[Cut]) -> None:
        """Many samples at once."""
        for name in self._tracked[entity]:
            values = series.column(name)
            if values and values.count(None) < len(values):
                bins = self._kept((entity, key, name))
                if bins is not None:
                    bins.put_all(cuts, values)
        self._keep_path(key, series.last)

    def series_of(self, entity: str, key: Any, name: str) -> Rollup:
        """Raises ValueError where there can be no such series."""
        place = entity, clean(key, 255), name
        bins = self._kept(place) if name in TRACKED[entity] else None
        if bins is None:
            raise ValueError(f"no series {entity}")
        return bins

    def _kept(self, place: tuple[str, str, str]) -> Rollup | None:
        bins = self.bins.get(place)
        if bins is None and len(self.bins) < MAX_SERIES:
            bins = self.bins[place] = Rollup()
        if bins is None:
            self.left_out += 1
        return bins

    def _keep_path(self, key: str, row: Row) -> None:
        path = row.get("path")
        if isinstance(path, str) and len(self.paths) < MAX_SERIES:
            self.paths[key] = path

    def restore_paths(self, paths: Mapping[str, str]) -> None:
        """Those of a state."""
        kept = list(paths.items())[:MAX_SERIES]
        self.paths = {clean(label, 255): clean(path) for label, path in kept}

    def tracks(self, entity: str, key: str, window: Window) -> dict[str, Track]:
        """By field."""
        return {
            name: window.of(bins)
            for (of, at, name), bins in self.bins.items()
            if (of, at) == (entity, key)
        }

    def by_key(self, entity: str, window: Window) -> dict[str, dict[str, Track]]:
        """Of every interface or disk."""
        keys = dict.fromkeys(at for of, at, _ in self.bins if of == entity)
        return {key: self.tracks(entity, key, window) for key in keys}
