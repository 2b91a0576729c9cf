"""Which tasks of a step record: one on each node, or each that has GPUs of its own."""

from __future__ import annotations

import pytest

from tests.e2e.program import environment, gpumon


def recorded(tmp_path, command, **job):
    env = environment(GPUMON_STATE=str(tmp_path), SLURM_JOB_ID="4711", **job)
    done = gpumon("record", "--", *command, env=env)
    return done, len(list(tmp_path.rglob("*.gpumon")))


@pytest.mark.parametrize(
    ("job", "files"),
    [
        ({}, 1),
        ({"SLURM_LOCALID": "0"}, 1),
        ({"SLURM_LOCALID": "1"}, 0),
        ({"SLURM_LOCALID": "3", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "2"}, 0),
        ({"SLURM_LOCALID": "3", "CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "4"}, 1),
    ],
)
def test_who_records(tmp_path, job, files):
    done, found = recorded(tmp_path, ["sh", "-c", "echo it ran; exit 3"], **job)
    assert (done.returncode, done.stdout, found) == (3, "it ran\n", files)
    assert bool(done.stderr) == bool(files)


def test_beside_a_script_too(tmp_path):
    env = environment(GPUMON_STATE=str(tmp_path), SLURM_JOB_ID="4711", SLURM_LOCALID="1")
    done = gpumon("record", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.rglob("*.gpumon"))


def test_a_task_that_does_not_record_complains_of_its_command_alike(tmp_path):
    said = [recorded(tmp_path, ["no-such-program"], SLURM_LOCALID=task)[0] for task in "01"]
    assert said[0].returncode == said[1].returncode == 127
    assert said[0].stderr == said[1].stderr == "gpumon: no-such-program: command not found\n"
