"""What screens ask of a series is kept however many nodes there are."""

import pytest

from gpumon.model.fields import SERIES
from gpumon.model.view import Status
from gpumon.store import NodeView, Store
from tests.recording import made
from tests.tui.looking import Looking

GIB = 1 << 30


@pytest.mark.parametrize("devices", [0, 8])
@pytest.mark.parametrize("nodes", [1, 2, 40])
def test_every_series_that_a_screen_reads_is_kept_of_many_nodes(monkeypatch, devices, nodes):
    asked = set()

    def note(method, self, entity, key, field, *more, **known):
        asked.add((entity, field))
        return method(self, entity, key, field, *more, **known)

    for name in ("window", "stats", "first_time", "peak60"):
        method = getattr(NodeView, name)
        monkeypatch.setattr(
            NodeView, name, lambda *args, m=method, **known: note(m, *args, **known)
        )
    store, header = Store(), made.header()
    facts = {"mem_total_bytes": 80 * GIB}
    found = [each._replace(facts=facts) for each in header.devices[:devices]]
    for n in range(nodes):
        store.header(f"n{n}", header._replace(node=f"n{n}", devices=found))
        store.status(f"n{n}", Status("live", made.START, "", "ssh"))
    for sample in made.samples(90):
        if not devices:
            sample.rows.pop("device", None)
        store.add("n0", sample)
    looking = Looking()
    looking.at(nodes=store.nodes(), now=made.START + 89)
    for view in ("job", "device", "nodes", "node"):
        for size in ((80, 24), (200, 60)):
            looking.draw(view, *size)
    assert asked
    kept = {(entity, field) for entity, fields in SERIES.items() for field in fields}
    assert asked <= kept
    if devices:
        assert {field for entity, field in kept if entity == "device"} <= {f for _, f in asked}
