"""What the parsers hold, for those who write about them: completion scripts and docs/command-line.md."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple


class Described(NamedTuple):
    """An option or an argument. `choices` are its values, if they are few; `metavar` is None if it takes none,
    `repeats` is argparse's +, * or ?."""

    names: tuple[str, ...]
    metavar: str | None
    choices: tuple[str, ...]
    help: str
    repeats: str = ""


class Command(NamedTuple):
    """One parser. `path` is what is typed, without the program's name."""

    path: tuple[str, ...]
    parser: argparse.ArgumentParser
    help: str
    commands: tuple[str, ...]
    options: tuple[Described, ...]
    arguments: tuple[Described, ...]


def commands_of(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), text: str = "") -> Iterator[Command]:
    """The parser and all below it, in the order in which help lists them."""
    # argparse has no public way to look at what was added.
    below: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    options: list[Described] = []
    arguments: list[Described] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            helps = {entry.dest: entry.help or "" for entry in action._choices_actions}
        elif action.help != argparse.SUPPRESS:
            (options if action.option_strings else arguments).append(_described(action))
    yield Command(path, parser, text, tuple(below), tuple(options), tuple(arguments))
    for name, child in below.items():
        yield from commands_of(child, (*path, name), helps.get(name, ""))


def _described(action: argparse.Action) -> Described:
    choices = tuple(str(choice) for choice in action.choices or ())
    metavar: str | None = None
    if action.nargs != 0:
        given = action.metavar if isinstance(action.metavar, str) else None
        metavar = given or ("|".join(choices) if choices else action.dest.upper())
    repeats = action.nargs if isinstance(action.nargs, str) else ""
    return Described(tuple(action.option_strings), metavar, choices, action.help or "", repeats)
