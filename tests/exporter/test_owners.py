"""Which GPUs a job was given, by what Slurm wrote into the environment of its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.procfs import ProcFs
from gpumon.exporter.owners import gpus_of
from gpumon.model.sample import Device


class _Job(JobCgroup):
    def __init__(self, *pids: int) -> None:
        super().__init__(None)
        self._pids = list(pids)

    def pids(self) -> list[int]:
        return self._pids


def _devices(*minors: int) -> list[Device]:
    return [
        Device(key, key, f"GPU-{key}aaaaaaa", "A100", None, None, {"minor": minor})
        for key, minor in enumerate(minors)
    ]


@pytest.mark.parametrize(
    ("environ", "keys"),
    [
        ({"SLURM_JOB_GPUS": "1,3"}, {1, 3}),
        ({"SLURM_JOB_GPUS": "1,3", "SLURM_NODEID": "0"}, {1, 3}),
        ({"SLURM_JOB_GPUS": "1,3", "SLURM_NODEID": "1"}, set()),  # those of the first node
        ({"SLURM_JOB_GPUS": "1,3", "SLURM_NODEID": "1", "SLURM_STEP_GPUS": "0"}, {0}),
        ({"CUDA_VISIBLE_DEVICES": "0"}, set()),  # counts from 0 in every job
        ({"CUDA_VISIBLE_DEVICES": "GPU-2aaaaaaa"}, {2}),
        ({"SLURM_JOB_GPUS": "x,-1,99999999999999999999,\x1b"}, set()),
        ({}, set()),
    ],
)
def test_by_the_environment(tmp_path: Path, environ: dict[str, str], keys: set[int]) -> None:
    (tmp_path / "41").mkdir()
    text = "".join(f"{name}={value}\0" for name, value in environ.items())
    (tmp_path / "41" / "environ").write_text(text)
    found = gpus_of(_Job(41, 42), _devices(0, 1, 2, 3), ProcFs(str(tmp_path)))
    assert found == keys


def test_not_where_files_and_nvml_count_differently(tmp_path: Path) -> None:
    (tmp_path / "41").mkdir()
    (tmp_path / "41" / "environ").write_text("SLURM_JOB_GPUS=0\0")
    assert gpus_of(_Job(41), _devices(1, 0), ProcFs(str(tmp_path))) == set()
