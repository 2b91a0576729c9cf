"""Changes of options where people write them: #SBATCH lines of a batch script, or a submit line.

A value is changed in place: all else, hostile text included, stays byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from gpumon.analysis.finding import Change
from gpumon.slurm.options import (
    DIRECTIVE,
    Option,
    directive_lines,
    family,
    is_gpu,
    is_het,
    names_gpu,
    options_of_submit_line,
    script_options,
    submit_options,
)

#: what an export line of ours may hold: it is written unquoted into a shell script
_SAFE_EXPORT = re.compile(r"export [A-Za-z_]\w*=[\w.,:/+@=${}-]+")


def apply(script: str, changes: Iterable[Change]) -> str:
    """The batch script with the changes: values changed where they stand, else a line
    added behind the last directive. A script of a het job stays as it is: it has several requests.
    """
    for each in changes:
        if not each.option:
            script = _with_export(script, each.after_line)
        elif not is_het(script):
            script = _changed(script, list(script_options(script)), each, _with_directive)
    return script


def apply_to_submit_line(line: str, changes: Iterable[Change]) -> str:
    """A submit line as Slurm keeps it (words joined by blanks), with the changed options."""
    if "wrap" in options_of_submit_line(line):
        return line  # whose words cannot be told from options any more
    for each in changes:
        if each.option:
            line = _changed(line, submit_options(line), each, _with_option)
    return line


def overridden(line: str, changes: Iterable[Change]) -> list[Change]:
    """Those of options that a submit line states: they win over the script's directives."""
    options = submit_options(line)
    if any(each.name == "wrap" for each in options):
        return []  # whose words cannot be told from options any more
    stated = {name for each in options if is_gpu(each) for name in family(each.name)}
    return [each for each in changes if each.option.lstrip("-") in stated]


def diff(script: str, changes: Iterable[Change], name: str = "job.sh") -> str:
    """What `apply` changes, as a unified diff; "" where it changes nothing."""
    import difflib  # for reports alone

    before = script.splitlines(keepends=True)
    after = apply(script, changes).splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, name, name, n=1))


# -- changing --------------------------------------------------------------------------------------


def _changed(
    text: str, options: Sequence[Option], change: Change, add: Callable[[str, str], str]
) -> str:
    """The text with one request changed; as it is where that would leave two of one family."""
    name, value = change.option.lstrip("-"), change.after_line
    if not value and change.after is not None:
        return text  # no value of this option
    stated = [each for each in options if each.name in family(name) and is_gpu(each)]
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
        kept = [part for part in parts if not names_gpu(part)]
        if kept and name != "gres":
            return text  # other resources would go with it
        parts = [value if names_gpu(part) else part for part in parts]
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
    if rest.strip() == DIRECTIVE:
        return text[:start] + text[end + 1 :]
    return text[: option.start].rstrip(" \t") + text[option.end :]


def _with_directive(script: str, option: str) -> str:
    return _with_line(script, f"{DIRECTIVE} {option}")


def _with_export(script: str, line: str) -> str:
    if not _SAFE_EXPORT.fullmatch(line) or line in (each.strip() for each in script.split("\n")):
        return script
    return _with_line(script, line)


def _with_line(script: str, line: str) -> str:
    """A line behind the last directive, else behind the line that names the shell."""
    directives = directive_lines(script)
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
