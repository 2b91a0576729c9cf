"""Rows read by compiled functions: the same as when each value is looked at."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.fields import GROUPS
from gpumon.model.sample import Device
from gpumon.model.untrusted import key_of
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.recording import made
from tests.support.examples import examples

FACTS = {"mem_total_bytes": 80 << 30, "power_limit_max_w": 700.0}
HEADER = made.header()._replace(
    devices=[Device(0, 0, "GPU-0", "H100", facts=FACTS), Device(1, 1, "GPU-1", "H100")]
)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 1 << 66)
    | st.floats(0, 120)
    | st.sampled_from([1e999, -1e999, 1e18, "C", "\x1b[2J", "x" * 300, [], {}])
)
KEYS = st.sampled_from([0, 1, 2, -1, True, "", "eth0", [0, 5], [1, 5], [0], None, 1 << 70])


def decoder() -> Decoder:
    found = Decoder()
    found.line(Encoder().header(HEADER))
    found.line('{"t":1,"m":1,"why":[["device.gpm",0,"sm_active_percent","needs Hopper"]]}')
    return found


DECODER = decoder()


@st.composite
def rows(draw):
    """Mostly as an agent writes them."""
    group = draw(st.sampled_from(GROUPS))
    usual = st.none() | st.integers(0, 1) | st.floats(0, 90)
    values = [
        draw((st.none() | st.sampled_from("RC")) if field.text else usual) for field in group.fields
    ]
    letters = ["u" * values.count(None)] if None in values else []
    if draw(st.booleans()):
        values[draw(st.integers(0, len(values) - 1))] = draw(VALUES)
    if draw(st.integers(0, 9)) == 0:
        letters = [draw(st.sampled_from(["", "u", "?u", "upl", 5, None]))]
    keys = {
        "usage": st.just([0, 5]),
        "pool": st.just([0, 5]),
        "program": st.just(5),
        "device": st.integers(0, 2),
    }.get(group.entity, st.just(""))
    return group, [draw(keys | KEYS), *values, *letters][: draw(st.sampled_from([99, 99, 99, 3]))]


def told(look):
    try:
        found = look()
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
        return type(error)
    return None if found is None else repr(list(found.items()))


@examples(1500)
@given(rows())
def test_a_usual_row_gives_what_a_look_at_each_value_gives(case):
    group, row = case
    has_truths = any(value is True or value is False for value in row)
    try:
        key = key_of(row[0])
    except (TypeError, ValueError):
        return
    found = None if has_truths else told(lambda: DECODER._usual.read(group.key, key, row))
    if found is not None:
        assert found == told(lambda: DECODER.row(group.key, row)[1])


def test_rows_of_an_agent_are_usual():
    for sample in made.samples(61):
        for group in GROUPS:
            for key, readings in sample.rows.get(group.entity, {}).items():
                names = [field.name for field in group.fields]
                if not readings.keys() >= set(names):
                    continue
                lines = Encoder().sample(sample._replace(rows={group.entity: {key: readings}}))
                item = DECODER.line(lines)
                values = [item.rows[group.entity][key][name] for name in names]
                if all(isinstance(value, (int, float, str)) for value in values):
                    row = [list(key) if isinstance(key, tuple) else key, *values]
                    assert DECODER._usual.read(group.key, key, row) == dict(zip(names, values))
