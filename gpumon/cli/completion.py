"""`gpumon completion`: scripts for the shells, from the parser itself."""

from __future__ import annotations

import argparse

from gpumon.errors import EXIT_OK

SHELLS = ("bash", "zsh", "fish")

_INSTALL = {
    "bash": "gpumon completion bash > ~/.local/share/bash-completion/completions/gpumon",
    "zsh": "gpumon completion zsh > ~/.zfunc/_gpumon   (with fpath+=~/.zfunc before compinit)",
    "fish": "gpumon completion fish > ~/.config/fish/completions/gpumon.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    from gpumon.cli import build_parser

    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]
    print(f"# {_INSTALL[args.shell]}\n{script(_words(build_parser()))}", end="")
    return EXIT_OK


Words = dict[str, list[tuple[str, str]]]  # command ("" the top) -> (word, help)


def _words(parser: argparse.ArgumentParser) -> Words:
    """Flags, choices and command names of the parser and of each of its commands."""
    words: Words = {"": []}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                words[""].append((name, helps.get(name, "")))
                words[name] = _of(command)
    words[""] += _of(parser)
    return words


def _of(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        found += [(flag, text) for flag in action.option_strings if flag.startswith("--")]
        found += [(str(choice), text) for choice in action.choices or ()]
    return found


def _commands(words: Words) -> str:
    """The commands as a pattern; not every word without a dash is one (`--theme dark`)."""
    return "|".join(name for name in words if name)


def _bash(words: Words) -> str:
    cases = "\n".join(
        f'    {name}) words="{" ".join(word for word, _ in entries)}" ;;'
        for name, entries in words.items()
        if name
    )
    return f"""\
_gpumon() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command="" word words
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in {_commands(words)}) command=$word; break ;; esac
  done
  case $command in
{cases}
    *) words="{" ".join(word for word, _ in words[""])}" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _gpumon gpumon
"""


def _zsh(words: Words) -> str:
    def described(entries: list[tuple[str, str]]) -> str:
        return " ".join(f"'{word}:{_plain(text)}'" for word, text in entries)

    cases = "\n".join(
        f"    {name}) entries=({described(entries)}) ;;" for name, entries in words.items() if name
    )
    return f"""\
#compdef gpumon
_gpumon() {{
  local -a entries
  local command="" word
  for word in ${{words[2,CURRENT-1]}}; do
    case $word in {_commands(words)}) command=$word; break ;; esac
  done
  case $command in
{cases}
    *) entries=({described(words[""])}) ;;
  esac
  _describe 'gpumon' entries
}}
_gpumon "$@"
"""


def _fish(words: Words) -> str:
    commands = " ".join(name for name in words if name)
    lines = ["complete -c gpumon -f"]
    for name, entries in words.items():
        when = (
            f"__fish_seen_subcommand_from {name}"
            if name
            else f"not __fish_seen_subcommand_from {commands}"
        )
        for word, text in entries:
            option = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c gpumon -n '{when}' {option} -d '{_plain(text)}'")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("'", "").replace(":", ",").replace("\\", "")
