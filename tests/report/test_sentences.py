"""What the page says of a finding: once, why it matters, and one thing to do."""

from gpumon.analysis.finding import Action, Recommendation
from gpumon.model.lines import EMPTY, Line
from gpumon.report.page import finding_rows, page, plain
from gpumon.report.plots import plot_rows
from gpumon.report.sentences import sentences, steps_of
from gpumon.report.why import WHY

from .made import finding, report, row


def said(title, evidence, **changes):
    return sentences(finding(title=title, evidence=evidence, id="none", **changes))


def test_evidence_that_goes_on_joins_the_title():
    assert said("CPU 6 % of 4 cores", "CPU 6 % of 4 cores × 1 h (sacct)") == (
        "CPU 6 % of 4 cores × 1 h (sacct).", "",
    )  # fmt: skip
    assert said("GPUs 0,1 busy 87 % but SM 73 %", "busy 87 % but SM 73 % for 1 h") == (
        "GPUs 0,1 busy 87 % but SM 73 % for 1 h.", "",
    )  # fmt: skip
    title, rest = said(
        "out of memory: job A (0:125), limit 1 G", "job A (0:125); step B, limit 1 G"
    )
    assert (title, rest) == ("Out of memory: job A (0:125), limit 1 G.", "Step B, limit 1 G.")
    assert said("the same", "the same.") == ("The same.", "")
    assert said("gpu01: hot", "89 °C") == ("gpu01: hot.", "89 °C.")  # a name keeps its letters


def test_why_and_how_sure_follow():
    _, rest = sentences(finding(confidence="low"))
    assert rest.endswith(f"{WHY['gpus-partly-idle']} Low confidence.")


def test_one_step_that_names_the_change_below():
    changes = (Recommendation("--mem", Line("64G"), Line("9G"), ""),)
    line = Action("sbatch", Line("#SBATCH --mem=9G"), Line("#SBATCH --mem=64G"), "Or less:")
    assert steps_of(finding(actions=(line,)), changes) == ["Ask for --mem=9G (below). Or less"]
    assert steps_of(finding(actions=(line,)), ()) == ["Or less: #SBATCH --mem=9G"]
    deleted = Action("sbatch", EMPTY, Line("#SBATCH --gres=gpu:1"))
    change = Recommendation("--gres", Line("gpu:1"), EMPTY, "")
    assert steps_of(finding(actions=(deleted,)), (change,)) == ["Delete --gres (below)."]
    several = (Action("code", EMPTY, text="Use them all:"), Action("code", Line("torchrun x")))
    assert steps_of(finding(actions=several), ()) == ["Use them all: torchrun x"]
    staff = Action("staff", Line("node x: hot"), text="Report it to the staff.")
    assert steps_of(finding(actions=(staff,)), ()) == ["Report it to the staff."]
    assert steps_of(finding(actions=()), changes) == []


def test_the_page_has_one_step_and_the_screen_all():
    several = finding(actions=(Action("shell", Line("one")), Action("shell", Line("two"))))
    rows = "\n".join(plain(page(report(findings=(several,)))))
    assert "→ one" in rows
    assert "→ two" not in rows
    assert "→ two" in "\n".join(plain(finding_rows(several, 80)))


def test_plots_for_four_gpus_where_there_is_room():
    four = [row("gpu01", n) for n in range(4)]
    rows = list(plain(plot_rows(four, 8049.0, 80, "braille")))
    assert len(rows) == 16
    assert rows[0].startswith("gpu01:0  busy % mem %")
    assert "gpu01:1" in rows[0]
    assert "02:14:09" in rows[7]
    assert max(map(len, rows)) <= 80
    assert plot_rows([row("gpu01", n) for n in range(5)], 60.0, 80, "braille") == []
    assert plot_rows(four, 60.0, 79, "braille") == []
    assert plot_rows([row("gpu01", 0, busy_over_time=(None, None))], 60.0, 80, "braille") == []
    shown = list(plain(page(report(), plots=True)))
    assert len(shown) <= 60
    assert any("100┤" in line for line in shown)
    crowded = report(findings=report().findings * 12)
    assert not any("100┤" in line for line in plain(page(crowded, plots=True)))
