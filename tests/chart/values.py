"""Values that come into plots, odd ones among them."""

import math

from hypothesis import strategies as st

number = st.one_of(st.none(), st.floats(allow_nan=True), st.floats(-0.2, 1.2))
ODD = [None, math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0, 100.0, -5.0, 1e-320]


def numbers(max_size):
    """Values around 0 … 100, some odd ones; from bytes, which are quick to draw."""
    return st.binary(max_size=max_size).map(
        lambda data: [ODD[byte] if byte < len(ODD) else (byte - 15) / 2 for byte in data]
    )
