"""What `semel txn why-stuck` says of transactions in every state that one can be in."""

from __future__ import annotations

import io
from typing import Any

import pytest

from semel.cli.connection import shown_options
from semel.cli.main import parser_for
from semel.cli.output import Output
from semel.cli.txn_why_stuck import _show
from semel.client.admin.group_values import OpenTransaction, ProducerState, TransactionDescription
from semel.client.metadata import TopicPartition
from semel.views.stuck import ending_command

PLACE = TopicPartition("payments", 0)
ONE: dict[str, Any] = {
    "transactional_id": "till",
    "producer_id": 7,
    "producer_epoch": 2,
    "start_offset": 12,
    "last_write_ms": 1_700_000_000_000,
    "state": "Ongoing",
    "started_ms": 1_700_000_000_000,
    "age_ms": 40_000,
    "idle_ms": 5_000,
    "timeout_ms": 60_000,
    "hangs": False,
    "may_be_committed": False,
    "clients": [],
    "command": "semel txn abort till",
}


def told(*transactions: dict[str, Any], stable: int = 12, end: int = 20) -> str:
    stream = io.StringIO()
    document = {
        "place": "payments/0",
        "last_stable_offset": stable,
        "end_offset": end,
        "transactions": list(transactions),
    }
    _show(Output(stream, io.StringIO()), document)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, "in 20 s: its time is over 1 min after it began, and the broker aborts it"),
        ({"age_ms": 61_000}, "at any moment: its time is over 1 min after it began"),
        ({"state": "PrepareCommit", "command": None}, "now: its coordinator has decided to commit it"),
        ({"state": "PrepareAbort", "command": None}, "now: its coordinator has decided to abort it"),
        ({"state": "PrepareAbort", "command": None}, "look again in a moment; if it stays so, the log of"),
        ({"hangs": True, "may_be_committed": True, "state": "CompleteCommit"}, "an abort loses what was acknowledged"),
        ({"hangs": True, "transactional_id": None, "state": None}, "never: no coordinator will end it here"),
        ({"hangs": True, "transactional_id": None, "state": None}, "none that a coordinator knows"),
        ({"state": "Ongoing", "age_ms": None, "started_ms": None}, "its coordinator decides"),
        ({"idle_ms": None}, "last write        -"),
        ({}, "(40 s ago)"),
        ({}, "not told by the protocol: whoever uses this transactional id"),
    ],
)
def test_it_is_said_how_a_transaction_will_end(changed: dict[str, Any], sentence: str) -> None:
    assert sentence in told({**ONE, **changed})


def test_nothing_stuck_is_told_from_what_has_just_ended() -> None:
    assert told(stable=20) == ("payments/0: nothing is stuck; readers of committed records get to its end, offset 20\n")
    assert told() == "payments/0: what held readers back at offset 12 has just ended: look again\n"


# -- the command that ends it


def opened(
    state: str | None, *, in_partition: bool = True, name: str = "till", coordinator_epoch: int = 2
) -> OpenTransaction:
    producer = ProducerState(7, 2, 0, 1_700_000_000_000, None, 12)
    if state is None:
        return OpenTransaction(PLACE, producer, None)
    places = frozenset({PLACE}) if in_partition else frozenset()
    return OpenTransaction(
        PLACE, producer, TransactionDescription(name, state, 7, coordinator_epoch, 60_000, 0, places, 1)
    )


@pytest.mark.parametrize(
    ("one", "command"),
    [
        (opened("Ongoing"), "semel txn abort till --context prod"),
        (opened("Ongoing", name="my till"), "semel txn abort 'my till' --context prod"),
        (opened("Ongoing", in_partition=False), "semel txn abort --hanging payments/0 --producer-id 7 --context prod"),
        (opened(None), "semel txn abort --hanging payments/0 --producer-id 7 --context prod"),
        (
            opened("CompleteAbort", in_partition=False),
            "semel txn abort --hanging payments/0 --producer-id 7 --context prod",
        ),
        (
            opened("CompleteCommit", in_partition=False),
            "semel txn commit --hanging payments/0 --producer-id 7 --context prod",
        ),
        (
            opened("CompleteCommit", in_partition=False, coordinator_epoch=3),
            "semel txn commit --hanging payments/0 --producer-id 7 --context prod",
        ),
        (
            opened("CompleteCommit", in_partition=False, coordinator_epoch=4),
            "semel txn abort --hanging payments/0 --producer-id 7 --context prod",
        ),
        (opened("PrepareCommit"), None),
        (opened("PrepareAbort"), None),
    ],
    ids=[
        "open",
        "quoted",
        "not in this partition",
        "unknown",
        "aborted",
        "committed",
        "committed and raised",
        "committed later",
        "committing",
        "aborting",
    ],
)
def test_the_command_fits_what_is_open(one: OpenTransaction, command: str | None) -> None:
    options = parser_for("txn").parse_args(["txn", "why-stuck", "payments/0", "--context", "prod"])

    assert ending_command(one, shown_options(options)) == command
