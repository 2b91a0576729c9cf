"""The command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gpumon.isolated import restart


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. `argv`: its words, if not those of this process.

    Nothing else is imported before Python is isolated from the user's modules.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None:
        restart("gpumon/__main__.py", words)
    try:
        if argv is None:  # this process is gpumon's own
            from gpumon.collect.guest import be_guest, mark

            mark() if words[:1] == ["record"] else be_guest()
        from gpumon.cli.running import run
    except Exception as error:  # no memory is left, or this installation is broken
        if command := unstarted(words):
            return run_bare(command, f"{type(error).__name__}: {error}")
        raise
    return run(words)


def unstarted(words: Sequence[str]) -> list[str]:
    """The command that `record [OPTION...] [--] COMMAND` is to run and has not started yet.

    Also where the options are wrong, and so are no use to argparse.
    """
    wrapper = sys.modules.get("gpumon.services.wrapper")
    if list(words[:1]) != ["record"] or getattr(wrapper, "started", False):
        return []
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        if rest[0] == "--":
            return rest[1:]
        if rest[0] in ("-o", "--interval"):
            del rest[:2]
        elif rest[0] in ("--quiet", "--probe") or rest[0].startswith(("-o", "--interval=")):
            del rest[0]
        elif "--" in rest:  # a mistake, which may have a value
            del rest[: rest.index("--")]
        else:
            return []
    return rest


def run_bare(command: list[str], why: str) -> int:
    """Say that nothing is recorded, and become the command; its exit code if it cannot be run."""
    line = f"gpumon: not recording: {' '.join(why.split())}\n"
    try:
        os.write(2, line.encode("utf-8", "replace"))
    except OSError:  # the terminal is gone
        pass
    try:
        from gpumon.services.wrapper import become
    except Exception:
        os.execvp(command[0], command)
    return become(command)
