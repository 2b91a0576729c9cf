"""When the next step may start, by what became of those before; also for who starts again."""

from __future__ import annotations

import os

import pytest

from gpumon.transport import pauses
from gpumon.transport.pauses import BROKE, LEFT, REFUSED, Pauses


@pytest.fixture
def within(tmp_path):
    tmp_path.chmod(0o700)
    folder = os.open(tmp_path, os.O_RDONLY)
    yield folder
    os.close(folder)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def waits(within, clock, fates, **how):
    """How long the next step waits after each of these, each begun as soon as it may be; every one
    by a process of its own.
    """
    found = []
    clock.now += 0.00051  # is not rounded into the future
    for fate in fates:
        known = Pauses(within, "steps.json", clock)
        clock.now += known.wait_s("7", gpus=True)
        known.end(known.begin("7", gpus=True), fate)
        found.append(round(Pauses(within, "steps.json", clock).wait_s("7", gpus=True), 1))
    return found


def test_a_step_that_broke_is_tried_again_later_and_later(within, clock):
    assert waits(within, clock, [BROKE] * 7) == [60, 120, 240, 480, 600, 600, 600]
    clock.now += 3600
    assert Pauses(within, "steps.json", clock).wait_s("7", gpus=True) == 0


def test_one_that_was_left_does_not_count(within, clock):
    assert waits(within, clock, [LEFT] * 3 + [BROKE, LEFT, BROKE]) == [0, 0, 0, 60, 0, 120]


def test_one_that_was_refused_is_tried_sooner_and_the_other_kind_at_once(within, clock):
    assert waits(within, clock, [REFUSED] * 3) == [5, 10, 20]
    known = Pauses(within, "steps.json", clock)
    assert known.wait_s("7", gpus=False) == 0
    assert known.wait_s("8", gpus=True) == 0
    known.end(known.begin("7", gpus=False), BROKE)
    assert known.wait_s("7", gpus=True) == pytest.approx(60)


def test_one_that_runs_can_be_joined_but_not_when_its_owner_has_gone(within, clock):
    owner = Pauses(within, "steps.json", clock)
    step = owner.begin("7", gpus=True)
    assert owner.wait_s("7", gpus=True) == 0
    assert Pauses(within, "steps.json", clock).wait_s("7", gpus=True) == pytest.approx(60)
    owner.end(step, LEFT)
    owner.end(step, BROKE)  # the first word counts
    assert Pauses(within, "steps.json", clock).wait_s("7", gpus=True) == 0


def test_without_a_file_nothing_can_be_joined(clock):
    alone = Pauses(clock=clock)
    step = alone.begin("7", gpus=True)
    assert alone.wait_s("7", gpus=True) == 60
    alone.end(step, REFUSED)
    assert alone.wait_s("7", gpus=True) == 5


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"boot": 1}', '{"boot": "BOOT", "steps": [[1]]}', "[" * 9999]
)
def test_a_damaged_file_is_none(within, clock, tmp_path, text):
    (tmp_path / "steps.json").write_text(text.replace("BOOT", pauses._boot()))
    (tmp_path / "steps.json").chmod(0o600)
    known = Pauses(within, "steps.json", clock)
    assert known.wait_s("7", gpus=True) == 0
    known.end(known.begin("7", gpus=True), BROKE)
    assert Pauses(within, "steps.json", clock).wait_s("7", gpus=True) == 60


def test_steps_of_before_the_last_boot_do_not_count(within, clock, tmp_path):
    waits(within, clock, [BROKE])
    file = tmp_path / "steps.json"
    file.write_text(file.read_text().replace(pauses._boot(), "another"))
    assert Pauses(within, "steps.json", clock).wait_s("7", gpus=True) == 0


def test_the_file_has_a_bound(within, clock, tmp_path, monkeypatch):
    monkeypatch.setattr(pauses, "_MAX_JOBS", 8)
    monkeypatch.setattr(pauses, "_MAX_STEPS", 4)
    known = Pauses(within, "steps.json", clock)
    for number in range(3 * pauses._MAX_JOBS):
        clock.now += 0.1
        known.end(known.begin(f"{number}", gpus=True), BROKE)
    for _ in range(3 * pauses._MAX_STEPS):
        clock.now += 0.1
        known.end(known.begin("7", gpus=True), BROKE)
    assert len(known._steps) <= pauses._MAX_JOBS + pauses._MAX_STEPS
    assert (tmp_path / "steps.json").stat().st_size < pauses._MAX_BYTES
