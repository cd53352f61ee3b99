"""`semel`: one command, a noun or verb behind it. Each is imported when it is used, so that every start is quick."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from semel import __version__

_COMMANDS = {
    "serve": "start a node that speaks the Kafka protocol",
    "pipeline": "run a data pipeline on Spark, each record exactly once",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 for success, 1 for a failure, 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="semel",
        description="An exactly-once event log for Python and Spark that speaks the Kafka protocol.",
        epilog="example: semel serve --data ./data --port 9092",
    )
    parser.add_argument("--version", action="version", version=f"semel {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    given = list(sys.argv[1:] if arguments is None else arguments)
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name in given[:1]:
            import_module(f"semel.cli.{name}").add_arguments(command)
    options = parser.parse_args(given)
    result: int = options.run(options)
    return result


if __name__ == "__main__":
    sys.exit(main())
