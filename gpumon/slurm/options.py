"""Options of sbatch where people write them: #SBATCH lines of a batch script, or a submit line.

Read as sbatch reads them: GNU getopt, long and short forms, `=` or a blank, several on a line,
quotes, a comment behind `#`, none behind the first command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gpumon.slurm import tres, values

#: short option -> long one, of those that gpumon reads
_LONG = {
    "c": "cpus-per-task", "n": "ntasks", "N": "nodes", "t": "time", "G": "gpus", "p": "partition",
    "C": "constraint",
}  # fmt: skip
#: options that stand for one request: a later one replaces an earlier one of its family
FAMILIES: tuple[frozenset[str], ...] = (
    frozenset(("mem", "mem-per-cpu", "mem-per-gpu")),
    frozenset(("cpus-per-task", "cpus-per-gpu")),
    frozenset(("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")),
)
#: option of GPUs -> what the number in it is per
GPUS_PER = {"gres": "node", "gpus-per-node": "node", "gpus": "job", "gpus-per-task": "task"}
#: option -> those that stand for the same amount: Slurm takes one of them. (GPUs add up.)
_REPLACED_BY = {name: each for each in FAMILIES[:2] for name in each}
#: options of sbatch, srun and salloc that take no value, or only one joined by `=`
_FLAGS = frozenset((
    "contiguous", "disable-stdout-job-summary", "disable-status", "exact", "exclusive",
    "get-user-env", "help", "hold", "ignore-pbs", "immediate", "interactive", "label",
    "multi-prog", "nice", "no-allocate", "no-bell", "no-kill", "no-requeue", "no-shell",
    "overcommit", "overlap", "oversubscribe", "parsable", "preserve-env", "pty", "quiet",
    "quit-on-interrupt", "reboot", "requeue", "resv-ports", "share", "spread-job", "test-only",
    "unbuffered", "usage", "use-min-nodes", "verbose", "version", "wait",
))  # fmt: skip
_SHORT_FLAGS = frozenset("hHIkKOQsuvVWXZEl")
#: those of them that gpumon reads
_READ_FLAGS = ("exclusive",)
DIRECTIVE = "#SBATCH"


def family(option: str) -> frozenset[str]:
    """The options, without dashes, that stand for the same request."""
    name = option.lstrip("-")
    return next((each for each in FAMILIES if name in each), frozenset((name,)))


class Option(NamedTuple):
    """One option with its value, and where both stand in the text: text[start:end]."""

    name: str  # long, without dashes
    value: str  # without quotes
    start: int  # of the option
    end: int  # behind its value
    value_start: int


class _Word(NamedTuple):
    text: str  # without quotes
    start: int
    end: int
    quoted: bool


def _read(text: str, start: int, end: int, line: bool = False) -> tuple[list[Option], int]:
    """The options up to the first word that belongs to none, which is where they end.

    `line`: of a submit line.
    """
    words = list(_words(text, start, end, comments=not line, quotes=not line or _is_quoted(text)))
    found: list[Option] = []
    at = 0
    while at < len(words):
        word = words[at]
        if not word.text.startswith("-") or word.text in ("-", "--"):
            return found, word.start
        following = words[at + 1] if at + 1 < len(words) else None
        option, uses_next = _option(text, word, following)
        if option is not None:
            found.append(option)
            if line and option.name == "wrap":
                return found, end  # Slurm keeps no quotes: the rest may be the command's own words
        at += 2 if uses_next else 1
    return found, end


def options_of_submit_line(line: str) -> dict[str, str]:
    """What `sbatch --mem=4G -c 8 job.sh` asked for: {"mem": "4G", "cpus-per-task": "8"}.

    The last option of a name counts, and of several forms of one amount the last form. Of a het
    job nothing is known: each component has options of its own.
    """
    found: dict[str, str] = {}
    if ":" in line.split():
        return found
    for option in submit_options(line):
        for other in _REPLACED_BY.get(option.name, (option.name,)):
            found.pop(other, None)
        found[option.name] = option.value
    return found


def submitted_gpus(line: str, nodes: int | None) -> dict[str, int]:
    """By their type ("": any), of all nodes; empty where the line names none, or not how many."""
    options = options_of_submit_line(line) if "gpu" in line or "-G" in line else {}
    tasks = values.count(options.get("ntasks", ""))
    for name, per in GPUS_PER.items():
        text = options.get(name, "")
        named = text if name == "gres" else ",".join(f"gpu:{part}" for part in text.split(","))
        count, types = tres.gpus_of(named if text else "")
        times = {"node": nodes, "task": tasks}.get(per, 1)
        if count and times:
            return {kind: number * times for kind, number in types.items()}
    return {}


def submitted_script(line: str) -> str:
    """`job.sh` of `sbatch --mem=4G job.sh 17`; "" where there is none."""
    command = re.match(r"\s*\S+", line)
    options = submit_options(line)
    if command is None or any(option.name == "wrap" for option in options):
        return ""
    _, at = _read(line, command.end(), len(line), line=True)
    rest = line[at:].split()
    return rest[0] if rest and not rest[0].startswith("-") else ""


def _is_quoted(line: str) -> bool:
    """Slurm keeps a submit line without its quotes: one that is left over is a plain character."""
    if not any(char in line for char in "'\"\\#"):
        return True  # as nearly all are; shlex is slow
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True


def _words(text: str, start: int, end: int, comments: bool, quotes: bool) -> Iterator[_Word]:
    """Words as sbatch splits a directive: quotes and backslashes join, a bare # ends."""
    at = start
    while at < end:
        if text[at].isspace():
            at += 1
            continue
        if comments and text[at] == "#":
            return
        first, parts, quote, quoted = at, [], "", False
        while at < end and (quote or not text[at].isspace()):
            char = text[at]
            if quotes and char == "\\" and quote != "'" and at + 1 < end:
                at += 1
                parts.append(text[at])
                quoted = True
            elif quote and char == quote:
                quote = ""
            elif quotes and not quote and char in "'\"":
                quote, quoted = char, True
            elif comments and not quote and char == "#":
                break
            else:
                parts.append(char)
            at += 1
        yield _Word("".join(parts), first, at, quoted)


def _option(text: str, word: _Word, following: _Word | None) -> tuple[Option | None, bool]:
    """The option that `word` begins, and whether the following word is its value."""
    if word.text.startswith("--"):
        name, equals, value = word.text[2:].partition("=")
        if equals:
            offset = text.index("=", word.start) + 1
            return Option(name, value, word.start, word.end, offset), False
        if name in _FLAGS or following is None:
            flag = Option(name, "", word.start, word.end, word.end)
            return (flag if name in _READ_FLAGS else None), False
        return Option(name, following.text, word.start, following.end, following.start), True
    letters = word.text[1:]
    for place, letter in enumerate(letters):
        if letter in _SHORT_FLAGS:
            continue
        value = letters[place + 1 :]
        if word.quoted or letter not in _LONG:
            return None, not value
        if value:
            offset = word.start + 2 + place
            return Option(_LONG[letter], value, word.start, word.end, offset), False
        if following is None:
            return None, False
        found = Option(_LONG[letter], following.text, word.start, following.end, following.start)
        return found, True
    return None, False


def directive_lines(text: str) -> list[tuple[int, int]]:
    """(start, end) of each, behind the word #SBATCH; sbatch reads them up to the first command."""
    found, at = [], 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        if line.strip() and not line.lstrip().startswith("#"):
            break
        rest = line.removeprefix(DIRECTIVE)
        if rest != line and (not rest or rest[0].isspace()):
            found.append((end - len(rest), end))
        at = end + 1
    return found


def script_options(text: str) -> list[Option]:
    """What the #SBATCH lines ask for; of several of one name, the last counts."""
    return [option for start, end in directive_lines(text) for option in _read(text, start, end)[0]]


def is_het(text: str) -> bool:
    return any(
        text[start:end].split()[:1] in (["hetjob"], ["packjob"])
        for start, end in directive_lines(text)
    )


@lru_cache(maxsize=4096)  # of thousands of jobs many were submitted by the same line
def submit_options(line: str) -> tuple[Option, ...]:
    command = re.match(r"\s*\S+", line)
    return tuple(_read(line, command.end(), len(line), line=True)[0]) if command else ()


def is_gpu(option: Option) -> bool:
    """--gres may be about other things than GPUs."""
    return option.name != "gres" or any(names_gpu(part) for part in option.value.split(","))


def names_gpu(part: str) -> bool:
    return part.removeprefix("gres/").split(":")[0] == "gpu"
