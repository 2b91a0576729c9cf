"""Every reading has one name, by Prometheus' conventions."""

from __future__ import annotations

from gpumon.model.fields import FIELDS
from gpumon.site.own import _SUBJECTS, ENTITIES, name_of

_ABBREVIATED = ("_bytes_per_s", "_percent", "_mhz", "_w", "_j", "_c", "_s")


def test_names_are_unique_and_in_base_units() -> None:
    names = [
        found.name
        for entity in ENTITIES
        for field in FIELDS[entity]
        if (found := name_of(entity, field)) is not None
    ]
    assert len(names) == len(set(names)) > 60
    assert not [name for name in names if name.endswith(_ABBREVIATED)]


def test_the_help_names_the_reading_and_where_it_is_explained():
    assert name_of("device", "sm_clock_mhz").help == "GPU: SM clock (sm_clock_mhz in docs/json.md)."
    assert set(_SUBJECTS) == set(ENTITIES)
