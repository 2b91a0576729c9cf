"""What the page says of a finding: once, why it matters, and one thing to do."""

import pytest

from gpumon.analysis.finding import Action, Change, Gpus, Recommendation, ask_for
from gpumon.analysis.rules import phrasing
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.model.lines import EMPTY, Line
from gpumon.report.advice import Step, box_of, step_of, steps_of
from gpumon.report.render.layout import plain
from gpumon.report.render.page import finding_rows, page
from gpumon.report.render.plots import plot_rows
from gpumon.report.sentences import sentences
from tests.analysis.build import evidence

from .made import finding, report, row

RUN = evidence(6, [])


def said(title, text="", **told):
    made = phrasing.finding(RUN, "info", title, text, **told)
    return made.evidence, sentences(made)


def test_evidence_that_goes_on_joins_the_title():
    low = "CPU 6 % of 4 cores"
    text = f"{low} × 1 h (sacct)"
    assert said(low, rest=" × 1 h (sacct)") == (text, (f"{text}.", ""))
    assert said("the same") == ("the same", ("The same.", ""))
    assert said("gpu01: hot", "89 °C") == ("89 °C", ("gpu01: hot.", "89 °C."))  # a name stays
    text = "job A (0:125); step B, limit 1 G"
    _, spoken = said("out of memory: job A (0:125), limit 1 G", text, adds="step B, limit 1 G")
    assert spoken == ("Out of memory: job A (0:125), limit 1 G.", "Step B, limit 1 G.")


def test_why_and_how_sure_follow():
    _, rest = sentences(finding(doubt="8 of 120 min observed"))
    assert rest.endswith(f"{BY_ID['gpus-partly-idle'].why} 8 of 120 min observed.")


def test_one_step_without_the_changes_that_stand_first():
    less = Change("--mem", 64 << 30, 9 << 30)
    changes, line = (Recommendation(less, ""),), ask_for(less, text="Or less:")
    assert steps_of(finding(actions=(line,)), changes) == [Step("Or less:")]
    (whole,) = steps_of(finding(actions=(line,)), ())
    assert whole == Step("Or less:", "#SBATCH --mem=9G", "sbatch")
    fewer = Change("--gres", Gpus("gpu:", 4), Gpus("gpu:", 1))
    both = (*changes, Recommendation(fewer, ""))
    together = (ask_for(fewer, less, text="Only if it can use no more."),)
    assert steps_of(finding(actions=together), both) == [Step("Only if it can use no more.")]
    staff = Action("staff", Line("node x: hot"), text="Report it to the staff.")
    assert steps_of(finding(actions=(staff,)), ()) == [
        Step("Report it to the staff.", "node x: hot", "staff")
    ]
    assert steps_of(finding(actions=()), changes) == []


@pytest.mark.parametrize("running", [True, False])
def test_what_to_do_now_comes_before_the_request_of_next_time(running):
    save = Action("shell", EMPTY, text="Save a checkpoint now.")
    made = report(findings=(finding(actions=(save,)),), running=running)
    rows = "\n".join(plain(page(made, 100)))
    assert (rows.index("Save a checkpoint") < rows.index("#SBATCH")) == running
    assert box_of(made).brief.startswith("Save a checkpoint now") == running
    assert ("Next time" in rows) == running


def test_among_lines_of_a_script_others_are_comments():
    kill = Action("shell", Line("scancel 4711"), text="Check its output; if it is stuck, end it.")
    staff = Action("staff", Line("node x: hot"), text="Report it to the staff.")
    code = Action("code", Line("model = torch.compile(model)"))
    grow = Action("export", Line("export TF_FORCE_GPU_ALLOW_GROWTH=true"), text="Measure:")
    once = Action("try", Line("#SBATCH --mem=9G"), text="Try once: a peak may need more.")
    assert [step_of(each).commented for each in (kill, staff, code, grow)] == [
        "# Check its output; if it is stuck, end it. scancel 4711",
        "# Report: node x: hot",
        "# model = torch.compile(model)",
        "export TF_FORCE_GPU_ALLOW_GROWTH=true",
    ]
    assert step_of(kill).copied == "scancel 4711"
    tried, reported = finding(actions=(once,)), finding(actions=(staff,))
    made = box_of(report(findings=(tried, reported), recommendations=()))
    assert made.lines == ["# Report: node x: hot"]
    assert made.rest(tried) == [step_of(once)]


def test_a_line_to_write_or_to_send_is_not_broken_behind_its_sentence():
    actions = (Action("staff", Line("node gpu07: too hot"), text="Report node gpu07 with this:"),)
    (row,) = list(plain(finding_rows(finding(actions=actions), 80)))[-1:]
    assert row == "→ Report node gpu07 with this:  node gpu07: too hot"
    rows = list(plain(finding_rows(finding(actions=actions), 50)))
    assert rows[-2:] == ["→ Report node gpu07 with this:", "    node gpu07: too hot"]


def test_a_page_in_brief_leaves_out_what_it_names():
    levels = ("critical", "warning", "warning", "warning", "info")
    steps = (Action("shell", Line("one")), Action("shell", Line("two")))
    found = [finding(id="low-busy", title=f"this {n}", adds="so", level=level, actions=steps)
             for n, level in enumerate(levels)]  # fmt: skip
    made = report(findings=tuple(found), happenings=(), recommendations=())
    whole, brief = ("\n".join(plain(page(made, whole=each))) for each in (True, False))
    assert [n for n in range(5) if f"This {n}." in whole] == [0, 1, 2, 3, 4]
    assert [n for n in range(5) if f"This {n}." in brief] == [0, 1, 2]
    assert whole.count("→ one") == brief.count("→ one") == 1  # first
    assert (whole.count("→ two"), brief.count("→ two")) == (5, 0)
    assert brief.count("  So.\n") == 3
    count = len(made.not_evaluable)
    assert f"  More (--all): 2 findings, reasons, {count} skipped check" in brief
    assert "skipped: " in whole
    assert "skipped: " not in brief


def test_plots_for_four_gpus_where_there_is_room():
    four = [row("gpu01", n) for n in range(4)]
    rows = list(plain(plot_rows(four, 8049.0, 80, "braille")))
    assert len(rows) == 16
    assert rows[0].startswith("gpu01:0  busy % mem %")
    assert "gpu01:1" in rows[0]
    assert "2 h 14 min" in rows[7]
    assert max(map(len, rows)) <= 80
    assert plot_rows([row("gpu01", n) for n in range(5)], 60.0, 80, "braille") == []
    assert plot_rows(four, 60.0, 79, "braille") == []
    assert plot_rows([row("gpu01", 0, busy_over_time=(None, None))], 60.0, 80, "braille") == []
    shown = list(plain(page(report(), plots=True)))
    assert len(shown) <= 60
    assert any("100┤" in line for line in shown)
    crowded = report(findings=report().findings * 12)
    assert not any("100┤" in line for line in plain(page(crowded, plots=True)))
