"""`semel txn`: see transactions, find the one that holds readers back, and end it."""

from __future__ import annotations

import argparse
import time
from typing import Any

from semel.cli.connection import add_connection_arguments, admin_for, run
from semel.cli.failures import Exit, NotFound
from semel.cli.output import Cell, Output, add_output_arguments, duration_text, time_text
from semel.cli.positions import at_least_zero, duration_ms, place

_EXAMPLES = """examples:
  semel txn list
  semel txn why-stuck payments/0
  semel txn abort till
"""
_LIST = """examples:
  semel txn list
  semel txn list --state Ongoing --longer-than 5m
  semel txn list --pattern 'orders-.*' --json
"""
_DESCRIBE = """example:
  semel txn describe till
"""
_ABORT = """A transactional id is fenced: what is open under it is aborted, and its producer can write no more until it
starts anew. A transaction that no coordinator knows any more (it hangs) is named by its partition and producer;
semel txn why-stuck shows both, with the whole command.

examples:
  semel txn abort till
  semel txn abort --hanging payments/0 --producer-id 1000
"""
_COMMIT = """A transaction can hang in a partition although its coordinator has committed it: then its records were
acknowledged, and the commit marker is what is missing. The command is refused where the coordinator has not committed
the last transaction of the producer. semel txn why-stuck shows it, where it fits.

example:
  semel txn commit --hanging payments/0 --producer-id 1000
"""
_WHY_STUCK = """examples:
  semel txn why-stuck payments/0
  semel txn why-stuck payments --json
"""
_TRACE = """A proxy stands between a client and the cluster. It shows each request of a transaction, and the records
that the cluster has written because of it, in its internal topics too. Without --listen the client is a producer of
this command: it writes to two partitions, commits a group's offset with them, and removes its topics again.

examples:
  semel txn trace --local
  semel txn trace --local --generation 1 --abort
  semel txn trace --bootstrap kafka:9092
  semel txn trace --listen 9192          # and start a program with bootstrap_servers=localhost:9192
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="list transactions", description="List transactions.", epilog=_LIST)
    listing.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only in it: Ongoing, Empty, ..."
    )
    listing.add_argument("--longer-than", type=duration_ms, metavar="TIME", help="open for longer: 30s, 5m, 2h")
    listing.add_argument("--pattern", metavar="REGEX", help="only ids that match it as a whole")
    listing.set_defaults(run=lambda options: run(_list(options, Output.of(options))))

    describe = actions.add_parser(
        "describe",
        help="what transactional ids do now",
        description="What transactional ids do now.",
        epilog=_DESCRIBE,
    )
    describe.add_argument("ids", nargs="+", metavar="TRANSACTIONAL_ID")
    describe.set_defaults(run=lambda options: run(_describe(options, Output.of(options))))

    abort = actions.add_parser(
        "abort", help="end an open transaction", description="End an open transaction.", epilog=_ABORT
    )
    what = abort.add_mutually_exclusive_group(required=True)
    what.add_argument("id", nargs="?", metavar="TRANSACTIONAL_ID")
    what.add_argument("--hanging", type=place, metavar="TOPIC/PARTITION", help="the partition where one hangs")
    abort.add_argument("--producer-id", type=at_least_zero, metavar="N", help="whose it is, with --hanging")
    abort.set_defaults(run=_abort)

    abort.add_argument(
        "--even-if-committed",
        action="store_true",
        help="with --hanging, although the coordinator has committed the producer's last transaction",
    )

    commit = actions.add_parser(
        "commit",
        help="show the records of a committed transaction that hangs",
        description="Show the records of a committed transaction that hangs.",
        epilog=_COMMIT,
    )
    commit.add_argument(
        "--hanging", type=place, required=True, metavar="TOPIC/PARTITION", help="the partition where it hangs"
    )
    commit.add_argument("--producer-id", type=at_least_zero, required=True, metavar="N", help="whose it is")
    commit.set_defaults(run=_commit)

    stuck = actions.add_parser(
        "why-stuck",
        help="who holds readers of committed records back",
        description="Who holds readers of committed records back: the oldest open transaction of a partition, and how\n"
        "to end it.",
        epilog=_WHY_STUCK,
    )
    stuck.add_argument("places", nargs="+", type=place, metavar="TOPIC/PARTITION", help="or TOPIC, for all of its")
    stuck.set_defaults(run=_why_stuck)

    trace = actions.add_parser(
        "trace",
        help="show a transaction request by request, and what each one writes",
        description="Show a transaction request by request, and what each one writes.",
        epilog=_TRACE,
    )
    trace.add_argument("--local", action="store_true", help="on a node of its own, which is removed afterwards")
    trace.add_argument(
        "--generation",
        type=int,
        choices=(1, 2),
        default=2,
        help="1: partitions are added before the first write; 2: the first write adds them, and each end raises the "
        "epoch (default 2, where the cluster has it)",
    )
    trace.add_argument("--abort", action="store_true", help="abort the transaction instead of committing it")
    trace.add_argument("--listen", type=int, metavar="PORT", help="trace the clients that connect to this port")
    trace.set_defaults(run=_trace)

    for action in (listing, describe, abort, commit, stuck, trace):
        add_output_arguments(action)
        add_connection_arguments(action)


def _abort(options: argparse.Namespace) -> int:
    from semel.cli.txn_abort import abort

    return run(abort(options, Output.of(options)))


def _commit(options: argparse.Namespace) -> int:
    from semel.cli.txn_abort import commit

    return run(commit(options, Output.of(options)))


def _why_stuck(options: argparse.Namespace) -> int:
    from semel.cli.txn_why_stuck import why_stuck

    return run(why_stuck(options, Output.of(options), now_ms=round(time.time() * 1000)))


def _trace(options: argparse.Namespace) -> int:
    from semel.cli.txn_trace import trace

    return run(trace(options, Output.of(options)))


# -- list


async def _list(options: argparse.Namespace, output: Output) -> int:
    from semel.views.transactions import OPEN_STATES, known, transaction_document

    async with admin_for(options) as admin:
        listed = await admin.list_transactions(
            states=options.state, longer_than_ms=options.longer_than, pattern=options.pattern
        )
        found = await known(admin, listed)
    now_ms = round(time.time() * 1000)
    documents = [transaction_document(one, now_ms) for one in found.values()]
    if output.is_json:
        output.json(documents)
    elif documents:
        rows = [
            (
                one["transactional_id"],
                Cell(one["state"], "yellow" if one["state"] in OPEN_STATES else ""),
                one["producer_id"],
                one["producer_epoch"],
                _age(one["age_ms"]),
                len(one["partitions"]) or None,
            )
            for one in documents
        ]
        output.table(("TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "OPEN FOR", "PARTITIONS"), rows)
    else:
        output.note(_nothing_listed(options))
    return Exit.OK


def _nothing_listed(options: argparse.Namespace) -> str:
    filters = [f"in state {' or '.join(options.state)}"] if options.state else []
    filters += [f"open for longer than {duration_text(options.longer_than)}"] if options.longer_than is not None else []
    filters += [f"with an id like {options.pattern}"] if options.pattern is not None else []
    return f"there is no transaction {', '.join(filters)}" if filters else "there is no transactional id yet"


def _age(age_ms: int | None) -> str | None:
    return None if age_ms is None else duration_text(age_ms)


# -- describe


async def _describe(options: argparse.Namespace, output: Output) -> int:
    from semel.views.transactions import known, no_such_id, transaction_document

    names = list(dict.fromkeys(options.ids))
    async with admin_for(options) as admin:
        found = await known(admin, names)
    missing = [name for name in names if name not in found]
    if missing and not found:
        raise NotFound(no_such_id(*missing))
    now_ms = round(time.time() * 1000)
    documents = [transaction_document(found[name], now_ms) for name in names if name in found]
    if output.is_json:
        output.json(documents)
    else:
        for number, document in enumerate(documents):
            if number:
                output.line()
            _show(output, document)
    if missing:
        raise NotFound(no_such_id(*missing))
    return Exit.OK


def _show(output: Output, document: dict[str, Any]) -> None:
    from semel.views.transactions import OPEN_STATES

    started_ms = document["started_ms"]
    since = None if started_ms is None else f"{time_text(started_ms)} ({duration_text(document['age_ms'])})"
    output.facts(
        [
            ("transactional id", document["transactional_id"]),
            ("state", Cell(document["state"], "yellow" if document["state"] in OPEN_STATES else "")),
            ("producer", f"id {document['producer_id']}, epoch {document['producer_epoch']}"),
            ("open since", since),
            ("times out after", duration_text(document["timeout_ms"])),
            ("coordinator", f"node {document['coordinator']}"),
            ("partitions", " ".join(document["partitions"])),
        ]
    )
