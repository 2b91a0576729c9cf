"""Zooming out shows what was recorded of the job before the screen began."""

import pytest

from gpumon.config import Settings
from gpumon.pipeline.pipeline import Pipeline
from gpumon.sources.files import Past
from gpumon.tui.app import GpumonApp
from tests.sources.test_past import START, Live, record
from tests.support.waiting import until
from tests.tui.test_app import text


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))


async def test_a_longer_time_axis_brings_what_was_recorded_before():
    record(START, 1500)
    pipeline = Pipeline(Live(START + 1600, 300), past=Past())
    app = GpumonApp(pipeline, Settings(theme="dark", zoom_s=60.0))
    async with app.run_test(size=(120, 40)) as pilot:
        (node,) = pipeline.nodes()
        await pilot.pause()
        assert app.moment.shown_from > START + 1600
        assert node.first_time("host", "", "cpu_percent", past=True) == START + 1600
        while app.moment.span_s < 1800:
            await pilot.press("minus")
        until(lambda: node.first_time("host", "", "cpu_percent", past=True) == START)
        while "earlier recordings of this job are shown" not in text(app):
            await pilot.pause(0.05)
        shown = node.window("device", 0, "busy_percent", app.moment.now, 1800.0, 60)
        assert {bucket and round(bucket.mean) for bucket in shown} >= {90, 20, None}
