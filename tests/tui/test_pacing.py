"""When the screen is drawn: once for a burst of samples, and no sample waits for long."""

import random

import pytest

from gpumon.model.sample import Header, Sample
from gpumon.model.view import Status
from gpumon.store import Store
from gpumon.tui.pacing import Pacing

POLL_S = 0.1


class Screen:
    """A store and its pacing on a clock of our own, asked every 0.1 s as the app does."""

    def __init__(self, nodes, interval_s=1.0, cost_s=0.01):
        self.store = Store()
        self.pacing = Pacing(self.store)
        self.cost_s = cost_s
        self.now = 0.0
        self.polls = 0
        self.draws = []
        self.waiting = {}  # samples that are not on screen: node -> when they came
        self.longest_s = 0.0
        for name in range(nodes):
            self.store.header(f"n{name}", Header(f"n{name}", "b", 0, 0, interval_s, "0", []))
            self.store.status(f"n{name}", Status("live", 0.0, "", "ssh"))
        self.draw()

    def draw(self):
        self.pacing.begin(self.now, self.now)
        self.pacing.end(self.cost_s)
        for came in self.waiting.values():
            if came > 2:
                self.longest_s = max(self.longest_s, self.now - came)
        self.waiting.clear()
        self.draws.append(self.now)

    def until(self, end):
        while self.polls * POLL_S <= end:
            self.now = self.polls * POLL_S
            if self.pacing.is_due(self.now, self.now):
                self.draw()
            self.polls += 1
        self.now = end

    def sample(self, at, node):
        self.until(at)
        self.store.add(f"n{node}", Sample(at, at, {}))
        self.waiting.setdefault(node, at)

    def play(self, arrivals):
        """(time, node) in order; returns the drawings but those until the first burst is drawn."""
        for at, node in arrivals:
            self.sample(at, node)
        return [draw for draw in self.draws if draw > 2]


def burst(tick, nodes, within_s, late=()):
    dice = random.Random(tick)
    moments = {node: tick + dice.uniform(0.02, within_s) for node in range(nodes)}
    moments.update({node: tick + at for node, at in dict(late).items()})
    return sorted((at, node) for node, at in moments.items())


def bursts(ticks, *args, step=1, **kwargs):
    return [each for tick in range(1, ticks) for each in burst(tick * step, *args, **kwargs)]


def test_one_node_is_drawn_at_the_next_poll():
    screen = Screen(1)
    draws = screen.play([(tick + 0.02, 0) for tick in range(1, 20)])
    assert draws == pytest.approx([tick + 0.1 for tick in range(2, 19)])


@pytest.mark.parametrize("cost_s", [0.001, 0.012, 0.2])
def test_a_burst_of_many_nodes_is_one_drawing(cost_s):
    screen = Screen(64, cost_s=cost_s)
    draws = screen.play(bursts(30, 64, 0.28))
    assert len(draws) == 27  # of the seconds 2 to 28
    assert screen.longest_s < 0.4


@pytest.mark.parametrize("late_s", [0.45, 0.55, 0.69])
@pytest.mark.parametrize("cost_s", [0.001, 0.2])
def test_who_is_late_is_not_waited_for_and_yet_on_screen_within_the_interval(late_s, cost_s):
    screen = Screen(64, cost_s=cost_s)
    draws = screen.play(bursts(30, 64, 0.15, late={7: late_s}))
    assert len(draws) <= 2 * 28
    assert screen.longest_s < 0.61
    assert {int(draw) for draw in draws if 0.05 < draw % 1 < 0.55} == set(range(2, 30))


def test_samples_all_over_the_interval_wait_no_longer():
    screen = Screen(64, cost_s=0.2)
    dice = random.Random(1)
    arrivals = sorted((dice.uniform(1, 60), node) for node in range(64) for _ in range(59))
    draws = screen.play(arrivals)
    assert screen.longest_s <= 0.61
    assert len(draws) <= 2 * 60


def test_a_node_without_samples_holds_up_nobody():
    screen = Screen(8)
    screen.sample(0.5, 3)
    draws = screen.play([each for each in bursts(30, 8, 0.08) if each[1] != 3])
    later = [draw % 1 for draw in draws if draw > 5]  # stale by then: not waited for
    assert later
    assert max(later) < 0.2


def test_the_clock_moves_once_a_second_without_a_sample():
    screen = Screen(3, interval_s=10.0)
    screen.until(9.95)
    assert screen.draws == pytest.approx([0, *(second + 0.5 for second in range(1, 10))], abs=0.11)


def test_a_clock_that_stands_still_or_a_sample_in_time_needs_no_other_drawing():
    screen = Screen(1)
    assert not any(screen.pacing.is_due(later, 0.9) for later in (0.9, 5.0, 60.0))
    draws = screen.play([(tick + 0.4, 0) for tick in range(1, 20)])
    assert len(draws) == 17
    assert screen.pacing.is_due(20.0, clock=3.0)  # a recording was wound back


@pytest.mark.parametrize(("clock", "again_s"), [(7.0, 0.5), (7.4, 0.1), (7.6, 0.9)])
def test_it_is_asked_again_when_the_clock_moves(clock, again_s):
    screen = Screen(1)
    assert screen.pacing.again_s(clock) == pytest.approx(again_s)
    screen.store.add("n0", Sample(clock, clock, {}))
    assert screen.pacing.again_s(clock) == 0.0


def test_nodes_that_sample_seldom_are_one_drawing_too():
    screen = Screen(256, interval_s=10.0)
    draws = screen.play(bursts(9, 256, 0.9, step=10))
    assert screen.longest_s <= 1.11
    assert len([draw for draw in draws if 0.05 < draw % 10 < 1.3]) <= 2 * 8


def test_nodes_that_share_the_interval_out_are_one_drawing_a_second():
    """Nobody waits for those whose second has not come."""
    screen = Screen(100, interval_s=5.0)
    arrivals = [
        (second + 0.002 * node + 0.02, node)
        for second in range(1, 46)
        for node in range(second % 5, 100, 5)
    ]
    screen.play(arrivals[:100])  # each node's first
    screen.longest_s = 0.0
    draws = screen.play(arrivals[100:])
    assert screen.longest_s < 0.41
    assert len([draw for draw in draws if draw > 6]) == 39  # of the seconds 6 to 44


def test_a_change_of_the_stream_alone_is_drawn():
    screen = Screen(1)
    screen.until(0.5)
    screen.store.status("n0", Status("lost", 0.5, "connection refused", "ssh"))
    screen.until(0.65)
    assert screen.draws[-1] == pytest.approx(0.6)


def test_what_a_key_drew_is_not_drawn_again():
    screen = Screen(1)
    screen.sample(1.02, 0)
    screen.now = 1.05
    screen.draw()
    screen.until(1.95)
    assert screen.draws[-1] == 1.05


def test_streams_have_as_long_for_themselves_as_a_drawing_took():
    screen = Screen(1)
    screen.pacing.begin(10.0, 10.0)
    screen.pacing.end(0.01, took_s=0.8)
    screen.store.add("n0", Sample(10.1, 10.1, {}))
    assert not screen.pacing.is_due(11.5, 11.5)
    assert screen.pacing.is_due(11.7, 11.7)
