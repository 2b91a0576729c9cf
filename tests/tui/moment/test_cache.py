"""Answers of nodes are kept while they may stand."""

from gpumon.model.sample import Header, Sample
from gpumon.store import Store
from gpumon.tui.moment.cache import Current, Turns


def nodes(count, interval_s=1.0):
    store = Store()
    for name in range(count):
        store.header(f"n{name}", Header(f"n{name}", "b", 0, 0, interval_s, "0", []))
    return store, store.nodes()


class Asked:
    """Counts who is asked; each answer is new."""

    def __init__(self):
        self.names = []

    def __call__(self, node):
        self.names.append(node.name)
        return len(self.names)


def test_a_current_answer_stands_until_a_sample_or_a_second():
    store, [node] = nodes(1)
    ask, current = Asked(), Current()
    assert current.of(node, 10.0, ask) == current.of(node, 10.9, ask) == 1
    store.add("n0", Sample(10.9, 0, {}))
    assert current.of(node, 10.9, ask) == 2
    assert current.of(node, 11.9, ask) == 3
    assert current.of(node, 5.0, ask) == 4  # a replay went back


def test_of_a_node_that_samples_seldom_it_stands_for_an_interval():
    _, [node] = nodes(1, interval_s=10.0)
    ask, current = Asked(), Current()
    assert current.of(node, 10.0, ask) == current.of(node, 19.9, ask) == 1
    assert current.of(node, 20.0, ask) == 2


def test_a_frozen_node_of_the_same_name_is_another():
    _, [node] = nodes(1)
    ask, current = Asked(), Current()
    assert [current.of(each, 10.0, ask) for each in (node, node.frozen(), node)] == [1, 2, 3]


def test_new_nodes_are_asked_at_once_and_each_in_its_turn():
    _, many = nodes(64)
    ask, turns = Asked(), Turns(5)
    first = turns.of(many, 100.0, ask)
    assert list(first.values()) == list(range(1, 65))
    assert turns.of(many, 104.9, ask) == first
    for second in range(5, 30):
        del ask.names[:]
        answers = turns.of(many, 100.0 + second, ask)
        assert answers.keys() == first.keys()
        assert len(ask.names) <= 12
    del ask.names[:]
    for second in range(30, 36):  # as long as a round takes for 64, by 12
        turns.of(many, 100.0 + second, ask)
    assert set(ask.names) == {node.name for node in many}


def test_few_nodes_are_asked_always():
    _, few = nodes(8)
    ask, turns = Asked(), Turns(5, few=8)
    for _ in range(3):
        turns.of(few, 100.0, ask)
    assert len(ask.names) == 24


def test_nodes_that_are_gone_are_forgotten():
    _, before = nodes(3)
    _, after = nodes(2)
    ask, turns = Asked(), Turns(5)
    turns.of(before, 100.0, ask)
    assert turns.of(after, 100.0, ask).keys() == set(after)
    assert ask.names == ["n0", "n1", "n2", "n0", "n1"]
