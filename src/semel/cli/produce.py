"""`semel produce`: sends records, from the command line, a file or a pipe."""

from __future__ import annotations

import argparse

from semel.cli.connection import add_connection_arguments, run
from semel.cli.output import add_output_arguments
from semel.cli.positions import at_least_zero, timestamp_ms

_EXAMPLES = """Without a VALUE, each line of standard input is a record. With --input json each line is an object with
value, key, headers, timestamp_ms and partition, as `semel consume --json` prints it; bytes that are no text are
{"base64": "..."}. Records keep their partitions, if the topic has as many.

examples:
  semel produce payments "10.00 EUR" --key 42
  semel produce payments < payments.txt
  echo '42:10.00 EUR' | semel produce payments --key-separator :
  semel produce payments --key 42 --null
  semel produce payments "10.00 EUR" --header source=till --json
  semel produce payments --transactional-id import-7 < payments.txt
  semel consume payments --json | semel produce copies --input json --set compression.type=zstd
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Send records. When the command ends well, each was written once and acknowledged. With --transactional-id\n"
        "all of them are one transaction: readers of committed records see all or none."
    )
    command.epilog = _EXAMPLES
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument("values", nargs="*", metavar="VALUE", help="a record each; without one: standard input")
    command.add_argument("--key", metavar="KEY", help="the key of every record")
    command.add_argument(
        "--key-separator", metavar="TEXT", help="what stands before the first TEXT in a line is the key"
    )
    command.add_argument(
        "--header", dest="headers", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    command.add_argument("--partition", type=at_least_zero, metavar="N", help="without it, the key decides")
    command.add_argument(
        "--timestamp", type=timestamp_ms, metavar="TIME", help="2026-11-15T10:00, or @ and milliseconds; default now"
    )
    command.add_argument(
        "--null", action="store_true", help="one record without a value: deletes its key on compaction"
    )
    command.add_argument("--input", choices=("lines", "json"), default="lines", help="what standard input has")
    command.add_argument("--transactional-id", metavar="ID", help="send all records in one transaction of this id")
    add_output_arguments(command)
    add_connection_arguments(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from semel.cli.producing import produce

    return run(produce(options))
