"""Time rules: the limit is near, far, or was the end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.finding import Lack, NotEvaluable
from gpumon.analysis.rightsize.recommend import recommend
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.analysis.rundata import Coverage
from gpumon.model.sample import Event, Process
from gpumon.slurm.job import Job, Step, Usage
from tests.analysis.build import START, device, evidence, track
from tests.analysis.rightsize.test_recommend import job, run

CHECK = BY_ID


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
    assert [each.after for each in found.actions] == ["", "#SBATCH --time=02:00:00", ""]
    assert found.actions[0].text.startswith("Save a checkpoint now")
    assert CHECK["time-short"](running(30, 1200)) == []  # five minutes into 20


def test_marks_that_promise_an_end_in_time():
    def marks(*texts):
        return [("gpu01", Event(START + 600.0 * n, "mark", text=text))
                for n, text in enumerate(texts, 1)]  # fmt: skip

    on_time = running(330, 3600, events=marks("epoch 1/5", "epoch 2/5", "3/5", "4/5", "epoch 5/5"))
    assert CHECK["time-short"](on_time) == []
    late = running(330, 3600, events=marks("epoch 1/50", "epoch 2/50"))
    assert "by your progress marks it needs" in only("time-short", late).title
    assert only("time-short", running(330, 3600, events=marks("1/0", "9/4")))


def test_a_limit_that_is_not_known_is_not_judged():
    assert isinstance(CHECK["time-short"](running(330, None)), NotEvaluable)
    made = Job(state="COMPLETED", elapsed_s=3600, time_limit_words="UNLIMITED")
    answer = CHECK["time-over"](run(made=made))
    assert answer == NotEvaluable(Lack.SLURM, "time limit UNLIMITED")


@pytest.mark.parametrize(
    ("elapsed", "limit", "level"),
    [
        (1920, 18_000, "info"),
        (1920, 21_600, "warning"),
        (960, 86_400, "info"),  # perhaps a test
        (11_000, 18_000, None),
        (890, 18_000, None),
    ],
)
def test_far_more_time_than_was_used(elapsed, limit, level):
    answer = CHECK["time-over"](run(count=elapsed // 10, made=job(elapsed=elapsed, limit=limit)))
    assert [each.level for each in answer] == ([level] if level else [])


def test_used_of_limit_and_the_line():
    found = only("time-over", run(count=192, made=job(elapsed=1920, limit=18_000)))
    assert found.title == "completed in 32 min of its limit of 5 h 00 min (11 %)"
    assert found.actions[0].after == "#SBATCH --time=01:00:00"


def test_one_short_run_gives_no_line():
    found = only("time-over", run(count=96, made=job(elapsed=960, limit=86_400)))
    assert found.actions[0].text == "If other runs are as short, --time=00:30:00 will do."
    assert found.change("--time") is None


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


@pytest.mark.parametrize(
    "rest",
    [
        {"restarts": 1},
        {"submit_line": "sbatch -d singleton job.sh"},
        {"submit_line": "sbatch --dependency=afterany:4710 job.sh"},
        {"submit_line": "sbatch --signal=B:USR1@300 job.sh"},
        {"submit_line": "sbatch --requeue job.sh"},
        {"submit_line": "sbatch resume.sh"},
        {"name": "train-ckpt"},
        {"submit_line": "salloc -c 4"},
        {"submit_line": "srun -c 4 --pty bash"},
        {"submit_line": "sbatch jupyter.sh"},
        {"name": "interactive"},
    ],
)
def test_a_part_of_a_run_or_a_session_shows_no_limit(rest):
    answer = CHECK["time-over"](run(count=192, made=job(elapsed=1920, limit=18_000, **rest)))
    assert isinstance(answer, NotEvaluable)


def test_an_earlier_attempt_makes_the_last_one_a_part():
    made = job(elapsed=1920, limit=18_000)
    before = replace(made, state="NODE_FAIL", elapsed_s=9000, start=START - 20_000)
    answer = CHECK["time-over"](run(count=192, made=made, siblings=[before, made]))
    assert isinstance(answer, NotEvaluable)


def test_a_job_that_did_nothing_needs_no_longer_limit():
    made = job("TIMEOUT", elapsed=3600, limit=3600, gpus=0, cpu_s=2.0,
               steps=(Step("batch", cpu_s=2.0, usage=Usage({"cpu": 2.0})),))  # fmt: skip
    made = replace(made, allocated=replace(made.allocated, tres={"cpu": 8}))
    bare = evidence(360, job=made, coverage=Coverage("sacct", 0.0, None))
    bare.nodes.clear()
    assert only("cpu-never-used", bare)
    assert only("timed-out", bare).change("--time") is None


def test_ended_by_the_limit():
    batch = Step("batch", state="CANCELLED")
    made = job("TIMEOUT", elapsed=88, limit=60, steps=(batch,))
    found = only("timed-out", run(count=9, made=made))
    assert found.numbers["used_percent"] == 100  # 88 s of 60
    assert found.actions[0].after == "#SBATCH --time=00:02:00"
    assert CHECK["timed-out"](run(made=job(steps=(batch,)))) == []


def test_a_session_gets_no_longer_limit():
    made = job("TIMEOUT", elapsed=28_815, limit=28_800, name="jupyter")
    found = only("timed-out", run(count=9, made=made))
    assert found.change("--time") is None
    assert [each.text for each in found.actions if "Save your work" in each.text]


def test_a_longer_limit_is_a_question_to_the_partition_and_after_a_long_one_comes_second():
    for limit, place in ((3600, 0), (7 * 86_400, 1)):
        this = run(made=job("TIMEOUT", elapsed=limit, limit=limit))
        found = only("timed-out", this)
        assert found.actions[place].changes
        assert "if the partition allows it" in found.actions[place].text
        assert "checkpoint" in found.actions[1 - place].text
        (line,) = recommend(this, [found])
        assert line.adds == "if the partition allows it"


def test_no_longer_limit_for_a_session_nor_for_a_job_that_has_its_limit_signalled():
    made = job("TIMEOUT", elapsed=3600, limit=3600)
    for changes, words in (
        ({"partition": "interactive"}, "Save your work"),
        ({"submit_line": "sbatch --signal=B:USR1@300 train.sh"}, "saved a checkpoint"),
    ):
        found = only("timed-out", run(made=replace(made, **changes)))
        [action] = found.actions
        assert words in action.text
        assert found.change("--time") is None


def test_a_notebook_without_gpus_is_a_session():
    kernel = Process(4312, "ada", "python -m ipykernel_launcher", "python", in_job=True)
    this = run(made=job("TIMEOUT", elapsed=3600, limit=3600))
    this.nodes[0].processes[4312] = (kernel, track(1.0, 360))
    assert only("timed-out", this).change("--time") is None


def test_gpus_idle_at_the_end_make_the_limit_no_cause():
    made = job("TIMEOUT", elapsed=3600, limit=3600, gpus=1)
    idle = run(made=made, devices=[device(360, busy_percent=[90] * 180 + [0] * 180)])
    found = only("timed-out", idle)
    assert "idle for the last 30 min" in found.title
    [action] = found.actions
    assert "what the program did at the end" in action.text
    busy = only("timed-out", run(made=made, devices=[device(360, busy_percent=96)]))
    assert "worked until the end" in busy.title
    assert [each.after for each in busy.actions] == ["#SBATCH --time=02:00:00", ""]
    unknown = only("timed-out", run(made=made, devices=[device(360)]))
    assert "worked" not in unknown.title
    assert "idle" not in unknown.title


def test_a_limit_that_came_in_a_pause_is_not_said_to_have_ended_work():
    made = job("TIMEOUT", elapsed=3600, limit=3600, gpus=1)
    pause = run(made=made, devices=[device(360, busy_percent=[90] * 320 + [0] * 40)])
    found = only("timed-out", pause)
    assert "idle for the last 6 min" in found.title
    assert found.change("--time")  # it may have gone on
    pause = run(made=made, devices=[device(360, busy_percent=90)])
    pause.end += 1800  # the samples end before the job
    assert "worked" not in only("timed-out", pause).title


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
