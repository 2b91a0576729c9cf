"""`gpumon report`: what a job asked for against what it used, and the lines to change."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gpumon.cli.arguments import host
from gpumon.errors import EXIT_MATCHED, EXIT_OK

if TYPE_CHECKING:
    from gpumon.report.model import Report

_FORMATS = ("text", "md", "html", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="JOBID|FILE",
        help="jobs, or recordings: files or folders; inside a job: that one",
    )
    parser.add_argument("--recording", metavar="FILE", help="of the one JOBID, where it lies apart")
    parser.add_argument(
        "--from-sacct", metavar="FILE", help="a saved dump of sacct; needs no Slurm"
    )
    parser.add_argument("--user", metavar="U", help="all jobs of a user, the worst waste first")
    parser.add_argument("--since", metavar="T", help="as sacct -S: 2026-11-01, now-7days")
    parser.add_argument("--until", metavar="T", help="as sacct -E")
    parser.add_argument("--login", type=host, metavar="[USER@]HOST", help="ask Slurm there, by ssh")
    parser.add_argument("--format", choices=_FORMATS, default="text")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write there instead (-: standard output)"
    )
    parser.add_argument(
        "--diff", action="store_true", help="only the changes to the job's own script, for patch"
    )
    parser.add_argument(
        "--fail-if", metavar="EXPR", help="exit with 3 if it holds: 'gpu.busy.p50<20'"
    )


def run(args: argparse.Namespace) -> int:
    from gpumon.cli.recorded import spare_recordings
    from gpumon.cli.reporting import make_reports, script_diff

    if args.output == "-":
        args.output = None
    spare_recordings(args.output, [*args.runs, args.recording, args.from_sacct])
    gate = None
    if args.fail_if is not None:
        from gpumon.report.gate import parse_gate

        gate = parse_gate(args.fail_if)
    reports, notes = make_reports(args)
    for note in notes:
        print(f"gpumon: {note}", file=sys.stderr)
    if args.diff:
        changes = "".join(script_diff(args, report) for report in reports)
        _write(_shown(changes) if _on_terminal(args) else changes, args.output)
    else:
        _write(_rendered(reports, args), args.output)
    if gate is None:
        return EXIT_OK
    from gpumon.report.document import document

    unknown: set[str] = set()
    matched = [gate(document(report), unknown) for report in reports]
    for name in sorted(unknown):
        print(f"gpumon: --fail-if: {name} is not known", file=sys.stderr)
    return EXIT_MATCHED if any(matched) else EXIT_OK


def _shown(script: str) -> str:
    """Without what a script may hold to upset a terminal."""
    from gpumon.model.text import clean

    return "".join(clean(line, 2000) + "\n" for line in script.splitlines())


def _on_terminal(args: argparse.Namespace) -> bool:
    return args.output is None and sys.stdout.isatty()


def _rendered(reports: list[Report], args: argparse.Namespace) -> str:
    many = _are_several(reports)
    if args.format == "json":
        import json

        from gpumon.report.document import document

        bodies = [document(report) for report in reports]
        as_list = len(reports) > 1 or len(args.runs) > 1
        return json.dumps(bodies if as_list else bodies[0], allow_nan=False) + "\n"
    if args.format == "html":
        from gpumon.report.html import html_page
        from gpumon.report.table import ranked

        return html_page(ranked(reports))
    if args.format == "md":
        from gpumon.report.markdown import markdown
        from gpumon.report.table import markdown_table

        return markdown_table(reports) if many else "\n".join(map(markdown, reports))
    return _text(reports, args)


def _text(reports: list[Report], args: argparse.Namespace) -> str:
    import shutil

    from gpumon.report.table import text_table
    from gpumon.report.text import text
    from gpumon.terminal import colours, prepare_output

    on_terminal = _on_terminal(args)
    columns = shutil.get_terminal_size((80, 24)).columns
    if _are_several(reports):
        return text_table(reports, columns if on_terminal else 200)
    return "\n".join(
        text(
            report,
            min(max(columns, 60), 100) if on_terminal else 80,
            coloured=on_terminal and colours() > 0,
            ascii_=on_terminal and not prepare_output(),
        )
        for report in reports
    )


def _are_several(reports: list[Report]) -> bool:
    """Jobs of their own, and not the components of one het job."""
    het = {report.job.het_job_id for report in reports}
    return len(reports) > 1 and (len(het) > 1 or "" in het)


def _write(body: str, path: str | None) -> None:
    if path is None:
        sys.stdout.write(body)
        return
    from gpumon.files import write_file

    write_file(path, body)
