"""One GPU's place in the collector: its worker, and what is known of it between ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.collect.nvml.answers import Answer, Unit
from gpumon.collect.nvml.workers import Worker

if TYPE_CHECKING:
    from gpumon.collect.nvml.gpu import Gpu
    from gpumon.collect.nvml.library import Library


class Slot:
    """A GPU with its worker, and what is known of it between ticks."""

    def __init__(self, gpu: Gpu, worker: Worker[Answer], now: float) -> None:
        self.gpu = gpu
        self.worker = worker
        self.units: list[Unit] = [Unit(gpu.index, gpu.uuid)]
        self.answered = False  # at least once
        self.answered_at = now  # wall clock of the last good answer
        self.silent = False  # its silence has been put as readings
        self.afresh = False  # all groups are to be read
        self.hung = False
        self.unwell = False  # at least one unit is absent or has only errors
        self.session_error = ""
        self.active = True  # the driver reports a device with its index
        self.settled = False  # it has been opened, or refused, in this session
        self.cut = ""  # what the driver claimed beyond our bounds

    def restart(self, library: Library, active: bool) -> None:
        """Go on in a new session, in which there is a device with its index or not."""
        self.gpu.restart(library)
        self.active, self.settled = active, False
        self.hung, self.unwell, self.session_error = False, False, ""
        if not active:
            self.units = []
        elif not self.units:
            self.units = [Unit(self.gpu.index, self.gpu.uuid)]
