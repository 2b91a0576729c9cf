"""The Report screen, one finding in full, and the strip of findings, on the recorded story."""

import itertools
import threading
import time

import pytest

from gpumon import demos
from gpumon.analysis.catalogue import evaluate
from gpumon.analysis.gather import Gathering
from gpumon.analysis.hysteresis import Live
from gpumon.config import Settings
from gpumon.model.sample import Event, Sample
from gpumon.report.build import build
from gpumon.site.read import load_site
from gpumon.sources.replay import read_stream
from gpumon.store import Store
from gpumon.tui.app import GpumonApp
from gpumon.tui.judging import _MAX_WAITING, Judging, Verdict
from gpumon.tui.lines import plain
from gpumon.tui.views.job import job_view
from gpumon.tui.views.notes import notes
from gpumon.tui.views.report import finding_view, report_view
from tests.tui.conftest import fill
from tests.tui.test_app import Still

SIZES = [(80, 22), (120, 38), (200, 58)]


def items(seconds):
    return list(itertools.islice(read_stream(demos.path("finetune")), seconds + 1))


@pytest.fixture(scope="session")
def verdict():
    """Fifteen minutes into the story."""
    gathering = Gathering()
    for item in items(901):
        gathering.add("gpu07", item)
    site = load_site()
    evidence = gathering.evidence(None, site, live=True)
    findings = Live().update(evaluate(evidence), evidence.end)
    return Verdict(findings, evidence, build(gathering.evidence(None, site)))


@pytest.fixture
def judged(state, verdict):
    state.verdict = verdict
    return state


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_report(judged, golden, width, height):
    golden(f"report-{width}x{height}", report_view(judged, width, height).rows)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_finding(judged, golden, width, height):
    judged.opened_finding = judged.verdict.report.findings[0]
    rows = finding_view(judged, width, height).rows
    assert len(rows) <= height
    golden(f"finding-{width}x{height}", rows)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_strip_of_the_job_screen_has_the_findings(judged, golden, width, height):
    golden(f"judged-{width}x{height}", job_view(judged, width, height).rows)


def test_findings_take_the_place_of_what_can_be_seen_at_once(state, verdict):
    before = [note.text for note in notes(state)]
    state.verdict = verdict
    after = [note.text for note in notes(state)]
    assert any("reserves memory" in text for text in before)
    assert not any("reserves memory" in text for text in after)
    assert any("TensorFlow reserved" in text for text in after)
    assert len(after) == len(set(after))


def test_clicks_and_cursor_name_findings(judged):
    judged.report_cursor = 1
    view = report_view(judged, 120, 58)
    assert [zone.action for zone in view.zones[:2]] == ["pick_finding(0)", "pick_finding(1)"]
    selected = [row for row in view.rows if any(role.endswith("+selected") for _, role in row)]
    title = judged.verdict.report.findings[1].title
    assert title.rstrip(".")[:40] in plain(selected)


def test_without_a_verdict_it_says_what_it_waits_for(state):
    assert "gathering" in plain(report_view(state, 80, 22).rows)
    state.verdict_trouble = "no findings: OSError: x"
    assert "OSError" in plain(report_view(state, 80, 22).rows)


# -- the app ---------------------------------------------------------------------------------------


def ready(app, verdict):
    app.judging.latest = verdict
    app.draw()


async def test_keys_of_the_report(tmp_path, monkeypatch, verdict):
    monkeypatch.chdir(tmp_path)
    store, now = fill(500)
    app = GpumonApp(Still(now), store, Settings())
    copied = []
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("y")
        assert "5 shows the report" in app.state.message
        await pilot.press("5")
        ready(app, verdict)
        await pilot.press("down", "enter")
        assert app.state.view == "finding"
        assert app.state.opened_finding is verdict.report.findings[1]
        await pilot.press("y", "escape")
        assert app.state.view == "report"
        await pilot.press("e")
        (saved,) = tmp_path.glob("*.md")
        assert saved.name == "gpumon-report-4711.md"
        assert "finetune\\-llama" in saved.read_text()
        await pilot.press("pagedown", "end", "home", "up", "escape")
        assert app.state.view == "job"
    lines = [each.after for each in verdict.report.findings[1].actions if each.after]
    assert copied == (["\n".join(lines) + "\n"] if lines else [])


# -- judging ---------------------------------------------------------------------------------------


def soon(holds):
    deadline = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_samples_are_judged_beside_the_store():
    store = Store()
    judging = Judging(store)
    for item in items(700):
        if hasattr(item, "devices"):
            judging.header("gpu07", item)
        else:
            judging.add("gpu07", item)
    judging.wants_report = True
    judging.start(lambda: None)
    try:
        verdict = soon(lambda: judging.latest)
        assert store.nodes()[0].devices()
        assert "alloc-all-tf" in {each.id for each in verdict.findings}
        assert verdict.report.job.id == "4711"
        assert judging.trouble == ""
        judging.reset()
        soon(lambda: judging.latest is None)
    finally:
        judging.stop()
    soon(lambda: not any(thread.name == "judging" for thread in threading.enumerate()))


def test_what_cannot_wait_is_a_gap_and_its_events_are_taken():
    """A thread that is held up for long fills no memory; of a replay more may wait."""
    (header,) = items(0)
    live, replayed = Judging(Store()), Judging(Store(), replayed=True)
    for judging in (live, replayed):
        judging.header("gpu07", header)
        for second in range(2 * _MAX_WAITING + 1000):
            at = header.time + second
            events = [Event(at, "process-end", pid=second)]
            events += [Event(at, "mark", text="here")] if second == _MAX_WAITING + 500 else []
            judging.add("gpu07", Sample(at, at, {"host": {"": {"cpu_percent": 5}}}, {}, events))
    assert len(live._waiting) == 2 * _MAX_WAITING
    # the header waited, too
    for judging, last in ((live, _MAX_WAITING - 2), (replayed, 2 * _MAX_WAITING + 999)):
        judging.start(lambda: None)
        try:
            evidence = soon(lambda judging=judging: judging.latest).evidence
        finally:
            judging.stop()
        assert evidence.end == header.time + last
        assert [each.text for _, each in evidence.events if each.kind == "mark"] == ["here"]


def test_a_broken_site_file_costs_the_findings_alone(monkeypatch, tmp_path):
    (tmp_path / "site.toml").write_text("x = [")
    monkeypatch.setenv("GPUMON_SITE", str(tmp_path / "site.toml"))
    judging = Judging(Store())
    judging.start(lambda: None)
    assert "site.toml" in soon(lambda: judging.trouble)


def test_more_nodes_than_can_be_judged_are_only_shown():
    store = Store()
    judging = Judging(store)
    header = items(0)[0]
    for number in range(257):
        judging.header(f"n{number:03d}", header._replace(node=f"n{number:03d}"))
    assert len(store.nodes()) == 257
    assert "gpumon report" in judging.trouble
