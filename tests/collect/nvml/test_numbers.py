"""A GPU has one number on its node, whatever the process that asks may open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect.nvml.numbers import node_numbers
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Mig
from tests.support.examples import examples

BUSES = ["07", "0f", "47", "c1"]
MINORS = [2, 3, 0, 1]  # as the driver met them


def gpu(index, at, **facts):
    """The GPU at a place on the bus, with the index that NVML gives it in some process."""
    known = {"bus_id": f"00000000:{BUSES[at].upper()}:00.0", "minor": MINORS[at], **facts}
    return Device(index, index, f"GPU-{at}", "A100", facts=known)


def listed(folder, places=BUSES):
    for bus in places:
        (folder / f"0000:{bus}:00.0").mkdir(parents=True)
    return str(folder)


def test_inside_of_a_job_it_is_the_number_that_it_has_outside(tmp_path):
    folder = listed(tmp_path / "gpus")
    assert node_numbers([gpu(n, n) for n in range(4)], folder) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert node_numbers([gpu(0, 1), gpu(1, 3)], folder) == {0: 1, 1: 3}


def test_without_the_drivers_list_it_is_the_minor_number(tmp_path):
    nowhere = str(tmp_path / "none")
    assert node_numbers([gpu(n, n) for n in range(4)], nowhere) == {0: 2, 1: 3, 2: 0, 3: 1}
    assert node_numbers([gpu(0, 1), gpu(1, 3)], nowhere) == {0: 3, 1: 1}
    less = listed(tmp_path / "less", BUSES[:2])
    assert node_numbers([gpu(0, 1), gpu(1, 3)], less) == {0: 3, 1: 1}


def test_an_instance_has_the_number_of_its_gpu(tmp_path):
    whole = gpu(0, 2)
    part = Device(7, 0, "MIG-1", "A100", mig=Mig(whole.uuid, 3, 0, "1g.10gb"))
    assert node_numbers([whole, part], listed(tmp_path / "gpus")) == {0: 2, 7: 2}


def test_a_gpu_that_could_not_be_asked_gets_a_number_of_its_own(tmp_path):
    lost = Device(5, 1, "", "")
    assert node_numbers([gpu(0, 1), lost], listed(tmp_path / "gpus")) == {0: 1, 5: 2}
    unasked = gpu(0, 0, bus_id=Missing("lost"), minor=Missing("lost"))
    assert node_numbers([unasked], str(tmp_path / "none")) == {0: 0}
    twins = [gpu(0, 1, minor=0), gpu(1, 2, minor=0)]
    assert node_numbers(twins, str(tmp_path / "none")) == {0: 0, 1: 1}


@given(st.sets(st.integers(0, 3), min_size=1), st.booleans())
@examples(50)
def test_any_share_of_the_node_has_the_same_numbers_as_all_of_it(tmp_path_factory, share, has_list):
    folder = listed(tmp_path_factory.mktemp("gpus")) if has_list else "/nowhere"
    every = node_numbers([gpu(n, n) for n in range(4)], folder)
    some = node_numbers([gpu(n, at) for n, at in enumerate(sorted(share))], folder)
    assert [some[n] for n in range(len(share))] == [every[at] for at in sorted(share)]
