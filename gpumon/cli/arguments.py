"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.config import Settings

MIN_INTERVAL_S = 0.1
MAX_INTERVAL_S = 3600.0


def add_live_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of every command that shows live samples."""
    parser.add_argument(
        "--interval", type=interval, metavar="S", help="seconds between samples (1)"
    )
    parser.add_argument(
        "--no-record", dest="record", action="store_false", default=None, help="do not record"
    )
    parser.add_argument(
        "--notify",
        metavar="HOW",
        help="notify by bell or desktop: job end, 10 min left, critical findings (off)",
    )
    parser.add_argument(
        "--on-end",
        metavar="CMD",
        help="run CMD, without a shell, once the job ends; only while gpumon is running",
    )
    add_screen_arguments(parser)


def add_login(parser: argparse.ArgumentParser) -> None:
    """The flag of commands that reach a job's nodes."""
    about = "run Slurm's commands on HOST and reach the nodes through it"
    parser.add_argument("--login", type=host, metavar="[USER@]HOST", help=about)


def add_screen_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of every command that opens the screen."""
    parser.add_argument(
        "--ascii", action="store_true", default=None, help="use ASCII characters only"
    )
    parser.add_argument(
        "--theme", metavar="T", help="colours: dark, light, colour-blind, ansi or mono"
    )


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of every command that plays a recording."""
    parser.add_argument(
        "--speed", type=speed, default=1.0, metavar="N", help="play N times as fast (1)"
    )
    add_screen_arguments(parser)


def settings_of(args: argparse.Namespace) -> Settings:
    """With the flags that were given, of those above. Raises UsageError."""
    from gpumon.config import load_settings

    flags = {"interval_s": "interval"} | {
        name: name for name in ("theme", "ascii", "record", "notify")
    }
    return load_settings(**{name: getattr(args, flag, None) for name, flag in flags.items()})


def interval(text: str) -> float:
    """Seconds between samples: 0.1 to 3600."""
    value = _number(text)
    if not MIN_INTERVAL_S <= value <= MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(
            f"invalid interval {text!r}: expected {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} seconds"
        )
    return value


def _number(text: str) -> float:
    """NaN for anything else; float() alone also takes the digits of other scripts."""
    try:
        return float(text) if text.isascii() else math.nan
    except ValueError:
        return math.nan


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid count {text!r}: expected 1, 2, 3, …")
    return int(text)


def host(text: str) -> str:
    """[USER@]HOST, of letters that ssh takes for nothing else."""
    from gpumon.transport.remote import check_host
    from gpumon.transport.stream import Failure

    try:
        check_host(text)
    except Failure:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid host name") from None
    return text


def speed(text: str) -> float:
    """How many times faster than recorded: 0.1 to 1000."""
    value = _number(text)
    if not 0.1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"invalid speed {text!r}: expected 0.1 to 1000")
    return value
