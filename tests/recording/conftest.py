import pytest

from gpumon.model.fields import GROUP_BY_KEY
from gpumon.model.sample import Sample
from tests.recording import made
from tests.recording.recorded import record


@pytest.fixture(scope="session")
def few():
    """65 samples of a small node: one device, three processes."""
    fast = [field.name for field in GROUP_BY_KEY["device.fast"].fields]
    kept = []
    for sample in made.samples(65):
        rows = {
            "device": {0: {name: sample.rows["device"][0][name] for name in fast}},
            "host": {"": {"load1": sample.rows["host"][""]["load1"]}},
        }
        events = [event for event in sample.events if event.pid in (9000, 9001, 9002)]
        kept.append(Sample(sample.time, sample.mono, rows, {}, events))
    return kept


@pytest.fixture(scope="session")
def small(tmp_path_factory, few):
    """A whole file of four frames of at most 20 s."""
    path = tmp_path_factory.mktemp("small") / "small.gpumon"
    assert record(path, few, frame_s=20).failed == ""
    return path
