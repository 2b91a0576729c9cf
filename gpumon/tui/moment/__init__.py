"""The state of the store at one moment, as every screen sees it."""

from gpumon.tui.moment.moment import Moment

__all__ = ["Moment"]
