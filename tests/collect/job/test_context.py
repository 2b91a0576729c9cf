import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import find_job_cgroup
from gpumon.collect.job.context import cuda_order, cuda_order_note, job_context
from gpumon.model.sample import Device, JobContext, Mig
from tests.collect.trees import SLUID, V2_STEP_CGROUP, environ, fixture, plant_v1, plant_v2
from tests.support.examples import examples

STEP = environ("environ-26.05-step.txt")
BATCH = environ("environ-22.05-batch-array.txt")


def v1_cgroup(tmp_path):
    mounts = plant_v1(tmp_path)
    return JobCgroup(find_job_cgroup(fixture("proc-cgroup-v1-task.txt"), {}), mounts=mounts)


# -- the job -----------------------------------------------------------------------------------


def test_outside_of_a_job():
    assert job_context({}) is None
    assert job_context({"HOME": "/root"}, JobCgroup(None)) is None


def test_a_step_of_26_05():
    assert job_context(STEP) == JobContext(
        id="13",
        name="gpupertask",
        user="alice",
        account="research",
        partition="gpu",
        cluster="gpumon",
        nodes="node2",
        node_count=1,
        step="0",
        cpus=2,
        mem_limit_bytes=1 << 30,
        gpus=2,
        start=1795202400.0,
        end=1795203000.0,
        source="environment",
        restarts=0,
    )


def test_a_batch_script_of_22_05_in_an_array():
    job = job_context(BATCH)
    assert (job.id, job.array, job.name) == ("6", "6_4", "array")
    assert (job.start, job.end) == (None, None)  # since 23.02
    assert (job.cpus, job.gpus, job.mem_limit_bytes) == (1, None, 200 << 20)


def test_a_step_from_outside_does_not_know_the_jobs_name():
    brought = {name: value for name, value in STEP.items() if name != "SLURM_JOB_NUM_NODES"}
    assert job_context(brought | {"SLURM_JOB_NAME": "bash"}).name == ""


def test_a_step_is_gpumons_own_only_where_srun_started_this_very_process():
    here = {"SLURM_TASK_PID": str(os.getpid())}
    assert job_context(STEP | here).own_step
    beside = {"SLURM_TASK_PID": str(os.getppid())}  # a recorded command, a shell, a program
    assert not job_context(STEP | beside).own_step
    assert not job_context({n: v for n, v in STEP.items() if n != "SLURM_TASK_PID"}).own_step
    assert not job_context(BATCH | here).own_step  # exec gpumon record: the script's own step


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("-5", "batch"),
        ("4294967291", "batch"),
        ("-4", "extern"),
        ("4294967290", "interactive"),
        ("7", "7"),
        ("", ""),
        ("x", ""),
        ("--5", ""),
    ],
)
def test_steps_with_names(text, step):
    assert job_context({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": text}).step == step


def test_the_cgroup_knows_the_limits_better(tmp_path):
    told = BATCH | {"SLURM_JOB_ID": "5", "SLURM_MEM_PER_NODE": "1"}
    job = job_context(told, v1_cgroup(tmp_path))
    assert (job.id, job.step, job.source) == ("5", "0", "environment")
    assert job.mem_limit_bytes == 629145600
    assert job.cpus == 1  # cpuset is not Slurm's there


def test_a_shell_that_ssh_brought(tmp_path):
    """pam_slurm_adopt puts it into a job of which its environment knows nothing."""
    job = job_context({"HOME": "/home/alice"}, v1_cgroup(tmp_path))
    assert job == JobContext(
        "5", user="20001", step="0", mem_limit_bytes=629145600, source="cgroup"
    )


def test_a_shell_with_another_jobs_environment(tmp_path):
    job = job_context(STEP, v1_cgroup(tmp_path))
    assert (job.id, job.name, job.source) == ("5", "", "cgroup")


def test_a_job_named_by_its_sluid(tmp_path):
    mounts = plant_v2(tmp_path)
    told = STEP | {"SLURM_JOB_SLUID": SLUID}
    known = JobCgroup(find_job_cgroup(V2_STEP_CGROUP, told), mounts=mounts)
    job = job_context(told, known)
    assert (job.id, job.cpus, job.mem_limit_bytes) == ("13", 5, 8 << 30)
    unknown = JobCgroup(find_job_cgroup(V2_STEP_CGROUP, {}), mounts=mounts)
    assert job_context({}, unknown).id == SLUID


def test_a_shell_of_salloc_on_a_login_node_is_not_on_the_jobs_node():
    told = {name: value for name, value in STEP.items() if name != "SLURMD_NODENAME"}
    job = job_context(told)
    assert (job.id, job.source) == ("13", "salloc")
    assert (job.cpus, job.gpus, job.mem_limit_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"SLURM_JOB_NAME": "a\x1b]0;x\x07\n\u202eb"}, "name", "a?]0;x? ?b"),
        ({"SLURM_JOB_NAME": "x" * 10_000}, "name", "x" * 255 + "…"),
        ({"SLURM_JOB_END_TIME": "99999999999999"}, "end", None),
        ({"SLURM_JOB_END_TIME": "1e10"}, "end", None),
        ({"SLURM_JOB_END_TIME": "0"}, "end", None),
        ({"SLURM_GPUS_ON_NODE": "-1"}, "gpus", 1),  # then what SLURM_STEP_GPUS lists
        ({"SLURM_JOB_NUM_NODES": "9" * 30, "SLURM_NNODES": ""}, "node_count", 0),
        ({"SLURM_JOB_CPUS_PER_NODE": "72(x2)"}, "cpus", 72),
        ({"SLURM_JOB_CPUS_PER_NODE": "72(x2),36"}, "cpus", 2),  # which one is this?
        ({"SLURM_MEM_PER_NODE": "0"}, "mem_limit_bytes", None),  # all there is
        ({"SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_CPU": "100"}, "mem_limit_bytes", 200 << 20),
    ],
)
def test_hostile_and_odd_values(change, field, value):
    assert getattr(job_context(STEP | change), field) == value


@pytest.mark.parametrize("job", ["", "0", "-3", "4711; reboot", "٣", "9" * 40])
def test_no_job_id_no_job(job):
    assert job_context({"SLURM_JOB_ID": job}) is None


def test_gpus_of_another_node_are_not_this_ones():
    """Steps inherit SLURM_JOB_GPUS from the batch node."""
    told = {"SLURM_JOB_ID": "1", "SLURMD_NODENAME": "n2", "SLURM_JOB_GPUS": "0,1"}
    assert job_context(told | {"SLURM_NODEID": "0"}).gpus == 2
    assert job_context(told | {"SLURM_NODEID": "1"}).gpus is None
    assert job_context(told | {"SLURM_NODEID": "1", "SLURM_STEP_GPUS": "3"}).gpus == 1


@examples(500)
@given(st.dictionaries(st.sampled_from(sorted(STEP)), st.text(max_size=30)))
def test_any_environment_gives_a_clean_context_or_none(change):
    job = job_context(STEP | change)
    if job is not None:
        assert job.id.isascii()
        assert job.id.isdigit()
        assert job.cpus is None or 0 < job.cpus < 1 << 30
        assert all("\x1b" not in str(value) for value in job)


# -- CUDA's numbers ------------------------------------------------------------------------------

A, B, C, D = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "abcd")
GPUS = [
    Device(index, index, uuid, "NVIDIA A100", facts={"minor": 3 - index})
    for index, uuid in enumerate([A, B, C, D])
]
MIXED = [*GPUS[:2], Device(2, 2, C, "NVIDIA T4"), Device(3, 3, D, "NVIDIA T4")]
M0, M1, M2 = (f"MIG-{n * 8}-5555-6666-7777-888888888888" for n in "012")
MIGS = [
    GPUS[0],
    Device(4, 0, M0, "NVIDIA A100 MIG", mig=Mig(A, 1, 0, "3g.40gb")),
    Device(5, 0, M1, "NVIDIA A100 MIG", mig=Mig(A, 2, 0, "3g.40gb")),
    GPUS[1],
]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, {0: 0, 1: 1, 2: 2, 3: 3}),
        ("0,1,2,3", {0: 0, 1: 1, 2: 2, 3: 3}),
        ("2,0", {2: 0, 0: 1}),
        (" 2 , 0 ", {2: 0, 0: 1}),
        ("", {}),
        ("NoDevFiles", {}),
        ("-1", {}),
        ("1,-1,2", {1: 0}),
        ("1,9,2", {1: 0}),
        ("1,x,2", {1: 0}),
        ("1,,2", {1: 0}),
        ("1,1", {}),
        (C, {2: 0}),
        (f"{D},{A}", {3: 0, 0: 1}),
        ("GPU-bbbb,GPU-a", {1: 0, 0: 1}),
        ("GPU-b,GPU-zz,GPU-a", {1: 0}),
        ("GPU-", {}),  # more than one
        ("0\x1b[2J", {}),
        ("9" * 5000, {}),
        ("²", {}),
    ],
)
def test_visible_devices(visible, expected):
    assert cuda_order(visible, GPUS) == expected


def test_indices_count_among_what_the_cgroup_allows():
    """Where NVML lists only the job's devices, index 0 is the first of those."""
    assert cuda_order("0,1", GPUS[2:]) == {2: 0, 3: 1}
    # and where it lists all, the device cgroup tells: minors 0 and 2 are the GPUs 3 and 1
    assert cuda_order("0,1", GPUS, minors={0, 2}) == {1: 0, 3: 1}
    assert cuda_order(None, GPUS, minors={0}) == {3: 0}
    assert cuda_order("0", GPUS, minors=set()) == {}
    assert cuda_order(A, GPUS, minors={0}) == {}


def test_fastest_first_is_unknown_among_different_models():
    assert cuda_order("0,1", MIXED) == {}
    assert cuda_order(None, MIXED) == {}
    assert "PCI_BUS_ID" in cuda_order_note("0,1", MIXED)
    assert "PCI_BUS_ID" in cuda_order_note(None, MIXED)
    assert cuda_order("0,2", MIXED, "PCI_BUS_ID") == {0: 0, 2: 1}
    assert cuda_order_note("0,2", MIXED, "PCI_BUS_ID") == ""
    assert cuda_order(f"{C},{A}", MIXED) == {2: 0, 0: 1}
    assert cuda_order_note(f"{C},{A}", MIXED) == ""
    assert cuda_order_note("0,1", GPUS) == ""
    assert cuda_order("0", MIXED[2:]) == {2: 0}


def test_mig_instances():
    assert cuda_order(M1, MIGS) == {5: 0}
    assert cuda_order(f"{M1},{M0}", MIGS) == {5: 0, 4: 1}
    assert cuda_order("MIG-1111", MIGS) == {5: 0}
    assert cuda_order(f"MIG-{A}/2/0", MIGS) == {5: 0}
    assert cuda_order(f"MIG-{A}/3/0", MIGS) == {}
    assert cuda_order(f"MIG-{B}/1/0", MIGS) == {}
    # an index counts GPUs, and stands for the first instance of one that is divided
    assert cuda_order("0", MIGS) == {4: 0}
    assert cuda_order("1", MIGS) == {1: 0}
    assert cuda_order(None, MIGS) == {4: 0}
    assert cuda_order(M0, MIGS, minors={3}) == {4: 0}
    assert cuda_order(M0, MIGS, minors={2}) == {}


def test_the_first_mig_instance_is_the_first_by_number():
    shuffled = [MIGS[3], MIGS[1], MIGS[2], MIGS[0]]
    assert cuda_order("0", shuffled) == {4: 0}


def test_lost_devices_have_no_uuid():
    lost = [Device(0, 0, "", "lost"), Device(1, 1, "", "lost")]
    assert cuda_order("0,1", lost) == {0: 0, 1: 1}


@examples(1000)
@given(
    st.one_of(
        st.text(max_size=40),
        st.lists(st.sampled_from(["0", "1", "7", "-1", A, M0, "GPU-b", "", "x"])).map(",".join),
    )
)
def test_numbers_are_dense_and_of_real_devices(visible):
    order = cuda_order(visible, MIGS)
    assert sorted(order.values()) == list(range(len(order)))
    assert set(order) <= {device.key for device in MIGS}


@pytest.mark.parametrize(
    ("environment", "restarts"),
    [
        ({}, 0),
        ({"SLURM_RESTART_COUNT": "2"}, 2),
        ({"SLURM_RESTART_COUNT": "x"}, 0),
        ({"SLURM_JOB_NUM_NODES": None}, None),  # a step from outside is told nothing of it
    ],
)
def test_which_attempt_it_is(environment, restarts):
    told = {**STEP, **environment}
    found = job_context({name: value for name, value in told.items() if value is not None})
    assert found.restarts == restarts
