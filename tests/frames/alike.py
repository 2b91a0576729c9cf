"""Where two run data are not the same."""

import dataclasses
from itertools import chain
from math import isclose, isnan


def differences(one, other, where="evidence"):
    """Where the two are not the same; sums of floats may differ in the last bit, means of buckets
    that came in parts in the last of float32.
    """
    if dataclasses.is_dataclass(one):
        pairs = [(f.name, getattr(one, f.name), getattr(other, f.name))
                 for f in dataclasses.fields(one)]  # fmt: skip
    elif isinstance(one, dict) and one.keys() == other.keys():
        pairs = [(key, one[key], other[key]) for key in one]
    elif type(one) in (list, tuple) and len(one) == len(other):
        pairs = [(n, *each) for n, each in enumerate(zip(one, other))]
    elif hasattr(one, "typecode"):
        same = len(one) == len(other) and all(
            isclose(a, b, rel_tol=1e-6) or (isnan(a) and isnan(b)) for a, b in zip(one, other)
        )
        return [] if same else [f"{where}: {one} {other}"]
    else:
        same = one == other and type(one) is type(other)
        if isinstance(one, float) and isinstance(other, float):
            same = one == other or isclose(one, other, rel_tol=1e-6)
        return [] if same else [f"{where}: {one!r} {other!r}"]
    return list(chain.from_iterable(differences(a, b, f"{where}.{n}") for n, a, b in pairs))
