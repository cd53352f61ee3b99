"""What whoever has the answer to EndTxn finds at once, with each way to flush and from another connection."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from broker_harness import Node, simulated
from test_transaction_offsets import commit_offset, committed_offset, joined, ready
from transaction_harness import (
    OLD,
    V1,
    V2,
    TransactionalProducer,
    coordinator,
    known,
    read_committed,
    started,
    with_transactions,
)

from semel.coordinator.txn.state import TransactionState
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

PAGE_CACHE = {"log.flush.interval.messages": str((1 << 63) - 1)}
EVERY_RECORD = {"log.flush.interval.messages": "1"}
generations = pytest.mark.parametrize("versions", [OLD, V1, V2], ids=["old clients", "first", "second"])
flushes = pytest.mark.parametrize("settings", [PAGE_CACHE, EVERY_RECORD], ids=["page cache", "fsync"])


@generations
@flushes
def test_the_offsets_of_a_transaction_that_is_answered(
    settings: Mapping[str, str], versions: Mapping[str, int]
) -> None:
    @simulated(settings=settings)
    async def scenario(node: Node) -> None:
        _, producer = await ready(node, versions)
        other = await node.client()
        for offset in range(20):
            await joined(producer)
            assert await commit_offset(producer, offset) == 0
            assert await producer.commit() == 0
            assert await committed_offset(other) == offset

    scenario()


@generations
@simulated(settings=PAGE_CACHE)
async def test_the_records_of_one_that_is_answered(node: Node, versions: Mapping[str, int]) -> None:
    producer = await started(await with_transactions(node), versions)
    other = await node.client()
    await producer.transaction(b"a")
    assert await read_committed(other) == [b"a"]
    await producer.transaction(b"b", commit=False)
    assert await read_committed(other) == [b"a"]
    assert known(node).state == TransactionState.COMPLETE_ABORT
    assert not coordinator(node)._markers._tasks


@generations
@flushes
def test_a_new_instance_does_not_wait_longer_than_the_markers_of_the_older_one(
    settings: Mapping[str, str], versions: Mapping[str, int]
) -> None:
    @simulated(settings=settings)
    async def scenario(node: Node) -> None:
        client = await with_transactions(node)
        older = await started(client, versions)
        if versions is not V2:
            assert await older.add(0) == 0
        assert await older.write(b"a") == 0
        newer = TransactionalProducer(await node.client(), versions)
        assert await newer.init() == 0
        await newer.transaction(b"b")
        assert await older.commit() in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)

    scenario()


@generations
@simulated(settings=PAGE_CACHE)
async def test_a_partition_that_refuses_its_marker_holds_up_the_next_transaction_and_not_the_answer(
    node: Node, versions: Mapping[str, int]
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    write_marker, refusals = node.broker.markers.write_marker, [Refused(ErrorCode.KAFKA_STORAGE_ERROR, "full")]

    def refuse_once(*arguments: object) -> object:
        if refusals:
            raise refusals.pop()
        return write_marker(*arguments)  # type: ignore[arg-type]

    node.broker.markers.write_marker = refuse_once  # type: ignore[method-assign,assignment]
    await producer.transaction(b"a")
    assert known(node).state == TransactionState.PREPARE_COMMIT
    assert await read_committed(client) == []
    await producer.transaction(b"b")
    assert await read_committed(client) == [b"a", b"b"]
    assert not coordinator(node)._markers._tasks
