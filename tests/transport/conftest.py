from __future__ import annotations

import pytest

from tests.transport.sshd import World


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A user's ssh configuration and real servers."""
    made = World(tmp_path, monkeypatch)
    yield made
    made.close()
