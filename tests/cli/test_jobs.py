"""`gpumon jobs`: which jobs are listed, and what is said of them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config import Settings
from gpumon.errors import GpumonError, UsageError
from gpumon.model.sample import Device, Header, JobContext, Sample
from gpumon.recording import Recorder
from gpumon.recording.runs import new_path, state_dir
from gpumon.report.render.jobs import HEAD, cells, json_text, text_table
from gpumon.services import jobs_overview, jobs_screen
from gpumon.services.jobs_overview import JobsOverview, since_epoch
from gpumon.services.jobs_screen import FreshJobs
from gpumon.services.this_site import this_site
from gpumon.slurm.client import Slurm
from gpumon.slurm.runner import SlurmError
from gpumon.tui.overview.app import Chosen
from tests.slurm.made import MadeSlurm, row, step
from tests.support.waiting import until

GIB = 1 << 30


class Clock:
    def __init__(self):
        self.at = time.time()

    def __call__(self):
        return self.at


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def overview(tmp_path, monkeypatch, clock):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    monkeypatch.delenv("GPUMON_SITE", raising=False)

    def of(made, since=None):
        slurm = Slurm(made, clock=clock, now=clock)
        return JobsOverview(slurm, "ada", since, this_site(), clock)

    return of


@pytest.fixture
def record(overview):
    """Makes a recording of two GPUs of which one idles."""
    growing = []

    def make(job, seconds=120, *, ends=True, age_s=0.0):
        """`age_s`: how long before now its last sample was taken."""
        start = time.time() - age_s - seconds
        facts = {"mem_total_bytes": 80 * GIB}
        devices = [Device(n, n, f"GPU-{n}", "NVIDIA A100", n, None, facts) for n in (0, 1)]
        context = JobContext(
            job, "train", "ada", "lab", "gpu", cluster="alpha", nodes="gpu01", node_count=1,
            cpus=8, mem_limit_bytes=64 * GIB, gpus=2,
        )  # fmt: skip
        header = Header("gpu01", "b", start, 0.0, 1.0, "0", devices, driver="580", job=context)
        recorder = Recorder(new_path(header, start), flush_s=10.0 if ends else 0.0)
        recorder.header(header)
        device = {
            0: {"busy_percent": 80, "mem_used_bytes": 40 * GIB, "processes": 1},
            1: {"busy_percent": 0, "mem_used_bytes": 0, "processes": 0},
        }
        rows = {"device": device, "job": {"": {"mem_used_bytes": 9 * GIB, "cpu_cores_used": 1.0}}}
        for n in range(seconds):
            recorder.add(Sample(start + n, float(n), rows))
        if ends:
            recorder.close()
        else:
            growing.append(recorder)
            until(lambda: not recorder.pending_bytes, "it is on disk")

    yield make
    for recorder in growing:
        recorder.close()


def line(listing, id):
    (found,) = [each for each in listing.lines if each.id == id]
    return found


def shown(listing, id, now):
    return dict(zip(HEAD, cells(line(listing, id), now)))


# -- which jobs --------------------------------------------------------------------------------
def test_running_then_pending_then_ended_ones(overview, clock):
    made = MadeSlurm(
        row(5, "wait", "PENDING"), row(7), past=(row(3, "old", "FAILED"), step("3.batch"), row(7))
    )
    listing = overview(made).whole()
    assert [each.id for each in listing.lines] == ["7", "5", "3"]
    assert (listing.source, listing.notes) == ("slurm", [])
    running, pending = shown(listing, "7", clock()), shown(listing, "5", clock())
    assert running["nodes × GPUs"] == "1 × 2"
    assert running["elapsed / limit"] == "1 h 00 min / 2 h 00 min"
    assert (running["left"], running["GPUs busy"], running["waste"]) == (
        "1 h 00 min",
        "not recorded",
        "-",
    )
    assert (pending["GPUs busy"], pending["what to do"]) == ("pending", "Priority")
    assert shown(listing, "3", clock())["state"] == "FAILED"


def test_each_later_look_asks_one_question(overview, clock):
    made = MadeSlurm(row(7), past=(row(7),))
    watched = overview(made)
    watched.look()
    assert (made.asked("squeue"), made.asked("sacct")) == (1, 1)
    made.calls.clear()
    for _ in range(9):
        clock.at += 30
        watched.look()
        assert len(made.calls) == 1
        assert made.calls.pop()[0] == "squeue"
    clock.at += 30
    listing = watched.look()
    assert [call[0] for call in made.calls] == ["sacct"]
    assert listing.at == clock.at - 30  # the controller's answer is shown with its age


def test_a_job_that_leaves_the_queue_is_asked_for_by_its_number(overview, clock):
    made = MadeSlurm(row(7), past=(row(7),))
    watched = overview(made)
    watched.look()
    made.queued, made.past = [], [row(7, state="COMPLETED")]
    clock.at += 30
    assert [each.group.state for each in watched.look().lines] == []  # not running, says Slurm
    clock.at += 30
    assert [each.group.state for each in watched.look().lines] == ["COMPLETED"]


def test_what_ended_in_the_queue_stays(overview, clock):
    made = MadeSlurm(row(7, state="COMPLETED"), past=())
    watched = overview(made)
    watched.look()
    made.queued = []
    clock.at += 30
    assert [each.group.state for each in watched.look().lines] == ["COMPLETED"]


def test_without_accounting_ended_jobs_are_the_recorded_ones(overview, record):
    record("3")
    made = MadeSlurm(row(7))
    made.fails["sacct"] = "Slurm accounting storage is disabled"
    listing = overview(made).whole()
    assert [each.id for each in listing.lines] == ["7", "3"]
    assert listing.notes[0].startswith("accounting is disabled on this cluster")


def test_without_slurm_they_are_the_recorded_runs(overview, record, clock):
    record("3")
    record("4", 60, ends=False)
    made = MadeSlurm()
    made.absent = True
    listing = overview(made).whole()
    assert listing.source == "recordings"
    assert listing.notes == ["Slurm was not found; showing recorded runs"]
    assert {each.id: each.group.state for each in listing.lines} == {
        "3": "recorded",
        "4": "recording",
    }
    assert shown(listing, "3", clock())["GPUs busy"] == "1/2 40 %"
    assert [each.id for each in overview(made, "now-2hours").whole().lines] == ["4", "3"]
    assert overview(made, "2100-01-01").whole().lines == []
    with pytest.raises(UsageError, match="takes a date or now-3days, not 'noon'"):
        overview(made, "noon").whole()


def test_slurms_commands_without_a_cluster_are_no_slurm(overview):
    made = MadeSlurm()
    made.fails["squeue"] = "squeue: fatal: Could not establish a configuration source\n"
    assert overview(made).whole().source == "recordings"


def test_a_controller_that_does_not_answer(overview):
    made = MadeSlurm()
    made.fails["squeue"] = "slurm_load_jobs error: Unable to contact slurm controller"
    with pytest.raises(SlurmError, match="Unable to contact"):
        overview(made).whole()


# -- figures -----------------------------------------------------------------------------------
def test_a_recording_that_grows_shows_the_last_minute(overview, record, clock):
    record("7", 200, ends=False)
    listing = overview(MadeSlurm(row(7))).whole()
    found = shown(listing, "7", clock())
    assert found["GPUs busy"] == "1/2 40 %"
    assert (found["GPU memory"], found["memory"]) == ("40 / 160 GiB", "9 / 64 GiB")
    assert line(listing, "7").figures.is_now


def test_a_recording_that_stopped_shows_no_old_figure_as_new(overview, record, clock):
    record("7", age_s=3600)
    found = shown(overview(MadeSlurm(row(7))).whole(), "7", clock())
    assert found["GPUs busy"].startswith("recorded until ")
    assert found["GPU memory"] == "-"


def test_an_ended_job_shows_its_run_its_waste_and_what_to_do(overview, record, clock):
    record("3", 1800, age_s=60)
    ended = row(
        3, state="COMPLETED", start=f"{time.time() - 1860:.0f}", end=f"{time.time() - 60:.0f}"
    )
    listing = overview(MadeSlurm(past=(ended,))).whole()
    found = shown(listing, "3", clock())
    assert found["GPUs busy"] == "1/2 40 %"
    assert float(found["waste"]) > 0.4
    assert "Use both GPUs or request fewer, " in found["what to do"]
    (body,) = json.loads(json_text(listing, clock()))["jobs"]
    assert (body["window"], body["gpus_active"], body["recorded"]) == ("run", 1, True)
    assert body["waste_gpu_hours"] > 0.4


def test_an_end_is_seen_though_the_recording_stopped_before(overview, record, clock):
    record("7", age_s=3600)
    made = MadeSlurm(row(7))
    watched = overview(made)
    watched.whole()
    made.queued = [row(7, state="COMPLETED")]
    clock.at += 30
    assert shown(watched.whole(), "7", clock())["GPUs busy"] == "1/2 40 %"


def test_a_recording_that_begins_is_read_at_once(overview, record, clock):
    watched = overview(MadeSlurm(row(7)))
    assert shown(watched.whole(), "7", clock())["GPUs busy"] == "not recorded"
    record("7", 60, ends=False)
    clock.at += 30
    found = watched.whole()
    assert shown(found, "7", clock())["GPUs busy"] == "1/2 40 %"
    assert line(found, "7").is_recorded


def test_files_to_which_nobody_writes_are_not_opened(overview, record, clock, monkeypatch):
    record("7", 60, age_s=3600)
    (folder,) = Path(state_dir()).glob("jobs/*/7")
    for path in folder.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)
    watched = overview(MadeSlurm(row(7)))
    monkeypatch.setattr("gpumon.services.figures.Recording", None)
    assert shown(watched.whole(), "7", clock())["GPUs busy"].startswith("recorded until ")


def test_an_unchanged_recording_is_read_once(overview, record, clock, monkeypatch):
    record("3", 60, age_s=60)
    watched = overview(MadeSlurm(past=(row(3, state="COMPLETED"),)))
    before = watched.whole()
    monkeypatch.setattr("gpumon.services.jobs_overview.measured", None)
    clock.at += 30
    assert watched.whole().lines[0].figures == before.lines[0].figures


def test_reading_comes_one_job_after_the_other(overview, record):
    record("3", 60, age_s=60)
    watched = overview(MadeSlurm(row(7), past=(row(3, state="COMPLETED"),)))
    first = watched.look()
    assert {each.figures.busy.why for each in first.lines} == {"reading"}
    steps = list(watched.read(first))
    assert len(steps) == 2
    assert [each.is_recorded for each in steps[-1].lines] == [False, True]


def test_many_jobs_are_listed_and_read_up_to_a_bound(overview, record, monkeypatch):
    monkeypatch.setattr(jobs_overview, "MAX_LINES", 3)
    monkeypatch.setattr(jobs_overview, "MAX_READ", 1)
    for job in ("1", "2"):
        record(job, 60, age_s=60)
    listing = overview(MadeSlurm(past=tuple(row(n, state="FAILED") for n in range(1, 6)))).whole()
    assert listing.notes == ["5 jobs; showing the first 3: narrow --since"]
    read, *left = listing.lines
    assert read.figures.gpus.given == 2
    assert {each.verdict.missing for each in left} == {"only the 1 newest recorded jobs are read"}


# -- forms -------------------------------------------------------------------------------------
def test_the_json_has_numbers_or_reasons(overview, clock):
    made = MadeSlurm(row(7, "evil\x1b[2J"), row(5, state="PENDING"), past=(row(3, state="FAILED"),))
    body = json.loads(json_text(overview(made).whole(), clock()))
    assert (body["version"], body["source"]) == (1, "slurm")
    for each in body["jobs"]:
        for name in ("gpu_busy_percent", "gpu_mem_bytes", "mem_bytes", "waste_gpu_hours"):
            assert (each[name] is None) == (name in each["missing"]), (each["id"], name)
    assert "\x1b" not in text_table(overview(made).whole(), clock())


def test_no_jobs_at_all(overview, clock):
    assert text_table(overview(MadeSlurm()).whole(), clock()) == "No jobs.\n"


@pytest.mark.parametrize(
    ("text", "ago_s"), [("now", 0), ("now-90", 90), ("now-3days", 259200), ("now-1hour", 3600)]
)
def test_times_before_now(text, ago_s):
    assert since_epoch(text, 1e9) == 1e9 - ago_s


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_none(text):
    found = since_epoch(text, 1e9)
    assert found is None or isinstance(found, float)


# -- the screen --------------------------------------------------------------------------------
def test_the_screen_comes_back_from_a_job_with_what_went_wrong(overview, monkeypatch):
    chosen = [Chosen("attach", "7"), Chosen("replay", "7"), None]
    seen = []

    def choose(jobs, settings, title, state):
        seen.append((title, state.message))
        until(lambda: jobs.listing is not None, "Slurm has answered")
        return chosen.pop(0)

    def fail(*args, **more):
        raise GpumonError(f"cannot {args[-1] if args else ''}")

    monkeypatch.setattr(jobs_screen, "choose_job", choose)
    monkeypatch.setattr("gpumon.services.attach.Attachment.attach", lambda *_, **__: fail("attach"))
    monkeypatch.setattr("gpumon.services.replay.replay", lambda *_, **__: fail("replay"))
    assert jobs_screen.show_jobs(overview(MadeSlurm(row(7))), Settings(), "ada") == 0
    assert seen == [("ada", ""), ("ada", "cannot attach"), ("ada", "cannot replay")]


def shown_ids(jobs):
    return [each.id for each in jobs.listing.lines] if jobs.listing else []


def test_while_slurm_does_not_answer_the_list_has_its_age(overview):
    made = MadeSlurm(row(7))
    watched = overview(made)
    jobs = FreshJobs(watched, is_ascii=False)
    made.fails["squeue"] = "slurm_load_jobs error: Unable to contact slurm controller"
    jobs._look()
    assert not shown_ids(jobs)
    assert "Unable to contact" in jobs.trouble
    made.fails.clear()
    watched._listed._slurm = Slurm(made)  # asks again at once
    jobs._look()
    assert shown_ids(jobs) == ["7"]
    assert jobs.trouble == ""
    made.fails["squeue"] = "gone"
    watched._listed._slurm = Slurm(made)
    jobs._look()
    assert "gone" in jobs.trouble
    assert "; showing the state as of " in jobs.trouble
    assert shown_ids(jobs) == ["7"]


def test_rows_of_the_accounting_that_cannot_be_read_are_counted(overview, clock):
    broken = row("?", raw="INVALID")
    listing = overview(MadeSlurm(past=(row(7, state="COMPLETED"), broken))).whole()
    assert [line.id for line in listing.lines] == ["7"]
    [note] = listing.notes
    assert note.startswith("1 row of the accounting could not be read; the first: 'INVALID")
    assert note in text_table(listing, clock())
    assert json.loads(json_text(listing, clock()))["notes"] == [note]
