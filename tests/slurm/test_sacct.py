"""Accounting records of five releases: the same kinds of job give the same jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.text import clean
from gpumon.slurm import records, sacct, saved
from gpumon.slurm.job import ExitCode, Job
from tests.slurm import samples

MIB = 1 << 20
OK = ExitCode(0)
ALL = ["batch", "extern", "0"]


def jobs_of(cluster: str, name: str = "after-sacct-P-all.txt") -> dict[str, Job]:
    return {job.raw_id: job for job in saved.parse(samples.read(cluster, name), timezone.utc)}


def job_of(cluster: str, kind: str, name: str = "after-sacct-P-all.txt") -> Job:
    return jobs_of(cluster, name)[samples.job_ids(cluster)[kind]]


#: kind -> state, exit code, highest exit code, CPUs, MiB, GPUs, limit in s, nodes, steps
EXPECTED = {
    "timeout": ("TIMEOUT", OK, OK, 1, 100, None, 60, 1, ALL[:2]),
    "cpuhog": ("COMPLETED", OK, OK, 2, 500, None, 300, 1, ALL),
    "oom": ("OUT_OF_MEMORY", ExitCode(0, 125), OK, 1, 200, None, 300, 1, ALL[:2]),
    "oomstep": ("FAILED", ExitCode(1), ExitCode(0, 125), 1, 200, None, 300, 1, ALL),
    "twonode": ("COMPLETED", OK, OK, 4, 1200, None, 300, 2, [*ALL, "1", "2"]),
    "failed": ("FAILED", ExitCode(3), OK, 1, 100, None, 300, 1, ALL[:2]),
    "segv": ("FAILED", ExitCode(0, 11), OK, 1, 100, None, 300, 1, ALL[:2]),
    "cancel": ("CANCELLED", OK, OK, 1, 100, None, 300, 1, ALL[:2]),
    "overreq": ("COMPLETED", OK, OK, 4, 16384, None, 7200, 1, ALL),
    "gpun2": ("COMPLETED", OK, OK, 2, 2048, 2, 600, 2, [*ALL, "1"]),
    "gpupertask": ("COMPLETED", OK, OK, 2, 1024, 2, 600, 1, [*ALL, "1"]),
    "het": ("COMPLETED", OK, OK, 1, 300, None, 300, 1, ALL),
    "multistep": ("COMPLETED", OK, ExitCode(7), 3, 600, None, 300, 2, [*ALL, "1", "2"]),
    "longname": ("COMPLETED", OK, OK, 1, 100, None, 300, 1, ALL[:2]),
    "bigpend": ("COMPLETED", OK, OK, 24, 192000, 12, 3600, 3, ALL[:2]),
    "array": ("COMPLETED", OK, OK, 1, 200, None, 300, 1, ALL[:2]),
}


@pytest.mark.parametrize("cluster", [c for c in samples.CLUSTERS if c.endswith("cgroupv1")])
@pytest.mark.parametrize("kind", EXPECTED)
def test_each_kind_of_job_in_each_release(cluster, kind):
    job = job_of(cluster, kind)
    found = (
        job.state,
        job.exit_code,
        job.derived_exit_code,
        job.allocated.cpus,
        job.allocated.mem_bytes // MIB,
        job.allocated.gpus,
        job.time_limit_s,
        len(job.nodes),
        [step.id for step in job.steps],
    )
    assert found == EXPECTED[kind]
    assert (job.user, job.uid, job.account, job.cluster) == ("alice", 20001, "research", "gpumon")
    assert job.end - job.start == job.elapsed_s
    assert job.submit <= job.start
    assert job.cpu_s > 0
    assert job.missing == {}
    assert set(job.sources.values()) == {"sacct"}


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_gpu_job(cluster):
    job = job_of(cluster, "gpu")
    assert job.allocated.gpus == job.requested.resources.gpus == 2
    assert job.allocated.gpu_types == {"a100": 2}
    assert job.partition == "gpu"


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_the_job_row_decides_and_steps_differ(cluster):
    steps = {step.id: step for step in job_of(cluster, "timeout").steps}
    assert (steps["batch"].state, steps["batch"].exit_code) == ("CANCELLED", ExitCode(0, 15))
    steps = {step.id: step for step in job_of(cluster, "segv").steps}
    assert (steps["batch"].state, steps["batch"].exit_code) == ("CANCELLED", ExitCode(0, 11))
    assert job_of(cluster, "cancel").state_by == "20001"


def test_an_oom_in_a_step_is_not_decided_from_its_memory():
    killed = {}
    for release in samples.RELEASES:
        step = job_of(f"{release}-cgroupv1", "oomstep").steps[-1]
        assert (step.state, step.exit_code) == ("OUT_OF_MEMORY", ExitCode(0, 125))
        killed[release] = step.max_rss_bytes
    assert killed["22.05.8"] == 0
    assert killed["26.05.3"] == 199280 * 1024


def test_without_cgroups_slurm_kills_and_says_failed():
    job = job_of("22.05.8-nocgroup", "oom")
    assert (job.state, job.exit_code) == ("FAILED", ExitCode(0, 9))
    assert (job.steps[0].state, job.steps[0].state_by) == ("CANCELLED", "0")
    assert max(step.max_rss_bytes or 0 for step in job.steps) > job.allocated.mem_bytes


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_arrays_and_het_jobs(cluster):
    jobs = jobs_of(cluster)
    tasks = sorted((job.id, job.raw_id) for job in jobs.values() if job.array_job_id)
    assert tasks == [("6_1", "20"), ("6_2", "21"), ("6_3", "22"), ("6_4", "6")]
    assert {job.array_task for job in jobs.values() if job.array_job_id} == set("1234")
    assert [(jobs[raw].id, jobs[raw].het_job_id, jobs[raw].het_offset) for raw in ("14", "15")] == [
        ("14+0", "14", 0),
        ("14+1", "14", 1),
    ]
    assert "batch" not in [step.id for step in jobs["15"].steps]


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
@pytest.mark.parametrize("name", ["after-sacct-P-all.txt", "after-sacct-P-allusers.txt"])
def test_delimiters_and_line_ends_in_names_shift_no_field(cluster, name):
    job = job_of(cluster, "longname", name)
    assert job.name == "weird|name, with `quotes` é"
    assert (job.state, job.user) == ("COMPLETED", "alice")
    assert job.elapsed_s in (40, 41)
    if name == "after-sacct-P-all.txt":
        assert job.comment == "a|b"
        assert job.submit_line == "sbatch --parsable longname.sh"


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_of_a_running_job_usage_is_not_yet_known(cluster):
    job = job_of(cluster, "cpuhog", "running-sacct-P-all.txt")
    assert job.state == "RUNNING"
    assert job.end is None
    assert job.exit_code is None
    assert job.cpu_s is None
    assert job.missing == {"usage": sacct.NOT_YET, "cpu_s": sacct.NOT_YET}
    running = [step for step in job.steps if step.state == "RUNNING"]
    assert {"batch", "extern"} <= {step.id for step in running}
    for step in running:
        assert (step.cpu_s, step.max_rss_bytes, step.usage.total) == (None, None, {})


@pytest.mark.parametrize("cluster", samples.CLUSTERS)
def test_a_pending_job(cluster):
    job = job_of(cluster, "bigpend", "running-sacct-P-all.txt")
    assert job.is_pending
    assert (job.start, job.node_list, job.nodes, job.steps) == (None, "", (), ())
    assert job.requested.resources.cpus == 3
    assert job.allocated.cpus is None
    assert job.cpu_s is None


@pytest.mark.slow
def test_only_sluid_restarts_and_output_differ_between_releases():
    """What later releases add; all else of a job that uses nothing is the same."""

    def essence(job: Job) -> Job:
        return replace(
            job,
            **dict.fromkeys(("sluid", "std_out", "std_err", "reason", "failed_node"), ""),
            **dict.fromkeys(("submit", "eligible", "start", "end", "cpu_s", "restarts"), None),
            elapsed_s=None,
            steps=(),
            nodes=(),
            node_list="",
            sources={},
        )

    for kind in EXPECTED:
        found = [essence(job_of(f"{release}-cgroupv1", kind)) for release in samples.RELEASES]
        assert all(job == found[0] for job in found), kind
    sluids = [job_of(f"{release}-cgroupv1", "gpu").sluid for release in samples.RELEASES]
    assert [bool(sluid) for sluid in sluids] == [False, False, True, True, True]


def test_requeued_attempts_and_suspended_jobs():
    found = saved.parse(samples.read("22.05.8-extra-states", "sacct-D.txt"), timezone.utc)
    assert [(job.id, job.state) for job in found] == [
        ("1", "COMPLETED"),
        ("2", "REQUEUED"),
        ("3", "NODE_FAIL"),
        ("4", "SUSPENDED"),
        ("5", "RUNNING"),
        ("6", "PENDING"),
    ]
    assert found[0].steps[0].id == "interactive"


def parsed(rows: list[str], fields: str, delimiter: str = "|") -> list[Job]:
    return sacct.parse("\n".join(rows).encode(), delimiter, fields.split())


def test_attempts_of_one_id_stay_apart_in_order():
    found = parsed(
        ["7|REQUEUED|n1", "7.batch|CANCELLED|n1", "7|COMPLETED|n2", "7.batch|COMPLETED|n2"],
        "JobIDRaw State NodeList",
    )
    assert [(job.state, [step.node_list for step in job.steps]) for job in found] == [
        ("REQUEUED", ["n1"]),
        ("COMPLETED", ["n2"]),
    ]


def test_cpu_of_killed_processes_comes_from_the_usage():
    [job] = parsed(
        ["7|FAILED|00:01.000|", "7.0|FAILED|00:01.000|cpu=00:02:00"],
        "JobIDRaw State TotalCPU TRESUsageInTot",
    )
    assert job.steps[0].cpu_s == 120


def test_a_dump_without_steps_knows_no_cpu_time():
    [job] = parsed(["7|COMPLETED|00:00:00|60"], "JobIDRaw State TotalCPU ElapsedRaw")
    assert job.cpu_s is None
    assert job.missing == {"usage": sacct.NO_STEPS, "cpu_s": sacct.NO_STEPS}


def test_requested_memory_before_21_08():
    fields = "JobIDRaw State ReqMem NNodes ReqCPUS"
    node, core, whole = parsed(
        ["1|COMPLETED|4Gn|2|8", "2|COMPLETED|4000Mc|2|8", "3|COMPLETED|0n|2|8"], fields
    )
    assert (node.requested.mem_form, node.requested.resources.mem_bytes) == ("node", 8 << 30)
    assert (core.requested.mem_form, core.requested.resources.mem_bytes) == ("cpu", 32000 << 20)
    assert (whole.requested.mem_form_bytes, whole.requested.resources.mem_bytes) == (0, None)


def test_the_call():
    available = samples.read("22.05.8-cgroupv1", "sacct-helpformat.txt").decode().split()
    argv = sacct.argv("\x1f", available, ["-j", "1,2_3"])
    assert argv[:4] == ["sacct", "-P", "-n", "--delimiter=\x1f"]
    assert argv[-2:] == ["-j", "1,2_3"]
    assert "SLUID" not in argv[5]
    assert "--expand-patterns" not in argv
    newest = samples.read("26.05.3-cgroupv1", "sacct-helpformat.txt").decode().split()
    assert sacct.fields(newest) == list(sacct.FIELDS)
    assert "--expand-patterns" in sacct.argv("\x1f", newest)


FIELDS = list(sacct.FIELDS)
ROW = {
    "JobIDRaw": "11",
    "JobID": "11",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "ElapsedRaw": "41",
    "User": "alice",
    "UID": "20001",
    "NodeList": "node3",
    "AllocTRES": "cpu=2,gres/gpu:a100=2,gres/gpu=2,mem=2G,node=1",
    "TotalCPU": "00:10.324",
}
HOSTILE = st.text(max_size=40) | st.lists(
    st.sampled_from(["|", "\n", "12|12|COMPLETED|", "\x1f^\x1f", "99.batch", " ", "a", "\x1b[31m"]),
    max_size=8,
).map("".join)


def written(delimiter: str, *rows: dict[str, str]) -> bytes:
    return "".join(
        delimiter.join({**ROW, **row}.get(name, "") for name in FIELDS) + "\n" for row in rows
    ).encode("utf-8", "surrogatepass")


@given(HOSTILE, HOSTILE, HOSTILE)
def test_no_text_of_a_user_shifts_a_field_or_makes_a_job(name, comment, line):
    delimiter = records.new_delimiter()
    hostile = {"JobName": name, "Comment": comment, "SubmitLine": line}
    output = written(delimiter, hostile, {"JobIDRaw": "12", "JobID": "12", **hostile})
    found = sacct.parse(output, delimiter, FIELDS)
    assert [job.id for job in found] == ["11", "12"]
    for job in found:
        assert (job.state, job.user, job.elapsed_s, job.allocated.gpus) == (
            "COMPLETED",
            "alice",
            41,
            2,
        )
        assert job.cpu_s is None or job.cpu_s == 10.324
        assert all(text == clean(text) for text in (job.name, job.comment, job.submit_line))


@given(st.binary(max_size=200), st.sampled_from(["|", "\x1f", "\x1f^\x1f", ","]))
def test_any_bytes_are_read(data, delimiter):
    sacct.parse(data, delimiter, FIELDS[:4])
    sacct.parse(b"11|11|c|RUNNING\n" + data, "|", FIELDS[:4])


def test_each_call_has_a_delimiter_of_its_own():
    assert records.new_delimiter() != records.new_delimiter()
