"""What is gathered of a framework's pool of device memory: of one process on one device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpumon.analysis.aggregate.grid import Window
from gpumon.analysis.rundata import PoolData
from gpumon.analysis.statistics import finite
from gpumon.model.batch import Cut, KeyRows
from gpumon.model.reading import Reading, number
from gpumon.model.rollup import Rollup
from gpumon.model.sample import Sample

#: epoch s, and what was read then
Rows = list[tuple[float, Mapping[str, Reading]]]

#: kind of a series -> its field
SERIES = {"pool_used": "used_bytes", "pool_reserved": "reserved_bytes"}
#: of which only the most is kept: a program may reset its own peaks
_MOST = (
    "used_bytes", "reserved_bytes", "peak_bytes", "reserved_peak_bytes", "limit_bytes", "retries",
    "ooms",
)  # fmt: skip


class PoolAggregate:
    """One pool."""

    def __init__(self) -> None:
        self.series = {kind: Rollup() for kind in SERIES}
        self._most: dict[str, float] = {}
        self._last = 0.0  # epoch s of the newest reading
        self._is_news = False  # since the last frame's rollups

    def take(self, index: int, rows: Rows) -> None:
        """Its rows of one bin, in order of time."""
        self._seen(rows[-1][0])
        for kind, field in SERIES.items():
            known = [v for _, row in rows if (v := number(row.get(field))) is not None]
            if known:
                self.series[kind].put(index, known)
        for field in _MOST:
            self._raise(field, (v for _, row in rows if (v := number(row.get(field))) is not None))

    def take_columns(self, cuts: list[Cut], rows: KeyRows) -> None:
        """The same of many bins."""
        self._seen(rows.times[-1])
        for kind, field in SERIES.items():
            if values := rows.column(field):
                self.series[kind].put_all(cuts, values)
        for field in _MOST:
            self._raise(field, rows.known(field))

    def _seen(self, time: float) -> None:
        self._last, self._is_news = max(self._last, time), True

    def _raise(self, field: str, values: Iterable[float]) -> None:
        most = max(values, default=None)
        if most is not None:
            self._most[field] = float(max(most, self._most.get(field, 0.0)))

    def drain(self) -> list[Any] | None:
        """What `take_news` takes; None: nothing since the last time."""
        if not self._is_news:
            return None
        self._is_news = False
        return [self._last, dict(self._most)]

    def take_news(self, last: Any, most: Any) -> None:
        """Raises what Python does on what `drain` never gives."""
        self._last = finite(last)
        if not most.keys() <= set(_MOST):
            raise ValueError("no such figure of a pool")
        for field, value in most.items():
            self._raise(field, [finite(value)])

    def evidence(self, window: Window) -> PoolData:
        most = self._most
        used, reserved = (
            max((most[name] for name in names if name in most), default=None)
            for names in (("used_bytes", "peak_bytes"), ("reserved_bytes", "reserved_peak_bytes"))
        )
        used_track, reserved_track = (window.of(bins) for bins in self.series.values())
        return PoolData(
            self._last,
            used_track,
            reserved_track,
            used,
            reserved,
            most.get("limit_bytes"),
            most.get("retries"),
            most.get("ooms"),
        )


def of_devices(samples: Iterable[Sample]) -> dict[int, dict[int, Rows]]:
    """What samples tell of pools, by device and PID."""
    found: dict[int, dict[int, Rows]] = {}
    for sample in samples:
        for key, row in sample.rows.get("pool", {}).items():
            if isinstance(key, tuple):
                found.setdefault(key[0], {}).setdefault(key[1], []).append((sample.time, row))
    return found
