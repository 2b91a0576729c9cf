"""Time rules: the limit is near, far, or was the end."""

from dataclasses import replace

import pytest

from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.model.sample import Event
from tests.analysis.build import START, device
from tests.analysis.rightsize.test_recommend import job, run

CHECK = BY_ID


def only(name, this):
    answer = CHECK[name](this)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


def running(count, limit, **rest):
    return run(count=count, made=job("RUNNING", limit=limit), live=True, **rest)


def test_marks_that_promise_an_end_in_time():
    def marks(*texts):
        return [("gpu01", Event(START + 600.0 * n, "mark", text=text))
                for n, text in enumerate(texts, 1)]  # fmt: skip

    on_time = running(330, 3600, events=marks("epoch 1/5", "epoch 2/5", "3/5", "4/5", "epoch 5/5"))
    assert CHECK["time-short"](on_time) == []
    assert only("time-short", running(330, 3600, events=marks("epoch 1/50", "epoch 2/50")))
    assert only("time-short", running(330, 3600, events=marks("1/0", "9/4")))


def test_one_short_run_gives_no_line():
    found = only("time-over", run(count=96, made=job(elapsed=960, limit=86_400)))
    assert found.change("--time") is None


@pytest.mark.parametrize("rest", [
    {"restarts": 1}, {"name": "train-ckpt"}, {"name": "interactive"},
    *({"submit_line": each} for each in (
        "sbatch -d singleton job.sh", "sbatch --dependency=afterany:4710 job.sh",
        "sbatch --signal=B:USR1@300 job.sh", "sbatch --requeue job.sh", "sbatch resume.sh",
        "salloc -c 4", "srun -c 4 --pty bash", "sbatch jupyter.sh",
    )),
])  # fmt: skip
def test_a_part_of_a_run_or_a_session_shows_no_limit(rest):
    answer = CHECK["time-over"](run(count=192, made=job(elapsed=1920, limit=18_000, **rest)))
    assert isinstance(answer, NotEvaluable)


def test_a_session_gets_no_longer_limit():
    made = job("TIMEOUT", elapsed=28_815, limit=28_800, name="jupyter")
    found = only("timed-out", run(count=9, made=made))
    assert found.change("--time") is None


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


def test_a_limit_that_came_in_a_pause_is_not_said_to_have_ended_work():
    made = job("TIMEOUT", elapsed=3600, limit=3600, gpus=1)
    pause = run(made=made, devices=[device(360, busy_percent=[90] * 320 + [0] * 40)])
    found = only("timed-out", pause)
    assert found.change("--time")  # it may have gone on
    pause = run(made=made, devices=[device(360, busy_percent=90)])
    pause.end += 1800  # the samples end before the job
    assert "worked" not in only("timed-out", pause).title
