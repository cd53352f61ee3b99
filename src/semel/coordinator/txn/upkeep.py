"""What happens to transactions by time alone: open ones that take too long are aborted, ids that nobody uses forgotten.

Looked at now and then, and done in slices: thousands may be due at once. What a log refuses (a full disk, too few
replicas) is tried again the next time, and does not hold up what stands in other logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from semel.config import BrokerConfig
from semel.coordinator.shard import RECORDS_AT_ONCE, Shard
from semel.coordinator.txn.decisions import is_expired
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.term import TransactionTerm
from semel.coordinator.txn.transactions import Transaction, Transactions, tombstone
from semel.coordinator.work import Steps, WorkQueue
from semel.host.aging import AgingClock
from semel.host.api import Clock
from semel.host.complaints import Complaints
from semel.log.errors import Refused

logger = logging.getLogger("semel.coordinator")


class TransactionUpkeep:
    """`terms` are those of the shards that are coordinated here; `abort` ends an open transaction or raises Refused."""

    def __init__(
        self,
        terms: Mapping[int, TransactionTerm],
        abort: Callable[[Shard[Transactions], Transaction], None],
        work: WorkQueue,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._terms = terms
        self._abort = abort
        self._work = work
        self._clock = clock
        self._config = config
        self._aging = AgingClock(clock)
        self._complaints = Complaints(logger)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, abort_overdue: Callable[[], None]) -> None:
        config = self._config()
        for interval, look in (
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", abort_overdue),
            ("transaction.remove.expired.transaction.cleanup.interval.ms", self.remove_expired),
        ):
            self._tasks.append(asyncio.ensure_future(_every(config.int(interval) / 1000, look)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- transactions that take too long

    def abort_overdue(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for term in self._terms.values():
            overdue = [name for name, deadline_ms in term.deadlines_ms.items() if now_ms >= deadline_ms]
            if overdue:
                self._work.add(self._aborted(term, overdue))

    def _aborted(self, term: TransactionTerm, overdue: list[str]) -> Steps:
        for transactional_id in overdue:
            if not term.shard.is_current:
                return
            transaction = term.shard.state.by_id.get(transactional_id)
            if self._clock.monotonic_ms() < term.deadlines_ms.get(transactional_id, 0):
                continue  # it is another transaction by now
            if transaction is None or transaction.state != TransactionState.ONGOING:
                term.deadlines_ms.pop(transactional_id, None)
                continue
            text = "aborting the transaction of %.100r: it took longer than %d ms"
            self._complaints.say("overdue", logging.WARNING, text, transactional_id, transaction.timeout_ms)
            try:
                self._abort(term.shard, transaction)
            except Refused as refusal:
                self._complaints.say("abort", logging.ERROR, "overdue transactions stay for now: %s", refusal)
                return
            yield None

    # -- ids that nobody uses

    def remove_expired(self) -> None:
        for term in self._terms.values():
            self._work.add(self._removed(term.shard))

    def _removed(self, shard: Shard[Transactions]) -> Steps:
        expiration_ms = self._config().int("transactional.id.expiration.ms")
        now_ms = self._aging.now_ms(expiration_ms)
        by_id = shard.state.by_id
        names = list(by_id)
        for start in range(0, len(names), RECORDS_AT_ONCE):
            yield None
            if not shard.is_current:
                return
            some = [by_id[name] for name in names[start : start + RECORDS_AT_ONCE] if name in by_id]
            expired = [one.transactional_id for one in some if is_expired(one, now_ms, expiration_ms)]
            if not expired:
                continue
            logger.debug("%d transactional ids have expired, %.100r among them", len(expired), expired[0])
            try:
                shard.append([tombstone(transactional_id) for transactional_id in expired])
            except Refused as refusal:
                self._complaints.say("expired", logging.ERROR, "expired transactional ids stay for now: %s", refusal)
                return
            for transactional_id in expired:
                shard.connections.forget(transactional_id)


async def _every(interval_s: float, look: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        look()
