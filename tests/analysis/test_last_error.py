"""The error that a job's output ends with."""

import pytest

from gpumon.analysis.last_error import crash, last_error

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
