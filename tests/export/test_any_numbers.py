"""Whatever numbers a node sends: what is decoded of them is printed, as JSON and as text."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import WireError
from gpumon.export.sample_json import sample_json
from gpumon.export.sample_text import sample_text
from gpumon.model.sample import Header, Sample
from gpumon.services.samples import Samples
from gpumon.wire.decoder import Decoder
from tests.bounds import bombs
from tests.support.examples import examples

_JOB = {
    "id": "5", "name": "train", "node_count": 2, "cpus": 8, "mem_limit_bytes": 1 << 30, "gpus": 1,
    "start": bombs.START - 60, "end": bombs.START + 60, "restarts": 1,
}  # fmt: skip
_FACTS = {
    "mem_total_bytes": 80 << 30, "power_limit_max_w": 400.0, "pcie_gen_max": 4, "minor": 0,
    "pcie_width_max": 16, "nvlink_links": 12, "numa_node": 0, "sm_clock_max_mhz": 1410,
}  # fmt: skip
_XID = {"t": bombs.START, "kind": "xid", "device": 0, "data": {"xid": 79}}
_KEYS = {"device": 0, "usage": [0, 7], "process": 7, "pool": [0, 7], "program": 7}
#: a stream with something of all that there is, and two samples
LINES = [
    bombs.header(
        [bombs.device(0, cuda_index=0, facts=_FACTS)], job=_JOB, notes=["x"],
        facts={"cpus": 8, "mem_total_bytes": 1 << 36, "swap_total_bytes": 1 << 30},
    ),
    *(
        bombs.sample(
            float(second),
            {
                group: [bombs.row(group, _KEYS.get(group.partition(".")[0], "x"), 7)]
                for group in bombs.GROUP_TABLE
            },
            events=[bombs.process_of(7), _XID],
            states=[[0, "degraded", bombs.START, "x"]],
            why=[],
        )
        for second in (1, 3)
    ),
]  # fmt: skip
BODIES = [json.loads(line) for line in LINES]


def places(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers stand."""
    parts = body.items() if isinstance(body, dict) else enumerate(body)
    for key, part in parts:
        if isinstance(part, (dict, list)):
            yield from places(part, (*path, key))
        elif isinstance(part, (int, float)) and not isinstance(part, bool):
            yield (*path, key)


PLACES = [
    (line, *path)
    for line, body in enumerate(BODIES)
    for path in places(body)
    if path[0] != "groups"
]
ODD = st.one_of(
    st.sampled_from((-1, -0.5, -1e-9, 0, 1e-9, 1e15, 1e300, -1e300, 2**63, -(2**63), 10**30, None)),
    st.floats(),
    st.integers(-(2**70), 2**70),
)


def printed(bodies: list[Any]) -> tuple[str, str]:
    """What is printed of a node that sends this: JSON and text."""
    decoder, sink = Decoder(), Samples(["n"])
    for body in bodies:
        item = decoder.line(json.dumps(body).encode())
        if isinstance(item, Header):
            sink.header("n", item)
            header = item
        elif isinstance(item, Sample):
            sink.add("n", item)
            json.dumps(sample_json(header, item), allow_nan=False)
            sample_text(header, item)
    text = sink.json("n")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return text, sample_text(sink.headers["n"], sink.samples["n"])


def changed(changes: list[tuple[tuple[Any, ...], Any]]) -> list[Any]:
    bodies = copy.deepcopy(BODIES)
    for (line, *path, last), value in changes:
        part = bodies[line]
        for key in path:
            part = part[key]
        part[last] = value
    return bodies


def test_the_stream_has_something_of_all():
    text, plain = printed(BODIES)
    assert "NVIDIA H100" in text
    assert "busy 7 %" in plain
    assert len(PLACES) > 150


@pytest.mark.slow
@pytest.mark.parametrize("value", [-1, -0.001, -1e12, 1e300, 2**70])
def test_each_number_alone(value):
    for place in PLACES:
        try:
            printed(changed([(place, value)]))
        except WireError:
            continue
        except Exception as error:
            raise AssertionError(f"{place} = {value}: {error!r}") from error


@examples(1500)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=4))
def test_any_numbers(changes):
    try:
        printed(changed(changes))
    except WireError:
        pass
