"""`gpumon report`: what a job requested and used, and the lines to change."""

from __future__ import annotations

import argparse
import os
import sys

from gpumon.cli.arguments import host
from gpumon.errors import EXIT_INTERRUPTED, EXIT_MATCHED, EXIT_NOT_FOUND, EXIT_OK
from gpumon.report.render.forms import FORMS, Medium, render


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="JOBID|FILE",
        help="jobs, or recordings (files, folders or IDs of 'gpumon runs'); default: the current "
        "job, else a list",
    )
    parser.add_argument("--last", action="store_true", help="report on the newest recorded run")
    parser.add_argument("--recording", metavar="FILE", help="recording to use for JOBID")
    parser.add_argument(
        "--from-sacct", metavar="FILE", help="read a saved dump of sacct instead of running it"
    )
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="take the samples of jobs without a recording from this server (default: the site's)",
    )
    parser.add_argument("--user", metavar="U", help="all jobs of user U, most waste first")
    parser.add_argument(
        "--since",
        metavar="T",
        help="jobs since T, in the format of sacct -S: 2026-11-01, now-7days",
    )
    parser.add_argument("--until", metavar="T", help="jobs until T, in the format of sacct -E")
    parser.add_argument(
        "--login", type=host, metavar="[USER@]HOST", help="run Slurm's commands on HOST over ssh"
    )
    parser.add_argument(
        "--format", choices=tuple(FORMS), help="format (default: text, or by the ending of FILE)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="output file (- for standard output)"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="all findings and the reasons of each; without it three in brief",
    )
    parser.add_argument(
        "--diff", action="store_true", help="print only the changes to the job script, as a patch"
    )
    parser.add_argument(
        "--fail-if", metavar="EXPR", help="exit with code 3 if EXPR is true, e.g. 'gpu.busy.p50<20'"
    )


def run(args: argparse.Namespace) -> int:
    from gpumon.heap import uncollected

    with uncollected():
        return _report(args)


def _report(args: argparse.Namespace) -> int:
    from gpumon.report.gate import matches, parse_gate
    from gpumon.services.library import with_one_job
    from gpumon.services.pages import terminal_medium
    from gpumon.services.reports import Made, make_reports, script_diff
    from gpumon.services.request import Request, listed
    from gpumon.services.runs import spare_recordings

    output = None if args.output == "-" else args.output
    chosen = _runs(args)
    if chosen is None:
        return EXIT_INTERRUPTED
    args.runs = listed(chosen)
    spare_recordings(output, [*args.runs, args.recording, args.from_sacct])
    gate = None if args.fail_if is None else parse_gate(args.fail_if)
    request = Request(**{name: getattr(args, name) for name in Request._fields})

    def made(runs: list[str]) -> Made:
        return make_reports(request._replace(runs=runs))

    found = with_one_job("report", request.runs, made)
    if found is None:
        return EXIT_INTERRUPTED
    reports, notes, missing = found
    for note in (*notes, *missing):
        print(f"gpumon: {note}", file=sys.stderr)
    on_terminal = output is None and sys.stdout.isatty()
    if args.diff:
        text = "".join(script_diff(request, report) for report in reports)
        text = _shown(text) if on_terminal else text
    else:
        is_list = len(args.runs) > 1
        medium = terminal_medium(is_list=is_list) if on_terminal else Medium(is_list=is_list)
        medium = medium._replace(is_whole=args.all)
        ending = (output or "").rpartition(".")[2]  # `html` of `report.html`
        text = render(args.format or (ending if ending in FORMS else "text"), reports, medium)
    if output is None:
        sys.stdout.write(text)
    else:
        from gpumon.files import write_file

        write_file(output, text)
    code = EXIT_NOT_FOUND if missing else EXIT_OK
    if gate is None:
        return code
    matched, unknown = matches(gate, reports)
    for name in unknown:
        print(f"gpumon: --fail-if: no value for {name}", file=sys.stderr)
    return EXIT_MATCHED if matched else code


def _runs(args: argparse.Namespace) -> list[str] | None:
    """Those on the command line, the newest with --last; outside of a job one that is chosen from
    a list, if there is a terminal to show one. None: the user left it.
    """
    from gpumon.services.around import is_in_job
    from gpumon.services.library import runs_for
    from gpumon.terminal import can_show_screen

    others = (args.recording, args.from_sacct, args.user, args.since, args.until)
    is_left_open = not (args.runs or any(others) or is_in_job(os.environ) or can_show_screen())
    if args.last or is_left_open:
        return runs_for("report", args.runs, 1, last=args.last) or None
    return list(args.runs)


def _shown(script: str) -> str:
    """Without what a script may hold to upset a terminal."""
    from gpumon.model.text import clean

    return "".join(clean(line, 2000) + "\n" for line in script.splitlines())
