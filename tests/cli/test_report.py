"""`gpumon report` as it is typed: saved dumps of five releases, recordings, forms, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from types import SimpleNamespace

import pytest

from gpumon import cli, demos
from gpumon.analysis.finding import Change, Recommendation
from gpumon.analysis.rules.catalogue import BY_ID, RULES
from gpumon.services import reports
from gpumon.services.request import Request
from gpumon.slurm import saved
from gpumon.slurm.job import Job
from tests.cli.test_compare import record, run
from tests.e2e.program import GPUMON, ROOT, environment
from tests.slurm import samples
from tests.slurm.test_seff import WITH_SEFF, printed
from tests.support.waiting import HANGS_S

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
NEWEST = samples.CLUSTERS[4]
DOCUMENT = (ROOT / "docs" / "json.md").read_text()
#: those on which Slurm knows of the kernel's kills
CGROUPS = [each for each in samples.CLUSTERS if "nocgroup" not in each]


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch, tmp_path):
    """No Slurm, no recordings, no site's file."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith(("SLURM", "GPUMON_SITE"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def report(capsys):
    def ask(*args):
        code = cli.main(["report", *map(str, args)])
        return code, *capsys.readouterr()

    return ask


def dump(tmp_path, cluster, name="after-sacct-P-all.txt"):
    path = tmp_path / f"{cluster}.dump"
    path.write_bytes(samples.read(cluster, name))
    return path


@pytest.fixture
def newest(tmp_path):
    """The dump of the newest release as JSON, which says what wrote it."""
    return dump(tmp_path, NEWEST, "after-sacct-json.json")


# -- saved dumps ----------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("cluster", samples.CLUSTERS)
@pytest.mark.parametrize("name", ["after-sacct-P-all.txt", "after-sacct-json.json"])
def test_every_job_of_every_release(report, tmp_path, cluster, name):
    path = dump(tmp_path, cluster, name)
    code, table, err = report("--from-sacct", path)
    assert (code, err) == (0, "")
    assert not CONTROL.search(table)
    assert "GPU use was not measured in" in table
    jobs = saved.read(str(path))
    assert len(jobs) >= 18
    for id in {job.array_job_id or job.het_job_id or job.raw_id for job in jobs}:
        code, page, err = report("--from-sacct", path, id)
        assert (code, err) == (0, "")
        assert not CONTROL.search(page)
        assert max(map(len, page.splitlines())) <= 80
        assert len(page.splitlines()) <= 63 * page.count("gpumon report  ")
        for form in "md", "html":
            code, body, err = report("--from-sacct", path, id, "--format", form)
            assert (code, err) == (0, "")
            assert not CONTROL.search(body)
        body = told(report, "--from-sacct", path, id)
        for each in body if isinstance(body, list) else [body]:
            assert each["coverage"]["source"] == "sacct"
            assert each["efficiency"].get("gpu_busy_percent") is None
            if each["efficiency"]:
                assert each["missing"]["gpu_busy_percent"]
            assert each["waste_gpu_hours"] == 0
            assert each["devices"] == []
            assert not [f["id"] for f in each["findings"] if "gpu" in f["id"]]


def told(report, *args):
    code, out, _ = report(*args, "--format", "json")
    assert code == 0
    return json.loads(out)


@pytest.mark.parametrize(
    ("kind", "id", "words", "directive"),
    [
        ("oom", "oom-killed", "Out of memory: job OUT_OF_MEMORY (0:125)", "--mem=1G"),
        ("oomstep", "oom-killed", "OUT_OF_MEMORY (0:125)", "--mem=1G"),
        ("timeout", "timed-out", "Ended by the time limit of 60 s", "--time=00:02:00"),
        ("failed", "ended-badly", "exit code 3:0: the program reported an error", ""),
        ("segv", "ended-badly", "exit code 0:11: segmentation fault", ""),
    ],
)
@pytest.mark.parametrize("cluster", CGROUPS)
def test_how_a_job_ended(report, tmp_path, cluster, kind, id, words, directive):
    path = dump(tmp_path, cluster)
    job = samples.job_ids(cluster)[kind]
    _, page, _ = report("--from-sacct", path, "--all", job)
    assert words in page
    assert BY_ID[id].why.split(":")[0] in " ".join(page.split())
    body = told(report, "--from-sacct", path, job)
    assert [each["id"] for each in body["findings"]] == [id]
    changes = [f"{each['directive']}={each['after']}" for each in body["recommendations"]]
    assert changes == ([directive] if directive else [])
    assert body["efficiency"]["time_percent"] <= 100


@pytest.mark.slow
@pytest.mark.parametrize("cluster", WITH_SEFF)
def test_the_same_percentages_as_seff_printed(report, tmp_path, cluster):
    """Of CPU in any dump; of memory where the dump tells the release, whose rule it is."""
    for name in "after-sacct-P-all.txt", "after-sacct-json.json":
        path = dump(tmp_path, cluster, name)
        compared = 0
        for kind, job in samples.job_ids(cluster).items():
            expected = printed(cluster, kind)
            if expected is None or kind in ("array", "het"):
                continue
            body = told(report, "--from-sacct", path, job)
            found = body["seff"]
            if body["job"]["elapsed_s"]:
                assert found["cpu_percent"] == pytest.approx(expected[0], abs=0.006), kind
            if found["rule"]:
                assert found["mem_percent"] == pytest.approx(expected[1], abs=0.006), kind
            else:
                assert found["mem_percent"] is None
            compared += 1
        assert compared >= 12


def test_an_array_is_one_report_and_a_task_one_of_its_own(report, newest):
    array = samples.job_ids(NEWEST)["array"]
    body = told(report, "--from-sacct", newest, array)
    assert body["tasks"]["states"] == {"COMPLETED": 4}
    assert told(report, "--from-sacct", newest, f"{array}_2")["job"]["id"] == f"{array}_2"


def test_components_of_a_het_job_are_pages_and_not_a_table(report, newest):
    het = samples.job_ids(NEWEST)["het"]
    _, page, _ = report("--from-sacct", newest, het)
    assert page.count("gpumon report  ") == 2
    assert [each["job"]["id"] for each in told(report, "--from-sacct", newest, het)] == [
        f"{het}+0", f"{het}+1",
    ]  # fmt: skip


def test_attempts_in_a_dump_stand_apart(report, tmp_path):
    rows = (
        "JobID|JobIDRaw|State|Submit|Start|End|Elapsed|Restarts|ReqTRES|AllocTRES\n"
        "7|7|REQUEUED|2026-11-01T10:00:00|2026-11-01T10:00:10|2026-11-01T10:01:00|00:00:50|0||cpu=1\n"
        "7|7|COMPLETED|2026-11-01T10:01:00|2026-11-01T10:02:00|2026-11-01T10:12:00|00:10:00|1||cpu=1\n"
    )
    path = tmp_path / "dump"
    path.write_text(rows)
    body = told(report, "--from-sacct", path)
    assert [each["state"] for each in body["attempts"]] == ["REQUEUED", "COMPLETED"]
    assert body["job"]["elapsed_s"] == 600
    assert "requeued" in {each["id"] for each in body["findings"]}


def test_time_of_killed_processes_proves_nothing(report, tmp_path):
    """A job of an hour that Slurm killed, and that its accounting gives no CPU time."""
    rows = (
        "JobID|State|Elapsed|Timelimit|TotalCPU|AllocTRES\n"
        "7|TIMEOUT|01:00:20|01:00:00|00:00:00|cpu=4,mem=4G,node=1\n"
        "7.batch|CANCELLED|01:00:20||00:00:00|cpu=4,mem=4G,node=1\n"
    )
    path = tmp_path / "dump"
    path.write_text(rows)
    body = told(report, "--from-sacct", path)
    assert [each["id"] for each in body["findings"]] == ["timed-out"]
    assert body["used"]["cpu_core_s"] is None
    assert body["efficiency"]["cpu_percent"] is None
    assert "n/a" in report("--from-sacct", path)[1]


# -- recordings -----------------------------------------------------------------------------------
def test_the_recorded_example(report):
    code, page, err = report(demos.path("finetune"))
    assert (code, err) == (0, "")
    assert "Source: recording, " in page
    assert re.search(r"^\w+:\d +\d+/\d+/\d+ %", page, re.M)
    assert len(page.splitlines()) <= 63
    body = told(report, demos.path("finetune"))
    assert body["coverage"]["source"] == "recording"
    assert body["devices"]
    assert {each["id"] for each in body["findings"]}


def test_one_gpu_of_two_was_never_used(report, tmp_path):
    path = record(tmp_path / "r.gpumon", run(80, 0, seconds=900))
    body = told(report, path)
    (found,) = [each for each in body["findings"] if each["id"] == "gpus-partly-idle"]
    assert found["waste_gpu_hours"] == pytest.approx(0.25, abs=0.01)
    assert body["devices"][1]["busy_mean"] == 0
    assert body["efficiency"]["gpu_busy_percent"] == pytest.approx(40)


def test_a_damaged_recording_is_named_in_one_line(report, tmp_path):
    path = tmp_path / "r.gpumon"
    path.write_bytes(b"no zstd at all")
    code, out, err = report(path)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_folder_is_one_run(report, tmp_path):
    for number in (1, 2):
        record(tmp_path / f"n{number}.gpumon", run(80, seconds=300, node=f"n{number}"))
    body = told(report, tmp_path)
    assert [each["node"] for each in body["devices"]] == ["n1", "n2"]


def test_a_folder_of_several_jobs_is_refused(report, tmp_path):
    for job in ("1", "2"):
        header, *samples = run(80, seconds=60)
        header = header._replace(job=header.job._replace(id=job))
        record(tmp_path / f"{job}.gpumon", [header, *samples])
    code, out, err = report(tmp_path)
    assert (code, out) == (2, "")
    assert "several jobs" in err


def test_a_number_is_a_job_and_what_lies_beside_it_a_path(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("4711", "mine"):
        (tmp_path / folder).mkdir()
        record(tmp_path / folder / "r.gpumon", run(80, seconds=300))
    asked = [report(name)[2] for name in ("4711", "./4711", "mine")]
    assert "no recording of job 4711" in asked[0]
    assert asked[1:] == ["", ""]  # Slurm, which is not here, was not asked


def test_jobs_and_recordings_together_are_a_table(report, tmp_path):
    paths = [record(tmp_path / f"{n}.gpumon", run(80, 0, seconds=900)) for n in "ab"]
    code, page, _ = report(*paths)
    assert code == 0
    assert "2 jobs" in page


# -- a terminal -----------------------------------------------------------------------------------
def terminal(*args, **env):
    """What it writes to a terminal of 80 columns."""
    main, end = pty.openpty()
    settings = environment(TERM="xterm-256color", COLUMNS="80", LINES="40", LC_ALL="C.UTF-8", **env)
    with subprocess.Popen(
        [*GPUMON, "report", *args], stdout=end, stdin=end, env=settings
    ) as process:
        os.close(end)
        chunks = []
        while True:
            try:
                chunk = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            chunks.append(chunk)
        assert process.wait(HANGS_S) == 0
    os.close(main)
    return b"".join(chunks).decode()


@pytest.mark.terminal
def test_plots_where_the_terminal_has_colours(tmp_path):
    path = record(tmp_path / "r.gpumon", run(80, 0, seconds=900))
    shown = terminal(path)
    assert "100┤" in re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "\x1b[" in shown
    assert len(shown.splitlines()) <= 60
    assert all(len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= 80 for line in shown.splitlines())
    bare = terminal(path, NO_COLOR="1")
    assert "\x1b" not in bare
    assert "100┤" not in bare
    assert "▇" in bare


# -- errors and exit codes ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "name a JOBID"),
        (("x y",), 2, "not a valid job ID"),
        (("4711",), 1, "there is no recording of job 4711"),
        (("--from-sacct", "/nowhere/dump"), 2, "cannot read /nowhere/dump"),
        (("/nowhere/run.gpumon",), 4, "/nowhere/run.gpumon"),
        (("--recording", "a"), 2, "--recording needs exactly one JOBID"),
        (("--recording", "a", "./b"), 2, "--recording needs exactly one JOBID"),
        (("--recording", "a", "--from-sacct", "b"), 2, "not both"),
        (("--from-sacct", "a", "./b"), 2, "accepts JOBIDs, not files"),
        (("--diff", "./b"), 2, "needs the job script"),
        (("--user", "ada", "4711"), 2, "cannot be combined with a JOBID"),
        (("4711", "--fail-if", "gpu.busy <"), 2, "--fail-if"),
    ],
)
def test_errors_are_one_line(report, args, code, words):
    found, out, err = report(*args)
    assert (found, out) == (code, "")
    assert words in err
    assert err.startswith("gpumon: ")
    assert err.count("\n") == 1


def test_a_recording_of_another_job(report):
    file = demos.path("finetune")
    code, page, err = report("99", "--recording", file)
    assert (code, page) == (2, "")
    assert f"{file} is a recording of job 4711, not of 99\n" in err


def test_no_such_job_in_the_dump(report, newest):
    code, out, err = report("--from-sacct", newest, "4711")
    assert (code, out) == (4, "")
    assert "none of these jobs" in err


@pytest.mark.parametrize(
    ("gate", "code", "unknown"),
    [
        ("findings.critical > 0", 3, ""),
        ('job.state == "OUT_OF_MEMORY"', 3, ""),
        ("gpu.busy.p50 < 20", 0, "no value for gpu.busy.p50"),
        ("time.percent > 50", 0, ""),
    ],
)
def test_fail_if(report, newest, gate, code, unknown):
    job = samples.job_ids(NEWEST)["oom"]
    found, page, err = report("--from-sacct", newest, job, "--fail-if", gate)
    assert found == code
    assert page.startswith("gpumon report")
    assert unknown in err
    assert bool(err) == bool(unknown)


def test_output_to_a_file_is_whole_or_not_there(report, newest, tmp_path):
    path = tmp_path / "page.html"
    job = samples.job_ids(NEWEST)["gpu"]
    assert report("--from-sacct", newest, job, "--format", "html", "-o", path)[:2] == (0, "")
    assert path.read_text().endswith("</html>\n")
    assert not (tmp_path / "page.html.part").exists()
    for name, begins in (("a.html", "<!DOCTYPE"), ("a.md", "## "), ("a.txt", "gpumon report")):
        assert report("--from-sacct", newest, job, "-o", tmp_path / name)[0] == 0
        assert (tmp_path / name).read_text().startswith(begins)
    code, _, err = report("--from-sacct", newest, job, "-o", tmp_path / "no" / "page")
    assert (code, err.count("\n")) == (1, 1)
    assert "name another file" in err


def test_the_diff_of_a_submit_line(report, newest):
    """A dump needs the job script, but the line that submitted it; Slurm is not asked."""
    ids = samples.job_ids(NEWEST)
    code, out, err = report("--from-sacct", newest, ids["oom"], "--diff")
    assert (code, err) == (0, "")
    assert out == "-sbatch --parsable oom.sh\n+sbatch --mem=1G --parsable oom.sh\n"
    assert report("--from-sacct", newest, ids["overreq"], "--diff") == (0, "", "")


def test_the_diff_names_the_command_line_where_it_wins(monkeypatch):
    """`sbatch --mem=64G job.sh` gets 64G, whatever the script says."""
    script = "#!/bin/bash\n#SBATCH --mem=16G\n#SBATCH --time=08:00:00\nsrun ./a.out\n"
    stored = SimpleNamespace(batch_script=lambda _: script)
    monkeypatch.setattr(reports, "shared_slurm", lambda *_: stored)
    changes = [Change("--mem", 64 << 30, 9 << 30), Change("--time", 28800, 3600)]
    report = SimpleNamespace(
        job=Job(id="4711", submit_line="sbatch --mem=64G job.sh"),
        recommendations=[Recommendation(each, "") for each in changes],
    )
    diff = reports.script_diff(Request(runs=["4711"]), report).splitlines()
    assert diff[:2] == ["-sbatch --mem=64G job.sh", "+sbatch --mem=9G job.sh"]
    assert [each for each in diff[4:] if each[0] in "+-"] == [
        "-#SBATCH --time=08:00:00",
        "+#SBATCH --time=01:00:00",
    ]


def test_several_jobs_as_a_table(report, newest):
    ids = samples.job_ids(NEWEST)
    _, table, _ = report("--from-sacct", newest, ids["oom"], ids["cpuhog"])
    head, first, second, *_ = table.splitlines()
    assert head.split()[:3] == ["JOB", "USER", "STATE"]
    assert [first.split()[0], second.split()[0]] == [ids["oom"], ids["cpuhog"]]  # worst first
    assert len(told(report, "--from-sacct", newest, ids["oom"], ids["cpuhog"])) == 2
    assert report("--from-sacct", newest, ids["oom"], ids["cpuhog"], "--format", "md")[1][0] == "|"


def test_hostile_names_in_every_form(report, tmp_path):
    name = "\x1b[2J\x07<script>alert(1)</script>`x`](javascript:1)| ## \u202e\u0085"
    rows = f"JobID|State|Elapsed|AllocTRES|JobName\n7|FAILED|01:00:00|cpu=1|{name}\n"
    path = tmp_path / "dump"
    path.write_text(rows)
    for form in "text", "md", "html", "json":
        code, body, _ = report("--from-sacct", path, "--format", form)
        assert code == 0
        assert not CONTROL.search(body.replace("\n", ""))
        assert "\u202e" not in body
        own = body.replace("\\<", "").replace("<script>// Shows", "")  # escaped, and the page's
        assert form in ("text", "json") or "<script" not in own


# -- documents ------------------------------------------------------------------------------------
def names(body):
    """Every name in the JSON but those that are data: ids, reasons, states, TRES."""
    data = {"missing", "not_evaluable", "numbers", "tres", "sources", "states"}
    if isinstance(body, list):
        return set().union(*map(names, body))
    if not isinstance(body, dict):
        return set()
    return set(body).union(*(names(value) for key, value in body.items() if key not in data))


def test_every_name_of_the_json_is_told(report, newest):
    told_names = set(re.findall(r"`(\w+)`", DOCUMENT[DOCUMENT.index("`gpumon report --format") :]))
    inner = {"from", "to", "kind", "text", "after", "before"}  # of actions and windows
    array = samples.job_ids(NEWEST)["array"]
    bodies = [told(report, demos.path("finetune")),
              told(report, "--from-sacct", newest, array)]  # fmt: skip
    assert names(bodies) - inner <= told_names


# -- the sentences --------------------------------------------------------------------------------
def test_every_finding_says_why_it_matters():
    assert all(re.fullmatch(r"[A-Z].{20,}\.", rule.why) for rule in RULES)


# -- what is missing is said ----------------------------------------------------------------------
DUMP = "JobIDRaw|JobID|State|ElapsedRaw\n1|1|COMPLETED|600\n2|2|FAILED|600\n3|3\n"


def test_rows_that_cannot_be_read_are_counted_in_every_form(report, tmp_path):
    path = tmp_path / "dump"
    path.write_text(DUMP)
    said = "1 row of the accounting could not be read; the first: '3|3'"
    code, table, err = report("--from-sacct", path)
    assert (code, err) == (0, f"gpumon: {said}\n")
    assert said in table
    for form in "text", "md", "html":
        page = report("--from-sacct", path, 1, "--format", form)[1]
        assert said.split(";")[0] in " ".join(page.split()).replace("\\", "")
    assert [each["notes"] for each in told(report, "--from-sacct", path)] == [[said], [said]]


def test_a_list_of_jobs_one_of_which_is_not_there(report, tmp_path):
    path = tmp_path / "dump"
    path.write_text(DUMP)
    code, out, err = report("--from-sacct", path, "1,2,9", "--format", "json")
    assert (code, [each["job"]["id"] for each in json.loads(out)]) == (4, ["1", "2"])
    assert f"gpumon: {path} holds no job 9" in err.splitlines()
    assert report("--from-sacct", path, "9")[0] == 4
    assert report("--from-sacct", path, "1", "9", "--fail-if", "job.elapsed_s > 1")[0] == 3
