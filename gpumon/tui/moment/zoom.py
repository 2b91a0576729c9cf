"""How much time the plots show."""

from __future__ import annotations

from math import ceil, floor, log2
from typing import NamedTuple

from gpumon.model.units import span_text

#: s; 0 is everything since the first sample
_SPANS_S = (60.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0, 604800.0, 0.0)
_ALL_STEPS = 8  # a step of "everything" is at most such a part of it


class Zoom(NamedTuple):
    """The user's choice; until there is one, what there is, up to `start_span_s`."""

    start_span_s: float
    place: int = -1  # in _SPANS_S; -1: not chosen

    @property
    def is_chosen(self) -> bool:
        return self.place >= 0

    @property
    def is_all(self) -> bool:
        return self.is_chosen and not _SPANS_S[self.place]

    def span_s(self, age_s: float) -> float:
        """Seconds that the plots show when the first sample is so old."""
        if self.is_chosen and _SPANS_S[self.place]:
            return _SPANS_S[self.place]
        age_s = max(60.0, age_s)
        if self.is_chosen:  # in steps: with another length the whole plot is another
            step_s = 2.0 ** floor(log2(age_s / _ALL_STEPS))
            return ceil(age_s / step_s) * step_s
        longest = self.start_span_s
        return next((span for span in _SPANS_S if age_s <= span < longest), longest)

    def by(self, step: int, span_s: float) -> Zoom:
        """A longer (1) or shorter (-1) time than the one shown now."""
        places = range(len(_SPANS_S))
        place = self.place
        if not self.is_chosen:
            place = min(places, key=lambda place: abs(_SPANS_S[place] - span_s))
        return self._replace(place=min(max(place + step, 0), places[-1]))

    def text(self, span_s: float) -> str:
        return "all" if self.is_all else span_text(span_s)
