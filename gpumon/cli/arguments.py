"""Argument types that several commands share."""

from __future__ import annotations

import argparse
import math

MIN_INTERVAL_S = 0.1
MAX_INTERVAL_S = 3600.0


def interval(text: str) -> float:
    """Seconds between samples: 0.1 to 3600."""
    value = _number(text)
    if not MIN_INTERVAL_S <= value <= MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no interval: give seconds from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}"
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
        raise argparse.ArgumentTypeError(f"{text!r} is no count: give a whole number from 1 on")
    return int(text)


def host(text: str) -> str:
    """[USER@]HOST, of letters that ssh takes for nothing else."""
    from gpumon.sources.remote import check_host
    from gpumon.sources.stream import Failure

    try:
        check_host(text)
    except Failure:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a host") from None
    return text


def speed(text: str) -> float:
    """How many times faster than recorded: 0.1 to 1000."""
    value = _number(text)
    if not 0.1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed: give a number from 0.1 to 1000")
    return value
