"""What held for a small part of a run is information, with its share."""

import pytest

from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.phrasing import finding
from gpumon.analysis.rules.weight import weighed
from gpumon.analysis.signals import Span
from gpumon.model.sample import Event
from gpumon.site import Site
from tests.analysis.build import START, device, evidence, track

HOURS = 360  # bins


def weigh(seconds, hours=10, waste=0.0, live=False, **thresholds):
    run = evidence(hours * HOURS, live=live, site=Site(thresholds=thresholds))
    spans = [Span(100, 100 + seconds // 10)]
    wasted_s = 3600 * waste
    made = finding(run, "warning", "busy", rest=" 3 %", spans=spans, wasted_s=wasted_s)
    return weighed(run, made)


def test_from_a_tenth_of_the_run_a_condition_warns():
    assert weigh(3600).level == "warning"
    brief = weigh(420)
    assert brief.level == "info"
    assert brief.evidence.endswith("; 7 min of 10 h 00 min")
    assert brief.title + brief.adds == brief.evidence


def test_a_site_sets_the_part_and_the_waste():
    assert weigh(420, waste=2).level == "warning"
    assert weigh(420, waste=2, **{"phases.gpu_hours": 3}).level == "info"
    assert weigh(420, **{"phases.least_percent": 1}).level == "warning"


def test_a_running_job_is_told_of_what_is_now():
    assert weigh(420, live=True).level == "warning"


def test_the_same_time_on_several_devices_counts_once():
    run = evidence(10 * HOURS)
    spans = [Span(0, 200), Span(100, 300), Span(0, 200)]
    assert finding(run, "warning", "", spans=spans).held_s == 3000
    assert weighed(run, finding(run, "warning", "no spans")).level == "warning"


@pytest.mark.parametrize(("minutes", "level"), [(7, "info"), (70, "warning")])
def test_a_slow_phase_of_ten_hours(minutes, level):
    bins = minutes * 6
    hot = device(10 * HOURS, busy_percent=95, temperature_c=90)
    hot.throttle["hw_thermal"] = track([0] * 500 + [0.5] * bins + [0] * (10 * HOURS - 500 - bins))
    (found,) = [each for each in evaluate(evidence(10 * HOURS, [hot])).raised
                if each.id == "throttle-thermal"]  # fmt: skip
    assert found.level == level


def test_an_xid_weighs_the_same_at_the_end_of_a_long_run():
    sick = device(10 * HOURS, busy_percent=95)
    sick.xids = [Event(START + 35_900, "xid", 0, text="79")]
    (found,) = [each for each in evaluate(evidence(10 * HOURS, [sick])).raised
                if each.id == "gpu-health"]  # fmt: skip
    assert found.level == "critical"


def test_nothing_is_averaged_across_a_change_of_phase():
    """90 % for an hour, then 4 % for two: neither 33 % in the mean, nor nothing to say."""
    busy = [90] * HOURS + [4] * 2 * HOURS
    run = evidence(3 * HOURS, [device(3 * HOURS, busy_percent=busy)])
    (found,) = [each for each in evaluate(run).raised if each.id == "low-busy"]
    assert "busy 4 % mean" in found.title
    assert found.start == pytest.approx(found.end - 7200, abs=60)
    idle = [90] * HOURS + [0] * HOURS + [90] * HOURS  # idle time is told elsewhere
    run = evidence(3 * HOURS, [device(3 * HOURS, busy_percent=idle)])
    assert "low-busy" not in {each.id for each in evaluate(run).raised}
