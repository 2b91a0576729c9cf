"""Which processes are ranks: of launchers, loaders, shells, and processes on GPUs."""

from __future__ import annotations

import pytest

from gpumon.collect.stacks.ranks import candidate, is_gpumon, is_python, ranks_of
from gpumon.transport.payload import agent_argv


def chosen(*processes):
    """PIDs and ranks. A process: PID, parent, whether it is on a GPU, its environment."""
    found = [candidate(pid, ppid, environ, on_gpu) for pid, ppid, on_gpu, environ in processes]
    parents = {pid: ppid for pid, ppid, _, _ in processes}
    return [(each.pid, each.rank, each.local_rank) for each in ranks_of(found, parents)]


def test_a_launchers_ranks_without_it_and_without_their_loaders():
    task = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    ranks = [
        (10 + n, 2, False, {**task, "RANK": str(4 + n), "LOCAL_RANK": str(n)}) for n in range(3)
    ]
    loaders = [(20 + n, 10 + n, False, ranks[n][3]) for n in range(3)]
    assert chosen((2, 1, False, task), *loaders, *ranks) == [(10, 4, 0), (11, 5, 1), (12, 6, 2)]


def test_what_is_on_a_gpu_is_the_rank_and_its_wrapper_is_not():
    task = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1"}
    assert chosen((5, 1, False, task), (6, 5, True, task), (7, 6, False, task)) == [(6, 3, 1)]


def test_a_rank_that_is_on_no_gpu_yet_stands_beside_the_others():
    found = [(n, 1, n != 7, {"RANK": str(n)}) for n in range(5, 9)]
    assert [pid for pid, _, _ in chosen(*found)] == [5, 6, 7, 8]


def test_a_process_on_a_gpu_without_a_rank_comes_last():
    assert chosen((9, 1, True, {}), (5, 1, True, {})) == [(5, None, None), (9, None, None)]
    assert chosen((4, 1, True, {}), (5, 1, True, {"RANK": "1"})) == [(5, 1, None), (4, None, None)]
    assert chosen((4, 1, False, {})) == []


def test_forged_parents_end():
    task = {"RANK": "0"}
    assert chosen((4, 5, False, task), (5, 4, False, task)) == []


@pytest.mark.parametrize("text", ["", "-1", "1e3", "99999999", "0x1", "२", "1;rm", " 7 \x1b"])
def test_what_is_no_number_is_no_rank(text):
    each = candidate(5, 1, {"RANK": text, "LOCAL_RANK": text}, False)
    assert (each.rank, each.local_rank) == (None, None)
    assert candidate(5, 1, {"RANK": text, "SLURM_PROCID": "2"}, False).rank == 2


@pytest.mark.parametrize(
    ("executable", "maps", "python"),
    [
        ("/usr/bin/python3.11", "", True),
        ("/opt/conda/bin/python", "", True),
        ("/env/bin/python3.13t", "", True),
        ("/usr/bin/python3.9 (deleted)", "", True),
        ("/usr/bin/pypy3", "", True),
        ("/opt/app/server", "7f 00 /usr/lib/libpython3.10.so.1.0", True),
        ("/opt/app/server", "", False),
        ("/home/u/python-tools/run", "", False),
        ("/usr/bin/pythonista", "", False),
    ],
)
def test_what_is_python(executable, maps, python):
    assert is_python(executable, maps) is python


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("python -m gpumon record -- python train.py", True),
        ("python /env/bin/gpumon record", True),
        ("python -m gpumon.collect --until-eof", True),
        ("/env/bin/python -I -Xa=b /home/u/gpumon/gpumon/__main__.py record -- python x", True),
        ("python -I -Xgpumon.path=/a:/b /x/gpumon/collect/__main__.py --until-eof", True),
        ("python train.py --log gpumon", False),
        ("python /x/train/__main__.py", False),
        ("python -m torch.distributed.run train.py", False),
        ("", False),
    ],
)
def test_gpumon_itself_is_no_rank(command, own):
    assert is_gpumon(command.split(" ")) is own


def test_an_agent_that_was_shipped_is_no_rank():
    _, _, _, start, *_ = agent_argv("--label")
    assert is_gpumon(["python3", "-I", "-S", "-c", start, "17"])
