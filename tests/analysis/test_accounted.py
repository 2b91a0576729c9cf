"""Verdicts from Slurm's accounting alone, on jobs whose truth was decided beforehand.

`expected` are the warnings and critical findings that must be raised, and no others; `says` are
further ones. `need` is what the next run needs: a line that gives less is unsafe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.analysis.finding import Gpus
from gpumon.errors import UsageError
from gpumon.report.build import build, from_accounting
from gpumon.report.model import Report
from gpumon.report.render.forms import FORMS, Medium, render
from gpumon.report.render.json import document
from gpumon.site import Site
from gpumon.slurm import saved
from gpumon.slurm.records import Unread
from tests.analysis.accounted import FIELDS, START, Made, jobs_of, reports, text
from tests.analysis.build import GIB

HOUR = 3600.0


@dataclass(frozen=True)
class Case:
    """What is true of the jobs, and what must follow from it."""

    made: tuple[Made, ...]
    expected: str = ""  # ids of warnings and critical findings, "id:critical"
    says: str = ""  # ids of information that must be there
    may: str = ""  # ids that other tests are about
    silent: str = ""  # ids that must not be raised at any level
    lines: str | None = None  # the options that lines are for; None: any, as long as they are safe
    mem: float = 27.0  # GiB on a node, that the next run needs
    cpus: int = 8
    hours: float = 4.0
    mem_known: bool | None = None  # whether its memory is a figure in the report


CASES: dict[str, Case] = {}


def case(name: str, *made: Made, **rest: object) -> None:
    assert name not in CASES
    CASES[name] = Case(made or (Made(),), **rest)


# -- a plain job that used what it requested, whatever word stands in a field ----------------------
case("plain", lines="", mem_known=True)
for word in ("UNLIMITED", "Partition_Limit", "INVALID", "", "16?", "Unknown", "-1", "4294967295"):
    case(
        f"limit {word!r}",
        Made(hours=0.5, row={"Timelimit": word, "TimelimitRaw": word}),
        lines="", silent="time-over", mem_known=True,
    )  # fmt: skip
for word in (
    "16?",
    "16?c",
    "16?n",
    "0n",
    "",
    "INVALID",
    "-5G",
    "32Gn",
    "4Gc",
    "18446744073709551614",
):
    case(f"ReqMem {word!r}", Made(row={"ReqMem": word}), lines="", mem_known=True)
for word in ("", "0", "16?", "INVALID", "-3G", "18446744073709551614", "9" * 40):
    case(f"MaxRSS {word!r}", Made(rss=word), lines="", silent="mem-over", mem_known=False)
for word in ("", "INVALID", "Unknown", "-00:00:01", "213503982334-14:25:51"):
    case(
        f"TotalCPU {word!r}",
        Made(row={"TotalCPU": word}, batch={"TotalCPU": word, "TRESUsageInTot": "mem=27G"}),
        lines="", silent="cpu-low cpu-never-used cpu-mostly-idle serial-many-cores",
    )  # fmt: skip
for word in ("None assigned", "(null)", "", "n[1-", "Unknown"):
    case(f"NodeList {word!r}", Made(row={"NodeList": word}), lines="")
for word in ("", "16?", "-4", "Unknown"):
    case(f"AllocCPUS {word!r}", Made(row={"AllocCPUS": word}), lines="")
case("no AllocTRES", Made(row={"AllocTRES": ""}), lines="")
case("no ReqTRES", Made(row={"ReqTRES": ""}), lines="")
case("TRES of sentinels", Made(row={"AllocTRES": "cpu=16?,mem=16?,node=1"}), lines="")
case(
    "energy in TRES", Made(row={"AllocTRES": "billing=8,cpu=8,energy=16?,mem=32G,node=1"}), lines=""
)

# -- times that cannot be --------------------------------------------------------------------------
case("end before start", Made(row={"End": f"{START - 500}"}), lines="")
case("start unknown", Made(row={"Start": "Unknown"}), lines="")
case("end unknown", Made(row={"End": "Unknown"}), lines="")
case("elapsed 0", Made(hours=0, cores=0), lines="", silent="cpu-never-used time-over mem-over")
case("elapsed negative", Made(row={"ElapsedRaw": "-5", "Elapsed": ""}), lines="")
case("elapsed beyond the limit", Made(hours=5.02, limit_hours=5), lines="", hours=5.02)
case(
    "in local time",
    Made(row={"Start": "2026-11-01T10:00:00", "End": "2026-11-01T14:00:00"}),
    lines="",
)
case("in a time that summer time skips", Made(row={"Start": "2026-03-29T02:30:00"}), lines="")
case("an end in the year 9999", Made(row={"End": "9999-12-31T23:59:59"}), lines="")
case("more CPU time than cores had", Made(cores=80.0), lines="")

# -- memory ----------------------------------------------------------------------------------------
case(
    "a tenth of the memory, by the kernel's peak",
    Made(rss="3G"),
    says="mem-over",
    lines="--mem",
    mem=3,
)
case("most of it", Made(rss="24G"), silent="mem-over", lines="", mem=24)
case("little of 32G, but no saving", Made(mem="4G", rss="2900M"), lines="", mem=2.9)
case(
    "polled: a spike between two looks",
    Made(rss="3G", version="23.02.1"), says="mem-over", lines="", mem=20, mem_known=True,
)  # fmt: skip
case("polled by the old plug-in", Made(rss="3G", gather="linux"), says="mem-over", lines="", mem=20)
case("an unknown release", Made(rss="3G", version="", gather=""), says="mem-over", lines="", mem=20)
case(
    "a lot of memory",
    Made(mem="256G", rss="20G"), expected="mem-over", lines="--mem", mem=20,
)  # fmt: skip
case(
    "two steps, one after the other",
    Made(batch=None, steps=(
        {"MaxRSS": "3G", "End": f"{START + 7000}", "ElapsedRaw": "7000"},
        {"MaxRSS": "9G", "Start": f"{START + 7000}", "ElapsedRaw": "7400"},
    )), says="mem-over", lines="--mem", mem=9,
)  # fmt: skip
case(
    "two steps at once",
    Made(batch=None, steps=({"MaxRSS": "6G"}, {"MaxRSS": "6G"})),
    says="mem-over",
    lines="--mem",
    mem=12,
)
case(
    "a step without a figure",
    Made(rss="3M", steps=({"MaxRSS": ""},)), silent="mem-over", lines="", mem_known=False,
)  # fmt: skip
case(
    "eight tasks of 3G",
    Made(rss="3G", batch=None, steps=({"NTasks": "8", "TRESUsageInTot": "mem=24G,cpu=30:24:00"},)),
    silent="mem-over", lines="", mem=24,
)  # fmt: skip
case("a figure that cannot be", Made(rss="4096T"), lines="", mem_known=False)

# -- whole nodes -----------------------------------------------------------------------------------
WHOLE = {"mem": "512G", "cpus": 64, "cores": 60.0}
case(
    "--mem=0 in ReqMem",
    Made(**WHOLE, rss="3G", row={"ReqMem": "0"}), silent="mem-per-gpu-high", mem=3, cpus=64,
)  # fmt: skip
case(
    "--mem=0 on the line",
    Made(mem="512G", rss="3G", submit="sbatch --mem=0 -c 8 job.sh"), says="mem-over", mem=3,
)  # fmt: skip
case(
    "--mem 0 of a job that fills the node",
    Made(mem="512G", rss="480G", submit="sbatch --mem 0 job.sh"),
    silent="mem-over",
    lines="",
    mem=480,
)
case(
    "--mem=0 and polled",
    Made(mem="512G", rss="3G", version="22.05.8", submit="sbatch --mem=0 job.sh"), lines="", mem=90,
)  # fmt: skip
case(
    "--exclusive, one thread per core",
    Made(cpus=128, cores=63.0, mem="512G", rss="400G", submit="sbatch --exclusive -n 64 job.sh",
         asked_cpus=64), lines="", mem=400, cpus=64,
)  # fmt: skip
case(
    "--exclusive, memory of the node",
    Made(cpus=64, cores=60.0, mem="512G", rss="3G", submit="sbatch --exclusive job.sh"),
    silent="mem-over", lines="", mem=3, cpus=64,
)  # fmt: skip
case(
    "--exclusive, few cores used",
    Made(
        cpus=128, asked_cpus=1, cores=7.9, mem="512G", rss="3G", submit="sbatch --exclusive job.sh"
    ),
    silent="mem-over cpu-low",
    says="cpu-mostly-idle",
    lines="",
    mem=3,
)
case(
    "out of memory with --mem=0",
    Made(mem="512G", rss="511G", state="OUT_OF_MEMORY", row={"ExitCode": "0:125", "ReqMem": "0"},
         submit="sbatch --mem=0 job.sh"),
    expected="oom-killed:critical", lines="", mem=600,
)  # fmt: skip

# -- one thread per core ---------------------------------------------------------------------------
SMT = {"cpus": 16, "cores": 7.8}
case("twice the CPUs requested", Made(**SMT, asked_cpus=8), silent="cpu-low", lines="")
case("a serial job gets both threads", Made(cpus=2, asked_cpus=1, cores=0.99), lines="", cpus=1)
case(
    "--hint=nomultithread",
    Made(**SMT, submit="sbatch --hint=nomultithread job.sh"),
    silent="cpu-low",
    lines="",
)
case(
    "--hint nomultithread",
    Made(**SMT, submit="sbatch --hint nomultithread job.sh"),
    silent="cpu-low",
    lines="",
)
case(
    "--threads-per-core=1",
    Made(**SMT, submit="sbatch --threads-per-core=1 job.sh"),
    silent="cpu-low",
    lines="",
)
case(
    "a quarter of the cores, one thread per core",
    Made(cpus=16, asked_cpus=8, cores=2.0), expected="cpu-low", lines="",
)  # fmt: skip
case("both threads used", Made(cpus=16, asked_cpus=8, cores=15.5), lines="", cpus=16)

# -- cores -----------------------------------------------------------------------------------------
case(
    "serial by the mean", Made(cpus=12, cores=0.99), expected="serial-many-cores", lines="", cpus=1
)
case(
    "serial by the mean, with a GPU",
    Made(cpus=12, cores=0.99, gpus=1),
    says="serial-many-cores",
    lines="",
    cpus=12,
)
case("a third of the cores", Made(cpus=12, cores=4.0), expected="cpu-low", lines="", cpus=12)
case("nothing ran", Made(cores=0.001), expected="cpu-never-used", lines="")
case("CPU time 0 and no usage", Made(cores=0.0, batch={"TRESUsageInTot": ""}, rss=""), lines="")
case("all cores", Made(cores=8.0), lines="")

# -- how it ended: nothing less is advised from any but COMPLETED ----------------------------------
for state in ("FAILED", "NODE_FAIL", "PREEMPTED", "DEADLINE", "CANCELLED by 20001", "WEIRD",
              "SUSPENDED", "RESIZING"):  # fmt: skip
    is_known = state in ("FAILED", "NODE_FAIL", "PREEMPTED", "DEADLINE")
    case(
        f"{state} with little of everything",
        Made(state=state, hours=0.5, rss="1G", cpus=12, cores=0.99),
        expected="serial-many-cores" if is_known else "", may="ended-badly",
        lines="", mem=30, cpus=12, hours=5, silent="time-over",
    )  # fmt: skip
case(
    "REVOKED: another cluster of the federation ran it",
    Made(state="REVOKED", hours=0, cores=0, batch=None, row={"NodeList": "None assigned"}),
    lines="",
)
case(
    "CANCELLED by root",
    Made(state="CANCELLED by 0", hours=0.5), expected="ended-badly", lines="",
)  # fmt: skip
case(
    "TIMEOUT with little memory",
    Made(state="TIMEOUT", hours=5, rss="1G"),
    expected="timed-out",
    lines="--time",
    mem=30,
    hours=5.1,
)
case(
    "TIMEOUT of a job that did nothing",
    Made(state="TIMEOUT", hours=5, cores=0.001),
    expected="timed-out cpu-never-used",
    lines="",
    hours=5,
)
case(
    "TIMEOUT of an UNLIMITED job",
    Made(state="TIMEOUT", row={"Timelimit": "UNLIMITED", "TimelimitRaw": "UNLIMITED"}),
    expected="timed-out",
    lines="",
)
case(
    "never started",
    Made(
        state="CANCELLED by 20001",
        hours=0,
        cores=0,
        batch=None,
        row={"Start": "None", "NodeList": "None assigned", "AllocTRES": ""},
    ),
    lines="",
)
case(
    "pending",
    Made(
        state="PENDING",
        hours=0,
        cores=0,
        batch=None,
        row={"Start": "Unknown", "End": "Unknown", "Reason": "Priority"},
    ),
    lines="",
    says="job-pending",
)
case(
    "running",
    Made(state="RUNNING", rss="", row={"End": "Unknown", "TotalCPU": "00:00:00"}),
    lines="",
    mem_known=False,
)
case("no steps", Made(batch=None, cores=0), lines="", silent="cpu-never-used", mem_known=False)

# -- out of memory ---------------------------------------------------------------------------------
OOM = {"ExitCode": "0:125"}
for word in ("0", "", "16?"):
    case(
        f"out of memory, MaxRSS {word!r}",
        Made(state="OUT_OF_MEMORY", rss=word, row=OOM),
        expected="oom-killed:critical", lines="--mem", mem=33, mem_known=False,
    )  # fmt: skip
case(
    "out of memory between two looks",
    Made(state="OUT_OF_MEMORY", rss="16M", row=OOM, version="23.02.1"),
    expected="oom-killed:critical", lines="--mem", mem=33, mem_known=False,
)  # fmt: skip
case(
    "a step out of memory",
    Made(state="FAILED", row={"ExitCode": "1:0", "DerivedExitCode": "0:125"}, rss="1G",
         steps=({"State": "OUT_OF_MEMORY", "ExitCode": "0:125", "MaxRSS": "0"},)),
    expected="oom-killed:critical", may="ended-badly", lines="--mem", mem=33, mem_known=False,
)  # fmt: skip
case(
    "killed by somebody, far below the limit",
    Made(state="FAILED", rss="16M", row={"ExitCode": "137:0"}),
    expected="ended-badly", silent="oom-killed", lines="",
)  # fmt: skip

# -- time ------------------------------------------------------------------------------------------
case("half an hour of five", Made(hours=0.5), says="time-over", lines="--time", hours=0.5)
case(
    "a tenth of an hour of five",
    Made(hours=0.3, limit_hours=5),
    says="time-over",  # so short a run may be a test
    lines="",
    hours=0.3,
)
case("two thirds of five hours", Made(hours=3.4), silent="time-over", lines="", hours=3.4)
case("ten minutes", Made(hours=0.16), silent="time-over", lines="", hours=0.16)
for name, more in {
    "restarted": {"row": {"Restarts": "2"}},
    "a chain": {"submit": "sbatch --dependency=singleton job.sh"},
    "a signal for checkpoints": {"submit": "sbatch --signal=B:USR1@300 job.sh"},
    "resumes": {"submit": "sbatch resume.sh"},
    "a shell": {"submit": "salloc -c 8"},
}.items():
    case(f"half an hour: {name}", Made(hours=0.5, **more), silent="time-over", lines="", hours=5)
case(
    "requeued: the last attempt is short",
    Made(
        state="NODE_FAIL",
        hours=4,
        row={
            "Submit": f"{START - 90_000}",
            "Start": f"{START - 90_000}",
            "End": f"{START - 75_600}",
        },
    ),
    Made(hours=0.5),
    says="requeued",
    silent="time-over",
    lines="",
    hours=5,
)


# -- arrays ----------------------------------------------------------------------------------------
def tasks(count: int = 8, first: int = 1, **rest: object) -> list[Made]:
    return [Made(id=f"70_{n}", raw=f"{700 + n}", **rest) for n in range(first, first + count)]


case("array: little memory", *tasks(rss="3G"), expected="array-mem-over", lines="--mem", mem=3)
case(
    "array: polled",
    *tasks(rss="3G", version="23.02.1"),
    lines="",
    mem=20,
    expected="array-mem-over",
)
case(
    "array: one task needs most",
    *tasks(rss="3G"),
    *tasks(1, 20, rss="27G"),
    silent="array-mem-over",
    lines="",
)
case("array: one out of memory", *tasks(rss="3G"), *tasks(1, 20, rss="3G", state="OUT_OF_MEMORY"),
     expected="array-mixed-outcome", silent="array-mem-over", lines="", mem=33)  # fmt: skip
case("array: half failed", *tasks(4, rss="3G"), *tasks(4, 20, rss="1G", state="FAILED", hours=0.2),
     expected="array-mixed-outcome", lines="", mem=20)  # fmt: skip
case("array: half waits", *tasks(6, rss="3G", hours=1),
     *tasks(6, 20, rss="", state="PENDING", hours=0, batch=None), lines="", mem=20, hours=5,
     expected="array-mem-over")  # fmt: skip
case("array: short and alike", *tasks(hours=1), says="array-time-over", lines="--time", hours=1)
case("array: of very different length", *tasks(7, hours=0.3), *tasks(1, 20, hours=2),
     says="array-time-over", lines="--time", hours=4)  # fmt: skip
case("array: one timed out", *tasks(hours=1), *tasks(1, 20, state="TIMEOUT", hours=5),
     expected="array-mixed-outcome", silent="array-time-over", lines="", hours=5.1)  # fmt: skip
case("array: all failed", *tasks(state="FAILED", hours=0.5, rss="1G"),
     expected="array-mixed-outcome", lines="", mem=20, hours=5)  # fmt: skip
case(
    "array: one request for all saves little",
    *tasks(8, mem="100G", rss="19G"),
    *tasks(1, 20, mem="100G", rss="69G"),
    silent="array-mem-over",
    lines="",
    mem=69,
)
case("array: three tasks", *tasks(3, rss="3G"), lines="", mem=20)

# -- heterogeneous jobs, federations ---------------------------------------------------------------
case("het: two components", Made(id="80+0", raw="80"),
     Made(id="80+1", raw="81", batch=None, steps=({},)), lines="")  # fmt: skip
case(
    "one number in two clusters",
    Made(),
    Made(row={"Cluster": "beta"}, batch={"Cluster": "beta"}),
    lines="",
)


def raised(report: Report, *levels: str) -> set[str]:
    return {each.id for each in report.findings if each.level in levels}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    told = CASES[name]
    made = reports(*told.made)
    assert made, "a job disappeared"
    expected = dict(each.partition(":")[::2] for each in told.expected.split())
    loud = set().union(*(raised(each, "critical", "warning") for each in made))
    assert loud - set(told.may.split()) == set(expected), [
        each.title for report in made for each in report.findings
    ]
    critical = set().union(*(raised(each, "critical") for each in made))
    assert critical == {id for id, level in expected.items() if level}
    everything = set().union(*(raised(each, "critical", "warning", "info") for each in made))
    assert set(told.says.split()) <= everything
    assert not set(told.silent.split()) & everything
    lines = [each.change for report in made for each in report.recommendations]
    if told.lines is not None:
        assert {each.option for each in lines} == set(told.lines.split())
    for each in lines:
        assert is_safe(told, each.option, each.after), each
    if told.mem_known is not None:
        assert (made[0].used.mem.peak is not None) is told.mem_known


def is_safe(told: Case, option: str, after: object) -> bool:
    """Whether the next run lives with this line."""
    if option == "--mem":
        return isinstance(after, int) and after >= told.mem * GIB
    if option == "--time":
        return isinstance(after, int) and after >= told.hours * HOUR
    if option == "--cpus-per-task":
        return isinstance(after, int) and after >= told.cpus
    return isinstance(after, Gpus)


def test_there_are_enough_cases():
    assert len(CASES) >= 100


def test_what_is_said_of_whole_nodes():
    [report] = reports(Made(mem="512G", rss="3G", submit="sbatch --mem=0 -c 8 job.sh"))
    found = next(each for each in report.findings if each.id == "mem-over")
    assert found.title == (
        "--mem=0 reserved all 512 GiB of the node; memory use at most 3 GiB (0.6 %)"
    )
    assert found.actions[0].text.endswith("request only what it uses: --mem=4G would do.")
    [report] = reports(CASES["out of memory with --mem=0"].made[0])
    assert "use a node with more" in report.findings[0].actions[0].text


# -- no job disappears -----------------------------------------------------------------------------
JUNK = (
    st.text(st.characters(exclude_characters="|\n\r", exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(
        ["UNLIMITED", "16?", "16?c", "Unknown", "INVALID", "None assigned", "-1", "0"]
    )
    | st.integers(-(2**70), 2**70).map(str)
    | st.floats(allow_nan=False).map(str)
    | st.sampled_from(
        ["cpu=16?,mem=-1", "99999999-99:99:99", "CANCELLED by ", "0:125", "1T", "1e9"]
    )
)
PLACES = [name for name in FIELDS if name not in ("JobIDRaw", "JobID")]


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(PLACES), JUNK, max_size=8),
       st.dictionaries(st.sampled_from(PLACES), JUNK, max_size=8))  # fmt: skip
def test_junk_in_any_field_makes_a_report_in_every_form(row, batch):
    made = reports(replace(Made(), row=row, batch=batch))
    assert [each.job.id for each in made] == ["4711"]
    for form in FORMS:
        assert "4711" in render(form, made, Medium())


@settings(max_examples=60)
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=6), min_size=1, max_size=4))
def test_every_row_of_a_dump_is_a_job_or_counted(rows):
    made = [replace(Made(), row=row, batch=None) for row in rows]
    unread = Unread()
    try:
        found = saved.parse(text(*made), unread=unread)
    except UsageError:  # which says that there are none
        found = []
    assert len(found) + sum(len(job.steps) for job in found) + unread.count >= len(rows)
    for job in found:
        document(build(from_accounting(job, Site())))


def test_all_cases_in_one_dump_are_all_there():
    made = [
        replace(each, id=f"{n}", raw=f"{n}")
        for n, told in enumerate(CASES.values(), 1)
        for each in told.made[:1]
    ]
    unread = Unread()
    found = saved.parse(text(*made), unread=unread)
    assert len(found) == len(made) == len(CASES)
    assert not unread.count
    assert len(jobs_of(*made)) == len(made)
