"""Real servers, each with the history that a test gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.prometheus.server import running

#: (history in OpenMetrics' text, configuration, web configuration) -> URL
Start = Callable[..., str]


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Start]:
    """Starts servers, which end with the test."""
    with ExitStack() as servers:
        count = 0

        def start(openmetrics: str = "", config: str = "", web: str = "") -> str:
            nonlocal count
            count += 1
            folder = tmp_path / f"prometheus-{count}"
            return servers.enter_context(running(folder, openmetrics, config, web))

        yield start
