"""`semel consume`: prints records of topics, to their present end or on and on."""

from __future__ import annotations

import argparse

from semel.cli.connection import add_connection_arguments, run
from semel.cli.output import add_output_arguments
from semel.cli.positions import WHERE, Kind, Position, at_least_one, at_least_zero, position
from semel.cli.record_format import FIELDS

ISOLATION = {"committed": "read_committed", "uncommitted": "read_uncommitted"}
_FIELDS = "\n".join(f"  {{{name}}}".ljust(18) + text for name, text in FIELDS.items())
_EXAMPLES = rf"""A format has fields, and escapes such as \t and \n; {{{{ and }}}} are braces:

{_FIELDS}

Without one: in a pipe the values, as they are; on a terminal also partition, offset and key.

examples:
  semel consume payments
  semel consume payments --from -10 --follow
  semel consume payments --from 2h --format '{{time}}\t{{key}}\t{{value}}'
  semel consume payments --partition 0 --from 17 --count 1 --json
  semel consume payments --from 2026-11-15T10:00 --to 2026-11-15T11:00
  semel consume payments --group books --follow
  semel consume payments --decode --registry http://localhost:8081
  semel consume payments --json | semel produce copies --input json
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Print records of topics. Ends at what is their end when it begins, unless told to follow.\n"
        "Records of transactions that are open or aborted are left out, unless they are asked for."
    )
    command.epilog = _EXAMPLES
    command.add_argument("topics", nargs="+", metavar="TOPIC")
    command.add_argument(
        "--partition",
        dest="partitions",
        action="append",
        type=at_least_zero,
        default=[],
        metavar="N",
        help="only this one; may be repeated",
    )
    command.add_argument(
        "--from",
        dest="start",
        type=position,
        default=Position(Kind.EARLIEST),
        metavar="WHERE",
        help=f"{WHERE}; default earliest",
    )
    command.add_argument(
        "--to",
        dest="end",
        type=position,
        metavar="WHERE",
        help="end before this place, written as for --from; without, at what is the end now",
    )
    command.add_argument("--follow", action="store_true", help="wait for more, until Ctrl-C")
    command.add_argument("--count", type=at_least_one, metavar="N", help="end after so many records")
    command.add_argument(
        "--isolation",
        choices=tuple(ISOLATION),
        default="committed",
        help="committed (the default) leaves out what transactions have not committed",
    )
    command.add_argument(
        "--group",
        metavar="GROUP",
        help="read on from where this group stands, share with its members, and commit what was printed; "
        "--from then counts where it has committed nothing",
    )
    command.add_argument(
        "--decode",
        action="store_true",
        help="show keys and values that a schema registry describes (Avro, Protobuf, JSON) as JSON; others as they are",
    )
    command.add_argument(
        "--registry",
        default="http://localhost:8081",
        metavar="URL",
        help="where --decode finds the schemas; default http://localhost:8081; user and password as in "
        "http://USER:PASSWORD@HOST:PORT",
    )
    command.add_argument("--format", metavar="FORMAT", help="how a record is printed, see below")
    add_output_arguments(command)
    add_connection_arguments(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from semel.cli.consuming import consume

    return run(consume(options))
