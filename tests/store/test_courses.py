"""The course of processes on GPUs: kept of a few, of few nodes, and gone with them."""

from gpumon.model.sample import Event, Header, Sample
from gpumon.model.series import COURSES_KEPT
from gpumon.store import Store

NOW = 1_795_200_000.0


def sampled(store, node, t, pids, on_gpu):
    rows = {
        "usage": {(0, pid): {"mem_bytes": float(t), "sm_percent": 50.0} for pid in on_gpu},
        "process": {pid: {"cpu_percent": 10.0, "rss_bytes": 1e9, "threads": 3} for pid in pids},
    }
    store.add(node, Sample(NOW + t, float(t), rows))


def watched(node):
    return {
        pid
        for pid in node.keys("process")
        if node.first_time("process", pid, "cpu_percent") is not None
    }


def test_only_processes_on_a_gpu_have_one():
    store = Store()
    for t in range(0, 20, 2):
        sampled(store, "gpu01", t, [1, 2], [1])
    node = store.node("gpu01")
    assert watched(node) == {1}
    assert node.first_time("process", 1, "threads") is None
    buckets = node.window("usage", (0, 1), "mem_bytes", NOW + 19, 10, 5)
    assert [bucket.mean for bucket in buckets if bucket] == [10, 12, 14, 16, 18]
    assert node.peak("usage", (0, 1), "mem_bytes") == 18


def test_they_are_bounded_and_make_room_when_they_end():
    store = Store()
    pids = list(range(1, 2 * COURSES_KEPT))
    for t in (0, 2, 4):
        sampled(store, "gpu01", t, pids, pids)
    node = store.node("gpu01")
    first = watched(node)
    assert len(first) == COURSES_KEPT
    assert node.series_count == 0  # so they do not make other series shorter
    store.add("gpu01", Sample(NOW + 6, 6.0, {}, {}, [
        Event(NOW + 6, "process-end", pid=pid, text="ended") for pid in first
    ]))  # fmt: skip
    store.add("gpu01", Sample(NOW + 100, 100.0, {}))
    left = [pid for pid in pids if pid not in first]
    for t in (102, 104):
        sampled(store, "gpu01", t, left, left)
    assert watched(node) == set(left)


def test_of_many_nodes_none_are_kept():
    store = Store()
    for n in range(40):
        store.header(f"n{n}", Header(f"n{n}", "b", NOW, 0.0, 1.0, "0"))
    sampled(store, "n0", 0, [1], [1])
    sampled(store, "n0", 2, [1], [1])
    assert watched(store.node("n0")) == set()


def test_they_stay_when_more_nodes_come():
    store = Store()
    for t in range(0, 60, 2):
        sampled(store, "n0", t, [1], [1])
    for n in range(1, 300):
        store.header(f"n{n}", Header(f"n{n}", "b", NOW, 0.0, 1.0, "0"))
    assert store.node("n0").peak("usage", (0, 1), "mem_bytes") == 58
    assert any(store.node("n0").window("usage", (0, 1), "mem_bytes", NOW + 60, 60, 6))
