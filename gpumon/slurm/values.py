"""Figures as Slurm writes them: sizes, durations, times, states, exit codes.

All functions take any text and raise nothing: what is not known (blank, `Unknown`, `N/A`, a
sentinel of 2^32 or 2^64, nonsense, more than there can be) is None or "". 0 stays 0.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import NamedTuple

from gpumon.model.text import clean
from gpumon.slurm.job import ExitCode

#: words that Slurm prints where it has no value
_NOTHING = frozenset(("", "(null)", "n/a", "none", "unknown", "none assigned", "invalid", "null"))
_UNITS: dict[str, int] = {"": 1, "B": 1} | {unit: 1024**n for n, unit in enumerate("KMGTPE", 1)}
_SIZE = re.compile(r"(\d{1,20})(?:\.(\d{1,6}))?([KMGTPEB]?)")
_DURATION = re.compile(r"(?:(?:(\d{1,18})-)?(\d{1,18}):)?(\d{1,5}):(\d{1,5})(?:\.(\d{1,9}))?")
_EXIT = re.compile(r"(\d{1,5})(?::(\d{1,5}))?")
_CANCELLED = re.compile(r"(\w+) by (\S+)")
_REQ_MEM = re.compile(r"([\d.]+[KMGTPE?B]?)([nc]?)")
_WORDS = re.compile(r"[A-Za-z_]+")
_VERSION = re.compile(r"(\d{2})\.(\d{2})(?:\.(\d{1,3}))?")
#: INFINITE and NO_VAL of 32 and 64 bits (slurm.h); any of them stands for "no value"
_SENTINELS = frozenset(2**bits - less for bits in (32, 64) for less in (1, 2))
_DIGITS = 20  # of a whole number
_MOST = 2**63  # 8 EiB: no job's count or memory
_LONGEST_S = 10**9  # 31 years: `213503982334-14:25:51` of sstat is a sentinel
_LATEST = 4_000_000_000  # 2096; NO_VAL as a time lies behind it
#: texts that are kept with what they mean, and their characters: rows repeat them again and again
_KEPT, _SHORT = 4096, 100


class State(NamedTuple):
    """A job's or step's state: the word, who cancelled it, and what Slurm joined to it."""

    word: str
    by: str = ""
    flags: tuple[str, ...] = ()


def known(value: str) -> str:
    """The text, cleaned; "" where it is one of Slurm's words for nothing."""
    return _known_before(value) if len(value) <= _SHORT else _known(value)


def _known(value: str) -> str:
    value = clean(value.strip())
    return "" if value.lower() in _NOTHING else value


_known_before = lru_cache(_KEPT)(_known)


def _is_whole(value: str) -> bool:
    return value.isdecimal() and len(value) <= _DIGITS


@lru_cache(_KEPT)
def count(value: str) -> int | None:
    """A whole number, not one of Slurm's sentinels; from 1024 on Slurm may print it as `1K`."""
    value = value.strip()
    if not _is_whole(value):
        return size(value) if value.endswith(("K", "M")) else None
    number = int(value)
    return None if number in _SENTINELS or number > _MOST else number


def size(value: str, unit: str = "") -> int | None:
    """Bytes of `628748K`, `1.50G`, `4096`; `unit` is that of a figure without one. Divisor 1024.

    `16?` is Slurm's way to print a sentinel of 64 bits: not known.
    """
    digits, factor = value, 1
    if not unit and value[-1:] in _UNITS:
        digits, factor = value[:-1], _UNITS[value[-1:]]
    if not unit and _is_whole(digits):  # as nearly all counts and sizes are
        number = int(digits)
        return None if number in _SENTINELS or number * factor > _MOST else number * factor
    match = _SIZE.fullmatch(value.strip().upper()) if value else None
    if not match:
        return None
    whole, fraction, suffix = match.groups()
    if int(whole) in _SENTINELS and not fraction:
        return None
    factor = _UNITS[suffix or unit]
    parts: int = int(fraction) * factor // 10 ** len(fraction) if fraction else 0
    amount = int(whole) * factor + parts
    return amount if amount <= _MOST else None


def duration(value: str) -> float | None:
    """Seconds of `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS`, each with or without a fraction."""
    match = _DURATION.fullmatch(value.strip())
    if not match:
        return None
    days, hours, minutes, seconds, fraction = match.groups()
    whole = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    if whole > _LONGEST_S:
        return None
    return whole + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)


@lru_cache(_KEPT)  # a job's steps mostly start and end with it
def moment(value: str, zone: tzinfo | None = None) -> float | None:
    """Epoch seconds of a time, printed as such or as local time of `zone` (None: the system's)."""
    value = value.strip()
    if _is_whole(value):
        return float(value) if 0 < int(value) < _LATEST else None
    try:
        parsed = datetime.fromisoformat(value)
        if zone is not None and parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=zone)
        seconds = parsed.timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return seconds if 0 < seconds < _LATEST else None


@lru_cache(_KEPT)
def time_limit(value: str, minutes: str = "") -> tuple[float | None, str]:
    """(seconds, "") of a limit, or (None, its words): UNLIMITED, Partition_Limit."""
    whole = count(minutes)
    if whole is not None and whole * 60 < _LONGEST_S:
        return whole * 60.0, ""
    seconds = duration(value)
    words = (text for text in (known(value), known(minutes)) if _WORDS.fullmatch(text))
    return seconds, "" if seconds is not None else next(words, "")


@lru_cache(_KEPT)
def state(value: str) -> State:
    """`CANCELLED by 20001`, `RUNNING,LAUNCH_FAILED`, `OUT_OF_ME+`; an unknown word stays."""
    first, *flags = known(value).split(",")
    cancelled = _CANCELLED.fullmatch(first)
    word, by = cancelled.groups() if cancelled else (first, "")
    return State(word.rstrip("+").upper(), by, tuple(flag for flag in flags if flag))


@lru_cache(_KEPT)
def exit_code(value: str) -> ExitCode | None:
    """`1:0`, `0:125`, `3`."""
    match = _EXIT.fullmatch(value.strip())
    return ExitCode(int(match[1]), int(match[2] or 0)) if match else None


def req_mem(value: str) -> tuple[int | None, str]:
    """(bytes, form) of ReqMem: `4Gn` per node, `4000Mc` per core (before 21.08), else the total.

    The form is node, cpu, or "" for a total.
    """
    match = _REQ_MEM.fullmatch(value.strip())
    if not match:
        return None, ""
    return size(match[1], "M"), {"n": "node", "c": "cpu"}.get(match[2], "")


def version(text: str) -> tuple[int, int, int] | None:
    """(24, 11, 7) of `slurm 24.11.7`, `slurm-wlm 22.05.8`, `26.05`."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None
