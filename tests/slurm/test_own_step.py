"""Which steps of a job are gpumon's own, and how one is started."""

from __future__ import annotations

import os
import stat
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.accounting import failed_steps, has_completed, out_of_memory
from gpumon.errors import UsageError
from gpumon.slurm import sacct
from gpumon.slurm.job import OWN_STEP, ExitCode, Job, Step
from gpumon.slurm.own_step import OwnStep
from tests.slurm.made import row, step
from tests.support.waiting import until

ENDS = ["FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"]


def completed(*steps: Step) -> Job:
    return Job(state="COMPLETED", steps=(Step("batch", "batch", "COMPLETED"), *steps))


# -- whose a step is ------------------------------------------------------------------------------
@given(st.from_regex(r"[^/]+", fullmatch=True))
def test_no_programs_name_makes_a_step_gpumons(name):
    """Slurm names a step after its program's file."""
    assert not Step("0", name).is_own


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("name", ["gpumon", "gpumon.sh", "gpumon record", "agent", ""])
def test_whatever_the_users_program_is_called_its_step_counts(state, name):
    """`srun gpumon record -- COMMAND` names the step gpumon: its end is the command's."""
    job = completed(Step("0", name, state, exit_code=ExitCode(0, 9)))
    assert [each.id for each in failed_steps(job)] == ["0"]
    assert not has_completed(job)


@pytest.mark.parametrize("state", ENDS)
def test_the_end_of_gpumons_step_says_nothing_of_the_job(state):
    own = Step("0", OWN_STEP, state, exit_code=ExitCode(0, 125))
    assert has_completed(completed(own, Step("1", "python", "COMPLETED")))
    recorder = Step("0", "gpumon", state, exit_code=ExitCode(0, 125))
    assert has_completed(completed(recorder).with_own_steps({"0"}))
    assert not has_completed(completed(recorder).with_own_steps({"1"}))


def test_memory_that_ran_out_in_gpumons_step_is_not_the_jobs():
    own = Step("1", OWN_STEP, "OUT_OF_MEMORY", exit_code=ExitCode(0, 125))
    job = Job(state="COMPLETED", derived_exit_code=ExitCode(0, 125), steps=(own,))
    assert out_of_memory(job) == []
    assert out_of_memory(Job(derived_exit_code=ExitCode(0, 125))) == ["job"]


def test_sacct_tells_them_apart():
    rows = [
        row(7, state="COMPLETED"),
        {**step("7.0", "CANCELLED by 20001"), "jobname": "gpumon"},
        {**step("7.1", "CANCELLED by 20001"), "jobname": OWN_STEP},
    ]
    (job,) = sacct.jobs(rows)
    assert [each.is_own for each in job.steps] == [False, True]
    assert [each.id for each in failed_steps(job)] == ["0"]


# -- one of our own -------------------------------------------------------------------------------
SRUN = """\
#!/bin/sh
trap 'echo signalled >>"$SAID"' TERM INT HUP
printf '%s\\n' "$@" >"$SAID"; env >>"$SAID"; echo there >>"$SAID"
until [ "$1" = --quiet ]; do shift; done; shift
"$@"
"""


#: a task that is signalled before it listens
TASK = """\
import os, signal, sys
for each in signal.SIGUSR1, signal.SIGTERM: os.kill(os.getpid(), each)
with open(os.environ["HOME"] + "/name", "w") as file: print(os.environ["SLURM_JOB_NAME"], file=file)
sys.stdin.read()
assert signal.SIGTERM in signal.sigpending()
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The environment of a batch script, with an srun that runs what it is given here."""
    srun = tmp_path / "srun"
    srun.write_text(SRUN)
    srun.chmod(srun.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return {
        "PATH": os.environ["PATH"], "SAID": str(tmp_path / "said"), "HOME": str(tmp_path),
        "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NAME": "train it",
        "SLURM_NTASKS": "16", "SLURM_MEM_PER_CPU": "4000", "SRUN_CPUS_PER_TASK": "4",
    }  # fmt: skip


def said(job):
    return open(job["SAID"]).read().splitlines() if os.path.exists(job["SAID"]) else []


def test_it_is_named_for_all_nodes_and_ends_with_its_input(job, tmp_path):
    own = OwnStep([sys.executable, "-c", TASK], job)
    until(lambda: (tmp_path / "name").exists())
    assert not own.has_ended()
    assert {f"--job-name={OWN_STEP}", "--nodelist=n1,n2", "--ntasks=2", "--mem=0"} <= set(said(job))
    assert not [
        line for line in said(job) if line.startswith(("SLURM_NTASKS", "SLURM_MEM", "SRUN_"))
    ]
    own.end()
    until(own.has_ended)
    assert not own.failed
    assert (tmp_path / "name").read_text() == "train it\n"
    assert "signalled" not in said(job)


def test_of_a_het_job_each_component_has_one(job):
    job |= {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1"}
    with pytest.raises(UsageError):
        OwnStep(["cat"], job)
    own = OwnStep(["cat"], job | {"SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]"})
    own.end()
    until(own.has_ended)


def test_outside_of_a_job_there_is_none(job):
    del job["SLURM_JOB_NODELIST"]
    with pytest.raises(UsageError, match="outside of one leave it out"):
        OwnStep(["cat"], job)
