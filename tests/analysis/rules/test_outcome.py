"""How jobs end, in words; attempts and waiting."""

from dataclasses import replace
from time import localtime, strftime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.analysis.rules.outcome import exit_words
from gpumon.report.build import from_accounting
from gpumon.site import Site
from gpumon.slurm.job import OWN_STEP, ExitCode, Job, Step
from tests.analysis.build import START, evidence
from tests.analysis.rightsize.test_recommend import job

CHECK = BY_ID


def check(name, made, **rest):
    return CHECK[name](evidence(60, job=made, **rest))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ExitCode(0, 9), "killed by SIGKILL"), (ExitCode(0, 11), "segmentation fault"),
        (ExitCode(0, 15), "terminated"), (ExitCode(0, 125), "out of memory"),
        (ExitCode(1), "the program reported an error"), (ExitCode(139), "segmentation fault"),
        (ExitCode(127), "command not found"), (ExitCode(0), ""), (None, ""),
        (ExitCode(0, 77), "signal 77"),
    ],
)  # fmt: skip
def test_exit_codes_in_words(code, words):
    assert exit_words(code) == words


def test_a_segmentation_fault_of_the_job_whatever_its_steps_say():
    made = job("FAILED", exit_code=ExitCode(0, 11), elapsed=3,
               steps=(Step("batch", state="CANCELLED", exit_code=ExitCode(0, 15)),))  # fmt: skip
    (found,) = check("ended-badly", made)
    assert found.title == "FAILED after 3 s, exit code 0:11: segmentation fault"
    assert found.level == "warning"


def test_a_node_that_failed_is_nobodys_fault():
    (found,) = check("ended-badly", job("NODE_FAIL", failed_node="n07"))
    assert found.level == "info"
    assert "NODE_FAIL on n07" in found.title
    assert found.actions[1].after == "#SBATCH --exclude=n07"


@pytest.mark.parametrize("state", ["PREEMPTED", "BOOT_FAIL", "DEADLINE"])
def test_other_bad_ends(state):
    assert check("ended-badly", job(state))


@pytest.mark.parametrize(
    "made",
    [
        job(), job("TIMEOUT"), job("CANCELLED", state_by="20001", uid=20001), job("CANCELLED"),
        job("CANCELLED", state_by="ada", user="ada"),
        job("FAILED", exit_code=ExitCode(1), derived_exit_code=ExitCode(0, 125)),  # oom-killed
    ],
)  # fmt: skip
def test_what_is_not_bad_or_said_elsewhere(made):
    assert check("ended-badly", made) == []


def test_cancelled_by_somebody_else():
    (found,) = check("ended-badly", job("CANCELLED", state_by="20001", uid=1000))
    assert "CANCELLED by user 20001" in found.title
    assert isinstance(check("ended-badly", job("CANCELLED", state_by="20001")), NotEvaluable)


def test_attempts_are_kept_apart():
    first = job("PREEMPTED", elapsed=190, start=START, submit=START)
    last = job(elapsed=322, start=START + 500, submit=START)
    (found,) = check("requeued", last, siblings=[first])
    assert found.title == "2 attempts: 3 min (PREEMPTED), 5 min (COMPLETED)"
    assert check("requeued", last) == []
    assert check("requeued", last, siblings=[last]) == []
    (found,) = check("requeued", job(elapsed=322, restarts=2))
    assert "3 attempts" in found.title
    assert "Slurm has kept 1 record of them" in found.title


def test_waiting():
    made = job("PENDING", reason="Resources", expected_start=START + 600 + 7200)
    when = strftime("%Y-%m-%d %H:%M", localtime(made.expected_start))
    for data in (
        check("job-pending", made, live=True),
        BY_ID["job-pending"](from_accounting(made, Site())),
    ):
        assert [each.title for each in data] == [
            f"pending: Resources; Slurm expects it to start at {when}"
        ]
    made = replace(made, expected_start=None)
    assert check("job-pending", made)[0].title == "pending: Resources"
    assert check("job-pending", job()) == []


def test_without_slurms_record_nothing_is_said():
    made = evidence(60, job=Job())
    assert isinstance(CHECK["ended-badly"](made), NotEvaluable)
    assert isinstance(CHECK["job-pending"](made), NotEvaluable)


@given(st.text(max_size=30), st.text(max_size=30), st.integers(0, 255), st.integers(0, 255))
def test_hostile_words_do_not_reach_a_terminal(reason, by, code, signal):
    for state in ("FAILED", "CANCELLED", "PENDING", "NODE_FAIL"):
        made = job(state, reason=reason, state_by=by, uid=1, exit_code=ExitCode(code, signal),
                   failed_node=reason)  # fmt: skip
        for name in CHECK:
            answer = check(name, made)
            for found in answer if isinstance(answer, list) else ():
                texts = [found.title, found.evidence, *(each.after for each in found.actions)]
                assert all(text.isprintable() or "\n" not in text for text in texts)
                assert not any("\x1b" in text for text in texts)


@pytest.mark.parametrize(
    ("seconds", "state", "level"),
    [(600, "FAILED", "warning"), (60, "FAILED", "info"), (600, "CANCELLED", "info")],
)
def test_a_step_that_did_not_end_well_in_a_job_that_completed(seconds, state, level):
    bad = Step("1", state=state, exit_code=ExitCode(1), elapsed_s=seconds)
    steps = (Step("0", state="COMPLETED"), bad, Step("2", name=OWN_STEP, state="CANCELLED"))
    (found,) = check("ended-badly", job("COMPLETED", elapsed=620, steps=steps))
    assert (found.level, f"step 1 {state}" in found.title) == (level, True)
    assert "more" not in found.title
    assert check("ended-badly", job("COMPLETED", steps=(steps[0], steps[2]))) == []


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "TIMEOUT"])
def test_a_step_counts_though_its_program_is_called_gpumon(state):
    """`srun gpumon record -- COMMAND` makes Slurm name the command's step gpumon."""
    made = job("COMPLETED", elapsed=620, steps=(Step("0", name="gpumon", state=state),))
    (found,) = check("ended-badly", made)
    assert f"step 0 {state}" in found.title
    assert check("ended-badly", made.with_own_steps({"0"})) == []


def test_an_output_that_ends_with_an_error():
    tail = "Traceback (most recent call last):\n  File\nRuntimeError: shape mismatch\ndone"
    (found,) = check("ended-badly", job("COMPLETED"), log_tail=tail)
    assert (found.level, "RuntimeError: shape mismatch" in found.title) == ("warning", True)
    (found,) = check("ended-badly", job("FAILED", exit_code=ExitCode(1)), log_tail=tail)
    assert "RuntimeError: shape mismatch" in found.title
