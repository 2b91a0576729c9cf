"""The right-job guard: inside the job asked for, in another, or in none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import search_job_cgroup
from gpumon.collect.job.guard import Target, parse_target, stand
from gpumon.collect.labels import Joiner, labelled
from gpumon.model.sample import NO_JOB, WRONG_JOB
from tests.collect.trees import SLUID, V2_STEP_CGROUP, fixture, plant, plant_v1, plant_v2

V1_TASK = fixture("proc-cgroup-v1-task.txt")
OUTSIDE = "4:memory:/\n0::/user.slice\n"
TOLD = {"SLURM_JOB_ID": "4711", "SLURM_JOB_SLUID": SLUID}


@pytest.fixture
def standing(tmp_path):
    """Where a process of this /proc/self/cgroup stands."""

    def stands(cgroup, target, environ=None, mounts=None):
        plant(tmp_path / "proc", {"self/cgroup": cgroup})
        proc = str(tmp_path / "proc")
        return stand(parse_target(target), environ or {}, proc=proc, mounts=mounts or {})

    return stands


# -- names -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "names", "id"),
    [
        ("4711", {"4711"}, "4711"),
        ("4711.batch", {"4711"}, "4711"),
        (f"4711,{SLUID}", {"4711", SLUID}, "4711"),
        (SLUID, {SLUID}, SLUID),
    ],
)
def test_names_of_a_job(text, names, id):
    target = parse_target(text, 2)
    assert (target.names, target.id, target.gpus) == (names, id, 2)


@pytest.mark.parametrize("text", ["", "4711_3", "4711+1", "x", "0", "-5", "4711,", "1" * 11, "٤"])
def test_what_is_no_job_on_a_node(text):
    with pytest.raises(ValueError, match="SLURM_JOB_ID"):
        parse_target(text)


# -- standing ----------------------------------------------------------------------------------
def test_inside_the_job(standing):
    found = standing(V1_TASK, "5")
    assert (found.inside, found.why, found.path.job) == (True, "", "5")


def test_inside_by_the_sluid_alone(standing):
    assert standing(V2_STEP_CGROUP, f"4711,{SLUID}").inside
    assert standing(V2_STEP_CGROUP, "4711", TOLD).inside


def test_in_another_job(standing):
    found = standing(V1_TASK, "6", {"SLURM_JOB_ID": "6"})  # the cgroup is believed
    assert (found.inside, found.path, found.why) == (False, None, WRONG_JOB)
    assert found.text == "this shell belongs to job 5, not to job 6"
    assert standing(V2_STEP_CGROUP, "6").why == WRONG_JOB


def test_without_cgroups_the_environment_decides(standing):
    here = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    assert standing(OUTSIDE, "7", here).inside
    assert standing(OUTSIDE, "8", here).why == WRONG_JOB
    assert standing(OUTSIDE, "7", {"SLURM_JOB_ID": "7"}).why == NO_JOB  # salloc on another host


def test_outside_it_is_found_by_its_number(standing, tmp_path):
    mounts = plant_v1(tmp_path / "v1")
    found = standing(OUTSIDE, "5", mounts=mounts)
    assert (found.inside, found.why) == (False, "")
    assert (found.path.job, found.path.uid, found.path.step) == ("5", 20001, "")
    seen = JobCgroup(found.path, mounts=mounts)
    assert seen.exists
    assert seen.mem_limit_bytes() == 629145600
    missing = standing(OUTSIDE, "6", mounts=mounts)
    assert (missing.why, missing.text) == (NO_JOB, "no cgroup of job 6 on this node")


def test_outside_it_is_found_by_its_sluid(standing, tmp_path):
    mounts = plant_v2(tmp_path / "v2")
    found = standing(OUTSIDE, f"4711,{SLUID}", mounts=mounts)
    assert (found.path.name, found.path.job) == (SLUID, "4711")
    assert JobCgroup(found.path, mounts=mounts).pids()


def test_a_job_of_v2_is_found_by_its_number(tmp_path):
    where = "system.slice/slurmstepd.scope/job_12"
    plant(tmp_path, {f"{where}/memory.max": "max\n", f"{where}1/memory.max": "max\n"})
    mounts = plant_v2(tmp_path)
    assert search_job_cgroup(["12"], mounts).paths == {"": f"/{where}"}
    assert search_job_cgroup(["1"], mounts) is None


def test_a_job_below_what_is_mounted(tmp_path):
    """In a container the mounted part of the hierarchy has a root of its own."""
    plant(tmp_path, {"slurm/uid_7/job_3/memory.limit_in_bytes": "1048576\n"})
    mounts = {"memory": plant_v2(tmp_path)[""]._replace(root="/outer")}
    found = search_job_cgroup(["3"], mounts)
    assert found.paths == {"memory": "/outer/slurm/uid_7/job_3"}
    assert JobCgroup(found, mounts=mounts).mem_limit_bytes() == 1 << 20


def test_the_id_of_a_target_of_no_number():
    assert Target(frozenset((SLUID,))).id == SLUID


# -- lines of several nodes --------------------------------------------------------------------
LINES = st.lists(
    st.tuples(st.sampled_from(["n1", "n2", "gpu-03"]), st.binary(max_size=3000)), max_size=8
).map(lambda pairs: [(node, line.replace(b"\n", b"")) for node, line in pairs])


@given(LINES, st.randoms(use_true_random=False))
def test_lines_come_back_whole_however_nodes_mix(lines, random):
    pieces = {node: [] for node, _ in lines}
    for node, line in lines:
        pieces[node] += [b"%s\n" % piece for piece in labelled(node, line).split(b"\n")[:-1]]
    assert all(len(piece) <= 1000 for each in pieces.values() for piece in each)
    joiner, got = Joiner(1 << 20), []
    while any(pieces.values()):
        node = random.choice([name for name, left in pieces.items() if left])
        whole = joiner.piece(pieces[node].pop(0))
        got += [whole] if whole else []
    for node in pieces:
        assert [w for n, w in got if n == node] == [w + b"\n" for n, w in lines if n == node]


@given(st.binary(max_size=200))
def test_what_is_no_piece_is_dropped(line):
    Joiner(100).piece(line)


def test_a_line_without_end_fills_no_memory():
    joiner = Joiner(1000)
    for _ in range(10):
        assert joiner.piece(b"n1 +" + b"x" * 700) is None
    assert joiner.piece(b"slurmstepd: error: something\n") is None
    assert joiner.piece(b"n2 -{}\n") == ("n2", b"{}\n")
