"""Real frameworks for tests, without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def frameworks() -> str:
    """A Python with PyTorch, JAX and TensorFlow."""
    made = subprocess.run([Path(__file__).parent / "frameworks"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
