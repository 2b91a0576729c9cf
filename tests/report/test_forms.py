import csv
import html
import io
import json
import re
import sys
import time
import types
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gpumon.analysis.rundata import Coverage
from gpumon.errors import UsageError
from gpumon.model.sample import Device
from gpumon.model.text import clean
from gpumon.report.gate import parse_gate
from gpumon.report.model import Attempt, Spread, Tasks
from gpumon.report.names import PARTS, is_text
from gpumon.report.render.csv import COLUMNS
from gpumon.report.render.forms import FORMS, Medium, render
from gpumon.report.render.heading import cost_text
from gpumon.report.render.html import html_page
from gpumon.report.render.html_chart import Axis, ticks
from gpumon.report.render.json import document
from gpumon.report.render.layout import plain
from gpumon.report.render.markdown import code, escape, markdown, markdown_table
from gpumon.report.render.page import page
from gpumon.report.render.table import ranked, text_table, totals
from gpumon.report.render.text import text
from gpumon.report.usage import Use

from .made import GIB, HOSTILE, events, finding, happened, job, report, row, stepped

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def hostile():
    """A report all of whose texts are hostile."""
    return report(
        job=job(name=HOSTILE, user=HOSTILE, partition=HOSTILE, account=HOSTILE, node_list=HOSTILE),
        devices=(
            row(HOSTILE, 0, device=Device(0, 0, "", HOSTILE), note=HOSTILE, framework=HOSTILE),
        ),
        findings=(finding(title=HOSTILE, evidence=HOSTILE, subject=HOSTILE),),
        coverage=Coverage("recording", 50.0, 1.0, missing={HOSTILE: HOSTILE}),
        notes=(HOSTILE,),
        happenings=(happened(HOSTILE, text=HOSTILE), happened("", text=f"mark: {HOSTILE}")),
        ranks=(stepped(text=HOSTILE, devices=(HOSTILE,)), stepped(1, text=f"{HOSTILE}:8 f")),
    )


def test_the_page_as_in_the_sketch():
    lines = list(plain(page(report())))
    assert lines[0].startswith("gpumon report  4711  train-llama  ada/lab  gpu-a100  COMPLETED")
    assert "2 nodes gpu[01-02] · 4 × A100-SXM4-80GB · 64 cores · 256 GiB" in "\n".join(lines)
    assert "18 GPU-h, 4.5 wasted" in "\n".join(lines) or "17.9 GPU-h" in "\n".join(lines)
    assert any(line.startswith("● 2 of 8 GPUs were never used") for line in lines)
    assert any(re.match(r"  #SBATCH --mem +128G +20G$", line) for line in lines)
    assert any(re.match(r"gpu01:0 +91/94/99 % +3 min +98 %\* +309 W +▂", line) for line in lines)
    assert "* preallocated by the framework; the real need is unknown" in lines
    assert any(
        line.startswith("Source: recording, 1 s, 99.8 % of the run, 1 gap") for line in lines
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("glyphs", ["braille", "ascii"])
def test_no_line_is_wider_than_the_page(width, glyphs):
    for made in (report(), hostile()):
        assert max(map(len, plain(page(made, width, glyphs)))) <= width
    if glyphs == "ascii":
        rest = "".join(plain(page(report(), 80, glyphs))).replace("×", "").replace("·", "")
        assert rest.isascii(), re.findall(r"[^\x00-\x7f]+", rest)


@pytest.mark.parametrize("source", ["recording", "live"])
def test_wasted_and_held_hours_are_of_the_same_time(source):
    part = report(coverage=Coverage(source, 12.5, 1.0), waste_gpu_hours=1.1)
    assert cost_text(part) == "1.1 of 2.2 GPU-h wasted in the 17 min observed (17.9 GPU-h in all)"
    lacks = replace(part, coverage=Coverage(source, 50.0, 1.0, unrecorded=("gpu02",)))
    assert cost_text(lacks) == "1.1 GPU-h wasted on the nodes recorded (17.9 GPU-h in all)"
    unexplained = report(unattributed_gpu_hours=2.5)
    assert cost_text(unexplained) == "4.5 of 17.9 GPU-h wasted, 2.5 of it unexplained"
    shared = replace(unexplained, others_gpu_hours=4)
    assert cost_text(shared).endswith(", 2.5 of it unexplained, 4.0 used by others")
    assert cost_text(report(waste_gpu_hours=0.9, unattributed_gpu_hours=0.9)) == "17.9 GPU-h"
    assert cost_text(report(waste_gpu_hours=0.1)) == "17.9 GPU-h"
    unknown = report(waste_gpu_hours=9.5, unattributed_gpu_hours=9.5)
    assert cost_text(unknown) == "9.5 of 17.9 GPU-h not used"


def test_accounting_alone_says_that_it_knows_nothing_of_gpus():
    made = report(
        devices=(),
        findings=(),
        recommendations=(),
        coverage=Coverage("sacct", 0.0, None),
        waste_gpu_hours=0.0,
    )
    lines = "\n".join(plain(page(made)))
    assert "8 GPUs: Slurm's accounting has no GPU usage" in lines
    assert "gpumon record -- COMMAND" in " ".join(lines.split())
    assert "Source: Slurm's accounting: totals only, no time series." in lines
    assert " 0 %" not in lines


def test_a_missing_number_is_never_zero():
    unmeasured = row(
        "gpu01", 0, busy_mean=None, busy_p50=None, busy_p95=None, idle_tail_s=None,
        mem_peak_bytes=None, power_mean_w=None, note="n/a MIG",
    )  # fmt: skip
    made = report(devices=(unmeasured,))
    line = next(line for line in plain(page(made)) if line.startswith("gpu01:0"))
    assert re.fullmatch(r"gpu01:0 +n/a +n/a +n/a +n/a  n/a MIG", line)
    assert re.search(r"\| gpu01:0 \| +n/a MIG \|( +n/a \|){3}", markdown(made))
    assert document(made)["devices"][0]["busy_mean"] is None


def test_a_measured_need_stands_beside_the_reservation_in_every_form():
    need = {"mem_truth": "measured", "mem_in_use_peak_bytes": 9.4 * GIB,
            "mem_need_bytes": 10.0 * GIB, "need_over_time": (12.0,) * 8}  # fmt: skip
    made = report(devices=(row("gpu01", 0, **need), row("gpu01", 1)))
    text_ = "9.4 GiB in use, 78.5 GiB reserved"
    lines = list(plain(page(made)))
    assert f"gpu01:0: {text_}; needs at least 10 GiB" in lines
    assert "98 %*" not in next(line for line in lines if line.startswith("gpu01:0 "))
    assert f"| {text_} |" in markdown(made)
    assert "78.5 GiB\\*" in markdown(made)
    for alone in (made, replace(made, devices=made.devices[:1])):
        lines = re.findall(r"<polyline [^>]*var\(--mem\)[^>]*>", html_page([alone]))
        dashed = [each for each in lines if "dasharray" in each]
        assert (len(lines), len(dashed)) == (len(alone.devices) + 1, len(alone.devices))
        assert text_ in html_page([alone])
    assert "memory reserved, of which the line is needed" in html_page([alone])
    (first, second) = document(made)["devices"]
    assert (first["mem_truth"], first["mem_need_bytes"]) == ("measured", 10.0 * GIB)
    assert first["mem_in_use_peak_bytes"] == 9.4 * GIB
    assert second["mem_need_bytes"] is None


def test_the_document_is_json_with_the_names_that_others_rely_on():
    body = json.loads(json.dumps(document(report()), allow_nan=False))
    assert body["version"] == 1
    assert next(iter(body)) == "version"
    assert body["job"]["id"] == "4711"
    assert body["efficiency"]["gpu_mem_percent"] is None
    assert body["missing"]["gpu_mem_percent"].startswith("TensorFlow")
    assert body["devices"][0]["mem_truth"] == "unknown"
    assert body["findings"][0]["waste_gpu_hours"] == 4.5
    assert body["findings"][0]["action"] == "#SBATCH --gres=gpu:a100:3"
    assert body["coverage"]["covered_percent"] == 99.8
    assert body["recommendations"][1] == {
        "directive": "--mem", "before": "128G", "after": "20G",
        "basis": "peak 16.5 GiB on gpu01, 1.2 times that", "confidence": "high", "finding": None,
    }  # fmt: skip


def test_arrays_attempts_and_segments_have_their_tables():
    made = report(
        tasks=Tasks(
            {"COMPLETED": 118, "TIMEOUT": 2}, 120,
            (Spread("memory", "B", 2.0 * GIB, 3.1 * GIB, 4.0 * GIB, 21.0 * GIB, 32.0 * GIB,
                    ("4711_93",)),),
        ),
        attempts=(Attempt("1", 0.0, 11400.0, "PREEMPTED"), Attempt("2", 20000.0, None)),
        segments=(Attempt("bs=16", 0.0, 600.0, gpu_mem_peak_bytes=9.0 * GIB),),
    )  # fmt: skip
    lines = "\n".join(plain(page(made)))
    assert "Tasks of the array  118 COMPLETED, 2 TIMEOUT" in lines
    assert "far from the rest in memory: 4711_93" in lines
    assert re.search(r"1 PREEMPTED +3 h 10 min", lines)
    assert re.search(r"bs=16 +10 min +n/a +n/a +9 GiB", lines)
    assert document(made)["tasks"]["spreads"][0]["outliers"] == ["4711_93"]


def test_hostile_text_is_text_in_every_form():
    made = hostile()
    for body in (text(made), markdown(made), html_page([made]), text_table([made]),
                 markdown_table([made])):  # fmt: skip
        assert not CONTROL.search(body), CONTROL.search(body)
    assert html_page([made]).count("<script") == 1
    shown = MarkdownIt("gfm-like").render(markdown(made))
    assert not re.search("<(script|a|h1|h4|img)\\b|<h2>x", shown)
    assert not CONTROL.search(json.dumps(document(made)["notes"]).replace("\\u", ""))
    coloured = text(replace(made, devices=made.devices * 5), coloured=True)  # too many for plots
    assert "\x1b[2J" not in coloured
    made = replace(made, devices=made.devices * 5)
    bare = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == text(made).splitlines()


@given(st.text())
def test_markdown_never_breaks_a_table(words):
    assert "\n" not in escape(words)
    assert not re.search(r"(?<!\\)\|", escape(words).replace("\\\\", ""))
    assert not re.search(r"(?<!\\)\|", code(words))


@given(st.one_of(st.text(), st.text("ab1.)_*#:@-+=>&;$~![]()<`\\ /w")))
@example("1. x").via("a list")
@example("12) x").via("a list")
@example("- x").via("a list")
@example("a__b__ _c_ d_e").via("emphasis")
def test_markdown_shows_any_text_as_it_is(words):
    """As GitHub does, which makes no link of `gpu01.ac` alone."""
    parser = MarkdownIt("gfm-like")
    parser.linkify.set({"fuzzy_link": False})
    shown = parser.render(escape(words))
    assert not re.search("<(?!/?p>)", shown), shown
    text = html.unescape(re.sub("</?p>", "", shown)).strip()
    assert text == " ".join(clean(words, 2000).split())


@pytest.mark.parametrize("words", ["www.a.b", "https://a.b/c"])
def test_a_link_without_brackets_is_text(words):
    assert MarkdownIt("gfm-like").render(escape(words)) == f"<p>{words}</p>\n"


def test_markdown_escapes_what_must_be_and_nothing_else():
    plain_text = "00:15:48 of 1-00:00:00; a-b (c) {d} 4.5 GPU-h, x_y = 3 + 4 > 2!"
    assert escape(plain_text) == plain_text
    assert escape("--gres=gpu:a100:3") == "--gres=gpu:a100:3"
    assert escape("#12 :smile: @ada &lt; http://x") == r"\#12 \:smile: \@ada \&lt; http\://x"


def test_markdown_has_what_the_page_has():
    body = markdown(report(used=replace(report().used, gpus=Use(5.5, 8, 6))))
    assert "2 nodes gpu[01-02] · 4 × A100-SXM4-80GB · 64 cores · 256 GiB" in body.replace("\\", "")
    assert re.search(r"\| GPUs +\| +4 \| +6 \| +5.5 \|", body)
    tables = [line for line in body.splitlines() if line.startswith("| gpu0")]
    assert len({line.rindex("|", 0, -1) for line in tables}) == 1  # one width, as plain text


def test_html_charts_have_gaps():
    body = html_page([report()])
    figure = body[body.index("<b>gpu01:0") :]
    figure = figure[: figure.index("</figure>")]
    assert figure.count('fill="var(--busy)"') == 2  # one area on either side of the gap
    assert figure.count('fill="var(--none)"') == 1
    assert body.count("<tr>") == body.count("</tr>")
    assert "://" not in body


class Nesting(HTMLParser):
    """The elements that are open."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_closes_what_it_opens():
    parser = Nesting()
    parser.feed(html_page([report(), hostile(), report(devices=report().devices * 20)]))
    assert parser.open == []


@pytest.mark.parametrize(
    ("lasts_s", "labels"),
    [
        (50, ["10:00:10", "10:00:20", "10:00:30", "10:00:40", "10:00:50"]),
        (948, ["10:05", "10:10", "10:15"]),
        (8000, ["10:30", "11:00", "11:30", "12:00"]),
        (100_000, ["Sat 12:00", "Sat 18:00", "Sun 00:00", "Sun 06:00", "Sun 12:00"]),
        (600_000, ["23 Nov", "25 Nov", "27 Nov"]),
    ],
)
def test_html_charts_have_round_times_of_the_day(lasts_s, labels, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    start = 1_795_251_605.0  # 10:00:05 there
    try:
        found = list(ticks(Axis(start, start + lasts_s)))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [text for _, text in found] == labels
    assert all(start <= at <= start + lasts_s for at, _ in found)


def test_jobs_by_waste_with_totals():
    small = replace(report(), waste_gpu_hours=0.5, job=job(id="1", user="bob"))
    none = report(waste_gpu_hours=0.0, findings=(), job=job(id="2", user="bob"))
    assert [each.job.id for each in ranked([none, small, report()])] == ["4711", "1", "2"]
    body = text_table([none, small, report()], 200)
    assert "3 jobs, 53.7 GPU-hours, 5.0 of them not used (9 %)" in body
    assert body.index("ada: 1 job") < body.index("bob: 2 jobs")
    unknown = report(efficiency={"gpu_busy_percent": None}, waste_gpu_hours=0.0)
    assert totals([unknown]).unknown_gpu_hours == 17.9
    assert "?" in text_table([unknown]).splitlines()[1]


# -- --fail-if -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("gpu.busy.p50<20", True),  # of one device
        ("devices.busy_p50 < 0", False),
        ("efficiency.cpu_percent<20 and waste_gpu_hours>=4.5", True),
        ("cpu.percent<20 and waste_gpu_hours>5", False),
        ("cpu.percent>20 or (time.percent<10 and findings.critical>0)", True),
        ("findings.gpus-partly-idle == 1", True),
        ("findings.low-sm > 0", False),
        ('job.state != "COMPLETED"', False),
        ("job.state == 'COMPLETED'", True),
        ("gpu.mem.percent > 0", False),
    ],
)
def test_gate(expression, holds):
    assert parse_gate(expression)(document(report()), set()) is holds


def test_a_value_that_is_not_known_makes_nothing_true_and_is_told():
    unknown = set()
    expression = "gpu.mem.percent<101 or tasks.measured>=0 or job.sources.any == 'sacct'"
    assert not parse_gate(expression)(document(report()), unknown)
    assert unknown == {"gpu.mem.percent", "tasks.measured", "job.sources.any"}


@pytest.mark.parametrize(
    ("misspelt", "says"),
    [
        ("findings.oom-kiled > 0", "did you mean 'oom-killed'"),
        ("findings.critcal > 0", "did you mean 'critical'"),
        ("findings.waste_gpu_hours > 0", "no level"),
        ("efficiency.cpu_precent < 9", "did you mean 'cpu_percent'"),
        ("cpu.precent < 9", "did you mean 'cpu.percent'"),
        ("gpu.busy.p90 < 9", "did you mean 'gpu.busy.p(50|95)'"),
        ("devices.bsy_p50 < 9", "did you mean 'busy_p50'"),
        ("tasks.mesured > 0 or gpu_hours < 0", "did you mean 'measured'"),
        ("gpu_hours < 0 or nothing.of.that < 9", "no report has 'nothing.of.that'"),
        ("job.state.foo == 'x'", "'job.state' is a value"),
        ("findings > 0", "name one in it"),
        ("missing > 0", "name one in it"),
    ],
)
def test_a_name_that_no_report_has_is_told_before_there_is_one(misspelt, says):
    with pytest.raises(UsageError, match=says) as caught:
        parse_gate(misspelt)
    assert "docs/report.md" in str(caught.value)


@pytest.mark.parametrize(
    ("mixed", "says"),
    [
        ("job.name < 3", 'job.name is text: compare it with a quoted text, job.name == "3"'),
        ("job.id == 4711", 'job.id == "4711"'),
        ("missing.gpu > 0", "missing.gpu is text"),
        ("waste_gpu_hours > '3'", "waste_gpu_hours is a number"),
        ("findings.critical == 'x'", "findings.critical is a number"),
        ("gpu.busy.p50 < '20'", "gpu.busy.p50 is a number"),
    ],
)
def test_text_and_numbers_are_not_compared(mixed, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        parse_gate(mixed)


def values(value, path=""):
    """The values in a document, also in lists, with their names."""
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            for name, inner in each.items():
                yield from values(inner, f"{path}.{name}".strip("."))
        elif isinstance(each, (str, int, float)):
            yield path, each


def test_the_names_of_texts_are_what_a_document_has():
    whole = report(
        attempts=(Attempt("1", 0.0, 1.0, "FAILED", "failed node n1"),),
        segments=(Attempt("2", 0.0, 1.0),),
        happenings=events(),
        ranks=(stepped(),),
        tasks=Tasks({"COMPLETED": 2}, 2, (Spread("cpu", "cores", 1, 2, 3, 4, 5, ("4711_3",)),)),
        notes=("a row was not read",),
    )
    for name, value in values(document(whole)):
        if not name.startswith("findings"):
            assert is_text(name) is isinstance(value, str), name


def objects(value, path=""):
    """Of each object in a document, also in lists, its path and its names."""
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield path, set(each)
            for name, inner in each.items():
                yield from objects(inner, f"{path}.{name}".strip("."))


def test_steps_are_listed_with_where_each_rank_stands():
    nobody = stepped(1, rank=None, devices=(), steps_per_s=None, data_wait_percent=None,
                     step_p95_s=None, places=(), worker_places=())  # fmt: skip
    made = report(ranks=(stepped(), nobody, *(stepped(n) for n in range(2, 12))))
    text = "\n".join(plain(page(made)))
    assert re.search(
        r"rank 0 gpu01:0 +12,400 +3\.1 +312 ms +410 ms +72 %\n  in train.py:88 → ", text
    )
    assert re.search(r"\nPID 4313 +12,400 +n/a +312 ms +n/a +n/a\n  in n/a", text)
    assert "\nand 4 more; --format json lists all\n" in text
    assert "| rank 0 gpu01:0 | 12,400 |   3.1 |" in markdown(made)
    assert "train.py:88 → DataLoader" in html_page([made])
    assert [each["rank"] for each in document(made)["ranks"][:3]] == [0, None, 2]
    assert document(made)["ranks"][0]["worker_places"] == [
        {"place": "data.py:31 open", "percent": 90.0}
    ]
    assert "steps by" not in "\n".join(plain(page(report())))


def test_csv_has_the_figures_of_the_json_by_their_names():
    made = [report(), report(job=job(name="=1+1", id="4712"), waste_gpu_hours=99.0)]
    rows = list(csv.DictReader(io.StringIO(render("csv", made, Medium()))))
    assert [each["job.id"] for each in rows] == ["4712", "4711"]  # the greatest waste first
    assert rows[0]["job.name"] == "'=1+1"
    body = document(made[0])
    for path in COLUMNS:
        value = body
        for part in path.split("."):
            value = value[part]
        assert rows[1][path] == ("" if value is None else str(value)), path
    assert rows[1]["findings"].split() == [each.id for each in made[0].findings]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_one_report_and_several(form):
    made = [report(), report(job=job(id="4712"))]
    one, two = render(form, made[:1], Medium()), render(form, made, Medium())
    assert one.endswith("\n")
    assert "4711" in one
    assert "4712" not in one
    assert two.endswith("\n")
    assert "4711" in two
    assert "4712" in two


def test_a_new_form_is_one_module_and_one_line(monkeypatch):
    module = types.ModuleType("gpumon.report.render.ids")
    vars(module)["render"] = lambda reports, _medium: "".join(
        f"{each.job.id}\n" for each in reports
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FORMS, "ids", "ids")
    assert render("ids", [report()], Medium()) == "4711\n"


def test_the_table_of_names_is_what_a_document_has():
    whole = report(
        attempts=(Attempt("1", 0.0, 1.0),),
        segments=(Attempt("2", 0.0, 1.0),),
        happenings=events(),
        ranks=(stepped(),),
        tasks=Tasks({"COMPLETED": 2}, 2, (Spread("cpu", "cores", 1, 2, 3, 4, 5),)),
    )
    seen = {}
    for path, names in objects(document(whole)):
        if not path.startswith("findings"):
            seen.setdefault(path, set()).update(names)
    assert {path: set(names) for path, names in PARTS.items() if names and path != "findings"} == {
        path: names for path, names in seen.items() if PARTS[path]
    }
    assert seen.keys() >= {"job.sources", "missing"}


@pytest.mark.parametrize(
    "bad", ["", "a", "a<", "<3", "a<b", "a<3 b", "(a<3", "a<3)", "a<3 and", "a;b"]
)
def test_what_is_no_expression_is_refused_in_one_sentence(bad):
    with pytest.raises(UsageError, match="--fail-if"):
        parse_gate(bad)


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_a_usage_error(words):
    try:
        parse_gate(words)(document(report()), set())
    except UsageError:
        pass


def test_gpus_of_an_unknown_model_are_counted_alone():
    nameless = replace(
        report(), devices=(), job=job(allocated=replace(job().allocated, gpu_types=()))
    )
    text = "\n".join(plain(page(nameless)))
    assert re.search(r"· \d+ GPUs? ·", text)
    assert "× GPUs" not in text
