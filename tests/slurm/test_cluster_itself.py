"""The test bed shows why something failed, and asks again what a busy daemon dropped."""

from __future__ import annotations

import pytest


def test_failures_are_shown_and_what_crashed_is_asked_again_with_a_warning(cluster):
    crashed = cluster.folder / "crashed"
    crashes = f"[ -e {crashed} ] && exec echo there; touch {crashed}; kill -SEGV $$"
    with pytest.warns(match=": 139 "):
        assert cluster.ask("sh", "-c", crashes) == "there\n"
    with pytest.warns(match=": 139 "), pytest.raises(AssertionError, match="139"):
        cluster.ask("sh", "-c", "kill -SEGV $$")
    with pytest.raises(AssertionError, match="why"):
        cluster.ask("sh", "-c", "echo why >&2; exit 1")
    job = cluster.submit("echo what went wrong; exit 1")
    with pytest.raises(AssertionError, match=f"job {job} is FAILED\nwhat went wrong"):
        cluster.wait(job, "COMPLETED")
