"""What rules say at once, and which finding says it better."""

import pytest

from gpumon.analysis.finding import Finding
from gpumon.analysis.rules.instant import Now, Remark, instant, unsaid
from gpumon.site import Site

WELL = Now("gpu01:0", 90.0)


def remarks(*devices, nodes=1, **changed):
    return [
        (each.kind, each.device, each.value)
        for each in instant(devices, nodes, Site(thresholds=changed))
    ]


@pytest.mark.parametrize(
    ("mask", "found"),
    [(0, []), (0x1 | 0x4, []), (0x20, ["hot"]), (0x80, ["slowed"]), (0x8 | 0x40, ["hot"])],
)  # 0x1 and 0x4: idle, and at full power
def test_clocks_that_are_lowered(mask, found):
    assert [kind for kind, _, _ in remarks(WELL._replace(throttle_mask=mask))] == found


def test_a_device_is_compared_with_others_of_three_nodes_or_more():
    slow, idle = Now("gpu03:0", 54.0), Now("gpu03:1", 0.0, idle_s=70.0)
    devices = [WELL, WELL, WELL, slow, idle]
    assert remarks(*devices, nodes=2) == [("idle", "gpu03:1", 70.0)]
    (kind, device, value), _ = remarks(*devices, nodes=3)
    assert (kind, device) == ("slow", "gpu03:0")
    assert value == pytest.approx(40)


def test_thresholds_are_those_of_the_rules_and_of_the_site():
    never = WELL._replace(never_s=310.0)
    assert remarks(never) == [("never-worked", "gpu01:0", 310.0)]
    assert remarks(never._replace(is_held=False)) == [("unused", "gpu01:0", 310.0)]
    assert remarks(never, **{"gpu-never-used.seconds": 600.0}) == []


def test_a_finding_takes_the_place_of_what_is_said_at_once():
    hot = [Remark("hot", "gpu01:0"), Remark("hot", "gpu01:1"), Remark("reserved", "gpu01:0")]
    assert unsaid(hot, None) == hot
    assert unsaid(hot, []) == hot[:2]
    found = Finding("throttle-thermal", "warning", "", "", devices=("gpu01:0",))
    assert unsaid(hot, [found]) == [hot[1]]
    full = Finding("throttle-power", "info", "", "", devices=("gpu01:0",))
    assert unsaid([Remark("slowed", "gpu01:0")], [full]) == [Remark("slowed", "gpu01:0")]
