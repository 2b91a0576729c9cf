"""The job's output: followed, and made harmless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.tui.screens.output import harmless
from tests.support.examples import examples
from tests.tui import cluster
from tests.tui.test_app import text
from tests.tui.test_attached import app_of


class Files:
    """A job's output as the source side reads it."""

    def __init__(self, **lines):
        self.lines = lines

    def path(self, stream):
        return f"/home/ada/slurm-4711.{stream}"

    def tail(self, stream):
        if stream not in self.lines:
            raise PermissionError(13, "Permission denied")
        return self.lines[stream]


async def test_output_is_followed_until_one_goes_back():
    files = Files(out=[f"step {n}" for n in range(100)], err=["Traceback\x1b[31m!"])
    app = app_of(cluster.fill(1, seconds=2), output=files)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("o")
        assert "step 99" in text(app)
        assert "/home/ada/slurm-4711.out" in text(app)
        await pilot.press("up", "up")
        assert "step 99" not in text(app)
        files.lines["out"] = [f"step {n}" for n in range(1, 101)]
        app.draw()
        assert "step 97" in text(app)
        assert "2 before the end" in text(app)
        await pilot.press("end")
        assert "step 100" in text(app)
        await pilot.press("home")
        assert "step 1\n" in text(app)
        await pilot.press("o")
        assert "Traceback!" in text(app)
        assert "step" not in text(app)
        del files.lines["err"]
        app.draw()
        assert "Permission denied" in text(app)
        await pilot.press("escape")
        assert app.pane.name == "job"


async def test_without_a_job_there_is_no_output_and_no_key_for_it():
    app = app_of(cluster.fill(1, seconds=2))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "Output" not in app._parts["keys"].text
        await pilot.press("o")
        assert "gpumon attach" in text(app)
        assert app.pane.name == "job"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;32mok\x1b[0m done", "ok done"),
        (" 10%|#\r 20%|##\r 45%|####\r", " 45%|####"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\tb", "a    b"),
        ("\x1b[2J\x1b[Hgone?", "gone?"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("bell\x07", "bell?"),
        ("\u202etxt.exe", "?txt.exe"),
        ("\r\r", ""),
    ],
)
def test_output_becomes_plain_text(raw, shown):
    assert harmless(raw) == shown


@examples(3000)
@given(st.text(st.sampled_from("a \x1b[]P;0m\x07\r\t\x9b\x90\\漢\u202e\x00"), max_size=30))
def test_no_output_reaches_the_terminal_with_a_control(raw):
    assert harmless(raw).isprintable()
