"""The screens, a module or folder each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.tui.keys import FIRST, LAST
from gpumon.tui.screens.array.screen import ArrayPane, BackKeys
from gpumon.tui.screens.base import Pane, Shell
from gpumon.tui.screens.device.screen import DevicePane
from gpumon.tui.screens.finding import FindingPane
from gpumon.tui.screens.job.screen import JobPane
from gpumon.tui.screens.marks import MarkKeys
from gpumon.tui.screens.nodes.node import NodePane
from gpumon.tui.screens.nodes.screen import NodesPane
from gpumon.tui.screens.output import OutputPane
from gpumon.tui.screens.processes.process import ProcessPane
from gpumon.tui.screens.processes.screen import ProcessesPane
from gpumon.tui.screens.replay import ReplayKeys
from gpumon.tui.screens.report import ReportPane
from gpumon.tui.selection import Selection

if TYPE_CHECKING:
    from gpumon.pipeline.pipeline import Pipeline

#: every key, in the order of the help
KEYS = (
    *FIRST,
    *BackKeys.keys,
    *ReplayKeys.keys,
    *NodesPane.keys,
    *ProcessesPane.keys,
    *ProcessPane.keys,
    *ReportPane.keys,
    *MarkKeys.keys,
    *LAST,
)
#: those of the screen of an array
ARRAY_KEYS = (
    *(key for key in FIRST if key.action.startswith(("runs", "move", "freeze", "zoom"))),
    *ArrayPane.keys,
    *LAST,
)


def all_panes(shell: Shell, pipeline: Pipeline) -> dict[str, Pane]:
    """Every screen by its name.

    A key whose action the screen shown lacks goes to the first of these that has it.
    """
    selection = Selection()
    processes = ProcessesPane(shell, selection, is_local=pipeline.is_local)
    nodes = NodesPane(shell, selection)
    report = ReportPane(shell, selection, pipeline)
    panes: tuple[Pane, ...] = (
        processes,
        ProcessPane(shell, selection, processes, pipeline.stacks),
        nodes,
        NodePane(shell, selection),
        JobPane(shell, selection, nodes, processes),
        DevicePane(shell, selection, processes),
        OutputPane(shell, selection, pipeline.output),
        report,
        FindingPane(shell, selection, report, pipeline.stacks),
    )
    return {pane.name: pane for pane in panes}
