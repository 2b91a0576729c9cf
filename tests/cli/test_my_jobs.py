"""Which job is meant by a name, by nothing at all, and by --last; steps that are not there."""

from __future__ import annotations

import pytest

from gpumon.config import Settings
from gpumon.errors import EXIT_INTERRUPTED, GpumonError, NotFoundError, UsageError
from gpumon.services import ended, jobs
from gpumon.services.attach import Attachment
from gpumon.services.my_jobs import MyJobs
from gpumon.slurm import ids
from gpumon.slurm.client import Slurm
from gpumon.slurm.job import Job
from gpumon.tui.dialogs import choice
from tests.slurm.made import NOW, MadeSlurm, row, step

LATER = {"submit": f"{NOW - 100:.0f}", "start": f"{NOW - 90:.0f}"}
ENDED = row(9, "old", "COMPLETED")


class Chooser:
    """Takes the last of what is offered, or leaves."""

    def __init__(self, *, leaves: bool = False) -> None:
        self.leaves = leaves
        self.offered: list[tuple[str, list[str]]] = []

    def __call__(self, title, groups):
        self.offered.append((title, [each.id for each in groups]))
        return None if self.leaves else groups[-1].id


def meant(made, name=None, *, last=False, choose=None):
    return MyJobs(Slurm(made), "ada").meant(name, last=last, choose=choose)


# -- nothing is named --------------------------------------------------------------------------
def test_the_only_running_job():
    made = MadeSlurm(row(8, state="PENDING"), row(7), row(9, state="COMPLETED"))
    assert meant(made) == "7"
    assert made.calls[0][-4:] == ["-u", "ada", "-t", "all"]
    assert len(made.calls) == 1


def test_several_are_offered_the_newest_first():
    made = MadeSlurm(row(7), row(8, "eval", **LATER))
    choose = Chooser()
    assert meant(made, choose=choose) == "7"
    assert choose.offered == [("which job?", ["8", "7"])]
    assert meant(made, choose=Chooser(leaves=True)) is None
    with pytest.raises(UsageError) as error:
        meant(made)
    assert str(error.value).startswith("several jobs of yours are running: 8 (eval, ")
    assert "7 (train, " in str(error.value)
    assert str(error.value).endswith("name one: 'gpumon attach 8'")


def test_tasks_of_one_array_are_one_job():
    tasks = [row(f"40_{n}", raw=str(40 + n)) for n in (1, 2)]
    assert meant(MadeSlurm(*tasks, row("40_[3-9]", state="PENDING"))) == "40"


def test_pending_jobs_are_offered_where_none_runs():
    made = MadeSlurm(row(8, "later", "PENDING"))
    choose = Chooser()
    assert meant(made, choose=choose) == "8"
    assert choose.offered[0][0].startswith("none of your jobs is running: wait for one to start")
    with pytest.raises(NotFoundError, match=r"pending: 8 \(later, Priority\); 'gpumon attach 8'"):
        meant(made)


def test_none_at_all():
    with pytest.raises(
        NotFoundError, match="none of your jobs is running or pending; run 'gpumon jobs'"
    ):
        meant(MadeSlurm(ENDED), choose=Chooser())


# -- names -------------------------------------------------------------------------------------
def test_a_name_means_the_running_job_that_has_it():
    made = MadeSlurm(row(7), row(8, "eval"), row(6, "eval", "COMPLETED"))
    assert meant(made, "eval") == "8"
    assert made.asked("sacct") == 0


def test_an_id_wins_over_a_name():
    made = MadeSlurm(row(7, "8"), row(8))
    assert meant(made, "8") == "8"
    assert made.calls == []


def test_several_of_a_name_are_offered():
    choose = Chooser()
    made = MadeSlurm(row(7), row(8), row(5, "eval"))
    meant(made, "train", choose=choose)
    assert [sorted(each) for _, each in choose.offered] == [["7", "8"]]


def test_a_name_of_a_pending_and_of_an_ended_job():
    made = MadeSlurm(row(8, "later", "PENDING"), past=(row(3, "old", "FAILED"), ENDED))
    assert meant(made, "later") == "8"  # as its id: a terminal opens when it starts
    assert meant(made, "old") in ("3", "9")


def test_a_job_that_was_cancelled_before_its_start_is_found_by_its_name():
    never = row(3, "never", "CANCELLED", start="None", elapsed="00:00:00", elapsedraw="0")
    assert meant(MadeSlurm(past=(never, ENDED)), "never") == "3"


def test_a_job_whose_nodes_are_cleaned_up_gives_way_to_one_that_runs():
    ending = row(7, state="COMPLETING")
    assert meant(MadeSlurm(ending, row(8))) == "8"
    assert meant(MadeSlurm(ending)) == "7"


def test_a_name_that_nothing_has():
    made = MadeSlurm(row(7), past=(ENDED,))
    with pytest.raises(NotFoundError, match=r"named 'trian'; did you mean 'train'\?"):
        meant(made, "trian")
    with pytest.raises(NotFoundError, match=r"'x\?\[2J'; 'gpumon jobs' lists"):
        meant(made, "x\x1b[2J")
    made.fails["sacct"] = "Slurm accounting storage is disabled"
    with pytest.raises(NotFoundError):
        meant(made, "old")


# -- the last ----------------------------------------------------------------------------------
def test_the_job_that_started_last():
    made = MadeSlurm(row(7), row(8, **LATER), row(9, state="COMPLETED", **LATER))
    assert meant(made, last=True) == "8"  # running ones first
    assert meant(made, "train", last=True) == "8"
    assert meant(MadeSlurm(row(4, state="PENDING"), past=(ENDED,)), last=True) == "9"
    with pytest.raises(NotFoundError, match="none of your jobs has started in the last two weeks"):
        meant(MadeSlurm(), last=True)
    with pytest.raises(UsageError, match="--last selects the job"):
        meant(made, "7", last=True)


# -- steps -------------------------------------------------------------------------------------
JOB = Job(raw_id="7", id="7", state="RUNNING")


def check(made, text, *known):
    jobs.check_step(Slurm(made), ids.parse(text), known or [JOB])


def test_a_step_that_is_not_there_is_said_with_those_that_are():
    made = MadeSlurm(past=(row(7), step("7.batch"), step("7.10"), step("7.2"), step("8.5")))
    made.sstat = ("7.batch", "7.11")
    check(made, "7")
    check(made, "7.2")
    check(made, "7.11")  # the accounting does not list it yet
    with pytest.raises(NotFoundError, match=r"job 7 has no step 5; it has batch, 2, 10, 11$"):
        check(made, "7.5")


def test_of_many_steps_the_first_and_the_last_are_named():
    made = MadeSlurm(past=(row(7), *(step(f"7.{n}") for n in range(30))))
    with pytest.raises(NotFoundError, match=r"it has 0, 1, 2, 3, 4, 5, 6, …, 29$"):
        check(made, "7.30")


def test_a_pending_job_has_no_steps():
    with pytest.raises(NotFoundError, match="has no step 0; it has none yet"):
        check(MadeSlurm(), "7.0", Job(raw_id="7", id="7", state="PENDING"))


def test_a_step_that_nobody_can_confirm_is_taken_as_there():
    made = MadeSlurm()
    made.fails = {"sacct": "Slurm accounting storage is disabled", "sstat": "no"}
    check(made, "7.0")


# -- jobs that have ended ----------------------------------------------------------------------
GONE = Job(raw_id="7", id="7", state="FAILED")


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setattr(ended, "is_recorded", lambda id: id == "7")


def test_an_ended_job_without_a_recording_has_a_report(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    for on_screen in (True, False):
        with pytest.raises(GpumonError) as error:
            ended.show_ended(GONE, Settings(), on_screen=on_screen)
        assert str(error.value) == "job 7 has ended (FAILED); run 'gpumon report 7'"


def test_an_ended_job_with_a_recording_has_a_replay_too(recorded):
    with pytest.raises(GpumonError, match=r"run 'gpumon report 7' or 'gpumon replay 7'"):
        ended.show_ended(GONE, Settings(), on_screen=False)


@pytest.mark.parametrize("answer", ["report", "replay", None])
def test_in_a_terminal_it_is_a_choice(recorded, monkeypatch, answer):
    done = []
    monkeypatch.setattr(choice, "choose", lambda title, *_: done.append(title) or answer)
    monkeypatch.setattr(ended, "print_report", lambda id: done.append(("report", id)))
    monkeypatch.setattr(
        "gpumon.services.replay.replay", lambda id, *_: done.append(("replay", id)) or 0
    )
    code = ended.show_ended(GONE, Settings(), on_screen=True)
    assert code == (0 if answer else EXIT_INTERRUPTED)
    assert done == ["job 7 has ended (FAILED)", *([(answer, "7")] if answer else [])]


def test_leaving_the_list_is_130(monkeypatch):
    attachment = Attachment()
    attachment._slurm = Slurm(MadeSlurm(row(7), row(8)))
    monkeypatch.setattr("gpumon.tui.dialogs.jobs.choose_job", lambda *_: None)
    code = attachment.attach(
        None, Settings(), last=False, nodes=None, own_pace=True, as_json=False, on_screen=True
    )
    assert code == EXIT_INTERRUPTED
