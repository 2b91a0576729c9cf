"""The site that this machine belongs to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import TYPE_CHECKING

from gpumon.toml import site_file

if TYPE_CHECKING:
    from gpumon.site import Site


def this_site() -> Site:
    """As its file says, or the defaults. Raises UsageError for a mistake in the file."""
    from gpumon.site.read import load_site

    return load_site(thresholds=_thresholds)


def site_of_screen() -> Callable[[], Site]:
    """The same for a screen, which opens sooner: without a file, the table of GPUs is read when it
    is needed. Raises UsageError for a mistake in the file at once, with no screen open.
    """
    if site_file() is None:
        return cache(this_site)
    site = this_site()
    return lambda: site


def _thresholds() -> Collection[str]:
    from gpumon.analysis.rules.catalogue import THRESHOLDS  # a third of a second

    return THRESHOLDS
