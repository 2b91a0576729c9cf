"""What is told to a person who looks elsewhere: each thing once, and nothing that was so before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.finding import Finding
from gpumon.pipeline.notices import LEFT_S, MAX_TOLD, ArrayNotices, Notices
from gpumon.slurm.job import ExitCode, Job

RUNNING = Job(id="4711", state="RUNNING", time_limit_s=7200.0, elapsed_s=0.0, told_at=0.0)
PENDING = Job(id="4711", state="PENDING", reason="Priority")
DONE = replace(RUNNING, state="FAILED", elapsed_s=900.0, exit_code=ExitCode(1))


def kinds(notices, *jobs, now=0.0, findings=()):
    return [[each.kind for each in notices.new(job, findings, now)] for job in jobs]


def finding(level="critical", id="xid", subject="gpu01:0"):
    return Finding(id, level, f"{id} on {subject}", "", subject=subject)


def test_the_end_is_told_once():
    assert kinds(Notices(), PENDING, RUNNING, DONE, DONE) == [[], [], ["end"], []]


def test_a_job_that_is_cancelled_before_it_starts_has_ended_too():
    cancelled = replace(PENDING, state="CANCELLED")
    assert kinds(Notices(), PENDING, cancelled) == [[], ["end"]]


def test_what_had_ended_before_is_not_told():
    assert kinds(Notices(), DONE, DONE) == [[], []]
    assert kinds(Notices(), Job(), DONE) == [[], []]  # Slurm has not answered yet


def test_a_requeued_job_ends_again():
    assert kinds(Notices(), RUNNING, PENDING, RUNNING, DONE) == [[], [], [], ["end"]]


@given(st.lists(st.floats(0, 8000), min_size=1))
def test_ten_minutes_left_is_told_when_it_is_crossed(times):
    notices, told = Notices(), []
    for now in sorted(times):
        told += [(now, each) for each in kinds(notices, RUNNING, now=now)[0]]
    limit = RUNNING.time_limit_s
    early = any(limit - now > LEFT_S + 60 for now in times)
    late = [now for now in sorted(times) if limit - now <= LEFT_S]
    assert told == ([(late[0], "time")] if early and late else [])


def test_jitter_of_slurms_figures_tells_it_once_and_a_new_limit_again():
    notices = Notices()
    told = [kinds(notices, RUNNING, now=now)[0] for now in (0, 6601, 6599, 6602)]
    assert told == [[], ["time"], [], []]
    longer = replace(RUNNING, time_limit_s=14400.0)
    assert kinds(notices, longer, now=6700) == [[]]
    assert kinds(notices, longer, now=13900) == [["time"]]


def test_a_suspended_job_without_a_limit_or_a_count_has_no_end_in_sight():
    for job in (replace(RUNNING, state="SUSPENDED"), replace(RUNNING, time_limit_s=None),
                replace(RUNNING, elapsed_s=None)):  # fmt: skip
        notices = Notices()
        assert [kinds(notices, job, now=now)[0] for now in (0, 6700)] == [[], []]


def test_a_critical_finding_is_told_once_even_if_it_comes_back():
    notices = Notices()
    lost, other = finding(), finding(subject="gpu01:1")
    told = [
        notices.new(RUNNING, found, 0.0)
        for found in ([finding("warning", "idle")], [lost], [lost, other], [], [lost])
    ]
    assert [[each.title for each in found] for found in told] == [
        [], ["xid on gpu01:0"], ["xid on gpu01:1"], [], []
    ]  # fmt: skip
    assert [each.kind for each in Notices().new(None, [lost], 0.0)] == ["finding"]  # no job at all


def test_findings_that_are_remembered_are_bounded():
    notices = Notices()
    many = [finding(subject=f"gpu{n}") for n in range(MAX_TOLD + 50)]
    assert len(notices.new(RUNNING, many, 0.0)) == MAX_TOLD
    assert notices.new(RUNNING, many, 0.0) == []


def test_of_an_array_its_end_is_told_and_tasks_that_fail():
    notices = ArrayNotices()
    whole = Job(id="4711", state="RUNNING")
    one, two, three = (replace(RUNNING, id=f"4711_{n}") for n in (1, 2, 3))
    ended_before = replace(DONE, id="4711_0")
    lost = [finding()]

    def told(whole, *tasks):
        found = notices.new(whole, [(job, lost if job.is_running else ()) for job in tasks], 0.0)
        return [(each.kind, each.job.id) for each in found]

    assert told(whole, ended_before, one, two, three) == [
        ("finding", "4711_1"), ("finding", "4711_2"), ("finding", "4711_3")
    ]  # fmt: skip
    fine = replace(one, state="COMPLETED")
    failed = replace(two, state="FAILED")
    assert told(whole, ended_before, fine, failed, three) == [("task", "4711_2")]
    assert told(whole, fine, failed, replace(three, state="COMPLETED")) == []
    assert told(replace(whole, state="FAILED"), fine, failed) == [("end", "4711")]
    assert told(replace(whole, state="FAILED"), fine, failed) == []
