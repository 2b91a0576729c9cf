"""What the app shows at a time: the screens of one pipeline, and the moment they draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gpumon.tui.keys import Key
from gpumon.tui.moment import Moment
from gpumon.tui.moment.zoom import Zoom
from gpumon.tui.pacing import Pacing
from gpumon.tui.screens import ARRAY_KEYS, KEYS, all_panes
from gpumon.tui.screens.array.screen import ArrayPane, BackKeys
from gpumon.tui.screens.base import Actor, Pane, Shell
from gpumon.tui.screens.marks import MarkKeys
from gpumon.tui.screens.processes.screen import ProcessesPane
from gpumon.tui.screens.replay import ReplayKeys

if TYPE_CHECKING:
    from gpumon.pipeline.array import WatchedArray
    from gpumon.pipeline.pipeline import Pipeline


class Look(NamedTuple):
    """What the user's settings say of all screens."""

    zoom_s: float
    glyphs: str
    sort: str = ""  # of the table of processes
    plots: bool = True

    def moment(self, **known: Any) -> Moment:
        """Before anything is known but `known`."""
        return Moment(Zoom(self.zoom_s), self.glyphs, plots=self.plots, **known)


class Shown:
    """Screens by name, the first of them in front; `actors` have the keys of all of them.

    moment: drawn last.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        panes: Mapping[str, Pane],
        actors: Sequence[Actor],
        keys: Sequence[Key],
        moment: Moment,
    ) -> None:
        self.pipeline = pipeline
        self.panes = panes
        self.pane = next(iter(panes.values()))
        self.actors = (*panes.values(), *actors)
        self.keys = keys
        self.moment = moment
        self.pacing = Pacing(pipeline)

    @classmethod
    def of(
        cls,
        shell: Shell,
        pipeline: Pipeline,
        look: Look,
        *,
        whole_node: bool = False,
        is_task: bool = False,
    ) -> Shown:
        """All screens of a job or a node; `is_task`: there is an array to go back to."""
        panes = all_panes(shell, pipeline)
        actors = (
            BackKeys(shell, is_task=is_task),
            ReplayKeys(shell, is_replay=pipeline.player is not None),
            MarkKeys(shell, pipeline),
        )
        moment = look.moment(whole_node=whole_node, player=pipeline.player)
        shown = cls(pipeline, panes, actors, KEYS, moment)
        shown.sort_processes(look.sort)
        shown.pane = panes["job"]
        return shown

    @classmethod
    def of_array(
        cls,
        shell: Shell,
        pipeline: Pipeline,
        array: WatchedArray,
        open_task: Callable[[str], None],
        look: Look,
    ) -> Shown:
        """The screen of an array; the pipeline only has its clock and its state."""
        pane = ArrayPane(shell, array, open_task)
        return cls(pipeline, {pane.name: pane}, (), ARRAY_KEYS, look.moment())

    def take(self, look: Look) -> None:
        """From now on as the settings are now."""
        self.moment = replace(self.moment, zoom=Zoom(look.zoom_s), plots=look.plots)
        self.sort_processes(look.sort)

    def sort_processes(self, column: str) -> None:
        processes = self.panes.get("processes")
        if isinstance(processes, ProcessesPane):
            processes.sort = column

    @property
    def bar_where(self) -> set[str]:
        """What `Key.where` may name beside screens."""
        return {name for each in self.actors for name in each.bar_where}

    def look(self) -> Moment:
        """What there is to show now.

        Of a job that has ended, when its last sample was taken, so that it stays shown.
        """
        moment = self.moment.looking_at(self.pipeline)
        self.pipeline.show_from(moment.shown_from)
        nodes, now = moment.nodes, moment.now
        if not moment.has_ended or any(node.status(now).state == "live" for node in nodes):
            return moment
        last = [n.last_time + n.clock_offset_s for n in nodes if n.last_time is not None]
        return replace(moment, now=min(now, max(last))) if last else moment
