"""The keys of the report: open a finding, copy its lines, save the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.text import clean

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.tui.judging import Judging
    from gpumon.tui.state import ViewState

    class _Host(App[None]):
        state: ViewState
        judging: Judging

        def say(self, message: str) -> None: ...
        def draw(self) -> None: ...
        def action_view(self, name: str) -> None: ...
else:
    _Host = object


class ReportActions(_Host):
    """The app's part of the Report screen."""

    def action_report(self) -> None:
        self.judging.wants_report = True
        self.action_view("report")

    def move_in_report(self, step: int) -> None:
        """Up and down go from finding to finding, and below the last one through the page."""
        state = self.state
        last = max(0, state.report_count - 1)
        if abs(step) > 1 or state.report_scroll or (step > 0 and state.report_cursor >= last):
            state.report_scroll = max(0, state.report_scroll + step)
        else:
            state.report_cursor = min(max(state.report_cursor + step, 0), last)
        self.draw()

    def action_pick_finding(self, place: int) -> None:
        self.state.report_cursor = place
        self.draw()

    def open_finding(self) -> None:
        verdict = self.state.verdict
        if verdict is None or verdict.report is None or not verdict.report.findings:
            return
        found = verdict.report.findings
        self.state.opened_finding = found[min(self.state.report_cursor, len(found) - 1)]
        self.action_view("finding")

    def action_copy(self) -> None:
        """The lines to change: of the open finding, else all that the report recommends."""
        state = self.state
        if state.view == "finding" and state.opened_finding is not None:
            lines = [each.after for each in state.opened_finding.actions if each.after]
        elif state.view == "report" and state.verdict and state.verdict.report:
            lines = [each.line for each in state.verdict.report.recommendations if each.line]
        else:
            self.say("y copies the lines of a report or finding: 5 shows the report")
            return
        if not lines:
            self.say("there is no line to copy")
            return
        self.copy_to_clipboard("\n".join(lines) + "\n")
        plural = "s" if len(lines) > 1 else ""
        self.say(f"copied {len(lines)} line{plural}, if this terminal lets programs copy")

    def action_save(self) -> None:
        """The report as Markdown in the folder where gpumon was started."""
        verdict = self.state.verdict
        if verdict is None or verdict.report is None:
            self.say("e saves the report: 5 makes it")
            return
        from gpumon.files import NotWritten, write_file
        from gpumon.model.lines import word
        from gpumon.report.markdown import markdown

        job = verdict.report.job
        id = word("job", job.id or job.raw_id)
        name = f"gpumon-report-{id or ('job' if job.id or job.raw_id else 'node')}.md"
        try:
            write_file(name, markdown(verdict.report), regular=True)
        except NotWritten as error:
            self.say(f"not saved: {clean(str(error))}")
            return
        self.say(f"saved as {name}")
