"""The time limit, and how the job ended (findings, 3.7, 3.10)."""

from dataclasses import replace

from gpumon.slurm.job import ExitCode
from tests.corpus.cases import case
from tests.corpus.generator import START, Gpu, Node
from tests.corpus.jobs import run
from tests.corpus.signals import steps


def job(seconds=960, live=False, marks=(), busy=94, interval=5, siblings=(), **fields):
    return run(seconds, Node([Gpu(busy)]), live=live, interval=interval, marks=marks,
               siblings=siblings, job=fields)  # fmt: skip


# -- time-short ------------------------------------------------------------------------------------


@case("time-short:warning", near="policy-kill-soon")
def little_time_left():
    """28 min left of 2 h."""
    return job(5520, live=True, time_limit_s=7200)


@case("time-short:critical")
def hardly_time_left():
    """Nine minutes left of 2 h."""
    return job(6660, live=True, time_limit_s=7200)


@case(near="time-short")
def enough_time_left():
    """35 min left of 2 h."""
    return job(5100, live=True, time_limit_s=7200)


@case(near="time-short")
def ends_in_time_by_its_marks():
    """Nine minutes left, but the last of 20 epochs ends in five."""
    marks = [(300.0 * n, f"epoch {n}/23") for n in range(1, 23)]
    return job(6660, live=True, time_limit_s=7200, marks=marks)


@case("time-short:critical")
def does_not_end_in_time_by_its_marks():
    """Nine minutes left, and by the marks an hour to go."""
    marks = [(300.0 * n, f"epoch {n}/40") for n in range(1, 23)]
    return job(6660, live=True, time_limit_s=7200, marks=marks)


@case(near="time-short")
def a_short_job_at_its_start():
    """A job of 20 min, 3 min old: its whole limit is below 30 min."""
    return job(180, live=True, time_limit_s=1200)


# -- time-over -------------------------------------------------------------------------------------


@case("time-over:info", near="timed-out ended-badly idle-tail")
def limit_too_long():
    """32 min of 2 h."""
    return job(1920, time_limit_s=7200)


@case("time-over:warning")
def limit_far_too_long():
    """32 min of 8 h."""
    return job(1920, time_limit_s=28800)


@case(near="time-over")
def limit_about_right():
    """40 min of 60: 67 %."""
    return job(2400, time_limit_s=3600)


@case(near="time-over")
def too_short_for_a_limit():
    """14 min of 5 h."""
    return job(840, time_limit_s=18000)


@case(near="time-over")
def cancelled_early():
    """32 min of 5 h, cancelled by its owner: says nothing about the limit."""
    return job(1920, time_limit_s=18000, state="CANCELLED", state_by="1000")


@case(near="time-over")
def a_longer_sibling():
    """A task of an array: 32 min of 2 h, but another one took 80 min."""
    fields = {"time_limit_s": 7200.0, "array_job_id": "4711", "array_task": "1"}
    made = job(1920, **fields)
    other = replace(made.job, raw_id="4712", array_task="2", elapsed_s=4800.0)
    return replace(made, siblings=(other,))


@case(unknown="time-over")
def unlimited():
    """UNLIMITED has no share."""
    made = job(1920, time_limit_s=None, time_limit_words="UNLIMITED")
    return made


# -- timed-out, ended-badly ------------------------------------------------------------------------


@case("timed-out:warning", near="idle-tail time-over ended-badly")
def ended_by_its_limit():
    """TIMEOUT after 88 s of 60 s."""
    return job(88, time_limit_s=60, state="TIMEOUT", interval=1)


@case(near="timed-out time-over")
def just_in_time():
    """COMPLETED 20 s before the limit."""
    return job(940, time_limit_s=960)


@case("ended-badly:warning", near="timed-out oom-killed")
def segmentation_fault():
    """FAILED 0:11 after 3 min."""
    return job(180, state="FAILED", exit_code=ExitCode(0, 11))


@case("ended-badly:info")
def node_failed():
    """NODE_FAIL on n07: not the user's fault."""
    return job(1200, state="NODE_FAIL", failed_node="n07")


@case("ended-badly:info requeued:info")
def preempted_twice():
    """PREEMPTED, and started again twice."""
    return job(1200, state="PREEMPTED", restarts=2)


@case("ended-badly:warning")
def cancelled_by_somebody():
    """CANCELLED by another uid."""
    return job(1200, state="CANCELLED", state_by="20001")


@case(near="ended-badly timed-out")
def cancelled_by_its_owner():
    """CANCELLED by its owner."""
    return job(1200, state="CANCELLED", state_by="1000")


@case("oom-killed:critical", near="ended-badly")
def failed_for_memory():
    """FAILED with derived exit code 0:125: memory says it, once."""
    return job(960, state="FAILED", exit_code=ExitCode(1), derived_exit_code=ExitCode(0, 125))


# -- requeued, job-pending -------------------------------------------------------------------------


@case("requeued:info", near="ended-badly")
def second_attempt():
    """Slurm keeps a first attempt of 50 min, PREEMPTED."""
    made = job(1200)
    first = replace(made.job, state="PREEMPTED", start=START - 4000, elapsed_s=3000.0)
    return replace(made, siblings=(first,))


@case(near="requeued")
def a_task_of_an_array():
    """Another task of the same array is no other attempt."""
    made = job(1200, array_job_id="4711", array_task="1")
    other = replace(made.job, raw_id="4712", array_task="2", start=START - 4000)
    return replace(made, siblings=(other,))


@case("job-pending:info")
def waits():
    """PENDING for resources, a start estimated in 2 h."""
    fields = {"state": "PENDING", "reason": "Resources", "expected_start": START + 7200,
              "start": None, "end": None}  # fmt: skip
    return run(0, job=fields, live=True)


@case(near="job-pending")
def no_longer_waits():
    """RUNNING for half a minute."""
    return run(30, Node([Gpu(steps(0, (20, 50)))]), live=True)
