"""The error that a job's output ends with."""

import pytest

from gpumon.analysis.last_error import crash, last_error, without_own_steps
from gpumon.slurm.job import OWN_STEP, ExitCode, Job, Step

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 88\nRuntimeError: {}'


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (TRACEBACK.format("shape mismatch") + "\ndone", "RuntimeError: shape mismatch"),
        ("\n".join(f"[rank0]: {line}" for line in TRACEBACK.format("x").splitlines()),
         "RuntimeError: x"),
        (TRACEBACK.format("first")
         + "\nTraceback (most recent call last):\ntorch.distributed.elastic.ChildFailedError: \n",
         "RuntimeError: first"),
        ("job.sh: line 7: 4711 Segmentation fault (core dumped) ./solve\nend",
         "job.sh: line 7: 4711 Segmentation fault (core dumped) ./solve"),
        ("srun: error: gpu01: task 0: Exited with exit code 1",
         "srun: error: gpu01: task 0: Exited with exit code 1"),
        # none of it ended the program
        ("Exception ignored in: <function Pool.__del__>\n" + TRACEBACK.format("closed"), ""),
        (TRACEBACK.format("will retry") + "\nstep" * 40, ""),
        ("epoch 3: validation error 0.1\nsaved", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_an_output_that_ends_with_a_crash(tail, error):
    assert crash(tail) == error


def test_of_a_failed_job_any_line_that_reads_like_an_error():
    line = "OSError: [Errno 122] Disk quota exceeded: 'ckpt.pt'"
    assert (crash(line), last_error(f"step 1\n{line}\nbye")) == ("", line)
    assert last_error("step 1") == ""


def test_terminals_are_not_reached():
    assert "\x1b" not in last_error("Error: \x1b[31mred")


KILLED = """\
epoch 9
srun: forcing job termination
srun: Job step aborted: Waiting up to 5 seconds for job step to finish.
slurmstepd-node1: error: *** STEP 2.0 ON node1 CANCELLED AT 2026-11-27T05:22:01 ***
srun: error: node1: task 0: Killed
srun: error: node2: tasks 1-2: Killed
done
"""


def test_what_slurm_writes_of_gpumons_own_step_is_no_crash():
    own = Step("0", OWN_STEP, "CANCELLED", exit_code=ExitCode(0, 9))
    batch, trained = Step("batch", state="COMPLETED"), Step("1", "python", "COMPLETED")
    assert without_own_steps(KILLED, Job(steps=(batch, own, trained))) == "epoch 9\ndone"
    assert crash(KILLED) == "srun: error: node1: task 0: Killed"


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (Step("0", "gpumon", "CANCELLED"),),  # `srun gpumon record -- COMMAND`
        (Step("0", OWN_STEP, "COMPLETED"), Step("1", "python", "CANCELLED")),
        (Step("0", OWN_STEP, "CANCELLED"), Step("1", "python", "CANCELLED")),
    ],
)
def test_where_it_may_be_of_the_users_it_stays(steps):
    assert without_own_steps(KILLED, Job(steps=steps)) == KILLED
