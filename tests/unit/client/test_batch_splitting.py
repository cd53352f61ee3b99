"""Batches that are too large for the broker, and batches of columns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import BadRecord, OutOfOrderSequence, RecordTooLarge
from semel.client.producer.batch import Delivery
from semel.wire.errors import ErrorCode
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.produce import ProduceRequest

# -- batches that are too large for the broker


def taking_at_most(records: int) -> Any:
    def rule(asked: Asked) -> None:
        if any(len(batch.values) > records for batch in asked.sent):
            asked.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            asked.accept()

    return rule


@scripted()
async def test_a_batch_that_is_too_large_is_split_under_the_same_sequences(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    calls: list[Delivery] = []
    async with cluster.producer(linger_ms=10) as producer:
        await producer.send_and_wait("t", b"before")
        cluster.rules[ProduceRequest] = taking_at_most(2)
        deliveries = [await producer.send("t", b"%d" % number, on_delivery=calls.append) for number in range(7)]
        offsets = [(await delivery).offset for delivery in deliveries]
        await producer.send_and_wait("t", b"after")
        assert producer._accumulator.used_bytes == 0
    assert offsets == [1, 2, 3, 4, 5, 6, 7]
    assert calls == deliveries
    assert cluster.logs("t") == [b"before", *[b"%d" % number for number in range(7)], b"after"]
    assert {batch.epoch for batch in cluster.produced} == {0}
    written = [(batch.sequence, len(batch.values)) for batch in cluster.produced if len(batch.values) <= 2]
    assert written == [(0, 1), (1, 1), (2, 2), (4, 2), (6, 2), (8, 1)]


@scripted()
async def test_batches_in_flight_behind_one_that_is_split_follow_in_order(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=0, batch_size=100) as producer:
        cluster.hold(ProduceRequest)
        cluster.hold(InitProducerIdRequest)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(9)]
        asked = await cluster.next(InitProducerIdRequest)
        cluster.release(InitProducerIdRequest)
        cluster.rules[ProduceRequest] = taking_at_most(1)
        asked.cut()
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(9))
    assert cluster.logs("t") == [b"%d" % number for number in range(9)]
    assert {batch.epoch for batch in cluster.produced} == {0}


@scripted()
async def test_one_half_may_fail_and_the_other_be_written(cluster: ScriptedCluster) -> None:
    cluster.topic("t")

    def rule(asked: Asked) -> None:
        if len(asked.values) > 2:
            asked.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        elif b"bad" in asked.values:
            asked.refuse(ErrorCode.INVALID_RECORD)
        else:
            asked.accept()

    calls: list[Delivery] = []
    async with cluster.producer(linger_ms=10) as producer:
        cluster.rules[ProduceRequest] = rule
        values = [b"bad", b"1", b"2", b"3"]
        deliveries = [await producer.send("t", value, on_delivery=calls.append) for value in values]
        await producer.flush()
        assert [type(delivery.exception()) for delivery in deliveries] == [
            BadRecord,
            BadRecord,
            type(None),
            type(None),
        ]
        assert [delivery.result().offset for delivery in deliveries[2:]] == [0, 1]
        assert calls == deliveries
        with pytest.raises(BadRecord):
            await deliveries[1]
        assert (await deliveries[3]).offset == 1
    assert cluster.logs("t") == [b"2", b"3"]


@scripted()
async def test_a_single_record_that_is_too_large_fails_and_those_behind_it_are_written(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")

    def rule(asked: Asked) -> None:
        asked.refuse(ErrorCode.MESSAGE_TOO_LARGE) if b"large" in asked.values else asked.accept()

    async with cluster.producer(linger_ms=10) as producer:
        cluster.rules[ProduceRequest] = rule
        deliveries = [await producer.send("t", value) for value in (b"0", b"1", b"large", b"3", b"4")]
        with pytest.raises(RecordTooLarge):
            await producer.flush()
        assert [delivery.exception() is None for delivery in deliveries] == [True, True, False, True, True]
        assert isinstance(deliveries[2].exception(), RecordTooLarge)
        assert producer._accumulator.used_bytes == 0
    assert cluster.logs("t") == [b"0", b"1", b"3", b"4"]


@scripted()
async def test_without_idempotence_a_split_batch_keeps_its_order(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    settings: dict[str, Any] = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    async with cluster.producer(linger_ms=10, **settings) as producer:
        cluster.rules[ProduceRequest] = taking_at_most(1)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(5)]
        await asyncio.gather(*deliveries)
    assert cluster.logs("t") == [b"%d" % number for number in range(5)]


@scripted()
async def test_the_halves_of_a_batch_in_doubt_are_in_doubt(cluster: ScriptedCluster) -> None:
    """The whole was written and its answer lost; then the topic's limit was lowered."""
    cluster.topic("t")
    async with cluster.producer(linger_ms=10) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        deliveries = [await producer.send("t", b"1"), await producer.send("t", b"2")]
        whole = await cluster.next(ProduceRequest)
        whole.write_unanswered()
        whole.cut()
        (await cluster.next(ProduceRequest)).refuse(ErrorCode.MESSAGE_TOO_LARGE)
        cluster.release(ProduceRequest)
        with pytest.raises(OutOfOrderSequence, match="1 other record was not delivered"):
            await producer.flush()
        assert [delivery.exception() is None for delivery in deliveries] == [False, False]
        await producer.send_and_wait("t", b"3")
    assert cluster.logs("t") == [b"0", b"1", b"2", b"3"]


@scripted()
async def test_a_large_batch_of_columns_cannot_be_split_and_fails(cluster: ScriptedCluster) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    cluster.topic("t")
    cluster.rules[ProduceRequest] = taking_at_most(2)
    async with cluster.producer() as producer:
        rows = await producer.send_columns("t", pyarrow.table({"value": [b"1", b"2", b"3"]}))
        with pytest.raises(RecordTooLarge):
            await rows
        assert producer._accumulator.used_bytes == 0


# -- columns


@scripted()
async def test_columns_are_written_in_order_and_told_by_runs(cluster: ScriptedCluster) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    cluster.topic("t", [1, 1])
    async with cluster.producer(batch_size=200) as producer:
        table = pyarrow.table({"value": [b"%d" % number for number in range(30)], "partition": [0, 1] * 15})
        rows = await producer.send_columns("t", table)
        assert not rows.done()
        with pytest.raises(asyncio.InvalidStateError):
            rows.result()
        written = await rows
        assert rows.done()
    assert sum(run.records for run in written) == 30
    for partition in (0, 1):
        assert cluster.logs("t", partition) == [b"%d" % number for number in range(partition, 30, 2)]
        runs = [run for run in written if run.partition == partition]
        assert [run.offset for run in runs] == [sum(run.records for run in runs[:index]) for index in range(len(runs))]


@scripted()
async def test_a_row_that_no_request_could_carry_is_refused_and_nothing_is_sent(cluster: ScriptedCluster) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    cluster.topic("t")
    async with cluster.producer(max_request_size=1000, batch_size=500) as producer:
        table = pyarrow.table({"value": [b"1", b"x" * 300, b"x" * 2000, b"4"]})
        with pytest.raises(RecordTooLarge, match="1000"):
            await producer.send_columns("t", table)
        await producer.flush()
        assert producer._accumulator.used_bytes == 0
    assert cluster.produced == []


@scripted()
async def test_bad_columns_are_refused_with_what_is_allowed(cluster: ScriptedCluster) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    cluster.topic("t")
    async with cluster.producer() as producer:
        for columns in ({"key": [b"1"]}, {"value": [1]}, {"value": [b"1"], "partition": [7]}):
            with pytest.raises(BadRecord):
                await producer.send_columns("t", pyarrow.table(columns))
        with pytest.raises(BadRecord):
            await producer.send_columns("t", {"value": [b"1"]})


@scripted()
async def test_an_encoded_batch_is_sent_under_this_producers_name(cluster: ScriptedCluster) -> None:
    from semel.records.build import build_batch

    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"0")
        batch = build_batch([b"1", b"2"], base_timestamp_ms=5)
        (run,) = await (await producer.send_batch("t", 0, batch))
        assert (run.offset, run.records) == (1, 2)
        await producer.send_and_wait("t", b"3")
    assert [batch.sequence for batch in cluster.produced] == [0, 1, 3]
    assert cluster.logs("t") == [b"0", b"1", b"2", b"3"]
