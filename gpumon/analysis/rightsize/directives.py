"""Options of sbatch where people write them: #SBATCH lines of a batch script, or a submit line.

Reads them as sbatch does (GNU getopt: long and short forms, `=` or a blank, several on a line,
quotes, a comment behind `#`, none behind the first command), and changes a value in place: all
else, hostile text included, stays byte for byte.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from gpumon.analysis.finding import Change

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
#: what an export line of ours may hold: it is written unquoted into a shell script
_SAFE_EXPORT = re.compile(r"export [A-Za-z_]\w*=[\w.,:/+@=${}-]+")
_DIRECTIVE = "#SBATCH"


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
        at += 2 if uses_next else 1
    return found, end


def options_of_submit_line(line: str) -> dict[str, str]:
    """What `sbatch --mem=4G -c 8 job.sh` asked for: {"mem": "4G", "cpus-per-task": "8"}.

    The last option of a name counts, and of several forms of one amount the last form.
    """
    found: dict[str, str] = {}
    for option in _submit_options(line):
        for other in _REPLACED_BY.get(option.name, (option.name,)):
            found.pop(other, None)
        found[option.name] = option.value
    return found


def submitted_script(line: str) -> str:
    """`job.sh` of `sbatch --mem=4G job.sh 17`; "" where there is none."""
    command = re.match(r"\s*\S+", line)
    options = _submit_options(line)
    if command is None or any(option.name == "wrap" for option in options):
        return ""
    _, at = _read(line, command.end(), len(line), line=True)
    rest = line[at:].split()
    return rest[0] if rest and not rest[0].startswith("-") else ""


def apply(script: str, changes: Iterable[Change]) -> str:
    """The batch script with the changes: values changed where they stand, else a line
    added behind the last directive. A script of a het job stays as it is: it has several requests.
    """
    for each in changes:
        if not each.option:
            script = _with_export(script, each.after_line)
        elif not _is_het(script):
            script = _changed(script, list(script_options(script)), each, _with_directive)
    return script


def apply_to_submit_line(line: str, changes: Iterable[Change]) -> str:
    """A submit line as Slurm keeps it (words joined by blanks), with the changed options."""
    if "wrap" in options_of_submit_line(line):
        return line  # whose words cannot be told from options any more
    for each in changes:
        if each.option:
            line = _changed(line, _submit_options(line), each, _with_option)
    return line


def overridden(line: str, changes: Iterable[Change]) -> list[Change]:
    """Those of options that a submit line states: they win over the script's directives."""
    options = _submit_options(line)
    if any(each.name == "wrap" for each in options):
        return []  # whose words cannot be told from options any more
    stated = {name for each in options if _is_gpu(each) for name in family(each.name)}
    return [each for each in changes if each.option.lstrip("-") in stated]


def diff(script: str, changes: Iterable[Change], name: str = "job.sh") -> str:
    """What `apply` changes, as a unified diff; "" where it changes nothing."""
    import difflib  # for reports alone

    before = script.splitlines(keepends=True)
    after = apply(script, changes).splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, name, name, n=1))


# -- reading ---------------------------------------------------------------------------------------


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


def _directive_lines(text: str) -> list[tuple[int, int]]:
    """(start, end) of each, behind the word #SBATCH; sbatch reads them up to the first command."""
    found, at = [], 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        if line.strip() and not line.lstrip().startswith("#"):
            break
        rest = line.removeprefix(_DIRECTIVE)
        if rest != line and (not rest or rest[0].isspace()):
            found.append((end - len(rest), end))
        at = end + 1
    return found


def script_options(text: str) -> list[Option]:
    """What the #SBATCH lines ask for; of several of one name, the last counts."""
    return [
        option for start, end in _directive_lines(text) for option in _read(text, start, end)[0]
    ]


def _is_het(text: str) -> bool:
    return any(
        text[start:end].split()[:1] in (["hetjob"], ["packjob"])
        for start, end in _directive_lines(text)
    )


@lru_cache(maxsize=4096)  # of thousands of jobs many were submitted by the same line
def _submit_options(line: str) -> tuple[Option, ...]:
    command = re.match(r"\s*\S+", line)
    return tuple(_read(line, command.end(), len(line), line=True)[0]) if command else ()


# -- changing --------------------------------------------------------------------------------------


def _is_gpu(option: Option) -> bool:
    """--gres may be about other things than GPUs."""
    return option.name != "gres" or any(_names_gpu(part) for part in option.value.split(","))


def _names_gpu(part: str) -> bool:
    return part.removeprefix("gres/").split(":")[0] == "gpu"


def _changed(
    text: str, options: Sequence[Option], change: Change, add: Callable[[str, str], str]
) -> str:
    """The text with one request changed; as it is where that would leave two of one family."""
    name, value = change.option.lstrip("-"), change.after_line
    if not value and change.after is not None:
        return text  # no value of this option
    stated = [each for each in options if each.name in family(name) and _is_gpu(each)]
    if not stated:
        return add(text, f"--{name}={value}") if value else text
    if len({each.name for each in stated}) > 1:
        return text
    for option in reversed(stated):
        text = _replaced(text, option, name, value)
    return text


def _replaced(text: str, option: Option, name: str, value: str) -> str:
    if option.name == "gres":
        parts = option.value.split(",")
        kept = [part for part in parts if not _names_gpu(part)]
        if kept and name != "gres":
            return text  # other resources would go with it
        parts = [value if _names_gpu(part) else part for part in parts]
        value = ",".join(dict.fromkeys(filter(None, parts)))
    if not value:
        return _without(text, option)
    raw = text[option.value_start : option.end]
    inner = raw[1:-1] if raw[:1] in ("'", '"') and raw[-1:] == raw[:1] else raw
    if option.name == name and inner == option.value:  # quotes stay, where there are any
        quoted = value if inner == raw else f"{raw[0]}{value}{raw[0]}"
        return text[: option.value_start] + quoted + text[option.end :]
    return f"{text[: option.start]}--{name}={value}{text[option.end :]}"


def _without(text: str, option: Option) -> str:
    """Without the option; and without its line, where nothing else stands on it."""
    start = text.rfind("\n", 0, option.start) + 1
    end = text.find("\n", option.end)
    end = len(text) if end < 0 else end
    rest = text[start : option.start] + text[option.end : end]
    if rest.strip() == _DIRECTIVE:
        return text[:start] + text[end + 1 :]
    return text[: option.start].rstrip(" \t") + text[option.end :]


def _with_directive(script: str, option: str) -> str:
    return _with_line(script, f"{_DIRECTIVE} {option}")


def _with_export(script: str, line: str) -> str:
    if not _SAFE_EXPORT.fullmatch(line) or line in (each.strip() for each in script.split("\n")):
        return script
    return _with_line(script, line)


def _with_line(script: str, line: str) -> str:
    """A line behind the last directive, else behind the line that names the shell."""
    directives = _directive_lines(script)
    if directives:
        at = directives[-1][1]
    elif script.startswith("#!"):
        at = script.find("\n") if "\n" in script else len(script)
    else:
        return f"{line}\n{script}"
    end = "\r\n" if script[:at].endswith("\r") else "\n"
    if at == len(script):
        return f"{script}{end}{line}"
    return f"{script[: at + 1]}{line}{end}{script[at + 1 :]}"


def _with_option(line: str, option: str) -> str:
    command = re.match(r"\s*\S+", line)
    return f"{line[: command.end()]} {option}{line[command.end() :]}" if command else line
