"""`semel serve`: its arguments. The broker is imported when it is started, so that help and completion do without."""

from __future__ import annotations

import argparse
import os

from semel.cli.node_options import add_settings_arguments

_EXAMPLES = """Settings carry Kafka's names; docs/settings.md has them all. A flag wins over a SEMEL_ variable, a
variable over the file, the file over the default.

examples:
  semel serve --data ./data --port 9092
  semel serve --data ./data --port 0 --flush os --set log.segment.bytes=10485760
  semel serve --data ./data --port 0 --json
  semel serve --data ./data --console 8090
  semel serve --data ./data --port 9092 --cluster
  semel serve --data ./data-2 --port 9192 --join localhost:9092
  SEMEL_NUM_PARTITIONS=8 semel serve --config semel.toml
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    add_settings_arguments(command)
    command.add_argument("--host", metavar="ADDRESS", help="address to listen on (default 127.0.0.1)")
    command.add_argument("--port", type=int, metavar="N", help="port to listen on (default 9092, 0 picks a free one)")
    command.add_argument(
        "--flush",
        choices=("fsync", "os"),
        help="fsync: acknowledged means on disk (default); os: acknowledged means in the page cache, as in Kafka",
    )
    command.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve /metrics, /health and /ready there (metrics.listener); on 127.0.0.1 unless a host is given",
    )
    shape = command.add_mutually_exclusive_group()
    shape.add_argument(
        "--cluster", action="store_true", help="others can join: they reach it at the two ports after --port"
    )
    shape.add_argument("--join", metavar="HOST:PORT", help="become a node of the cluster that a node there is of")
    command.add_argument(
        "--insecure",
        action="store_true",
        help="let other machines reach a listener on which nothing is encrypted and nobody logs in",
    )
    command.add_argument(
        "--console", type=int, metavar="PORT", help="a web console on this port of this machine (0 picks a free one)"
    )
    command.add_argument("--json", action="store_true", help="say in JSON that it is ready, and that it has stopped")
    command.add_argument(
        "--stop-at-eof", action="store_true", help="stop when standard input ends: with whoever holds the pipe"
    )
    command.add_argument(
        "--log-level", default=os.environ.get("SEMEL_LOG_LEVEL", "INFO"), metavar="LEVEL", help="default INFO"
    )
    command.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="how the log is written to standard error: lines for people (default), or a JSON object in each line",
    )
    command.set_defaults(run=_run)


def _become_one_of_several(options: argparse.Namespace) -> None:
    """Once: what it is from then on stands beside its data."""
    import asyncio

    from semel.cli.joining import join, make_first

    if options.cluster:
        make_first(options)
    else:
        asyncio.run(join(options))
    # They are in the file now, with all that belongs to them.
    options.host = options.port = None


def _run(options: argparse.Namespace) -> int:
    from semel.cli.serving import run

    if options.cluster or options.join is not None:
        _become_one_of_several(options)
    return run(options)
