"""`semel cluster`: a whole cluster on this machine, and how a cluster is, wherever it runs."""

from __future__ import annotations

import argparse

_EXAMPLES = """examples:
  semel cluster start --nodes 3
"""
_START = """A controller and as many brokers as you say, each a process of its own on free ports of 127.0.0.1. With
--dir the cluster is kept there, and a later start finds its data and its addresses; without, everything is removed at
the end. --set holds for every node; docs/settings.md has all settings. With three or more nodes topics have three
replicas, of which two must be in sync.

examples:
  semel cluster start
  semel cluster start --nodes 3 --dir ./cluster
  semel cluster start --nodes 3 --json --set log.segment.bytes=10485760
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    start = actions.add_parser(
        "start",
        help="run a whole cluster on this machine",
        description="Run a whole cluster on this machine, until Ctrl-C or SIGTERM.",
        epilog=_START,
    )
    start.add_argument("--nodes", type=int, metavar="N", help="how many brokers (default 3, or as many as DIR has)")
    start.add_argument("--dir", metavar="DIR", help="where the cluster is kept (default: nowhere, it is removed)")
    start.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting for every node; may be repeated; kept in DIR",
    )
    start.add_argument("--json", action="store_true", help="tell what runs, and what ends, in lines of JSON")
    start.add_argument("--debug", action="store_true", help="tell where an error came from")
    start.set_defaults(run=_start)


def _start(options: argparse.Namespace) -> int:
    from semel.cli.cluster_start import run

    return run(options)
