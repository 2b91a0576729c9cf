"""Samples that wait as the lines they came in give the evidence that they give as objects."""

import re

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from gpumon.analysis.aggregate import node
from gpumon.analysis.aggregate.limits import LIVE
from gpumon.analysis.aggregate.run import Aggregation
from gpumon.model.sample import Received, Sample
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.recording.streams import KINDS, stream
from tests.recording.test_batches import differences
from tests.support.examples import examples

#: the share of a bin that was active is one number, of parts of a bin it is one for each part
PART_OF_A_BIN = re.compile(r"evidence\.devices\.\d+\.active\.(low|high)")


def received(items):
    encoder, decoder = Encoder(), Decoder(keep_lines=True)
    for item in items:
        line = encoder.sample(item) if isinstance(item, Sample) else encoder.header(item)
        yield decoder.line(line.encode())


def evidence(items, ask_every, *, with_lines):
    """Of live samples, with or without the lines that they came in."""
    aggregation = Aggregation(LIVE)
    for count, item in enumerate(items, 1):
        if isinstance(item, Received) and not with_lines:
            item = item._replace()
        aggregation.add("gpu01", item)
        if count % ask_every == 0:
            aggregation.evidence(live=True, shared=True)
    return aggregation.evidence(live=True)


def same_evidence(items, ask_every):
    items = list(received(items))
    whole = evidence(items, ask_every, with_lines=True)
    found = differences(whole, evidence(items, ask_every, with_lines=False))
    assert [each for each in found if not PART_OF_A_BIN.match(each)] == []
    return whole


@pytest.fixture
def as_columns(monkeypatch):
    """Samples that were taken as columns, a number for each bin."""
    counts = []
    put = node.NodeAggregate._put_columns

    def counted(self, batch, step_s):
        counts.append(len(batch.times))
        put(self, batch, step_s)

    monkeypatch.setattr(node.NodeAggregate, "_put_columns", counted)
    return counts


def test_the_same_evidence_and_nearly_all_of_it_from_columns(as_columns):
    found = same_evidence(stream(1, 300, [(0, "comes"), (0, "probe"), (150, "xid")]), 37)
    assert found.devices[0].processes
    assert sum(as_columns) > 200


def test_a_bin_that_cannot_be_columns_is_taken_from_its_lines(as_columns):
    """A process that no event announced: who is there is then read from each sample."""
    unannounced = [
        item._replace(rows={**item.rows, "usage": {(0, 77): {"sm_percent": 5.0}}}, events=[])
        if isinstance(item, Sample) and index > 120
        else item
        for index, item in enumerate(stream(2, 200, []))
    ]
    found = same_evidence(unannounced, 1000)
    assert [each.facts.pid for each in found.devices[0].processes] == [77]
    assert 0 < sum(as_columns) < 200


def test_what_is_missing_keeps_its_words():
    """They came once, with an earlier line."""
    found = same_evidence(stream(3, 120, [(20, "missing")]), 1000)
    words = {each.detail for each in found.devices[0].last.values() if hasattr(each, "detail")}
    assert words - {""}


def test_rare_samples_wait_as_they_are(as_columns):
    same_evidence(stream(4, 60, [], interval_s=5.0), 1000)
    assert as_columns == []


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 99),
    st.integers(20, 160),
    st.lists(st.tuples(st.integers(0, 160), st.sampled_from(KINDS)), max_size=14),
    st.sampled_from((1.0, 2.0, 5.0)),
    st.sampled_from((3, 17, 1000)),
)
def test_the_same_evidence_whatever_happens(seed, ticks, happenings, interval_s, ask_every):
    same_evidence(stream(seed, ticks, happenings, interval_s), ask_every)
