"""Time rules: the limit is near, far, or was the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.findings import time
from gpumon.analysis.rules import NotEvaluable
from gpumon.model.sample import Event
from gpumon.slurm.job import Job, Step
from tests.analysis.build import START, device, evidence
from tests.analysis.test_recommend import job, run

CHECK = {rule.id: rule.check for rule in time.RULES}


def only(name, this):
    answer = CHECK[name](this)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


def running(count, limit, **rest):
    return run(count=count, made=job("RUNNING", limit=limit), live=True, **rest)


@pytest.mark.parametrize(
    ("elapsed_h", "level"), [(11.62, "critical"), (10.7, None), (11.0, "critical"), (6, None)]
)
def test_time_is_running_out(elapsed_h, level):
    answer = CHECK["time-short"](running(int(elapsed_h * 360), 43_200))
    assert [each.level for each in answer] == ([level] if level else [])


def test_half_an_hour_left_of_a_short_job():
    found = only("time-short", running(240, 3600))  # 20 min of an hour
    assert (found.level, found.harm_in_s) == ("warning", 1200)
    assert "--signal" in found.actions[0].after
    assert CHECK["time-short"](running(30, 1200)) == []  # five minutes into 20


def test_marks_that_promise_an_end_in_time():
    def marks(*texts):
        return [("gpu01", Event(START + 600.0 * n, "mark", text=text))
                for n, text in enumerate(texts, 1)]  # fmt: skip

    on_time = running(330, 3600, events=marks("epoch 1/5", "epoch 2/5", "3/5", "4/5", "epoch 5/5"))
    assert CHECK["time-short"](on_time) == []
    late = running(330, 3600, events=marks("epoch 1/50", "epoch 2/50"))
    assert "by your marks it needs" in only("time-short", late).title
    assert only("time-short", running(330, 3600, events=marks("1/0", "9/4")))


def test_a_limit_that_is_not_known_is_not_judged():
    assert isinstance(CHECK["time-short"](running(330, None)), NotEvaluable)
    made = Job(state="COMPLETED", elapsed_s=3600, time_limit_words="UNLIMITED")
    answer = CHECK["time-over"](run(made=made))
    assert answer == NotEvaluable("time limit UNLIMITED")


@pytest.mark.parametrize(
    ("elapsed", "limit", "level"),
    [
        (1920, 18_000, "info"),
        (1920, 21_600, "warning"),
        (11_000, 18_000, None),
        (890, 18_000, None),
    ],
)
def test_far_more_time_than_was_used(elapsed, limit, level):
    answer = CHECK["time-over"](run(count=elapsed // 10, made=job(elapsed=elapsed, limit=limit)))
    assert [each.level for each in answer] == ([level] if level else [])


def test_used_of_limit_and_the_line():
    found = only("time-over", run(count=192, made=job(elapsed=1920, limit=18_000)))
    assert found.title == "used 00:32:00 of its time limit of 05:00:00 (11 %)"
    assert found.actions[0].after == "#SBATCH --time=00:45:00"


def test_a_page_of_jobstats():
    made = job(elapsed=67_316, limit=345_600)
    assert only("time-over", run(count=6731, made=made)).level == "info"  # 19.5 %


@pytest.mark.parametrize("state", ["CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"])
def test_only_completed_jobs_prove_how_long_it_takes(state):
    assert CHECK["time-over"](run(made=job(state, elapsed=3600, limit=86_400))) == []


def test_the_longest_task_of_the_array_counts():
    others = [job(elapsed=16_000, limit=18_000, id="4711_2")]
    this = run(made=job(elapsed=3600, limit=18_000), siblings=others)
    assert CHECK["time-over"](this) == []


def test_ended_by_the_limit():
    batch = Step("batch", state="CANCELLED")
    made = job("TIMEOUT", elapsed=88, limit=60, steps=(batch,))
    found = only("timed-out", run(count=9, made=made))
    assert found.numbers["used_percent"] == 100  # 88 s of 60
    assert found.actions[0].after == "#SBATCH --time=00:02:00"
    assert CHECK["timed-out"](run(made=job(steps=(batch,)))) == []


def test_gpus_idle_at_the_end_make_the_limit_no_cause():
    made = job("TIMEOUT", elapsed=3600, limit=3600, gpus=1)
    idle = run(made=made, devices=[device(360, busy_percent=[90] * 180 + [0] * 180)])
    found = only("timed-out", idle)
    assert "idle for the last 30 m" in found.title
    assert [each.after for each in found.actions] == ["#SBATCH --signal=B:USR1@300"]
    busy = only("timed-out", run(made=made, devices=[device(360, busy_percent=96)]))
    assert "worked until the end" in busy.title
    unknown = only("timed-out", run(made=made, devices=[device(360)]))
    assert "worked" not in unknown.title
    assert "idle" not in unknown.title


@given(
    st.sampled_from(["", "RUNNING", "COMPLETED", "TIMEOUT", "XYZ"]),
    st.none() | st.floats(0, 1e9), st.none() | st.floats(0, 1e9), st.booleans(),
    st.text(max_size=20),
)  # fmt: skip
def test_no_rule_fails_and_none_fires_without_signals(state, elapsed, limit, live, mark):
    events = [("gpu01", Event(START + n, "mark", text=f"{n}/{mark}")) for n in (1, 2)]
    this = evidence(60, job=Job(state=state, elapsed_s=elapsed, time_limit_s=limit), live=live,
                    events=events)  # fmt: skip
    fired = {name for name, check in CHECK.items() if isinstance(f := check(this), list) and f}
    if not limit:
        assert fired <= {"timed-out"}
    if not state:
        assert fired <= {"time-short"}
