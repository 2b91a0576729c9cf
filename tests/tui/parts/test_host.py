"""The host of a node: its cores, and node and job beside each other."""

from gpumon.model.sample import JobContext, Sample
from gpumon.tui.lines import plain
from gpumon.tui.parts.host import core_rows, host_lanes
from tests.tui.by_hand import NOW, one_node
from tests.tui.looking import Looking

HOST = {
    "cpu_percent": 61.0, "mem_used_bytes": 100 << 30, "mem_cache_bytes": 50 << 30, "load1": 3.5,
    "core_levels": "0159-?", "disk_read_bytes_per_s": 2e9, "disk_write_bytes_per_s": 1e6,
}  # fmt: skip
JOB = {
    "cpu_cores_used": 3.5, "mem_used_bytes": 20 << 30, "mem_cache_bytes": 5 << 30,
    "read_bytes_per_s": 1e9, "write_bytes_per_s": 2e6,
}  # fmt: skip


def moment(job=None, cpus="", **looks):
    store = one_node(2, job=job)
    node = store.node("gpu01")
    node.header.facts["job_cpus"] = cpus
    for t in range(3):
        net = {name: {"rx_bytes_per_s": rate, "tx_bytes_per_s": 0} for name, rate in NET.items()}
        rows = {"host": {"": HOST}, "net": net, "job": {"": JOB} if job else {}}
        store.add("gpu01", Sample(NOW + t, t, rows))
    looking = Looking(store.nodes(), NOW + 2, **looks)
    looking.selection.node = "gpu01"
    return looking


NET = {"eth0": 1e3, "ib0": 5e9, "ib1": 4e9}


def test_a_bar_for_each_cpu_and_those_of_the_job_in_colour():
    job = JobContext("1", cpus=2, mem_limit_bytes=32 << 30)
    looking = moment(job, "1-2")
    rows = core_rows(looking.moment, looking.moment.nodes[0], 80)
    assert plain(rows) == " 5 CPUs, 2 of them the job's (1-2)\n ▁ ▁ ▅ █   ·"
    assert [run for run in rows[1] if run[1] == "busy"] == [("▁ ▅ ", "busy")]
    ascii_rows = core_rows(moment(job, "1-2", glyphs="ascii").moment, looking.moment.nodes[0], 80)
    assert plain(ascii_rows[1:]) == " 0 1 5 9 - ?"


def test_many_cpus_go_on_in_the_next_row():
    looking = moment()
    rows = core_rows(looking.moment, looking.moment.nodes[0], 5)
    assert [len(plain([row])) for row in rows[1:]] == [4, 4]


def test_what_is_of_the_node_and_what_of_the_job_is_named():
    looking = moment(JobContext("1", cpus=4, mem_limit_bytes=32 << 30))
    lanes = {lane.label: lane for lane in host_lanes(looking.moment, looking.moment.nodes[0])}
    assert list(lanes) == [
        "node CPU", "job CPU", "node memory", "node cache", "job memory", "job cache",
        "job reads", "job writes", "node reads", "node writes", "ib0 ↓", "ib0 ↑", "ib1 ↓", "ib1 ↑",
    ]  # fmt: skip
    assert lanes["job CPU"].value[0] == "3.5 cores"
    assert lanes["job CPU"].top == "4"
    assert (lanes["job memory"].top, lanes["node memory"].top) == ("32G", "256G")
    assert lanes["node reads"].high == lanes["node writes"].high == 2e9


def test_without_a_job_there_is_the_node_alone():
    looking = moment()
    labels = [lane.label for lane in host_lanes(looking.moment, looking.moment.nodes[0])]
    assert not [label for label in labels if label.startswith("job")]


def test_the_node_screen_shows_them_above_its_devices():
    looking = moment(JobContext("1", cpus=4, mem_limit_bytes=32 << 30), "0-3")
    for size in ((80, 22), (120, 38), (200, 58)):
        text = looking.text("node", *size)
        assert "5 CPUs, 4 of them the job's (0-3)" in text
        assert "job CPU" in text
        assert "gpu" in text.lower()


def test_on_any_size():
    looking = moment(JobContext("1", cpus=4))
    for size in ((1, 1), (20, 3), (80, 5), (300, 80)):
        assert len(looking.draw("node", *size).rows) <= size[1]
