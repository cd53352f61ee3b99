"""`semel`: one command, a noun or verb behind it. Each is imported when it is used, so that every start is quick.

What a command raises is told here, in one sentence, and becomes the exit code.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from semel import __version__
from semel.cli.failures import Exit, exit_code_of, sentence_of
from semel.cli.parsing import CommandParser

COMMANDS = {
    "serve": "start a node that speaks the Kafka protocol",
    "cluster": "start a cluster on this machine, and see how a cluster is",
    "storage": "format data directories for the nodes of a cluster",
    "node": "see and change the settings of nodes",
    "topic": "create, list, describe, alter, trim and delete topics",
    "produce": "send records: from the command line, a file or a pipe",
    "consume": "print records of topics",
    "group": "see what groups have read, set them back, and delete them",
    "top": "see what goes on in a cluster, live",
    "txn": "see transactions, and end those that hang",
    "console": "see and change a cluster in the browser",
    "user": "add, list and delete users",
    "acl": "say who may do what, and ask why",
    "tls": "make certificates for a small cluster",
    "pipeline": "run a data pipeline on Spark, each record exactly once",
    "log": "look into log files",
    "check": "attack a cluster and judge what it did",
    "experiment": "try out what the guarantees rest on, while you watch",
    "sim": "run the simulated world, repeatable by seed",
    "context": "name clusters, and choose the one to speak to",
    "completion": "make the shell complete commands and options",
}
_EXAMPLES = """`semel COMMAND --help` shows the options of each, with examples.

examples:
  semel serve --data ./data
  semel produce payments "10.00 EUR" --key 42
  semel consume payments
"""


def parser_for(*commands: str) -> CommandParser:
    """The parser, with the arguments of these commands; of the others it has the names."""
    parser = CommandParser(
        prog="semel",
        description="An exactly-once event log for Python and Spark that speaks the Kafka protocol.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"semel {__version__}")
    actions = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        if find_spec(f"semel.cli.{name}") is None:
            continue
        command = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name in commands:
            import_module(f"semel.cli.{name}").add_arguments(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code; `semel.cli.failures.Exit` has them all."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            options = parser_for(*given[:1]).parse_args(given)
            return _run(options)
        finally:
            sys.stdout.flush()
            if arguments is None:
                # The process ends here: to look for garbage among all it has imported would take 20 ms.
                gc.freeze()
    except BrokenPipeError:
        _let_go_of_output()
        return Exit.CLOSED_PIPE


def _run(options: argparse.Namespace) -> int:
    if getattr(options, "debug", False):
        import logging

        from semel.cli.log_lines import log_to_stderr

        log_to_stderr(logging.DEBUG)
    try:
        code: int = options.run(options)
        return code
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        return _told(error, options)


def _told(error: BaseException, options: argparse.Namespace) -> int:
    code = exit_code_of(error)
    if code in (Exit.INTERRUPTED, Exit.TERMINATED):
        return int(code)
    if code is None and not hasattr(options, "debug"):
        raise error
    if getattr(options, "debug", False):
        import traceback

        traceback.print_exception(error)
    name = " ".join(["semel", *(part for part in (options.command, getattr(options, "action", None)) if part)])
    if code is None:
        print(f"{name}: {type(error).__name__}: {error}; this was not foreseen: --debug shows where", file=sys.stderr)
        return Exit.FAILED
    sentence = sentence_of(error)
    if getattr(options, "bootstrap", None) is not None:
        sentence = re.sub("^bootstrap_servers: ", "--bootstrap: ", sentence)
    print(f"{name}: {sentence}", file=sys.stderr)
    return code


def _let_go_of_output() -> None:
    """The interpreter flushes standard output at its end: into nothing, or it would complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
