"""For all tests: layers, and how much of them a run takes."""

from __future__ import annotations

import gc
import os
import random
import signal
import tempfile
import time
from collections.abc import Generator, Iterator

import pytest

from tests.support import examples, layers, shared


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpumon")
    group.addoption("--fast", action="store_true", help="what every edit should pass")
    group.addoption("--thorough", action="store_true", help="all examples of every property")
    group.addoption("--simulator-seed", type=int, help="of jobs that no run had before: once more")


def pytest_configure(config: pytest.Config) -> None:
    fast, thorough = config.getoption("--fast"), config.getoption("--thorough")
    examples.use("fast" if fast else "thorough" if thorough else "full")
    if config.option.simulator_seed is None:  # workers get it from here
        config.option.simulator_seed = random.SystemRandom().randrange(1000, 1_000_000)
    layers.watch()
    own = tempfile.TemporaryDirectory(prefix="gpumon-run-")  # not shared with others' tests
    config.add_cleanup(own.cleanup)
    os.environ["XDG_RUNTIME_DIR"] = own.name
    if not hasattr(config, "workerinput"):  # workers share what their run has made
        folder = tempfile.TemporaryDirectory(prefix="gpumon-made-")
        config.add_cleanup(folder.cleanup)
        os.environ[shared.FOLDER] = folder.name


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ended = (each for found in terminalreporter.stats.values() for each in found)
    if any("test_fresh_jobs" in getattr(each, "nodeid", "") for each in ended):
        seed = terminalreporter.config.option.simulator_seed
        terminalreporter.write_line(f"fresh simulated jobs: again with --simulator-seed {seed}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """What is imported and collected stays to the end: the garbage collector need not look at it,
    neither now nor at each of its full runs.
    """
    gc.disable()
    result = yield
    gc.enable()
    gc.freeze()
    return result


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        fixtures = set(getattr(item, "fixturenames", ())) - set(given)
        for layer in layers.of(item.path.parent.name, fixtures):
            item.add_marker(layer)
    if config.getoption("--fast"):
        config.hook.pytest_deselected(items=[item for item in items if not _is_fast(item)])
        items[:] = filter(_is_fast, items)


def _markers(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def _is_fast(item: pytest.Item) -> bool:
    return not _markers(item) & layers.NOT_FAST


@pytest.fixture(autouse=True)
def _in_its_layer(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that needs what its markers do not say."""
    yield
    unmarked = layers.without_marker(_markers(request.node))
    assert not unmarked, f"lacks the marker of what it started: {', '.join(unmarked)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """What ends with the last test of a worker is not the next test's: a cluster, for one."""
    result = yield
    layers.without_marker(())
    return result


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of day are in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture(scope="session", autouse=True)
def _compiles_nothing() -> None:
    """Programs under test use compiled modules and write none: one that may write only small files
    would leave a torn one behind.
    """
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """A shell starts what runs in its background with these ignored, nohup with SIGHUP, and
    children inherit that: programs under test would then not hear Ctrl-C, or their shell's end.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
