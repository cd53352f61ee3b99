"""What lives beside the state of one shard of transactions while this node coordinates it, and ends with that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from semel.coordinator.shard import Shard, emptied
from semel.coordinator.txn.transactions import Transaction, Transactions
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode


class TransactionTerm:
    def __init__(self, shard: Shard[Transactions]) -> None:
        self.shard = shard
        # Until when each open transaction may last. By the monotonic clock: the wall clock may jump meanwhile.
        self.deadlines_ms: dict[str, int] = {}
        # Who waits for a transaction to be ended: woken by its last marker.
        self.endings: dict[str, asyncio.Future[None]] = {}
        # Decisions that were found in the log, to be carried out.
        self.prepared: list[Transaction] = []

    def ending(self, transactional_id: str) -> asyncio.Future[None]:
        ending = self.endings.get(transactional_id)
        if ending is None:
            ending = self.endings[transactional_id] = asyncio.get_running_loop().create_future()
        return ending

    def ended(self, transactional_id: str) -> None:
        """The last marker of a transaction is written."""
        ending = self.endings.pop(transactional_id, None)
        if ending is not None and not ending.done():
            ending.set_result(None)

    def over(self) -> Iterator[None]:
        """Another node coordinates now: whoever waits is told so."""
        while self.endings:
            _, ending = self.endings.popitem()
            if not ending.done():
                ending.set_exception(Refused(ErrorCode.NOT_COORDINATOR, "another node coordinates the transaction now"))
                ending.exception()
            yield
        yield from emptied(self.deadlines_ms)
