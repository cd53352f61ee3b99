"""Asks coordinators on other nodes whether partitions are in a transaction, or has them join it: AddPartitionsToTxn in
its form for brokers (versions 4 and 5).

To each node one request is under way. What comes meanwhile goes into the next one, with one entry for each
transactional id: a newer epoch of the same producer fences what still waits of an older one, as in Kafka, and questions
of the same kind are asked as one. The queue is bounded by the requests that wait for it: each holds up its connection.

Nothing is tried again here. A question without an answer is refused so that the producer repeats its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from itertools import islice

from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.peer.caller import PeerCaller
from semel.peer.errors import PeerError, Unsupported
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

Place = tuple[str, int]
Codes = dict[Place, ErrorCode]

_FIRST_VERSION, _LAST_VERSION = 4, 5
# The producer's connection waits that long for a node that does not answer.
_TIMEOUT_S = 5.0
_TRANSACTIONS_AT_ONCE = 500


class _Entry:
    """What is asked about one transactional id."""

    def __init__(self, claimed: Identity, verify_only: bool) -> None:
        self.claimed = claimed
        self.verify_only = verify_only
        self.places: dict[Place, None] = {}
        self.answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()

    def refuse(self, code: ErrorCode, text: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(Refused(code, text))
            self.answer.exception()  # who asked may have gone

    def wants(self, transactional_id: str) -> AddPartitionsToTxnTransaction:
        by_topic: dict[str, list[int]] = {}
        for topic, index in self.places:
            by_topic.setdefault(topic, []).append(index)
        return AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=self.claimed.producer_id,
            producer_epoch=self.claimed.epoch,
            verify_only=self.verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic.items()],
        )


class RemoteJoins:
    def __init__(self, caller: PeerCaller) -> None:
        self._caller = caller
        self._waiting: dict[int, dict[str, _Entry]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def ask(
        self, node_id: int, transactional_id: str, claimed: Identity, places: Collection[Place], *, verify_only: bool
    ) -> Codes:
        """What the coordinator says of each partition. Raises Refused when it says nothing."""
        waiting = self._waiting.setdefault(node_id, {})
        entry = _place_in_queue(waiting.pop(transactional_id, None), claimed, verify_only)
        waiting[transactional_id] = entry
        if claimed != entry.claimed:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {claimed.epoch} of {transactional_id!r} is over, a newer instance has {entry.claimed.epoch}",
            )
        entry.places.update(dict.fromkeys(places))
        if node_id not in self._tasks:
            self._tasks[node_id] = asyncio.ensure_future(self._send(node_id, waiting))
        codes = await asyncio.shield(entry.answer)
        return {place: codes.get(place, ErrorCode.NETWORK_EXCEPTION) for place in places}

    async def _send(self, node_id: int, waiting: dict[str, _Entry]) -> None:
        try:
            while waiting:
                asked = {name: waiting.pop(name) for name in list(islice(waiting, _TRANSACTIONS_AT_ONCE))}
                try:
                    await self._ask(node_id, asked)
                finally:
                    for entry in asked.values():
                        entry.refuse(ErrorCode.NETWORK_EXCEPTION, f"node {node_id} did not say anything of it")
        finally:
            del self._tasks[node_id]

    async def _ask(self, node_id: int, asked: dict[str, _Entry]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[entry.wants(name) for name, entry in asked.items()])
        try:
            response = await self._caller.call(
                node_id,
                request,
                AddPartitionsToTxnResponse,
                timeout_s=_TIMEOUT_S,
                at_least=_FIRST_VERSION,
                at_most=_LAST_VERSION,
            )
        except Unsupported as error:
            _answer_unasked(asked.values(), str(error))
            return
        except PeerError as error:
            for entry in asked.values():
                entry.refuse(ErrorCode.NETWORK_EXCEPTION, f"node {node_id}, the coordinator: {error}")
            return
        if response.error_code:
            for entry in asked.values():
                entry.refuse(_code(response.error_code), f"node {node_id}, the coordinator, refuses to be asked")
            return
        for result in response.results_by_transaction:
            found = asked.get(result.transactional_id)
            if found is not None and not found.answer.done():
                found.answer.set_result(
                    {
                        (topic.name, one.partition_index): _code(one.partition_error_code)
                        for topic in result.topic_results
                        for one in topic.results_by_partition
                    }
                )

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for waiting in self._waiting.values():
            for entry in waiting.values():
                entry.refuse(ErrorCode.NETWORK_EXCEPTION, "this node stops")


def _place_in_queue(waiting: _Entry | None, claimed: Identity, verify_only: bool) -> _Entry:
    """The entry that waits for a transactional id from now on: that of the newest epoch."""
    if waiting is None:
        return _Entry(claimed, verify_only)
    if waiting.claimed.producer_id == claimed.producer_id:
        if waiting.claimed.epoch > claimed.epoch:
            return waiting
        if waiting.claimed.epoch < claimed.epoch:
            waiting.refuse(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {claimed.epoch} has taken over")
            return _Entry(claimed, verify_only)
        if waiting.verify_only == verify_only:
            return waiting
    waiting.refuse(ErrorCode.NETWORK_EXCEPTION, "another request of the same transactional id has come")
    return _Entry(claimed, verify_only)


def _answer_unasked(asked: Iterable[_Entry], why: str) -> None:
    """The coordinator is of a version that cannot be asked. What only had to be verified is written, as in Kafka; what
    had to join a transaction is not: no marker would end it."""
    for entry in asked:
        if entry.verify_only and not entry.answer.done():
            entry.answer.set_result(dict.fromkeys(entry.places, ErrorCode.NONE))
        else:
            entry.refuse(ErrorCode.INVALID_TXN_STATE, why)


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
