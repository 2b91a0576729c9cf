"""The Report screen, one finding in full, and the strip of findings, on the recorded story."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpumon import demos
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.rules.hysteresis import Live
from gpumon.chart.figure import draw
from gpumon.config import Settings
from gpumon.pipeline.evaluator import LiveEvaluation
from gpumon.pipeline.pipeline import Pipeline
from gpumon.recording import Recording
from gpumon.report.advice import box_of
from gpumon.report.build import build
from gpumon.report.sentences import sentences
from gpumon.site.read import load_site
from gpumon.tui.app import GpumonApp
from gpumon.tui.lines import plain
from gpumon.tui.moment.remarks import label
from gpumon.tui.screens import finding
from gpumon.tui.screens.job.notes import notes
from gpumon.tui.screens.report import ReportPane
from tests.frames.framing import Gathering
from tests.tui.conftest import fill
from tests.tui.screens.processes.test_stack import FRAMES, Answers, stack
from tests.tui.test_app import Still, text

SIZES = [(80, 22), (120, 38), (200, 58)]


def items(seconds):
    return list(itertools.islice(Recording(demos.path("finetune")).items(), seconds + 1))


@pytest.fixture(scope="session")
def evaluation():
    """Fifteen minutes into the story."""
    gathering = Gathering()
    for item in items(901):
        gathering.add("gpu07", item)
    site = load_site()
    evidence = gathering.data(None, site, live=True)
    findings = Live().update(evaluate(evidence), evidence.end)
    return LiveEvaluation(findings, evidence, build(gathering.data(None, site)))


@pytest.fixture
def judged(looking, evaluation):
    return looking.at(evaluation=evaluation)


def opened(judged, number=0):
    """One of the findings, as Enter opens it; the screen of the report."""
    pane = judged.panes["report"]
    judged.draw("report", 119, 38)
    finding = judged.moment.evaluation.report.findings[number]
    titles = [each.lines for each in pane._places]
    pane.action_pick_place(titles.index((sentences(finding)[0],)))
    pane.action_open()
    return pane


def test_the_plot_of_a_finding_is_drawn_once(judged, monkeypatch):
    drawn = []
    monkeypatch.setattr(finding, "draw", lambda *how: drawn.append(how) or draw(*how))
    opened(judged)
    for width in (119, 119, 121, 121, 119):  # of which no other test draws it
        assert "busy and memory %" in plain(judged.draw("finding", width, 38).rows)
    assert len(drawn) == 3


def test_between_two_evaluations_no_values_of_a_finding_are_looked_at(judged, monkeypatch):
    looked = []
    line = finding._line
    monkeypatch.setattr(finding, "_line", lambda *how: looked.append(how) or line(*how))
    opened(judged)
    for _ in range(3):
        judged.draw("finding", 117, 38)
    assert len(looked) == 2  # memory and busy
    evaluation = judged.moment.evaluation
    judged.at(evaluation=evaluation._replace(run=replace(evaluation.run)))
    judged.draw("finding", 117, 38)
    assert len(looked) == 4


def test_findings_take_the_place_of_what_can_be_seen_at_once(looking, evaluation):
    before = [note.text for note in notes(looking.moment)]
    looking.at(evaluation=evaluation)
    after = [note.text for note in notes(looking.moment)]
    assert any("preallocated memory" in text for text in before)
    assert not any("preallocated memory" in text for text in after)
    assert any("TensorFlow preallocated 77" in text for text in after)
    assert len(after) == len(set(after))


def test_clicks_and_cursor_name_findings(judged):
    pane = opened(judged, 1)
    view = judged.draw("report", 120, 58)
    places = [f"pick_place({n})" for n in range(len(pane._places))]
    assert [zone.action for zone in view.zones] == places
    assert sentences(pane.opened)[0][:40] in plain(selected(view))


def selected(view):
    return [row for row in view.rows if any(role.endswith("+selected") for _, role in row)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_y_copies_what_is_highlighted(judged, width, height):
    """On each place from the first to the last, of the page with what Enter adds."""
    judged.show("report")
    pane = judged.pane
    judged.draw("report", width, height)
    in_brief = len(pane._places)
    pane.action_pick_place(in_brief - 1)
    pane.action_copy()
    assert "nothing to copy" in judged.said[-1]
    pane.action_open()
    judged.draw("report", width, height)
    assert len(pane._places) > in_brief > 4
    for n, place in enumerate(pane._places):
        pane.action_pick_place(n)
        shown = selected(judged.draw("report", width, height))
        pane.action_copy()
        copied, said = judged.said[-2:]
        assert copied == f"{place.lines[0]}\n"
        assert said == "copied 1 line, if the terminal allows it"
        assert len(shown) == len(place.rows)
        words = copied.removeprefix("#SBATCH ").split("=")[-1].split()
        assert all(word in plain(shown) for word in words)


@pytest.mark.parametrize("key", ["copy", "copy_all"])
def test_what_was_scrolled_away_is_copied_once_it_is_in_sight(judged, key):
    judged.show("report")
    press = getattr(judged.pane, f"action_{key}")
    for step in (0, 30):
        judged.pane.action_move(step)
        judged.draw("report", 80, 22)
    press()
    assert "press it again" in judged.said.pop()
    assert not judged.said
    assert selected(judged.draw("report", 80, 22))
    press()
    lines = box_of(judged.moment.evaluation.report).lines
    assert judged.said[0].splitlines() == (lines if key == "copy_all" else [lines[0][2:] + "."])
    judged.draw("report", 80, 3)
    judged.panes["report"].action_copy_all()
    assert "too low" in judged.said[-1]
    judged.show("nodes")
    press()
    assert "press 5" in judged.said[-1]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_first_screen_says_what_to_do_and_copies_no_more(judged, width, height):
    judged.show("job")
    shown = judged.text("job", width, height)
    judged.pane.action_copy_all()
    assert "Do this" in shown
    *_, copied, said = judged.said
    assert "copied" in said
    for line in copied.splitlines():
        assert all(word in shown for word in line.removeprefix("# ").split()), line


@pytest.mark.parametrize("height", [16, 30, 58, 78])
def test_a_wide_screen_has_the_page_in_two_columns(judged, height):
    """Nothing is lost, and a click goes to the finding under it in either."""
    rows = plain(judged.draw("report", 169, 200).rows).splitlines()[1:]
    judged.pane = judged.panes["report"]
    view = judged.draw("report", 204, height)
    left, right = zip(*((row[:102], row[102:]) for row in plain(view.rows).splitlines()[1:]))
    seen = [row.strip() for row in (*left, *right) if row.strip()]
    assert seen == [row.strip() for row in rows if row.strip()][: len(seen)]
    assert len(seen) > height or len(seen) == len(list(filter(None, rows)))
    for zone in view.zones:
        row = plain(view.rows).splitlines()[zone.y]
        assert row[zone.x : zone.x + 4].strip()[:1] in ("▲", "·", "●", "→", "#", "M")


def test_without_a_verdict_it_says_what_it_waits_for(looking):
    assert "collecting data" in looking.text("report", 80, 22)
    looking.pipeline.trouble = "no findings: OSError: x"
    assert "OSError" in looking.text("report", 80, 22)


# -- the app ---------------------------------------------------------------------------------------


def ready(app, evaluation):
    app._pipeline._evaluator.latest = evaluation
    app.draw()


async def test_keys_of_the_report(tmp_path, monkeypatch, evaluation):
    monkeypatch.chdir(tmp_path)
    store, now = fill(500)
    app = GpumonApp(Pipeline(Still(now), store=store), Settings())
    copied = []
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("y")
        assert "press 5 for the report" in text(app)
        await pilot.press("5")
        ready(app, evaluation)
        pane = app.panes["report"]
        assert isinstance(pane, ReportPane)
        findings = evaluation.report.findings
        place = [each.finding for each in pane._places].index(findings[1])
        await pilot.press(*["down"] * place, "enter")
        assert app.pane.name == "finding"
        assert pane.opened is findings[1]
        await pilot.press("y", "escape")
        assert app.pane.name == "report"
        await pilot.press("e")
        (saved,) = tmp_path.glob("*.md")
        assert saved.name == "gpumon-report-4711.md"
        assert "finetune-llama" in saved.read_text()
        await pilot.press("pagedown", "end", "home", "up", "escape")
        assert app.pane.name == "job"
    finding = evaluation.report.findings[1]
    said = [each.after for each in finding.actions if each.after] or [sentences(finding)[0]]
    assert copied == ["\n".join(said) + "\n"]


def test_a_suspected_hang_shows_where_its_process_is(judged):
    report, pane = opened(judged), judged.panes["finding"]
    node, device = next(each for each in judged.moment.devices if each[0].keys("usage"))
    hang = replace(report.opened, id="suspected-hang", devices=(label(node, device),))
    pids = {key[1] for key in node.keys("usage") if key[0] == device.key}
    pane._stacks = answers = Answers(stack(*FRAMES))
    pane._report = SimpleNamespace(opened=hang)
    judged.pane = pane
    for width, height in SIZES:
        rows = judged.draw("finding", width, height).rows
        assert len(rows) <= height
        shown = plain(rows)
    assert f" PID {min(pids)} on {node.name}; gpumon stack shows every rank" in shown
    assert "train.py:131" in shown
    pane.action_stack()
    assert answers.asked == [(node.name, min(pids))]
    pane._report = SimpleNamespace(opened=replace(hang, id="cpu-limited"))
    assert "train.py:131" not in judged.text("finding", 120, 38)
    pane.action_stack()
    assert len(answers.asked) == 1
    assert "no process of this finding" in judged.said[-1]
