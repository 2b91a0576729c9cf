"""`gpumon record`: record this node while a command runs, or until a signal ends it."""

from __future__ import annotations

import argparse
import os
import sys

from gpumon.cli.arguments import interval
from gpumon.errors import EXIT_OK, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "gpumon record [-o FILE] [--interval S] [--quiet] [--all-nodes] "
        "[--until-eof] [--probe] [-- COMMAND ARG...]"
    )
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE",
        help="new file, or folder to record into (- for standard output)",
    )
    parser.add_argument(
        "--interval", type=interval, metavar="S", help="seconds between samples (1)"
    )
    parser.add_argument("--quiet", action="store_true", help="print no summary, only problems")
    parser.add_argument(
        "--probe",
        action="store_true",
        default=None,
        help="also read inside COMMAND's Python: true memory need, steps, where it waits",
    )
    parser.add_argument(
        "--all-nodes",
        action="store_true",
        help="record every node of the job around this shell, in one step of Slurm",
    )
    parser.add_argument(
        "--until-eof", action="store_true", help="without COMMAND, stop when standard input ends"
    )
    parser.add_argument(
        "wrapped",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND ARG...",
        help="record while COMMAND runs and exit with its code; without COMMAND, record until "
        "SIGTERM or the end of the job or the shell",
    )


def run(args: argparse.Namespace) -> int:
    from gpumon.services.record import (
        is_recorded_by_another,
        probe_asked_for,
        record_all_nodes,
        record_alone,
        record_beside,
    )

    command = args.wrapped[1:] if args.wrapped[:1] == ["--"] else args.wrapped
    if args.wrapped == ["--"]:  # of a variable that is empty: it would record without end
        raise UsageError("no command follows '--'; to record until a signal leave '--' out")
    if command and (args.all_nodes or args.until_eof):
        raise UsageError(
            "--all-nodes and --until-eof take no command; to record a command on every node, use "
            "'srun gpumon record -- COMMAND'"
        )
    another_records = is_recorded_by_another(os.environ)
    if command:
        from gpumon.services.wrapper import become, run_wrapped

        probe = probe_asked_for(args.probe)
        added = probe.variables if probe is not None else {}
        if another_records:
            return become(command, added)
        return run_wrapped(
            command,
            lambda: record_beside(args.output, args.interval, quiet=args.quiet, probe=probe),
            quiet=args.quiet,
            variables=added,
        )
    if args.probe:
        raise UsageError("--probe needs a command to read inside: gpumon record --probe -- COMMAND")
    if another_records:
        return EXIT_OK
    from gpumon.collect.agent import leave
    from gpumon.collect.job.context import is_own_step

    is_own = is_own_step(os.environ)
    if args.all_nodes and not is_own:  # else srun is there already
        leave(record_all_nodes(args.output, args.interval, quiet=args.quiet))
    try:
        code = record_alone(args.output, args.interval, quiet=args.quiet, until_eof=args.until_eof)
    except Exception as error:
        if not is_own:
            raise
        print(f"gpumon: not recording: {error}", file=sys.stderr)
    # any other code than 0 becomes the job's DerivedExitCode
    leave(EXIT_OK if is_own else code)
