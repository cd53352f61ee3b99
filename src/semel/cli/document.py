"""Writes docs/command-line.md from the parsers: `python -m semel.cli.document > docs/command-line.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from semel.cli.connection import add_connection_arguments
from semel.cli.failures import EXIT_CODES
from semel.cli.main import COMMANDS, parser_for
from semel.cli.output import add_output_arguments
from semel.cli.parser_tree import Command, Described, commands_of
from semel.cli.parsing import CommandParser

SESSION = """\
$ semel context add local --bootstrap localhost:9092
$ semel topic create payments --partitions 3
$ semel produce payments "10.00 EUR" --key 42
$ printf '43:12.50 EUR\\n44:3.00 EUR\\n' | semel produce payments --key-separator :
$ semel consume payments --format '{key} paid {value}'
$ semel topic create copies --partitions 3
$ semel consume payments --json | semel produce copies --input json
$ semel consume payments --group books
$ semel group describe books
$ semel group reset books --to earliest --execute
$ printf 'one\\ntwo\\n' | semel produce receipts --transactional-id till
$ semel txn describe till
$ semel txn why-stuck receipts
$ semel topic describe payments
"""
_OPENING = """\
# The command line

This page is written by `python -m semel.cli.document` from the parsers in `src/semel/cli`.

Everything but `semel log`, which reads files, and what starts nodes of its own goes through the client, and so works on
Apache Kafka as well. A first session, with `semel serve --data ./data` in another terminal:

```console
"""
_COMMON = """\
```

## What all commands have in common

**The cluster.** `--bootstrap HOST:PORT`, or `--context NAME` for one that `semel context add` has named; without
either the context in use, and without one `localhost:9092`. `--set NAME=VALUE` gives any
[setting of the client](client-settings.md), such as TLS and passwords; contexts hold those too. They are in
`~/.config/semel/contexts.toml`, or in the file that `SEMEL_CONFIG` names, readable by their owner alone; `${NAME}`
in a value is taken from the environment.

**What is printed.** Results go to standard output, everything else to standard error. On a terminal there are colours
(unless `NO_COLOR` is set) and progress; in a pipe the same columns as plain text. `--json` prints one document; of
records, one line each. Keys and values that are no UTF-8 are `{"base64": "..."}` there. Control characters that come
from a cluster are spelled out on a terminal; in a pipe, `semel consume` passes bytes on as they are.

**While a broker is away.** Commands try again by themselves, and say so: `Waiting for HOST:PORT: connection refused` on
standard error when it has lasted two seconds, and one line more when the node is back. A `semel produce` that fails or
is ended meanwhile tells how many records were sent, acknowledged and not, and each kind of failure in one line.

**When it fails.** One sentence says what was wrong and what to do next; `--debug` shows the traceback and what the
client does. A script can tell by the exit code:
"""
_CELL = str.maketrans({"|": "\\|", "\n": " "})


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _OPENING + SESSION + _COMMON
    yield "| exit code | |"
    yield "|---|---|"
    for code, text in EXIT_CODES.items():
        yield f"| {int(code)} | {text.translate(_CELL)} |"
    common = set(_common_options())
    yield "\nThese options are left out below:\n"
    yield from _table(_common_options())
    for command in commands_of(parser_for(*COMMANDS)):
        if command.path:
            yield from _section(command, common)


def _common_options() -> list[Described]:
    parser = CommandParser()
    add_output_arguments(parser)
    add_connection_arguments(parser)
    return list(next(commands_of(parser)).options)


def _section(command: Command, common: set[Described]) -> Iterator[str]:
    name = " ".join(("semel", *command.path))
    yield f"\n{'#' * (1 + len(command.path))} {name}\n"
    yield f"{_first_upper(command.parser.description or command.help)}\n"
    if not command.commands:
        yield f"```text\n{' '.join((name, *(_usage(one) for one in command.arguments), '[OPTIONS]'))}\n```\n"
        described = [one for one in (*command.arguments, *command.options) if one not in common]
        if any(one.help for one in described):
            yield from _table(one for one in described if one.help)
            yield ""
    if command.parser.epilog:
        yield f"```text\n{command.parser.epilog.strip()}\n```"


def _usage(argument: Described) -> str:
    return {"+": f"{argument.metavar}...", "*": f"[{argument.metavar}...]", "?": f"[{argument.metavar}]"}.get(
        argument.repeats, str(argument.metavar)
    )


def _first_upper(text: str) -> str:
    text = text if text.endswith(".") else f"{text}."
    return text[:1].upper() + text[1:]


def _table(described: Iterable[Described]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for one in described:
        names = ", ".join(one.names)
        shown = f"{names} {one.metavar}" if names and one.metavar else names or str(one.metavar)
        yield f"| `{shown.translate(_CELL)}` | {one.help.translate(_CELL)} |"


if __name__ == "__main__":
    sys.stdout.write(page())
