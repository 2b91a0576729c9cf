"""How jobs end, in words; attempts and waiting."""

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.slurm.job import ExitCode, Step
from tests.analysis.build import evidence
from tests.analysis.rightsize.test_recommend import job

CHECK = BY_ID


def check(name, made, **rest):
    return CHECK[name](evidence(60, job=made, **rest))


def test_cancelled_by_somebody_else():
    assert len(check("ended-badly", job("CANCELLED", state_by="20001", uid=1000))) == 1
    assert isinstance(check("ended-badly", job("CANCELLED", state_by="20001")), NotEvaluable)


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "TIMEOUT"])
def test_a_step_counts_though_its_program_is_called_gpumon(state):
    """`srun gpumon record -- COMMAND` makes Slurm name the command's step gpumon."""
    made = job("COMPLETED", elapsed=620, steps=(Step("0", name="gpumon", state=state),))
    assert len(check("ended-badly", made)) == 1
    assert check("ended-badly", made.with_own_steps({"0"})) == []


def test_an_output_that_ends_with_an_error():
    tail = "Traceback (most recent call last):\n  File\nRuntimeError: shape mismatch\ndone"
    (found,) = check("ended-badly", job("COMPLETED"), log_tail=tail)
    assert (found.level, "RuntimeError: shape mismatch" in found.title) == ("warning", True)
    (found,) = check("ended-badly", job("FAILED", exit_code=ExitCode(1)), log_tail=tail)
