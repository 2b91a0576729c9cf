import pytest

from gpumon.collect.base import Schedule

PERIODS_S = {"fast": 0, "two": 2, "five": 5}


def dues(schedule, ticks):
    return [list(schedule.all_due(PERIODS_S, mono)) for mono in ticks]


def test_groups_are_due_at_their_periods():
    rest = [["fast"], ["fast", "two"]]
    found = dues(Schedule(), range(100, 111))
    assert found[:5] == [["fast", "two", "five"], *rest, *rest]
    assert found[5:] == [
        ["fast", "five"],
        ["fast", "two"],
        *rest,
        ["fast"],
        ["fast", "two", "five"],
    ]


def test_a_tick_that_comes_a_little_early_counts():
    early = [100, 101.9, 103.95, 105.85, 107.9]
    assert [due[1:2] for due in dues(Schedule(), early)] == [["two"]] * 5


def test_a_group_is_read_again_soon():
    schedule = Schedule()
    dues(schedule, [100, 101])
    schedule.again("five", 102.5)
    assert dues(schedule, [102, 103]) == [["fast", "two"], ["fast", "five"]]


def test_a_single_sample_holds_every_group(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Schedule, "everything", True)
    assert dues(Schedule(), [100, 100.1, 100.2]) == [list(PERIODS_S)] * 3
