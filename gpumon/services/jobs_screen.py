"""`gpumon jobs` in a terminal: the list, and from there into a job and back."""

from __future__ import annotations

import threading
import time

from gpumon import ending
from gpumon.config import Settings
from gpumon.errors import EXIT_OK, GpumonError
from gpumon.report.jobs import Listing
from gpumon.report.render.forms import Medium
from gpumon.services.jobs_overview import JobsOverview
from gpumon.slurm.client import CONTROLLER_PERIOD_S
from gpumon.tui.overview.app import Chosen, State, choose_job

#: the processor's time that recordings take is a twentieth at most
_TIMES_ITS_COST = 20.0


class FreshJobs(threading.Thread):
    """Looks every 30 s, and reads recordings in between."""

    def __init__(self, overview: JobsOverview, *, is_ascii: bool) -> None:
        super().__init__(daemon=True, name="jobs")
        self.listing: Listing | None = None
        self._overview = overview
        self._is_ascii = is_ascii
        self._failed = ""  # at the last look
        self._stopping = threading.Event()

    @property
    def trouble(self) -> str:
        if not self._failed or self.listing is None:
            return self._failed
        at = time.strftime("%H:%M:%S", time.localtime(self.listing.at))
        return f"{self._failed}; showing the state as of {at}"

    def report(self, id: str, columns: int) -> str:
        from gpumon.services.pages import report_page

        return report_page(id, Medium(columns, is_coloured=True, is_ascii=self._is_ascii))[0]

    def run(self) -> None:
        while not self._stopping.is_set():
            began = time.thread_time()
            self._look()
            cost_s = time.thread_time() - began
            self._stopping.wait(max(CONTROLLER_PERIOD_S, _TIMES_ITS_COST * cost_s))

    def _look(self) -> None:
        try:
            listing = self._overview.look()
            self._failed = ""
            self.listing = listing
            for each in self._overview.read(listing):
                self.listing = each
                if self._stopping.is_set():
                    return
        except GpumonError as error:
            self._failed = str(error)

    def stop(self) -> None:
        self._stopping.set()


def show_jobs(overview: JobsOverview, settings: Settings, user: str) -> int:
    """The list until the user quits it; returns the exit code. Raises GpumonError."""
    jobs = FreshJobs(overview, is_ascii=settings.ascii)
    jobs.start()
    state = State()
    try:
        while (chosen := choose_job(jobs, settings, user, state)) is not None:
            try:
                _show(chosen, settings)
            except GpumonError as error:
                state.message = str(error)
            if code := ending.code():
                return code
    finally:
        jobs.stop()
    return EXIT_OK


def _show(chosen: Chosen, settings: Settings) -> None:
    if chosen.what == "replay":
        from gpumon.services.replay import replay

        replay(chosen.id, settings, 1.0, is_from_list=True)
        return
    from gpumon.services.attach import Attachment

    Attachment().attach(
        chosen.id, settings, last=False, nodes=None, own_pace=True, as_json=False, on_screen=True
    )
