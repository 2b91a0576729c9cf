"""Source → recorder → evaluator → store: the way of samples to the screen, in one place.

Services make it; the screen reads it at its own tick, and sends it what the user does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from gpumon.model.view import NotRecorded, Silence
from gpumon.pipeline.evaluator import Evaluator, LiveEvaluation
from gpumon.store import NodeView, Store

if TYPE_CHECKING:
    from gpumon.pipeline.recorder import RecorderStage
    from gpumon.pipeline.stacks import Stacks
    from gpumon.site import Site
    from gpumon.slurm.job import Job
    from gpumon.sources.base import Source
    from gpumon.sources.files import Past
    from gpumon.sources.jobfiles import JobFiles
    from gpumon.sources.replay import ReplaySource


class JobSource(Protocol):
    """Follows the job in Slurm, from threads of its own. Neither call waits."""

    def job(self) -> Job | None:
        """The newest knowledge; None before the first answer."""

    def news(self) -> str:
        """One line that has not been shown yet, else ""."""

    @property
    def silence(self) -> Silence | None:
        """As long as Slurm does not answer."""


class Pipeline:
    """What there is to show: nodes, the job, the newest evaluation, and what is not recorded.

    `recorder`: the source, where it is recorded; `player`: the source, where it is a recording;
    `others`: nodes that other pipelines of this process follow; `past`: reads what was recorded
    of the same job before; `stacks`: asks the nodes where processes are; `output`: what the job
    writes.
    """

    def __init__(
        self,
        source: Source,
        *,
        job: JobSource | None = None,
        recorder: RecorderStage | None = None,
        player: ReplaySource | None = None,
        site: Callable[[], Site | None] = lambda: None,
        store: Store | None = None,
        others: int = 0,
        past: Past | None = None,
        stacks: Stacks | None = None,
        output: JobFiles | None = None,
    ) -> None:
        self.player = player
        self.stacks = stacks
        self.output = output
        self._past = past
        self.is_local = source.name == "local"
        self._source = source
        self._recorder = recorder
        self._is_started = False
        self._jobs = job
        self._store = store or Store(others)
        self._evaluator = Evaluator(
            self._store, site, self.job, others=others, replayed=player is not None,
            is_framing=recorder is None,
            is_seeking=lambda: player is not None and player.seeking,
        )  # fmt: skip

    # -- its life

    def start(self) -> None:
        """Once; where it is called again, nothing is done."""
        if not self._is_started:
            self._is_started = True
            self._source.start(self._evaluator)

    def evaluate(self) -> None:
        """From now on; what came before has waited."""
        self._evaluator.start()

    def stop(self) -> None:
        if self._past is not None:
            self._past.stop()
        self._evaluator.stop()
        self._source.stop()

    # -- for the screen

    def listen(self, changed: Callable[[], None]) -> None:
        """Have this called after each change, by the thread that made it."""
        self._store.changed = changed

    @property
    def generation(self) -> int:
        """Grows with every change."""
        return self._store.generation

    def nodes(self) -> list[NodeView]:
        return self._store.nodes()

    def now(self) -> float:
        """Epoch s of what is shown."""
        return self._source.now()

    def job(self) -> Job | None:
        """As Slurm knows it."""
        return self._jobs.job() if self._jobs is not None else None

    @property
    def silence(self) -> Silence | None:
        """As long as Slurm does not answer."""
        return self._jobs.silence if self._jobs is not None else None

    @property
    def evaluation(self) -> LiveEvaluation | None:
        """The newest."""
        return self._evaluator.latest

    @property
    def trouble(self) -> str:
        """Why there is none."""
        return self._evaluator.trouble

    @property
    def not_recorded(self) -> Mapping[str, NotRecorded]:
        """By node, those that should be."""
        return dict(self._recorder.not_recorded) if self._recorder is not None else {}

    def news(self) -> str:
        """One line about the recording or the job that has not been shown yet, else ""."""
        tellers = (self._recorder, self._jobs, self.player, self._past)
        told = (each.news() for each in tellers if each is not None)
        return next(filter(None, told), "")

    # -- what the user does

    def show_from(self, time: float) -> None:
        """The time axis begins there: have what was recorded of it before read, without waiting."""
        if self._past is not None:
            self._past.want(self._store, time)

    def want_report(self) -> None:
        """With every evaluation from now on."""
        self._evaluator.wants_report = True

    def mark(self, text: str) -> str:
        """Put a line on the time axis; what happened, in words."""
        return self._recorder.mark(text) if self._recorder is not None else ""
