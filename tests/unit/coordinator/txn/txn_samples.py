"""Transactions in every state, and short ways to ask for decisions on them."""

from __future__ import annotations

import pytest

from semel.coordinator.txn.decisions import NOBODY, Ending, Identity, ended_by_client, initialised, with_partitions
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import Transaction
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

S = TransactionState
ID = "payments"
PRODUCER = 7
NEW_PRODUCER = 8
EPOCH = 5
NOW_MS = 1_000_000
P0, P1 = ("out", 0), ("out", 1)
OWNER = Identity(PRODUCER, EPOCH)
ENDED_STATES = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
PREPARED_STATES = (S.PREPARE_COMMIT, S.PREPARE_ABORT)


def in_state(state: TransactionState, **fields: object) -> Transaction:
    partitions = frozenset({P0}) if state in (S.ONGOING, *PREPARED_STATES, S.PREPARE_EPOCH_FENCE) else frozenset()
    started_ms = -1 if state == S.EMPTY else NOW_MS - 100
    base = Transaction(ID, PRODUCER, EPOCH, 60_000, state, partitions, started_ms, NOW_MS - 50)
    return base._replace(**fields)


def init(
    transaction: Transaction, claimed: Identity = NOBODY, new_id: int | None = None, timeout_ms: int = 60_000
) -> Transaction:
    return initialised(transaction, claimed, timeout_ms, new_id, NOW_MS)


def add(
    transaction: Transaction | None, claimed: Identity = OWNER, *partitions: tuple[str, int], client_version: int = 0
) -> Transaction | None:
    return with_partitions(transaction, ID, claimed, partitions or (P1,), client_version, NOW_MS)


def end(
    transaction: Transaction | None,
    claimed: Identity = OWNER,
    *,
    commit: bool = True,
    v2: bool = False,
    new_id: int | None = None,
) -> Ending:
    return ended_by_client(transaction, ID, claimed, commit, v2, new_id, NOW_MS)


class refused:
    """`with refused(code):` the block is refused with this very code."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code
        self._raises = pytest.raises(Refused)

    def __enter__(self) -> pytest.ExceptionInfo[Refused]:
        self._info: pytest.ExceptionInfo[Refused] = self._raises.__enter__()
        return self._info

    def __exit__(self, *error: object) -> bool:
        is_raised = bool(self._raises.__exit__(*error))  # type: ignore[arg-type]
        if is_raised:
            assert self._info.value.code == self._code, self._info.value
        return is_raised
