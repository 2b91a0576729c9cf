"""From a source to what the screen reads, in one place."""

import itertools

from gpumon import demos
from gpumon.model.view import Status
from gpumon.pipeline.pipeline import Pipeline
from gpumon.pipeline.recorder import RecorderStage
from gpumon.recording import Recording
from tests.support.waiting import until


class Story:
    """The first seconds of the recorded example, at once."""

    name = "local"
    is_stopped = False

    def start(self, sink):
        header, *samples = itertools.islice(Recording(demos.path("finetune")).items(), 61)
        sink.status("gpu07", Status("live", header.time))
        sink.header("gpu07", header)
        for sample in samples:
            sink.add("gpu07", sample)
        self.time = samples[-1].time

    def now(self):
        return self.time

    def stop(self):
        self.is_stopped = True


class Asked:
    def job(self):
        return None

    silence = None

    def news(self):
        return "Slurm does not answer"


def test_what_the_source_tells_is_recorded_evaluated_and_to_be_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    story = Story()
    stage = RecorderStage(story, str(tmp_path / "marks"), record=True)
    pipeline = Pipeline(stage, job=Asked(), recorder=stage)
    pipeline.start()
    pipeline.want_report()
    pipeline.evaluate()
    try:
        (node,) = pipeline.nodes()
        assert (node.name, pipeline.now(), pipeline.is_local) == ("gpu07", story.time, True)
        assert pipeline.news().startswith("recording to ")
        assert pipeline.news() == "Slurm does not answer"
        assert pipeline.mark("here") == "marked: here"
        assert until(lambda: pipeline.evaluation).report is not None
        assert (pipeline.trouble, pipeline.not_recorded) == ("", {})
    finally:
        pipeline.stop()
    assert story.is_stopped
    assert list(tmp_path.rglob("*.gpumon"))


def test_it_starts_once_and_tells_of_every_change():
    story, changes = Story(), []
    pipeline = Pipeline(story)
    pipeline.listen(lambda: changes.append(pipeline.generation))
    pipeline.start()
    seen = len(changes)
    assert changes == list(range(1, 63))  # a status, a header, 60 samples
    pipeline.start()
    assert len(changes) == seen


def test_a_plain_source_takes_no_marks():
    pipeline = Pipeline(Story())
    assert (pipeline.mark("here"), pipeline.news(), pipeline.job()) == ("", "", None)
