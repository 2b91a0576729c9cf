"""Removes the recordings that are too old or too large, beside what a command does."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpumon.recording.runs import prune

if TYPE_CHECKING:
    from gpumon.config import Settings


def start_retention(settings: Settings) -> None:
    """In a thread: a folder on a network file system may be slow."""
    limits = (settings.record_keep_days * 86400, int(settings.record_max_bytes), time.time())
    threading.Thread(target=prune, args=limits, daemon=True, name="retention").start()
