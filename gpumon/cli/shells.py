"""Completion scripts for shells, from the words of the command line.

Scripts ask gpumon itself for ids of jobs (`gpumon.cli.candidates`); all else stands in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.cli.candidates import COMPLETE


class Word(NamedTuple):
    """A command, or one of the values of an argument."""

    word: str
    help: str


class Option(NamedTuple):
    """`names` as they are typed; what follows is nothing, any text, a file or one of `values`."""

    names: Sequence[str]
    help: str
    kind: str = ""  # "", any, files, one of
    values: Sequence[str] = ()


class Command(NamedTuple):
    """What may follow a command; "" is gpumon without one."""

    name: str
    words: list[Word]
    options: list[Option]
    jobs: str = ""  # which ids its arguments may be, as `candidates.JOBS` names them
    is_file: bool = False  # whether they may be files

    @property
    def flags(self) -> Iterator[Word]:
        """The long form of each option."""
        for option in self.options:
            for name in option.names:
                if name.startswith("--"):
                    yield Word(name, option.help)


def _names(commands: Sequence[Command]) -> str:
    """The commands as a pattern; not every word without a dash is one (`--theme dark`)."""
    return "|".join(command.name for command in commands if command.name)


def _after_options(commands: Sequence[Command], kind: str) -> Iterator[tuple[str, Option]]:
    """Options of this kind with a pattern for `COMMAND:OPTION`."""
    for command in commands:
        for option in command.options:
            if option.kind == kind:
                yield "|".join(f"{command.name}:{name}" for name in option.names), option


def bash(commands: Sequence[Command]) -> str:
    cases = "\n".join(
        f'    {command.name or "*"}) words="{" ".join(each.word for each in _all(command))}"'
        f" jobs={command.jobs or '-'} files={'yes' if command.is_file else 'no'} ;;"
        for command in sorted(commands, key=lambda each: not each.name)
    )
    values = "\n".join(
        f'    {pattern}) COMPREPLY=($(compgen -W "{" ".join(option.values)}" -- "$current"));'
        " return ;;"
        for pattern, option in _after_options(commands, "one of")
    )
    files = "|".join(pattern for pattern, _ in _after_options(commands, "files"))
    any_text = "|".join(pattern for pattern, _ in _after_options(commands, "any"))
    return f"""\
# bash completion for gpumon
_gpumon_files() {{
  compopt -o filenames 2>/dev/null
  local file
  while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$1")
}}
_gpumon() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="" word words jobs files
  COMPREPLY=()
  if [[ $current == = ]]; then current=""
  elif [[ $before == = ]]; then before="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in {_names(commands)}) command=$word; break ;; esac
  done
  case $command:$before in
{values}
    {files}) _gpumon_files "$current"; return ;;
    {any_text}) return ;;
  esac
  case $command in
{cases}
  esac
  if [[ $jobs != - && $current != -* ]]; then
    words+=" $(command "${{COMP_WORDS[0]}}" {COMPLETE} bash "$jobs" 2>/dev/null)"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $files == yes && $current != -* ]]; then _gpumon_files "$current"; fi
}}
complete -F _gpumon gpumon
"""


def _all(command: Command) -> list[Word]:
    return [*command.words, *command.flags]


def zsh(commands: Sequence[Command]) -> str:
    def described(words: Sequence[Word]) -> str:
        return " ".join(f"'{each.word}:{_plain(each.help)}'" for each in words)

    cases = "\n".join(
        f"    {command.name or '*'}) entries=({described(_all(command))})"
        f" jobs={command.jobs or '-'} files={'yes' if command.is_file else 'no'} ;;"
        for command in sorted(commands, key=lambda each: not each.name)
    )
    values = "\n".join(
        f"    {pattern}) compadd -- {' '.join(option.values)}; return ;;"
        for pattern, option in _after_options(commands, "one of")
    )
    files = "|".join(pattern for pattern, _ in _after_options(commands, "files"))
    any_text = "|".join(pattern for pattern, _ in _after_options(commands, "any"))
    return f"""\
#compdef gpumon
_gpumon() {{
  local -a entries found
  local command="" word jobs files before="${{words[CURRENT-1]}}"
  if [[ ${{words[CURRENT]}} == --*=* ]]; then
    before="${{words[CURRENT]%%=*}}"
    compset -P '*='
  fi
  for word in ${{words[2,CURRENT-1]}}; do
    case $word in {_names(commands)}) command=$word; break ;; esac
  done
  case $command:$before in
{values}
    {files}) _files; return ;;
    {any_text}) return ;;
  esac
  case $command in
{cases}
  esac
  if [[ $jobs != - && ${{words[CURRENT]}} != -* ]]; then
    found=("${{(@f)$(command ${{words[1]}} {COMPLETE} zsh $jobs 2>/dev/null)}}")
    [[ -n ${{found[1]}} ]] && _describe -V 'jobs' found
  fi
  _describe 'gpumon' entries
  [[ $files == yes ]] && _files
}}
_gpumon "$@"
"""


def fish(commands: Sequence[Command]) -> str:
    names = " ".join(command.name for command in commands if command.name)
    lines = ["complete -c gpumon -f"]
    for command in commands:
        seen = f"__fish_seen_subcommand_from {command.name or names}"
        when = seen if command.name else f"not {seen}"
        begin = f"complete -c gpumon -n '{when}'"
        lines += [f"{begin} -a {each.word} -d '{_plain(each.help)}'" for each in command.words]
        for option in command.options:
            forms = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in sorted(option.names, key=len, reverse=True)
            )
            value = {"any": " -x", "files": " -r -F"}.get(option.kind, "")
            value = f" -x -a '{' '.join(option.values)}'" if option.values else value
            lines.append(f"{begin} {forms}{value} -d '{_plain(option.help)}'")
        if command.jobs:
            asked = f"(command gpumon {COMPLETE} fish {command.jobs} 2>/dev/null)"
            lines.append(f"{begin} -k -a '{asked}'")
        if command.is_file:
            lines.append(f"{begin} -F")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("'", "").replace(":", ",").replace("\\", "")
