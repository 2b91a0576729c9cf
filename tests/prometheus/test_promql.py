"""Text that goes into PromQL stays text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import UsageError
from gpumon.prometheus.promql import hosts, job_ids, node_in, node_of, quoted, selector


@given(st.text())
def test_a_quoted_text_ends_where_it_should(text: str) -> None:
    inner = quoted(text)[1:-1]
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
    assert "\n" not in inner


def test_nothing_is_cut_off() -> None:
    ids = [str(number) for number in range(100_000, 100_500)]
    assert quoted("|".join(ids))[1:-1].split("|") == ids


@pytest.mark.parametrize("id", ['1"} or up{x="', "1|2", "", "x", "1;", "-1", "1.0", "4711 "])
def test_what_slurm_gives_no_job_is_refused(id: str) -> None:
    with pytest.raises(UsageError, match="not a valid job ID"):
        job_ids([id])


def test_numbers_and_sluids_are_ids() -> None:
    assert job_ids(["4711", "sABC123"]) == ["4711", "sABC123"]


@pytest.mark.parametrize("node", ['gpu"', "gpu|.*", "", "-gpu", "gpu01.", "a b", "gpu01:9"])
def test_what_names_no_node_is_refused(node: str) -> None:
    with pytest.raises(UsageError, match="not a valid name of a node"):
        hosts([node])


def test_a_selector_names_one_metric_or_several() -> None:
    assert selector(["up"], {"job": "x"}) == 'up{job="x"}'
    assert selector(["up"], {}) == "up{}"
    assert selector(["a", "b"], {"c": "d"}) == '{__name__=~"a|b",c="d"}'


@pytest.mark.parametrize(
    ("label", "node"),
    [
        ("gpu01", "gpu01"),
        ("gpu01:9445", "gpu01"),
        ("gpu01.cluster.example:9445", "gpu01"),
        ("gpu011:9445", None),
        ("10.0.0.7:9100", None),
        ("", None),
    ],
)
def test_a_label_names_a_node_with_its_port_and_domain(label: str, node: str | None) -> None:
    assert node_of(label, ["gpu01", "gpu02"]) == node


def test_an_address_leaves_the_name_to_another_label() -> None:
    labels = {"instance": "10.0.0.7:9445", "host": "gpu02"}
    assert node_in(labels, ("instance", "host"), ("gpu01", "gpu02")) == "gpu02"
    assert node_in(labels, ("instance",), ("gpu01", "gpu02")) is None


def test_a_nodename_with_a_domain_is_found_too() -> None:
    assert node_of("gpu01.example.org:9100", ["gpu01.example.org"]) == "gpu01.example.org"
