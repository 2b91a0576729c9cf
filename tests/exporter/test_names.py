"""Every reading has one name, by Prometheus' conventions, and the family that reads it back."""

from __future__ import annotations

from gpumon.exporter.names import _SUBJECTS, COUNTERS, ENTITIES, LEFT_OUT, name_of
from gpumon.model.fields import FIELDS
from gpumon.site.read import shipped_families

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


def test_left_out_and_counters_exist() -> None:
    fields = {field for of in FIELDS.values() for field in of}
    assert fields >= LEFT_OUT
    assert fields >= COUNTERS


def test_the_shipped_family_reads_every_name_back() -> None:
    families = {each.name: each for each in shipped_families()}
    for family, entity in (("gpumon", "device"), ("gpumon", "job"), ("gpumon-node", "host")):
        of_reading = {metric.reading: metric for metric in families[family].metrics}
        for field in FIELDS[entity]:
            name = name_of(entity, field)
            if name is None:
                continue
            metric = of_reading[f"{entity}.{field}"]
            assert metric.name == name.name + ("_total" if name.counter else "")
            assert metric.scale * name.factor == 1


def test_the_help_names_the_reading_and_where_it_is_explained():
    assert name_of("device", "sm_clock_mhz").help == "GPU: SM clock (sm_clock_mhz in docs/json.md)."
    assert set(_SUBJECTS) == set(ENTITIES)
