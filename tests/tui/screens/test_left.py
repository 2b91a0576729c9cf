"""What is the job's no more: shown as such, counted nowhere, and its plots still to be seen."""

import time
from dataclasses import replace
from types import SimpleNamespace

from gpumon.model.sample import Device, Header, Sample
from gpumon.model.view import LEFT, Silence, Status
from gpumon.slurm.job import Job, Resources
from gpumon.store import Store
from gpumon.tui.lines import plain
from gpumon.tui.parts.title import time_row, title_row
from gpumon.tui.screens.job.notes import notes
from gpumon.tui.screens.job.request import request_lines
from tests.tui.looking import Looking

T0 = 1_795_200_000.0
JOB = Job(
    raw_id="7", id="7", state="RUNNING", nodes=("n2",), node_list="n2", restarts=1,
    allocated=Resources(gpus=2),
)  # fmt: skip


def feed(store, node, uuids, first, last, pid):
    listed = [Device(n, n, uuid, "H200", cuda_index=n) for n, uuid in enumerate(uuids)]
    header = Header(node, "boot", T0 + first, 0.0, 1.0, "0.1", listed, agent_pid=pid)
    store.header(node, header)
    store.status(node, Status("live", T0 + first, "", "ssh"))
    for second in range(first, last):
        rows = {
            "device": {n: {"busy_percent": 90.0} for n in range(len(uuids))},
            "host": {"": {"cpu_percent": 50.0}},
        }
        store.add(node, Sample(T0 + second, float(second), rows))


def looking():
    """It ran on n1 and n2, and runs on n2 alone, of whose GPUs one is another by now."""
    store = Store()
    feed(store, "n1", ["A", "B"], 0, 60, pid=1)
    feed(store, "n2", ["C", "D"], 0, 60, pid=1)
    for node in ("n1", "n2"):
        store.status(node, Status(LEFT, T0 + 60, "the job has started again"))
    feed(store, "n2", ["D", "E"], 100, 160, pid=2)
    nodes = store.nodes()
    return Looking(
        nodes=[node for node in nodes if not node.is_left],
        left=[node for node in nodes if node.is_left],
        now=T0 + 160,
        job=JOB,
    )


def test_only_what_the_job_has_now_counts():
    shown = looking()
    assert [device.device.uuid for _, device in shown.moment.devices] == ["D", "E"]
    (gpus,) = (line for line in request_lines(shown.moment) if line.name == "GPUs")
    assert (gpus.asked, gpus.used) == ("2", "2 of 2 active")
    assert notes(shown.moment) == []
    text = shown.text("job", 120, 40)
    assert "lost" not in text
    assert "gone" not in text
    title = "".join(part for part, _ in title_row(shown.moment, 120))
    assert "RUNNING · restart 1 · n2" in title
    assert "2 × H200" in title


def test_a_node_that_was_left_has_a_row_and_its_plots():
    shown = looking()
    rows = [row for row in shown.text("nodes", 120, 40).splitlines() if row.startswith(" n1")]
    assert len(rows) == 1
    assert "the job has started again (100 s ago)" in rows[0]
    shown.selection.node = "n1"
    text = shown.text("node", 120, 40)
    assert "GPU 0" in text
    assert text.count("no longer part of the job") == 2
    assert "█" in text  # what they did


def test_a_node_shows_the_gpus_it_had_before_behind_those_of_now():
    shown = looking()
    shown.selection.node = "n2"
    rows = plain(shown.draw("node", 120, 40).rows).splitlines()
    assert sum("no longer part of the job" in row for row in rows) == 1
    before = next(at for at, row in enumerate(rows) if "no longer part of the job" in row)
    assert all(at < before for at, row in enumerate(rows) if "90 %" in row and "no process" in row)


def test_gpus_of_a_suspended_job_are_not_idle():
    shown = looking().at(job=replace(JOB, state="SUSPENDED"))
    (gpus,) = (line for line in request_lines(shown.moment) if line.name == "GPUs")
    assert (gpus.used, gpus.remark, gpus.share) == ("suspended", "", None)


def test_the_time_of_a_suspended_job_stands_still():
    held = Job(state="SUSPENDED", start=T0, end=T0 + 4000, elapsed_s=1000, time_limit_s=4000,
               told_at=T0 + 1500)  # fmt: skip
    for now in (T0 + 1600, T0 + 9999):
        text = "".join(part for part, _ in time_row(Looking(now=now, job=held).moment, 120))
        assert text.startswith(" time    16 min")
        assert "suspended, 50 min" in text


def test_as_long_as_slurm_is_silent_the_title_says_so():
    silence = Silence(T0 - 80, "squeue: Unable to contact slurm controller")
    shown = looking().at(silence=silence)
    title = "".join(part for part, _ in title_row(shown.moment, 160))
    assert "Slurm not responding for 4 min" in title
    as_of = time.strftime("%H:%M", time.localtime(T0 - 80))
    assert f"state as of {as_of}" in title
    assert "Slurm silent 4 min" in "".join(part for part, _ in title_row(shown.moment, 80))
    assert [note.text for note in notes(shown.moment)] == [silence.why]
    shown.at(silence=None)
    assert "Slurm" not in "".join(part for part, _ in title_row(shown.moment, 160))


def test_agents_that_stand_still_with_their_job_are_no_trouble():
    held = looking().at(job=replace(JOB, state="SUSPENDED"), now=T0 + 999)
    assert "stale" not in "".join(part for part, _ in title_row(held.moment, 160))
    runs = looking().at(now=T0 + 999)
    assert "no sample for" in "".join(part for part, _ in title_row(runs.moment, 160))


def test_a_node_that_came_later_stands_where_the_job_has_it():
    store = Store()
    for node in ("n4", "n2"):
        feed(store, node, ["A"], 0, 10, pid=1)
    pipeline = SimpleNamespace(
        nodes=store.nodes, now=lambda: T0 + 10, job=lambda: replace(JOB, nodes=("n2", "n4")),
        silence=None, evaluation=None, not_recorded={},
    )  # fmt: skip
    moment = Looking().moment.looking_at(pipeline)
    assert [node.name for node in moment.nodes] == ["n2", "n4"]
