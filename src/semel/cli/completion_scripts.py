"""Completion for bash, zsh and fish. The scripts are static: pressing Tab starts nothing and asks no cluster.

All three find the command first: the words before the cursor, as far as they are names of commands. Then they offer the
commands below it and its options, or the values of the option before the cursor.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from semel.cli.parser_tree import Command, commands_of

_BASH = """\
# bash completion of semel; made by `semel completion bash`
_semel() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" path="" word words=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$path/$word" in
            {paths}) path="$path/$word" ;;
        esac
    done
    case "$path $previous" in
{values}
    esac
    case "$path" in
{words}
    esac
    if [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        return
    fi
    local names=""
    for word in $words; do
        [[ "$word" == -* ]] || names+=" $word"
    done
    if [[ -n "$names" ]]; then
        COMPREPLY=($(compgen -W "$names" -- "$current"))
    else
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}}
complete -F _semel semel
"""
_ZSH = """\
#compdef semel
# zsh completion of semel; made by `semel completion zsh`
_semel() {{
    local path_="" word
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$path_/$word" in
            {paths}) path_="$path_/$word" ;;
        esac
    done
    case "$path_ ${{words[CURRENT-1]}}" in
{values}
    esac
    local -a entries
    case "$path_" in
{words}
    esac
    [[ "$PREFIX" == -* ]] || entries=("${{(@)entries:#-*}}")
    if [[ ${{#entries}} -gt 0 ]]; then
        _describe 'semel' entries
    else
        _files
    fi
}}
compdef _semel semel
"""
_FISH = """\
# fish completion of semel; made by `semel completion fish`
function __semel_path
    set -l path ''
    for word in (commandline -opc)[2..-1]
        switch "$path/$word"
            case {paths}
                set path "$path/$word"
        end
    end
    echo "$path"
end
function __semel_at
    test (__semel_path) = "$argv[1]"
end
complete -c semel -e
{lines}
"""


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    commands = list(commands_of(parser))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _place(command: Command) -> str:
    return "".join(f"/{name}" for name in command.path)


def _below(command: Command, commands: Sequence[Command]) -> list[tuple[str, str]]:
    """Commands and options that may come next, each with its sentence. Of choices among arguments, the choices."""
    found = [
        (name, next(one.help for one in commands if one.path == (*command.path, name))) for name in command.commands
    ]
    found += [(choice, argument.help) for argument in command.arguments for choice in argument.choices]
    return found + [(name, option.help) for option in command.options for name in option.names]


def _bash(commands: Sequence[Command]) -> str:
    return _BASH.format(
        paths="|".join(_place(command) for command in commands if command.path),
        values="\n".join(
            f"        {_patterns(command, option.names)}) "
            f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current")); return ;;'
            for command in commands
            for option in command.options
            if option.choices
        ),
        words="\n".join(
            f'        "{_place(command)}") words="{" ".join(name for name, _ in _below(command, commands))}" ;;'
            for command in commands
        ),
    )


def _patterns(command: Command, names: Sequence[str]) -> str:
    return "|".join(f'"{_place(command)} {name}"' for name in names)


def _zsh(commands: Sequence[Command]) -> str:
    return _ZSH.format(
        paths="|".join(_place(command) for command in commands if command.path),
        values="\n".join(
            f"        {_patterns(command, option.names)}) compadd -- {' '.join(option.choices)}; return ;;"
            for command in commands
            for option in command.options
            if option.choices
        ),
        words="\n".join(
            f'        "{_place(command)}") entries=('
            + " ".join(_quoted(f"{_escaped(name)}:{text}") for name, text in _below(command, commands))
            + ") ;;"
            for command in commands
        ),
    )


def _escaped(name: str) -> str:
    return name.replace(":", "\\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(commands: Sequence[Command]) -> str:
    lines = []
    for command in commands:
        at = f"complete -c semel -n '__semel_at {_fish_quoted(_place(command))}'"
        for name, text in _below(command, commands):
            if not name.startswith("-"):
                lines.append(f"{at} -f -a {_fish_quoted(name)} -d {_fish_quoted(text)}")
        for option in command.options:
            names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in option.names)
            needs = " -r" if option.metavar is not None else ""
            values = f" -f -a {_fish_quoted(' '.join(option.choices))}" if option.choices else ""
            lines.append(f"{at}{names}{needs}{values} -d {_fish_quoted(option.help)}")
    paths = " ".join(_place(command) for command in commands if command.path)
    return _FISH.format(paths=paths, lines="\n".join(lines))


def _fish_quoted(text: str) -> str:
    """In double quotes, since conditions stand in single ones."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"'
