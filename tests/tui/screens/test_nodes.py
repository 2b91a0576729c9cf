"""Many nodes: the heat map, the Job screen folded, sums over nodes, one node's page."""

import re

import pytest

from gpumon.analysis.finding import Finding
from gpumon.analysis.rundata import Coverage, RunData
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Event, Header, Mig, Sample, State
from gpumon.model.view import Status
from gpumon.pipeline.evaluator import LiveEvaluation
from gpumon.site import Site
from gpumon.slurm.job import Job, Resources
from gpumon.store import Store
from gpumon.tui.lines import plain, row_width
from gpumon.tui.moment.remarks import Standing
from gpumon.tui.moment.summaries import SORTS, Summaries
from gpumon.tui.screens.job.notes import notes
from gpumon.tui.screens.job.request import request_lines
from tests.tui import cluster
from tests.tui.looking import Looking

NOW = cluster.NOW


@pytest.fixture(scope="module")
def eight():
    return cluster.fill(8)


@pytest.fixture(scope="module")
def sixty_four():
    return cluster.fill(64, seconds=70)


def looking_at(filled, *, node="", sort="worst", reverse=False, **known):
    store, now = filled
    looking = Looking(**known)
    looking.selection.node = node
    looking.nodes.sort, looking.nodes.reverse = sort, reverse
    for _ in range(9):  # a look back at the series is made of eight nodes in one update
        looking.at(nodes=store.nodes(), now=now)
        looking.summaries()
    return looking


def names(looking):
    return [summary.node.name for summary in looking.summaries()]


def remarks(looking):
    return {summary.node.name: summary.remark for summary in looking.summaries() if summary.remark}


# -- many devices --------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "how"), [(2, "rows"), (8, "rows"), (64, "cells")])
@pytest.mark.parametrize(("width", "height"), [(80, 22), (120, 38), (200, 58)])
def test_the_job_screen_folds_many_devices(nodes, how, width, height, eight, sixty_four):
    filled = {2: cluster.fill(2, seconds=70), 8: eight, 64: sixty_four}[nodes]
    looking = looking_at(filled)
    view = looking.draw("job", width, height)
    text = plain(view.rows)
    plots = nodes == 2 and width == 200
    assert ("\n100 " in text) is plots
    assert ("worst first" in text) is (how == "cells")


# -- what stands out ----------------------------------------------------------------------------


def test_the_worst_come_first_and_say_why(eight):
    looking = looking_at(eight)
    assert names(looking)[:3] == ["gpu03", "gpu02", "gpu01"]
    assert remarks(looking) == {
        "gpu03": "GPU 7 lost (Xid 79), idle 2 min", "gpu02": "busy 32 % below the median",
    }  # fmt: skip
    texts = [note.text for note in notes(looking.moment)]
    assert "gpu02: busy 32 % below the median" in texts


def test_nodes_without_trouble_stand_still_while_numbers_move(eight):
    store, _ = cluster.fill(8, seconds=100)
    looking = looking_at((store, NOW + 99))
    before = names(looking)
    for second in range(100, 110):
        rows = {"device": {n: {"busy_percent": (second * 37 + n * 11) % 9 + 88} for n in range(8)}}
        for number in (0, 3, 4, 5, 6, 7):
            store.add(cluster.name(number), Sample(NOW + second, second, rows))
        looking.at(nodes=store.nodes(), now=NOW + second)
        assert names(looking)[2:] == before[2:]


@pytest.mark.parametrize(
    ("status", "level", "words"),
    [
        (Status("connecting", NOW, "asking for a password", "ssh"), "unknown",
         "connecting by ssh: asking for a password"),
        (Status("lost", NOW - 70, "connection refused", "ssh"), "bad",
         "lost by ssh 70 s ago: connection refused"),
        (Status("ended", NOW, "", "srun"), "", "ended by srun"),
    ],
)  # fmt: skip
def test_a_stream_that_is_not_live_says_so_in_its_words(status, level, words):
    store, _ = cluster.fill(3, seconds=2)
    store.status("gpu09", status)
    looking = looking_at((store, NOW))
    found = next(s for s in looking.summaries() if s.node.name == "gpu09")
    assert (found.level, found.remark, found.load.cells) == (level, words, ())
    assert words in looking.text("nodes", 160, 30)


def test_headings_of_a_short_name_stand_apart():
    store, _ = cluster.fill(1, seconds=2)
    short = Store()
    (known,) = store.nodes()
    short.header("n1", known.header._replace(node="n1"))
    headings = looking_at((short, NOW)).text("nodes", 80, 22).splitlines()[1]
    assert headings.startswith(" node  busy %")


def test_a_stale_node_shows_no_number():
    store, now = cluster.fill(3, seconds=70)
    looking = looking_at((store, now + 20))
    row = next(line for line in looking.text("nodes", 160, 30).splitlines() if "gpu01" in line)
    assert row.count("?") >= 8
    assert "no sample for 20 s" in row
    assert "94" not in row


def test_rows_of_a_lost_node_show_no_number_of_then():
    store, now = cluster.fill(2, seconds=70)
    store.status("gpu01", Status("lost", now, "connection reset\x1b[31m", "ssh"))
    text = looking_at((store, now + 30)).text("job", 120, 38)
    row = next(line for line in text.splitlines() if "gpu01:1" in line)
    assert "lost by ssh 30 s ago: connection reset?[31m" in row
    assert "88 %" not in row


def test_lost_hung_and_unknown_are_told_apart_also_without_colour():
    store = Store()
    devices = [Device(n, n, f"GPU-{n}", "A100") for n in range(4)]
    for name in ("gpu01", "gpu02"):
        store.header(name, Header(name, "b", NOW, 0, 1, "0", devices))
        store.status(name, Status("live", NOW, "", "ssh"))
    rows = {"device": {0: {"busy_percent": 0}, 3: {"busy_percent": Missing("unsupported")}}}
    states = {1: State("lost", NOW, "Xid 79"), 2: State("hung", NOW, "nvmlX")}
    store.add("gpu01", Sample(NOW, 0, rows, states))
    for glyphs, small, large in (
        ("braille", "·×!?", "0 losthung  ?"), ("ascii", ".x!?", "0 losthung  ?"),
    ):  # fmt: skip
        looking = looking_at((store, NOW), glyphs=glyphs)
        assert f"{small} " in plain(looking.table(60, 10).rows)
        assert large in plain(looking.table(140, 10).rows)
    assert "GPU 1 lost (Xid 79), GPU 2 hung" in plain(looking.table(140, 10).rows)


def test_no_straggler_among_two_nodes_and_none_before_a_minute():
    assert not any("median" in text for text in remarks(looking_at(cluster.fill(2))).values())
    assert remarks(looking_at(cluster.fill(8, seconds=30))) == {}


def test_what_a_slow_node_lacks_is_said_once_all_streams_have_ended():
    store, now = cluster.fill(16)
    for node in store.nodes():
        store.status(node.name, Status("ended", now, "end of the recording", "replay"))
    looking = looking_at((store, now))
    assert remarks(looking)["gpu02"] == "busy 32 % below the median"
    assert "gpu02: busy 32 % below the median" in [note.text for note in notes(looking.moment)]


def test_one_slow_device_of_a_node_is_named():
    store, _ = cluster.fill(3, seconds=1)
    for second in range(1, 90):
        for number in range(3):
            rows = {n: {"busy_percent": 50 if (number, n) == (0, 5) else 90} for n in range(8)}
            store.add(cluster.name(number), Sample(NOW + second, second, {"device": rows}))
    looking = looking_at((store, NOW + 89))
    assert remarks(looking)["gpu01"].startswith("GPU 5 busy 4")
    assert remarks(looking)["gpu01"].endswith("% below the median")


def test_instances_of_mig_stand_for_their_device():
    store = Store()
    whole = Device(0, 0, "GPU-a", "A100")
    parts = [Device(n, 0, f"MIG-{n}", "A100", None, Mig("GPU-a", n, 0, "1g.10gb")) for n in (1, 2)]
    store.header("gpu01", Header("gpu01", "b", NOW, 0, 1, "0", [whole, *parts]))
    rows = {0: {"busy_percent": Missing("mig")}, 1: {"sm_active_percent": 30}, 2: {}}
    store.add("gpu01", Sample(NOW, 0, {"device": rows}))
    (found,) = looking_at((store, NOW)).summaries()
    assert [cell.value for cell in found.load.cells] == [30, None]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_order_shows_every_node_and_unknown_last(sort, reverse):
    store, now = cluster.fill(5, seconds=3)
    store.status("gpu10", Status("connecting", NOW))
    looking = looking_at((store, now), sort=sort, reverse=reverse)
    assert sorted(names(looking)) == ["gpu01", "gpu02", "gpu03", "gpu04", "gpu05", "gpu10"]
    if sort in ("cells", "cpu", "memory", "network"):
        assert names(looking)[-1] == "gpu10"


def test_names_sort_by_their_numbers():
    store = Store()
    for name in ("gpu10", "gpu9", "gpu-a", "gpu1"):
        store.status(name, Status("connecting", NOW))
    assert names(looking_at((store, NOW), sort="name")) == ["gpu1", "gpu9", "gpu10", "gpu-a"]


def test_each_metric_has_its_numbers(eight):
    looking = looking_at(eight, node="gpu04")
    seen = {}
    for _ in range(4):
        text = plain(looking.table(140, 12).rows)
        seen[looking.nodes.metric.name] = next(
            line for line in text.splitlines() if "gpu04" in line
        )
        looking.nodes.action_metric(1)
    assert " 88  88 " in seen["mem"]
    assert " 61  61 " in seen["temperature"]
    assert " 30" in seen["power"] or " 29" in seen["power"]


def test_a_thousand_nodes_scroll_to_the_last():
    store = Store()
    for number in range(1024):
        store.status(f"n{number:04d}", Status("connecting", NOW, "", "ssh"))
    looking = looking_at((store, NOW), sort="name", node="n1023")
    text = looking.text("nodes", 80, 22)
    assert "nodes 1005-1024 of 1024" in text
    assert "▶n1023" in text


@pytest.mark.parametrize(("width", "height"), [(10, 3), (30, 8), (50, 15), (79, 23), (260, 80)])
def test_no_size_breaks_the_nodes(eight, width, height):
    for glyphs in ("braille", "ascii"):
        looking = looking_at(eight, glyphs=glyphs, node="gpu02")
        for view in ("nodes", "node"):
            drawn = looking.draw(view, width, height)
            assert len(drawn.rows) <= max(height, 3)
            assert all(zone.x + zone.width <= width for zone in drawn.zones)


def test_rows_of_the_table_are_as_wide_as_the_screen(eight):
    looking = looking_at(eight)
    for width in (80, 120, 200):
        assert {row_width(row) for row in looking.table(width, 10).rows[2:]} == {width}


def test_ascii_is_ascii_but_for_the_degree(eight):
    looking = looking_at(eight, glyphs="ascii")
    for width in (80, 140):
        text = looking.text("nodes", width, 40) + looking.text("node", width, 40)
        assert {char for char in text if not char.isascii()} <= set("°…·")


# -- what is computed again ---------------------------------------------------------------------


def test_only_nodes_with_a_new_sample_are_asked_again(eight, monkeypatch):
    store, now = cluster.fill(8, seconds=70)
    asked = []
    from gpumon.store import NodeView

    numbers = NodeView.numbers
    monkeypatch.setattr(
        NodeView, "numbers", lambda node, *key: asked.append(node.name) or numbers(node, *key)
    )
    summaries, nothing = Summaries(), Standing([], None, set())
    nodes = store.nodes()
    devices = {node: node.devices() for node in nodes}

    def found(at):
        return summaries.all(devices, "busy", at, nothing, lambda node: node.status(at))

    def hosts(at):
        return [summary.load.host for summary in found(at)]

    hosts(now)
    asked.clear()
    hosts(now + 0.1)
    assert asked == []
    store.add("gpu05", Sample(now + 0.2, 0, {"host": {"": {"cpu_percent": 7.0}}}))
    fifth = hosts(now + 0.2)[4]
    assert set(asked) == {"gpu05"}
    assert fifth.cpu_percent == 7.0
    asked.clear()
    found(now + 0.2)
    assert asked == []  # nor before a row is seen
    hosts(now + 1.2)  # readings age
    assert set(asked) == {node.name for node in nodes}


def test_of_processes_only_those_seen_or_sorted_by_are_asked(eight, monkeypatch):
    asked = []
    from gpumon.store import NodeView

    latest = NodeView.latest
    monkeypatch.setattr(
        NodeView,
        "latest",
        lambda node, entity, key, field, now: (
            asked.append(field) or latest(node, entity, key, field, now)
        ),
    )
    looking = looking_at(eight)
    asked.clear()
    before = looking.draw("processes", 120, 12)
    assert asked.count("mem_bytes") == 56
    assert {asked.count(field) for field in ("sm_percent", "cpu_percent", "rss_bytes")} == {10}
    asked.clear()
    assert looking.draw("processes", 120, 12) == before
    assert asked == []


# -- sums over nodes ----------------------------------------------------------------------------


def lines(looking):
    return {line.name: line for line in request_lines(looking.moment)}


def test_use_is_summed_over_the_nodes(eight):
    found = lines(looking_at(eight))
    assert found["CPU"].asked == "256 cores"
    assert found["CPU"].used == "133.1 cores"  # 7 × 19 + 0.1
    assert found["memory"].used == "702 GiB"
    assert found["memory"].asked == "1 TiB"
    assert found["GPUs"].used == "56 of 63 active, 1 unknown"


def test_of_a_het_job_one_components_request_is_not_that_of_all_nodes():
    store, now = cluster.fill(4, seconds=3)
    looking = looking_at((store, now))
    job = Job(
        id="4711+0", het_job_id="4711", het_offset=0, nodes=("gpu01",), state="RUNNING",
        allocated=Resources(cpus=32, mem_bytes=128 << 30, gpus=8),
    )  # fmt: skip
    looking.at(job=job)
    found = lines(looking)
    assert found["CPU"].asked == "128 cores"
    assert found["memory"].asked == "512 GiB"
    assert found["GPUs"].asked == "32"


def test_the_node_close_to_its_own_limit_is_named():
    store, now = cluster.fill(4, seconds=2)
    store.add("gpu04", Sample(now, 0, {"job": {"": {"mem_used_bytes": 127 << 30}}}))
    found = lines(looking_at((store, now)))
    assert found["memory"].remark == "close to the limit on gpu04"
    assert found["memory"].role == "bad"


def test_the_same_note_of_several_nodes_is_one_line():
    store = Store()
    for name in ("gpu01", "gpu02", "gpu03"):
        header = Header(name, "b", NOW, 0, 1, "0", [], notes=["The driver needs a reboot."])
        store.header(name, header)
    texts = [note.text for note in notes(looking_at((store, NOW)).moment)]
    assert texts == ["gpu01 and 2 more: The driver needs a reboot."]


@pytest.mark.parametrize(("source", "shown"), [("replay", True), ("openssh", False)])
def test_what_a_replayed_recording_lacks_is_a_note(source, shown):
    """Of a live stream the same place names the ways that were refused, which is no trouble."""
    store = Store()
    store.header("n1", Header("n1", "b", NOW, 0, 1, "0", []))
    store.status("n1", Status("live", NOW, "the end is missing", source))
    found = [
        note for note in notes(looking_at((store, NOW)).moment) if "the end is missing" in note.text
    ]
    assert [note.level for note in found] == ["attention"] * shown


def test_of_many_nodes_what_is_seldom_new_is_noted_within_a_round():
    store, now = cluster.fill(12, seconds=70)
    looking = looking_at((store, now))
    rows = {"device": {3: {"busy_percent": 90, "mem_used_bytes": 1, "throttle_mask": 0x40}}}
    store.add("gpu12", Sample(now + 1, 0, rows))
    noted = []
    for second in range(1, 8):
        looking.at(nodes=store.nodes(), now=now + second)
        noted += [note.text for note in notes(looking.moment) if "throttled" in note.text]
    assert set(noted) == {"gpu12:3 throttled (heat)"}


# -- what the evaluation found -------------------------------------------------------------------


def evaluated(*findings):
    run = RunData(None, 0.0, 1.0, True, 10.0, [], [], [], Coverage("live", 100.0, 1.0), Site())
    return LiveEvaluation(list(findings), run, None)


def test_job_and_nodes_show_the_same_findings(eight):
    hot = Finding("throttle-thermal", "warning", "GPU gpu04:2 too hot", "", devices=("gpu04:2",))
    low = Finding("low-busy", "warning", "63 GPUs busy 3 %", "", devices=("gpu01:0", "gpu04:2"))
    looking = looking_at(eight, evaluation=evaluated(hot, low))
    assert remarks(looking)["gpu04"] == "GPU gpu04:2 too hot"
    texts = [note.text for note in notes(looking.moment)]
    assert {"GPU gpu04:2 too hot", "63 GPUs busy 3 %"} <= set(texts)


def test_what_is_a_state_is_said_once(eight):
    """GPU 7 of gpu03 is lost; what rules make of that is in the report."""
    gone = Finding("gpu-health", "critical", "GPU gpu03:7: lost", "", devices=("gpu03:7",))
    stale = Finding("data-stale", "warning", "gpu05: no samples for 9 min", "", subject="gpu05")
    looking = looking_at(eight, evaluation=evaluated(gone, stale))
    texts = [note.text for note in notes(looking.moment)]
    assert not {gone.title, stale.title} & set(texts)
    assert any("gpu03:7 dropped off the bus" in text for text in texts)
    assert remarks(looking)["gpu03"] == "GPU 7 lost (Xid 79), idle 2 min"
    assert "gpu05" not in remarks(looking)


def faulty_job(nodes):
    """A job of so many nodes, of which two have an Xid and another a failed row remap."""
    store, now = cluster.fill(nodes, devices=1, seconds=2)
    device = {"busy_percent": 90.0, "remap_failed": 1, "throttle_mask": 0}
    store.add("gpu05", Sample(now + 1, 2.0, {"device": {0: device}}, {}, []))
    xid = Event(now + 1, "xid", device=0, text="48")
    store.add("gpu04", Sample(now + 1, 2.0, {"device": {0: {"busy_percent": 90.0}}}, {}, [xid]))
    xid = xid._replace(text="31")
    store.add("gpu06", Sample(now + 1, 2.0, {"device": {0: {"busy_percent": 90.0}}}, {}, [xid]))
    return Looking(store.nodes(), now + 1)


@pytest.mark.parametrize("nodes", [12, 260])
def test_faults_are_shown_where_nothing_is_evaluated(nodes):
    """Of more than 256 nodes nothing is evaluated while they run."""
    looking = faulty_job(nodes)
    text = looking.text("job", 120, 40)
    assert re.search(r"● gpu04:0: Xid 48 \(double-bit ECC error\) +Report the node", text)
    assert "● gpu05:0: row remapping failed" in text
    assert re.search(r"▲ gpu06:0: Xid 31 +compute-sanitizer python train.py", text)
    lines = looking.text("nodes", 160, 40).splitlines()[2:]
    lines = [line for line in lines if "●" in line or "▲" in line]
    assert {line.split()[0].lstrip("▶") for line in lines} >= {"gpu04", "gpu05", "gpu06"}
    assert "● Xid 48 (double-bit ECC error)" in lines[0] + lines[1]


def test_an_evaluation_takes_the_place_of_faults():
    looking = faulty_job(12)
    looking.at(evaluation=evaluated())
    assert "Xid" not in looking.text("job", 120, 40) + looking.text("nodes", 160, 40)


def test_what_holds_for_all_nodes_is_not_said_of_each():
    store, now = cluster.fill(3, seconds=2)
    for number in range(3):
        store.status(cluster.name(number), Status("ended", now, "end of the recording", "replay"))
    looking = looking_at((store, now))
    assert "end of the recording" not in looking.text("nodes", 160, 30)
    store.status("gpu01", Status("live", now, "", "replay"))
    looking = looking_at((store, now))
    assert looking.text("nodes", 160, 30).count("end of the recording") == 2


def test_host_figures_are_labelled_as_the_nodes(eight):
    heading = looking_at(eight).text("nodes", 120, 38).splitlines()[1]
    assert "node CPU" in heading
    assert "node mem" in heading


def test_a_filter_keeps_the_nodes_it_names_or_whose_trouble_it_names(eight):
    looking = looking_at(eight)
    for text, expected in (
        ("gpu03", ["gpu03"]),
        ("below med", ["gpu02"]),
        ("GPU0 lost", ["gpu03"]),
    ):
        looking.nodes.filter_text = text
        assert names(looking) == expected
    assert "filter: GPU0 lost" in looking.text("nodes", 120, 38)
    looking.nodes.filter_text = "nowhere"
    assert "no node matches 'nowhere'" in looking.text("nodes", 120, 38)
    looking.show("nodes")
    looking.nodes.action_leave()
    assert looking.nodes.filter_text == ""
    assert len(names(looking)) == 8
    assert looking.pane.name == "nodes"
    looking.nodes.action_leave()
    assert looking.pane.name == "job"


def test_a_wide_screen_has_the_gpus_of_a_node_together_and_over_time(eight):
    looking = looking_at(eight)
    rows = looking.text("nodes", 300, 40).splitlines()
    assert "GPU mem     power  max °C  busy over" in rows[1]
    (idle,) = [row for row in rows[2:10] if "gpu03" in row]
    assert re.search(r"\b0 B +420 W +31 +·+▁+ +● GPU 7 lost", idle)
    (fine,) = [row for row in rows[2:10] if "gpu01" in row]
    assert re.search(r"560 GiB +2\.\d\d kW +6\d  ·+▇+", fine)
    assert "power" not in looking.text("nodes", 170, 40).splitlines()[1]


def test_an_arrow_at_the_last_node_says_so(eight):
    looking = looking_at(eight)
    looking.nodes.action_move(3)
    assert not looking.said
    looking.nodes.action_move(100)
    looking.nodes.action_move(1)
    assert looking.said == ["this is the last node"]
