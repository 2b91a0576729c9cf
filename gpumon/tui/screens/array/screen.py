"""All tasks of an array, the worst first; below them what there is to say of the selected one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpumon.model import clock
from gpumon.model.text import clean
from gpumon.model.units import age_text, plural, span_text
from gpumon.slurm.groups import task_count
from gpumon.tui.jobs import elapsed_s, resources_text
from gpumon.tui.keys import Key, grouped
from gpumon.tui.lines import Row, row_width, spread
from gpumon.tui.moment import Moment
from gpumon.tui.parts.device_rows import scrolled
from gpumon.tui.parts.grid import MIN_PLOT_HEIGHT, device_grid
from gpumon.tui.parts.view import View, Zone
from gpumon.tui.screens.array.rows import SORTS, Rows, TaskRow, in_order
from gpumon.tui.screens.array.table import left_s, state_role, table_rows
from gpumon.tui.screens.base import Actor, Pane, Shell
from gpumon.tui.screens.job.notes import note_rows
from gpumon.tui.selection import Selection

if TYPE_CHECKING:
    from gpumon.pipeline.array import WatchedArray
    from gpumon.slurm.job import Job

TASK_OF_ARRAY = "task of an array"  # as `Key.where` names it
_OLD_S = 90.0  # an answer of Slurm that is older is said to be
_ORDERS = {"worst": "worst first", "task": "by number"}  # else as they are named


class BackKeys(Actor):
    """The way back from a task to its array."""

    keys = grouped(
        "Screens", Key("b", "back", "b", "Array", "back to the array's tasks", (TASK_OF_ARRAY,))
    )

    def __init__(self, shell: Shell, *, is_task: bool) -> None:
        super().__init__(shell)
        self.bar_where = (TASK_OF_ARRAY,) if is_task else ()

    def action_back(self) -> None:
        if self.bar_where:
            self.shell.leave()
        else:
            self.shell.say("not a task of an array")


class ArrayPane(Pane):
    """A row for each task; Enter opens it as if it were attached to alone."""

    name = "array"
    wheel = 3
    lacks = "Enter opens the selected task, which has that screen"
    keys = grouped(
        "Select",
        Key("enter", "open", "Enter", "Open", "open the selected task; Esc or b comes back"),
        Key("s", "sort(1)", "s", "Sort", "sort by the worst, number, busy, elapsed or memory"),
        Key("I", "reverse", "I", "", "invert the order"),
    )

    def __init__(self, shell: Shell, array: WatchedArray, open_task: Callable[[str], None]) -> None:
        super().__init__(shell, Selection())
        self._array = array
        self._open_task = open_task
        self._rows: Rows | None = None
        self._found: list[TaskRow] = []
        self._sort = "worst"
        self._reverse = False
        self._cursor = 0
        self._identity = ""  # of the row under the cursor
        self._top = 0

    # -- drawing

    def title(self, moment: Moment, width: int) -> Row:
        job = moment.job
        left: Row = [(" gpumon ", "title"), (f" array {self._array.id}", "title")]
        if job is not None:
            left.append((f" {clean(job.name, 60)}", ""))
            about = (clean(job.user, 40), clean(job.partition, 40), _running(self._array.tasks()))
            left.append(("  " + " · ".join(text for text in about if text), "dim"))
        right: Row = [("frozen · ", "attention")] if moment.is_frozen else []
        age_s = moment.now - self._array.asked_at
        if age_s > _OLD_S and not (job is not None and job.has_ended):
            right.append((f"Slurm's answer is {age_text(age_s)} old · ", "attention"))
        followed = self._array.followed().values()
        not_recorded = [why for each in followed for why in each.not_recorded.values()]
        if not_recorded:
            right.append((f"not recorded: {clean(not_recorded[0].why, 60)} · ", "bad"))
        label = time.strftime("%H:%M:%S", time.localtime(clock.wall(moment.now)))
        return spread(left, [*right, (f"{label} ", "")], width)

    def draw(self, moment: Moment, width: int, height: int) -> View:
        found = self._take(moment)
        self._follow(found)
        detail_least = 0 if height < 16 else 4 if height < 30 else 6
        notes = self._notes(found)
        room = max(1, min(len(found), height - len(notes) - 2 - detail_least))
        self._top = scrolled(self._top, self._cursor, room, len(found))
        last = min(len(found), self._top + room)
        summary, zone = self._summary(found, width)
        rows = [summary, *notes]
        zones = [zone]
        start = len(rows) + 1
        rows += table_rows(found, self._top, last, self._cursor, moment.now, moment.glyphs, width)
        zones += [
            Zone(0, start + place - self._top, width, 1, f"point({place})")
            for place in range(self._top, last)
        ]
        if found:
            rows += self._detail(found[self._cursor], moment, width, height - len(rows))
        return View(rows[:height], zones)

    def _take(self, moment: Moment) -> list[TaskRow]:
        """The rows as they are now, or were when the screen was frozen; in the order wanted."""
        if not moment.is_frozen or not self._found:
            self._rows = self._rows or Rows(moment)
            self._found = self._rows.of(self._array.tasks(), self._array.followed(), moment.zoom)
        return in_order(self._found, self._sort, reverse=self._reverse)

    def beside(self, bar: str) -> str:
        spans = (row.moment.span_text for row in self._found if row.moment is not None)
        return next(spans, "") if bar == "Zoom" else ""

    def _follow(self, found: list[TaskRow]) -> None:
        """The cursor on its task, wherever that is now."""
        places = (place for place, row in enumerate(found) if row.identity == self._identity)
        self._point(found, next(places, self._cursor))

    def _point(self, found: list[TaskRow], place: int) -> None:
        self._cursor = min(max(place, 0), max(0, len(found) - 1))
        self._identity = found[self._cursor].identity if found else ""

    def _summary(self, found: list[TaskRow], width: int) -> tuple[Row, Zone]:
        """How many tasks are in each state, and the order, which takes clicks."""
        counts: Counter[str] = Counter()
        for each in found:
            counts[each.state] += each.size
        row: Row = []
        for state in sorted(counts, key=_place):
            words = state.lower().replace("_", " ")
            row.append((f" {counts[state]:,} {words} ", state_role(state)))
        order = _ORDERS.get(self._sort, self._sort) + (", reversed" if self._reverse else "")
        row += [("  ", ""), ("s ", "key")]
        zone = Zone(row_width(row) - 2, 0, 2 + len(order), 1, "sort(1)")
        return [*row, (order, "title")], zone

    def _notes(self, found: list[TaskRow]) -> list[Row]:
        running = [row for row in found if row.job.is_running]
        measured = sum(row.moment is not None for row in running)
        if measured == len(running):
            return []
        text = (
            f" Measuring the latest {measured} of {len(running)} running tasks; the others have "
            "Slurm's figures only. Enter measures one more."
        )
        return [[(text, "attention")]]

    def _detail(self, row: TaskRow, moment: Moment, width: int, height: int) -> list[Row]:
        """The selected task: Slurm's facts, findings, and its devices where there is room."""
        if height < 2:
            return []
        line = "-" if moment.glyphs == "ascii" else "─"
        rows: list[Row] = [[(line * width, "track")], _facts(row, moment.now)]
        task = row.moment
        if task is not None and not row.job.has_ended:
            rows += note_rows(task, width, most=2 if height < 12 else 4)
            room = height - len(rows) - 1
            if room >= MIN_PLOT_HEIGHT and task.devices:
                rows += [[], *device_grid(task, Selection(), width, room).rows]
        elif row.job.has_ended:
            rows.append([(" ", ""), *_report(row)])
        return rows[:height]

    # -- keys

    def _ordered(self) -> list[TaskRow]:
        return in_order(self._found, self._sort, reverse=self._reverse)

    def action_move(self, step: int) -> None:
        self._point(self._ordered(), self._cursor + step)

    def action_point(self, place: int) -> None:
        self._point(self._ordered(), place)

    def action_open(self) -> None:
        found = self._ordered()
        if not found:
            return
        row = found[self._cursor]
        if not row.is_single:
            self.shell.say(_why_not(row))
        elif row.job.is_running or row.moment is not None:
            self._open_task(row.job.id)
        else:
            self.shell.say(_why_not(row))

    def action_sort(self, step: int) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + step) % len(SORTS)]
        self._reverse = False

    def action_reverse(self) -> None:
        self._reverse = not self._reverse

    def action_leave(self) -> None:
        self.shell.say("q quits; the jobs continue")


def _place(state: str) -> tuple[bool, bool, str]:
    """What runs, what waits, then the outcomes."""
    return state != "RUNNING", state != "PENDING", state


def _running(tasks: list[Job]) -> str:
    count = sum(task_count(job.array_task) for job in tasks)
    return f"{sum(job.is_running for job in tasks):,} of {plural(count, 'task')} running"


def _why_not(row: TaskRow) -> str:
    if row.job.is_pending:
        return f"{_name(row)}: not started yet"
    return f"{_name(row)}: ended; gpumon report {clean(row.job.id, 40)}"


def _name(row: TaskRow) -> str:
    if row.is_single:
        return f"{clean(row.job.array_job_id, 20)}_{clean(row.task, 60)}"
    return plural(row.size, "task")


def _facts(row: TaskRow, now: float) -> Row:
    """`4711_3  RUNNING on node1 · 12 min of 2 h 00 min, 1 h 47 min left · 2 GPUs · 8 cores`."""
    job = row.job
    parts = []
    if job.node_list:
        parts.append(f"on {clean(job.node_list, 80)}")
    seconds = elapsed_s(job, now) if row.is_single else None
    if seconds is not None:
        text = age_text(seconds)
        if job.time_limit_s:
            text += f" of {span_text(job.time_limit_s)}"
        rest_s = left_s(row, now)
        parts.append(text + (f", {age_text(rest_s)} left" if rest_s is not None else ""))
    given = job.requested.resources if job.is_pending else job.allocated
    parts += [resources_text(given)]
    name = f" {clean(job.array_job_id, 20)}_{clean(row.task, 40)} "
    return [(name, "title"), (f" {row.state} ", ""), (" · ".join(filter(None, parts)), "dim")]


def _report(row: TaskRow) -> Row:
    id = clean(row.job.id if row.is_single else row.job.array_job_id, 40)
    what = "Enter shows its last samples; " if row.moment is not None else ""
    return [
        (what, "dim"),
        (f"gpumon report {id}", "key"),
        (" shows what to change next time", "dim"),
    ]
