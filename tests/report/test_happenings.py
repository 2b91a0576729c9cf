"""What a report says happened when: marks, Xids, lost GPUs, memory errors."""

import re
import time

import pytest

from gpumon import cli
from gpumon.model.sample import Event, State
from gpumon.recording import Recorder
from gpumon.report.build import build
from gpumon.report.happenings import happenings
from gpumon.report.render.events import worst
from gpumon.report.render.json import document
from gpumon.report.render.markdown import markdown
from gpumon.report.render.text import text
from gpumon.services.runs import open_last, run_of
from tests.analysis.build import device, evidence, track
from tests.cli.test_compare import START, run
from tests.frames.framing import FramedRecorder
from tests.report.made import events, happened, report


def xid(at, text="31", key=0):
    return Event(START + at, "xid", key, None, text)


def told(found):
    return [(each.time and round(each.time - START), each.label, each.text, each.level, each.count)
            for each in found]  # fmt: skip


def test_they_come_by_time_and_the_same_in_a_row_is_one():
    one = device(60, busy_percent=90)
    one.xids.extend(xid(at) for at in (300, 310, 320))
    one.states.append(Event(START + 400, "state", 0, None, "hung", {"detail": "nvmlX"}))
    one.states.append(Event(START + 450, "state", 0, None, "well"))
    other = device(60, 1, busy_percent=90)
    other.xids.append(xid(350, "79", 1))
    mark = Event(START + 100, "mark", text="epoch 2")
    data = evidence(60, [one, other], events=[("gpu01", mark), ("gpu01", mark)])
    assert told(happenings(data)) == [
        (100, "", "mark: epoch 2", "info", 1),
        (300, "gpu01:0", "Xid 31", "warning", 3),
        (350, "gpu01:1", "Xid 79 (fell off the bus)", "critical", 1),
        (400, "gpu01:0", "the driver did not respond: nvmlX", "warning", 1),
        (450, "gpu01:0", "the driver responds again", "info", 1),
    ]


def test_stretches_that_cost_speed_are_events_and_power_caps_are_not():
    one = device(120, busy_percent=90)
    shares = [0.0] * 120
    shares[10:20] = [0.5] * 10
    shares[24:40] = [0.5] * 16
    shares[60:64] = [1.0] * 4  # too short
    shares[100:110] = [0.2] * 10
    one.throttle["hw_thermal"] = one.throttle["sw_thermal"] = track(shares)  # one word for both
    one.throttle["sw_power_cap"] = track([1.0] * 120)
    data = evidence(120, [one])
    (found,) = happenings(data)
    assert found.time == data.grid_start + 100
    assert (found.label, found.kind, found.text, found.level, found.count) == (
        "gpu01:0", "throttle", "throttled (heat)", "warning", 2,
    )  # fmt: skip
    assert found.duration_s == 300 + 100  # 40 s between two stretches are part of them


def test_memory_errors_of_an_older_recording_have_no_time():
    one = device(60, busy_percent=90)
    one.counters["ecc_uncorrected"] = 2.0
    (found,) = happenings(evidence(60, [one]))
    assert (found.time, found.text, found.level) == (
        None, "2 uncorrectable memory errors", "critical",
    )  # fmt: skip


@pytest.fixture
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_every_form_says_what_happened_and_when():
    made = report(happenings=events())
    lines = text(made).splitlines()
    at = lines.index("Events")
    assert lines[at + 1 : at + 9] == [
        "· 18:50:00                 mark: epoch 1",
        "▲ 19:13:20        gpu01:0  Xid 31 (57 times)",
        "● 19:46:40        gpu01:1  Xid 79 (fell off the bus)",
        "● 19:46:50        gpu01:1  dropped off the bus: GPU is lost",
        "· 20:20:00                 mark: epoch 2",
        "▲ 20:36:40        gpu01:0  throttled (power brake), 6 min",
        "· 20:53:20        gpu01:0  the driver responds again",
        "● during the run  gpu02:2  2 uncorrectable memory errors",
    ]
    rows = markdown(made).split("### Events")[1].splitlines()
    assert [cell.strip() for cell in rows[6].split("|")[1:-1]] == [
        "19:46:40", "critical", "gpu01:1", "Xid 79 (fell off the bus)",
    ]  # fmt: skip
    first, *_, last = document(made)["events"]
    assert first == {
        "time": 1_795_200_600.0, "duration_s": None, "subject": None, "kind": "mark",
        "text": "mark: epoch 1", "level": "info", "count": 1,
    }  # fmt: skip
    assert (last["time"], last["subject"]) == (None, "gpu02:2")


def test_the_worst_and_the_first_are_listed_and_the_others_counted():
    many = [happened(at=at, level="info", text="mark") for at in range(0, 1000, 100)]
    many += [happened(at=1000 + at, text=f"Xid {at}") for at in range(10)]
    found, more = worst(many, 12)
    assert [each.text for each in found] == ["mark"] * 2 + [f"Xid {n}" for n in range(10)]
    assert more == 8
    made = report(happenings=tuple(many))
    assert "and 12 more of the same or a lower level" in text(made)
    assert "and 12 more of the same or a lower level" in markdown(made)
    assert len(document(made)["events"]) == 20
    assert "Events" not in text(report())


def test_a_run_of_more_than_a_day_says_which_day():
    made = report(happenings=events(), elapsed_s=90_000.0)
    assert re.search(r"\d\d Nov \d\d:\d\d:00 +mark: epoch 1", text(made))


def test_what_a_file_claims_of_them_is_text():
    one = device(60, busy_percent=90)
    one.states.append(Event(START, "ecc", 0, None, "many\x1b[2J"))
    one.states.append(Event(START + 9, "state", 0, None, "<b>"))
    texts = [each.text for each in happenings(evidence(60, [one]))]
    assert texts == ["1 uncorrectable memory error", "<b>"]


@pytest.mark.parametrize("kind", [Recorder, FramedRecorder], ids=["samples", "frames"])
def test_a_recording_says_when_memory_errors_came_and_the_gpu_was_lost(tmp_path, kind, capsys):
    clock = [0.0]
    recorder = kind(str(tmp_path / "r.gpumon"), clock=lambda: clock[0])
    header, *samples = run(90, seconds=900)
    recorder.header(header)
    for at, sample in enumerate(samples):
        clock[0] = float(at)
        if at % 60 == 0:
            sample.rows["device"][0]["ecc_uncorrected"] = 7 + 2 * (at >= 300)
        events = [*sample.events, xid(700, "79")] if at == 700 else sample.events
        states = {0: State("lost", START + 705, "GPU is lost")} if at >= 705 else {}
        recorder.add(sample._replace(events=events, states=states))
    recorder.end("done")
    recorder.close()
    report = build(run_of(open_last(recorder.path)).data(shared=True))
    assert told(report.happenings) == [
        (300, "gpu01:0", "2 uncorrectable memory errors", "critical", 1),
        (700, "gpu01:0", "Xid 79 (fell off the bus)", "critical", 1),
        (705, "gpu01:0", "dropped off the bus: GPU is lost", "critical", 1),
    ]
    page = tmp_path / "r.html"
    assert cli.main(["report", recorder.path, "-o", str(page)]) == 0
    assert page.read_text().count('<span class="is-critical"') == 2  # two of them are near
