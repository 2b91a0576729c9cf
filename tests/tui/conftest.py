"""Stores filled from the recorded story or by hand, and golden screens."""

import itertools
import os
import time
from pathlib import Path

import pytest

from gpumon import demos
from gpumon.model.sample import Header
from gpumon.model.view import Status
from gpumon.sources.lines import read_stream
from gpumon.store import Store
from gpumon.tui.lines import plain
from tests.tui.looking import Looking

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def fill(seconds: int) -> tuple[Store, float]:
    """The store as it is `seconds` into the story, and the time then."""
    store = Store()
    node = ""
    now = 0.0
    for item in itertools.islice(read_stream(demos.path("finetune")), seconds + 1):
        now = item.time
        if isinstance(item, Header):
            node = item.node
            store.header(node, item)
            store.status(node, Status("live", now, "", "replay"))
        else:
            store.add(node, item)
    return store, now


@pytest.fixture(scope="session")
def story():
    """Eight minutes into the demo: a GPU is too hot."""
    return fill(500)


@pytest.fixture
def looking(story):
    store, now = story
    return Looking(store.nodes(), now)


@pytest.fixture
def golden():
    """Compares text with the file of that name; GPUMON_UPDATE_GOLDEN=1 writes it anew."""

    def check(name: str, rows) -> None:
        text = plain(rows) + "\n"
        path = GOLDEN / f"{name}.txt"
        if os.environ.get("GPUMON_UPDATE_GOLDEN"):
            path.write_text(text)
        assert text == path.read_text(), f"{name}: compare with {path}"

    return check
