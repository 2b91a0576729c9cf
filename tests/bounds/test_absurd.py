"""Absurd input: deep nesting, huge numbers, long lists. An error of one line, soon, in little room.

Every option that takes a value is tried, and every parser of what users, Slurm and sites write.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
from contextlib import suppress
from datetime import timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon import config
from gpumon.cli.parser import build_parser
from gpumon.errors import GpumonError, UsageError
from gpumon.model import units
from gpumon.report.build import build, from_accounting
from gpumon.report.gate import parse_gate
from gpumon.report.render.html import html_page
from gpumon.report.render.json import document
from gpumon.report.render.layout import plain
from gpumon.report.render.markdown import markdown
from gpumon.report.render.page import page
from gpumon.site import Site
from gpumon.site.read import load_site
from gpumon.slurm import (
    hostlist,
    ids,
    js1,
    sacct,
    sacct_json,
    saved,
    scontrol,
    sinfo,
    squeue,
    sstat,
    values,
)
from gpumon.slurm.tres import parse_gres, parse_indices, parse_tres
from gpumon.tui.screens.processes.filter import parse_filter
from tests.e2e.program import ROOT
from tests.support.examples import examples
from tests.support.waiting import HANGS_S

HUGE = "9" * 400
SCONTROL = (
    "NumNodes", "NumCPUs", "NumTasks", "TRES", "ReqTRES", "AllocTRES", "MinMemoryNode", "Gres",
    "MinMemoryCPU", "TimeLimit", "RunTime", "StartTime", "EndTime", "SubmitTime", "NodeList",
    "BatchHost", "JobState", "Restarts", "ExitCode", "ArrayTaskId", "ArrayJobId", "HetJobId",
    "HetJobOffset", "TresPerNode", "UserId", "SubmitLine", "StdOut", "CpusPerTres", "MemPerTres",
    "TresPerTask", "Nodes", "CPU_IDs", "Mem", "GRES", "ReqNodeList", "CPUs/Task",
)  # fmt: skip
ABSURD = (
    "", " ", "nan", "inf", "-inf", "-1", "0", "1e308", "1e400", "-1e400", HUGE, "9" * 5000,
    "0x" + "f" * 5000, "99999999999999d", "99999999999999999999T", "999999999-00:00:00",
    f"{HUGE}-{HUGE}:{HUGE}:{HUGE}", "n[1-999999999]", "n[1-9][1-9999][1-9999]", "n[" * 500,
    f"n[{HUGE}-{HUGE}]", "[" * 5000, "(" * 5000, "(" * 5000 + ")" * 5000, "{" * 5000, '"' * 5000,
    "1_[0-999999999%1]", f"{HUGE}_{HUGE}", "1_[" + "1," * 2000 + "1]", "\x00", "\ud800", "٣", "½",
    "=" * 5000, ":" * 5000, "," * 5000, "-" * 5000, "a<1 and " * 5000, "a<1 or (" * 5000,
    "not " * 5000, "\\" * 5000, "'" * 4999, "$(id)", "../" * 1000, "/" * 5000, "%" * 5000,
    "é" * 5000,
)  # fmt: skip

CHILD = """
    import contextlib, io, json, resource, sys, time
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    from gpumon.cli import main
    for line in sys.stdin:
        argv = json.loads(line)
        out, err = io.StringIO(), io.StringIO()
        began = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(argv)
        told = [code, err.getvalue(), time.process_time() - began]
        print(json.dumps(told), flush=True)
"""
MAX_CPU_S = 2.0


def options():
    """(command, option or name of the argument) of everything that takes free text."""
    found = []

    def look(parser, command):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, sub in action.choices.items():
                    look(sub, name)
            elif action.nargs != 0 and action.choices is None:
                found.append((command, (action.option_strings or [action.dest])[0]))

    look(build_parser(), "")
    return found


#: what else a command needs, so that the absurd value is what it fails for; an agent ends at once
BESIDE = {"fit": ["--params", "7B"], "report": ["1"], "attach": ["1"], "collect": ["--count", "0"]}
#: any text is right here: it is a mark, a command or the name of a file to write, for hours
FREE = {("record", "wrapped"), ("mark", "text"), ("record", "-o")}


def calls(command, option):
    for value in ABSURD:
        if "\x00" in value or "\ud800" in value or not value.strip("./ "):
            continue  # what no argument can hold; and real folders, "/" with all there is in it
        argv = [command] if command else []
        if not option.startswith("-"):
            yield [*argv, "--", value]
        elif option in ("--params", "--bytes"):
            yield [*argv, f"{option}={value}"]
        else:
            yield [*argv, f"{option}={value}", *BESIDE.get(command, [])]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), [each for each in options() if each not in FREE])
def test_an_absurd_value_is_an_error_of_one_line(command, option, tmp_path):
    lines = [json.dumps(argv) for argv in calls(command, option)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
        cwd=tmp_path,
        env={
            "PATH": "/nonexistent",
            "HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "TERM": "dumb",
        },
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(lines), (lines[len(told)][:200], done.stderr[-2000:])
    for argv, (code, said, cpu_s) in zip(lines, told):
        where = f"{argv[:120]}: {code} {said[:300]}"
        assert code in (0, 1, 2, 4), where
        assert "internal error" not in said, where
        assert "Traceback" not in said, where
        assert len(said) < 1200, where
        assert cpu_s < MAX_CPU_S, where
        if code == 2:
            assert said.count("\n") == 1, where


# -- expressions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ABSURD)
def test_no_absurd_expression_is_taken(text):
    with pytest.raises(UsageError):
        parse_gate(text)


def test_long_expressions_hold_and_deep_ones_are_refused():
    body = {"waste_gpu_hours": 3.0, "findings": []}
    for word in (" and ", " or "):
        gate = parse_gate(word.join(["waste_gpu_hours>1"] * 5000))
        assert gate(body, set())
    assert parse_gate("(" * 40 + "waste_gpu_hours>1" + ")" * 40)(body, set())
    with pytest.raises(UsageError, match="more than 50 parentheses"):
        parse_gate("(" * 51 + "waste_gpu_hours>1" + ")" * 51)
    gate = parse_gate("waste_gpu_hours<1 and findings.info>0 or waste_gpu_hours>2")
    assert gate(body, set())
    assert not parse_gate("waste_gpu_hours<1 and (findings.info>0 or waste_gpu_hours>2)")(
        body, set()
    )


@given(
    st.lists(
        st.sampled_from(
            ("(", ")", "and", "or", "gpu.busy.p50", "<", "20", "'x'", "==", "nonsense", HUGE)
        ),
        max_size=60,
    )
)
def test_any_expression_is_one_or_an_error(words):
    try:
        gate = parse_gate(" ".join(words))
    except UsageError:
        return
    gate({"devices": [{"busy_p50": 3}], "findings": []}, set())


# -- files -----------------------------------------------------------------------------------------

TOML = (
    "a=" + "[" * 5000, "a=" + "[" * 5000 + "]" * 5000, "a=" + "{a=" * 3000,
    "interval_s = " + HUGE, "interval_s = " + "9" * 5000, "interval_s = 0x" + "f" * 5000,
    "interval_s = nan", "interval_s = inf", "interval_s = -1", "interval_s = 1e400",
    "zoom_s = 0x" + "f" * 400, "theme = 0x" + "f" * 5000, "record_max_bytes = inf",
    "record_keep_days = nan", "a." * 5000 + "b = 1", "[" + "a." * 3000 + "b]",
    '"' + "x" * 9999 + '" = 1',
    "interval_s = " + "[" * 200 + "]" * 200, "interval_s = 2024-01-01", "interval_s = true", "\x00",
    "theme = [0x" + "f" * 5000 + "]",
)  # fmt: skip


@pytest.mark.parametrize("text", TOML, ids=range(len(TOML)))
def test_no_absurd_settings(text, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "config.toml").write_text(text)
    with pytest.raises(UsageError):
        config.load_settings()


SITE = (
    *(text for text in TOML if "interval" not in text and "_" not in text),
    "[thresholds]\na = " + HUGE, "[thresholds]\na = 0x" + "f" * 5000, "[thresholds]\na = nan",
    "[thresholds]\na = " + "[" * 200 + "]" * 200, "[policy]\nwarn_min = [0x" + "f" * 5000 + "]",
    "[[node]]\ncores = 0x" + "f" * 5000 + "\nmem_gb = 1", "[[node]]\ncores = 1\nmem_gb = 1e300",
    "[[gpu]]\nname='a'\nmatch='" + "(" * 5000 + "'\ncc='8.0'\nmem_mib=1",
    "[[gpu]]\nname='a'\nmatch='a{99999999999}'\ncc='8.0'\nmem_mib=1",
    "[[gpu]]\nname='a'\nmatch='" + "(" * 3000 + ")" * 3000 + "'\ncc='8.0'\nmem_mib=1",
    "[[gpu]]\nname='a'\nmatch='a'\ncc='" + HUGE + "'\nmem_mib=1",
    "[site]\nname = " + HUGE, "node = 0x" + "f" * 5000, "[site.mem_default_per_core_gb]\na = 1e300",
)  # fmt: skip


@pytest.mark.parametrize("text", SITE, ids=range(len(SITE)))
def test_no_absurd_site(text, tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(UsageError):
        load_site(str(path))


@pytest.mark.parametrize("name", config.Settings._fields)
@pytest.mark.parametrize("value", [each for each in ABSURD if each.isprintable()])
def test_no_absurd_environment(name, value, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv(f"GPUMON_{name.upper()}", value)
    try:
        found = config.load_settings()
    except UsageError:
        return
    assert getattr(found, name) == getattr(found, name)  # not NaN


# -- Slurm's words ---------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.sampled_from(ABSURD),
    st.text(),
    st.from_regex(r"[0-9:\-_\[\],+.%KMGTPEn ]{0,40}", fullmatch=True),
)
NEVER_RAISE = [
    values.known, values.count, values.size, values.duration, values.moment, values.state,
    values.exit_code, values.req_mem, values.version, values.time_limit,
    lambda text: values.moment(text, timezone.utc), lambda text: values.time_limit("", text),
    lambda text: values.size(text, "M"),
]  # fmt: skip


@given(TEXTS)
def test_figures_of_slurm_never_raise(text):
    for read in NEVER_RAISE:
        read(text)


@given(TEXTS)
def test_lists_and_ids_are_read_or_refused(text):
    with suppress(ValueError):
        assert len(hostlist.expand(text)) <= hostlist.MAX_HOSTS
    with suppress(UsageError):
        ids.parse(text)
    units.parse_size(text)
    parse_filter(f"mem>{text} {text}")
    parse_tres(f"gres/gpu={text},mem={text},{text}")
    parse_gres(f"gpu:{text}:{text}(IDX:{text})")
    parse_indices(text)


# -- whole answers, and the report of such a job ---------------------------------------------------


def in_every_form(job):
    report = build(from_accounting(job, Site()))
    list(plain(page(report, 80)))
    markdown(report)
    html_page([report])
    json.dumps(document(report), allow_nan=False)


FIELDS = [name.lower() for name in sacct.FIELDS]


@examples(60)
@given(
    st.dictionaries(st.sampled_from(FIELDS), TEXTS, max_size=8),
    st.sampled_from(("COMPLETED", "RUNNING", "TIMEOUT", "OUT_OF_MEMORY", "PENDING")),
)
def test_any_row_of_sacct_has_a_report(changes, state):
    usual = {
        "jobid": "4711", "jobidraw": "4711", "state": state, "elapsed": "01:00:00",
        "start": "2026-01-01T00:00:00", "end": "2026-01-01T01:00:00", "alloccpus": "8",
        "alloctres": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1", "reqmem": "64G",
        "nodelist": "gpu01", "timelimit": "02:00:00", "totalcpu": "01:00:00",
    }  # fmt: skip
    row = {**dict.fromkeys(FIELDS, ""), **usual, **changes, "jobid": "4711", "jobidraw": "4711"}
    step = {**row, "jobid": "4711.batch", "jobidraw": "4711.batch", "maxrss": "9" * 19 + "T"}
    for job in sacct.jobs([row, step], timezone.utc):
        in_every_form(job)


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.floats(), st.sampled_from(ABSURD), st.text(max_size=5),
        st.sampled_from((10**400, -(10**400), 1 << 5000, 2**64, -1, 0)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(("set", "number", "infinite", "count", "id")), inner),
    ),
    max_leaves=6,
)  # fmt: skip
KEYS = (
    "job_id", "name", "state", "time", "nodes", "tres", "required", "array", "exit_code", "het",
    "steps", "allocation_nodes", "user", "submit_line", "flags", "association", "restart_cnt",
)  # fmt: skip


@examples(100)
@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8))
def test_any_document_of_sacct_has_a_report(item):
    for job in sacct_json.jobs({"jobs": [{"job_id": 4711, **item}], "meta": item}):
        in_every_form(job)


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(SCONTROL), TEXTS), max_size=12))
def test_any_record_of_scontrol_is_read(pairs):
    record = "JobId=4711 JobName=a\n" + "\n".join(f"   {name}={text}" for name, text in pairs)
    for job in scontrol.parse(record.encode("utf-8", "replace"), timezone.utc):
        in_every_form(job)
    scontrol.parse_config(record.encode("utf-8", "replace"))


@examples(100)
@given(st.lists(TEXTS, max_size=30))
def test_rows_of_the_other_commands_are_read(words):
    line = "|".join(word.replace("|", "") for word in words).encode("utf-8", "replace") + b"|\n"
    squeue.parse(line, "|")
    sinfo.parse(line, "|")
    sstat.parse(line, ["jobid", "maxrss", "ntasks"])
    for text in words:
        js1.parse(f"JS1:{text}")
    with suppress(GpumonError):
        saved.parse(line)
