"""`semel cluster`: a whole cluster on this machine, and how a cluster is, wherever it runs."""

from __future__ import annotations

import argparse

from semel.cli.connection import add_connection_arguments
from semel.cli.connection import run as run_coroutine
from semel.cli.output import Output, add_output_arguments

_WATCH_S = 2.0
_EXAMPLES = """examples:
  semel cluster start --nodes 3
  semel cluster status
  semel cluster info
  semel cluster quorum status
"""
_INFO = """Works on Apache Kafka as well.

examples:
  semel cluster info
  semel cluster info --json --bootstrap localhost:9092
"""
_QUORUM = """Controllers elect one among them that is active. LACKS counts the records of metadata that the active one
has and the node does not. Works on Apache Kafka as well.

examples:
  semel cluster quorum status
  semel cluster quorum status --json --bootstrap localhost:9092
"""
_START = """As many nodes as you say, each a process of its own on free ports of 127.0.0.1. With --dir the cluster is
kept there, and a later start finds its data and its addresses; without, everything is removed at the end. --set holds
for every node; docs/settings.md has all settings. With three or more nodes the first three are controllers, too, and
topics have three replicas, of which two must be in sync: any one node may be killed.

examples:
  semel cluster start
  semel cluster start --nodes 3 --dir ./cluster
  semel cluster start --nodes 3 --json --set log.segment.bytes=10485760
"""
_STATUS = """LACKS counts the records that leaders have and the node does not, METADATA the same for the cluster's
metadata; - stands where nobody knows. Works on Apache Kafka as well.

examples:
  semel cluster status
  semel cluster status --watch
  semel cluster status --json --bootstrap localhost:9092

exit codes: 0 all nodes are up and all replicas in sync, 1 not so.
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
    start.add_argument("--nodes", type=int, metavar="N", help="how many (default 3, or as many as DIR has)")
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

    status = actions.add_parser(
        "status",
        help="nodes, who leads how much, and what is not in sync",
        description="Show nodes, who leads how much, and the partitions that are not in sync or have no leader.",
        epilog=_STATUS,
    )
    status.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=_WATCH_S,
        metavar="SECONDS",
        help=f"again and again, until Ctrl-C (every {_WATCH_S:g} s)",
    )
    add_output_arguments(status)
    add_connection_arguments(status)
    status.set_defaults(run=_status)

    info = actions.add_parser(
        "info",
        help="nodes, features, and what the disks hold",
        description="Show the nodes, the features that are switched on, and what the disks hold.",
        epilog=_INFO,
    )
    add_output_arguments(info)
    add_connection_arguments(info)
    info.set_defaults(run=_info)

    quorum = actions.add_parser(
        "quorum", help="the controllers, and which of them is active", description="The controllers of a cluster."
    )
    quorum_actions = quorum.add_subparsers(dest="quorum_action", metavar="ACTION", required=True)
    quorum_status = quorum_actions.add_parser(
        "status",
        help="which controller is active, and how far each node has the metadata",
        description="Show the controllers, which of them is active, and how far each node has the metadata.",
        epilog=_QUORUM,
    )
    add_output_arguments(quorum_status)
    add_connection_arguments(quorum_status)
    quorum_status.set_defaults(run=_quorum)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _status(options: argparse.Namespace) -> int:
    from semel.cli.cluster_status import run

    return run_coroutine(run(options, Output.of(options)))


def _info(options: argparse.Namespace) -> int:
    from semel.cli.cluster_info import run

    return run_coroutine(run(options, Output.of(options)))


def _quorum(options: argparse.Namespace) -> int:
    from semel.cli.cluster_quorum import run

    return run_coroutine(run(options, Output.of(options)))


def _start(options: argparse.Namespace) -> int:
    from semel.cli.cluster_start import run

    return run(options)
