"""The list of one's own jobs, before the dashboard opens."""

import pytest
from textual.widgets import Label, OptionList

from gpumon.slurm.client import Slurm
from gpumon.slurm.groups import groups_of
from gpumon.tui.dialogs import choice
from gpumon.tui.dialogs.jobs import choose_job
from tests.slurm.made import MadeSlurm, row


@pytest.fixture
def app(monkeypatch):
    """The app that a function would run."""
    made = []
    monkeypatch.setattr(choice, "run_to_end", made.append)

    def of(call, *args):
        call(*args)
        return made[-1]

    return of


def options(app):
    found = app.screen.query_one(OptionList)
    return [str(found.get_option_at_index(n).prompt) for n in range(found.option_count)]


JOBS = [
    row(4711, "finetune-llama", nodelist="gpu[01-02]"),
    row(4712, "evil\x1b[2J[b]name-that-goes-on-and-on-and-on"),
    *(row(f"4720_{n}", "sweep", raw=str(4720 + n)) for n in (1, 2)),
    row("4720_[3-60%2]", "sweep", "PENDING", raw="4720"),
]


@pytest.mark.parametrize(
    ("columns", "shown", "keys", "chosen"),
    [
        (50, False, ["escape"], None),
        (80, False, ["q"], None),
        (120, True, ["down", "down", "enter"], "4720"),
    ],
)
async def test_ones_own_jobs_fit_the_screen(app, columns, shown, keys, chosen):
    groups = groups_of(Slurm(MadeSlurm(*JOBS)).queue(user="ada"))
    running = app(choose_job, "which job?", groups, "dark")
    async with running.run_test(size=(columns, 24)) as pilot:
        await pilot.pause()
        lines = [str(running.screen.query_one("#head", Label).content)[1:], *options(running)]
        dialog = running.screen.query_one(".dialog")
        assert dialog.region.right <= columns
        assert max(map(len, lines)) <= running.screen.query_one(OptionList).size.width - 2
        assert lines[1].startswith("4711  finetune-llama" if columns > 80 else "4711  finetune-")
        assert ("partition" in lines[0]) == shown
        assert "\x1b" not in "".join(lines)
        await pilot.press(*keys)
    assert running.return_value == chosen
