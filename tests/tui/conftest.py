"""Stores filled from the recorded story."""

import itertools

import pytest

from gpumon import demos
from gpumon.model.sample import Header
from gpumon.model.view import Status
from gpumon.recording import Recording
from gpumon.store import Store
from tests.tui.looking import Looking


@pytest.fixture(autouse=True)
def _utc(utc):
    pass


def fill(seconds: int) -> tuple[Store, float]:
    """The store as it is `seconds` into the story, and the time then."""
    store = Store()
    node = ""
    now = 0.0
    for item in itertools.islice(Recording(demos.path("finetune")).items(), seconds + 1):
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
