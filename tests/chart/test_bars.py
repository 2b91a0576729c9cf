"""Sparks and bars: gaps are gaps, a use is never hidden."""

import math

from hypothesis import given
from hypothesis import strategies as st

from gpumon.chart.bars import bar, spark
from tests.chart.values import number, numbers
from tests.support.examples import examples


@given(number, number, st.integers(-2, 30))
@examples(15_000)
def test_a_bar_never_hides_a_use_nor_looks_full_too_early(share, extra, width):
    extra = 0.0 if extra is None else extra
    shown, plain = bar(share, extra, width), bar(share, extra, width, "ascii")
    assert list(map(len, shown)) == list(map(len, plain))
    assert sum(map(len, shown)) == max(width, 0)
    assert "".join(plain).isascii()
    if share is None or not math.isfinite(share) or not math.isfinite(extra):
        assert "".join(shown).strip() == ""
    elif width > 1:
        used, behind, rest = shown
        assert bool(used) == (share > 0)
        if share > 0 and extra >= 0 and share + extra < 1:
            assert rest
        if share >= 1:
            assert (len(used), behind, rest) == (width, "", "")


@given(numbers(5), st.integers(0, 6))
@examples(15_000)
def test_a_spark_tells_gaps_from_zeros(values, width):
    for glyphs, gap, zero, top in (("braille", "·", "▁", "█"), ("ascii", " ", "_", "@")):
        shown = spark(values, width, 0, 100, glyphs)
        assert len(shown) == width
        kept = values[len(values) - min(width, len(values)) :]
        for value, character in zip(reversed(kept), reversed(shown)):
            if value is None or not math.isfinite(value):
                assert character == gap
            elif value <= 0:
                assert character == zero
            elif value >= 100:
                assert character == top
            else:
                assert character != gap


def test_sparks_and_bars_as_they_look():
    assert spark([0, 25, 50, None, 75, 100], 8) == "··▁▃▅·▆█"
    assert spark([0, 25, 50, None, 75, 100], 8, glyphs="ascii") == "  _:+ #@"
    assert spark([5, 5], 4, lo=5, hi=5) == "····"
    assert "".join(bar(0.31, 0.2, 10)) == "━━━╍╍─────"
    assert "".join(bar(0.31, 0.2, 10, "ascii")) == "###%%-----"
    assert "".join(bar(None, 0, 4)) == "    "
