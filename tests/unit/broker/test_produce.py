"""Produce through the wire: when it is answered, what a duplicate is, and what is refused with which code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import (
    NOW_MS,
    Node,
    RawClient,
    batch_of,
    fetch_request,
    headers_in,
    partition_of,
    produce_request,
    simulated,
    values_in,
)

from semel.log.errors import BrokenLog
from semel.records.compression import Codec
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.frame import request_bytes
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData

LAST_SEQUENCE = (1 << 31) - 1


async def results(client: RawClient, request: ProduceRequest, version: int = 12) -> list[tuple[int, int]]:
    response = await client.ask(request, version)
    return [(part.error_code, part.base_offset) for topic in response.responses for part in topic.partition_responses]


# -- when it is answered


@pytest.mark.parametrize("version", range(3, 13))
@simulated()
async def test_batches_are_written_in_every_version(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert (await client.produce("t", batch_of(b"a", b"b"), version=version)).base_offset == 0
    result = await client.produce("t", batch_of(b"c"), version=version)
    assert (result.error_code, result.base_offset, result.log_append_time_ms) == (0, 2, -1)
    assert result.log_start_offset == (0 if version >= 5 else -1)
    assert await client.values("t") == [b"a", b"b", b"c"]


@simulated()
async def test_a_topic_can_be_named_by_id(node: Node) -> None:
    client = await node.client()
    made = await client.create_topic("t")
    data = [PartitionProduceData(index=0, records=memoryview(batch_of(b"a")))]
    known, unknown = (
        ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)])
        for topic_id in (made.topic_id, b"\x08" * 16)
    )
    response = await client.ask(known, 13)
    assert response.responses[0].topic_id == made.topic_id
    assert response.responses[0].partition_responses[0].error_code == 0
    assert await results(client, unknown, 13) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert await client.values("t") == [b"a"]


@simulated()
async def test_nothing_is_acknowledged_or_read_before_it_is_flushed(node: Node) -> None:
    client, reader = await node.client(), await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"first"))
    node.hold_flushes()
    answer = asyncio.ensure_future(client.produce("t", batch_of(b"held")))
    await asyncio.sleep(50)
    assert not answer.done()
    fetched = await reader.fetch("t")
    assert (fetched.high_watermark, fetched.last_stable_offset) == (1, 1)
    assert await reader.values("t") == [b"first"]
    assert await reader.values("t", 1) == []
    assert (await answer).base_offset == 1
    assert await reader.values("t", 1) == [b"held"]


@simulated()
async def test_with_one_ack_the_answer_does_not_wait_for_the_flush_but_readers_do(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"first"))
    node.hold_flushes()
    assert (await client.produce("t", batch_of(b"held"), acks=1)).base_offset == 1
    assert await client.values("t", 1) == []
    await asyncio.sleep(61)
    assert await client.values("t", 1) == [b"held"]


@simulated()
async def test_without_acks_there_is_no_answer_and_the_order_is_kept(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    for number in range(3):
        client.send(produce_request("t", batch_of(b"%d" % number), acks=0), 12, is_answered=False)
    assert (await client.produce("t", batch_of(b"3"))).base_offset == 3
    assert await client.values("t") == [b"0", b"1", b"2", b"3"]
    assert not client.frames


@simulated()
async def test_without_acks_a_refused_batch_costs_the_connection(node: Node) -> None:
    client = await node.client()
    client.send(produce_request("nobody", batch_of(b"x"), acks=0), 12, is_answered=False)
    await asyncio.wait_for(client.is_closed.wait(), 1)


@simulated(settings={"log.flush.interval.messages": "9223372036854775807"})
async def test_flushed_by_the_system_it_is_answered_and_read_at_once(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    node.hold_flushes()
    assert (await client.produce("t", batch_of(b"a"))).base_offset == 0
    assert await client.values("t") == [b"a"]
    assert node.flushes("/t-0/") == 0


@simulated(settings={"log.flush.interval.messages": "3"})
async def test_every_so_many_records_are_flushed_in_the_background(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    for _ in range(7):
        await client.produce("t", batch_of(b"a"))
    await asyncio.sleep(1)
    assert node.broker.topics.partition("t", 0).log.flushed_offset == 6


@simulated(settings={"log.flush.interval.messages": "1000", "log.flush.interval.ms": "500"})
async def test_what_has_waited_long_enough_is_flushed_in_the_background(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    log = node.broker.topics.partition("t", 0).log
    await asyncio.sleep(0.4)
    assert log.flushed_offset == 0
    await asyncio.sleep(0.2)
    assert log.flushed_offset == 1


@simulated()
async def test_many_producers_share_few_flushes(node: Node) -> None:
    clients = [await node.client() for _ in range(40)]
    await clients[0].create_topic("t")
    await clients[0].produce("t", batch_of(b"first"))
    node.hold_flushes(10)
    before = node.flushes("/t-0/")
    await asyncio.gather(*(client.produce("t", batch_of(b"x")) for client in clients))
    assert node.flushes("/t-0/") - before <= 3
    assert node.broker.topics.partition("t", 0).log.end_offset == 41


@simulated()
async def test_one_connection_goes_on_while_its_writes_are_flushed(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    node.hold_flushes(100)
    before = node.flushes("/t-0/00")
    answers = [client.send(produce_request("t", batch_of(b"%d" % number)), 12) for number in range(10)]
    offsets = [(await answer).responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(10))
    assert node.flushes("/t-0/00") - before <= 2


@simulated()
async def test_a_flush_that_fails_ends_the_node_and_acknowledges_nothing(node: Node) -> None:
    client, reader = await node.client(), await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"kept"))
    node.disk.fail_at("flush", times=1000)
    answer = asyncio.ensure_future(client.produce("t", batch_of(b"lost")))
    await asyncio.sleep(5)
    assert isinstance(node.broken[0], OSError)
    assert not answer.done()
    assert await reader.values("t") == [b"kept"]
    answer.cancel()


@simulated()
async def test_a_flush_that_fails_for_the_metadata_ends_the_node_and_creates_nothing(node: Node) -> None:
    client = await node.client()
    node.disk.fail_at("flush", times=1000)
    answer = asyncio.ensure_future(client.create_topic("t"))
    await asyncio.sleep(5)
    assert isinstance(node.broken[0], OSError)
    assert not answer.done()
    assert not node.broker.topics.by_name
    answer.cancel()


@simulated()
async def test_a_disk_that_is_full_refuses_the_write_and_the_log_goes_on_later(node: Node) -> None:
    client, other = await node.client(), await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"kept"))
    node.disk.fill_after(10)
    result = await client.produce("t", batch_of(b"x" * 1000))
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await other.values("t") == [b"kept"]
    node.disk.capacity_bytes = 1 << 40
    assert (await other.produce("t", batch_of(b"later"))).base_offset == 1
    assert await other.values("t") == [b"kept", b"later"]
    assert node.broker.server.budget.used_bytes == 0


# -- several partitions


@simulated()
async def test_one_bad_partition_does_not_harm_the_others(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", partitions=3)
    broken = batch_of(b"b")
    broken[-1] ^= 1
    batches = {0: batch_of(b"a"), 1: broken, 2: batch_of(b"c"), 9: batch_of(b"d")}
    data = [PartitionProduceData(index=index, records=memoryview(batch)) for index, batch in batches.items()]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    assert await results(client, request) == [
        (0, 0),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (0, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    ends = [node.broker.topics.partition("t", index).log.end_offset for index in range(3)]
    assert ends == [1, 0, 1]


@simulated()
async def test_of_several_partitions_those_in_order_are_written_in_one_step(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []
    validate = Partition.validate

    def counted(partition: Partition, records: Any) -> Any:
        looked_at.append(partition.index)
        return validate(partition, records)

    monkeypatch.setattr(Partition, "validate", counted)
    client = await node.client()
    await client.create_topic("t", partitions=4)
    producer_id = await client.producer_id()

    async def send(*sequences: int, version: int) -> list[tuple[int, int]]:
        looked_at.clear()
        data = [
            PartitionProduceData(
                index=index, records=memoryview(batch_of(b"%d" % sequence, producer_id=producer_id, sequence=sequence))
            )
            for index, sequence in enumerate(sequences)
        ]
        request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        return await results(client, request, version)

    assert await send(0, 0, 0, 0, version=8) == [(0, 0)] * 4
    assert looked_at == [0, 1, 2, 3]
    for number, version in ((1, 9), (2, 12), (3, 8)):
        assert await send(*[number] * 4, version=version) == [(0, number)] * 4
        assert looked_at == []
    out_of_order = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(4, 2, 9, 4, version=12) == [(0, 4), (0, 2), out_of_order, (0, 4)]
    assert looked_at == [1, 2]
    values = [b"%d" % number for number in range(5)]
    fetched = await client.ask(fetch_request({("t", index): 0 for index in range(4)}), 12)
    found = [values_in(partition_of(fetched, "t", index)) for index in range(4)]
    assert found == [values, values[:4], values[:4], values]


@simulated()
async def test_the_answer_waits_for_all_its_partitions(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", partitions=2)
    data = [PartitionProduceData(index=index, records=memoryview(batch_of(b"a"))) for index in (0, 1)]
    answer = client.send(ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)]), 12)
    node.hold_flushes()
    await asyncio.sleep(30)
    assert not answer.done()
    await answer
    logs = [node.broker.topics.partition("t", index).log for index in (0, 1)]
    assert [log.flushed_offset for log in logs] == [1, 1]


# -- sequences


@simulated()
async def test_no_producer_is_forgotten_because_the_wall_clock_was_set(node: Node) -> None:
    """Its first batch, sent again, would be written twice."""
    client = await node.client()
    await client.create_topic("t", 1, {"retention.ms": "-1"})
    batch = batch_of(b"x", producer_id=7)
    assert (await client.produce("t", bytearray(batch))).base_offset == 0
    node.set_clock(10 * 24 * 3_600_000)
    await asyncio.sleep(1500)
    client = await node.client()
    assert (await client.produce("t", batch)).base_offset == 0
    assert await client.values("t") == [b"x"]
    await asyncio.sleep(25 * 3600)
    assert not len(node.broker.topics.partition("t", 0).log.producers), "and in the end it is"


@simulated()
async def test_sequences_through_the_wire(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")

    async def send(sequence: int, count: int = 1, epoch: int = 0) -> tuple[int, int]:
        batch = batch_of(*[b"x"] * count, producer_id=7, sequence=sequence, epoch=epoch)
        result = await client.produce("t", batch)
        assert result.log_start_offset == 0, "clients need it to know whether data or state is gone"
        return result.error_code, result.base_offset

    assert await send(1) == (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
    assert await send(0, 2) == (0, 0)
    for number in range(6):
        assert await send(2 + number) == (0, 2 + number)
    assert await send(3) == (0, 3), "one of the last five is answered with its first offset"
    assert await send(7) == (0, 7)
    assert await send(2) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert await send(0, 2) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert await send(9) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(8, epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(0, epoch=1) == (0, 8)
    assert await send(8, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert len(await client.values("t")) == 9


@simulated()
async def test_sequences_wrap_after_the_largest(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    log = node.broker.topics.partition("t", 0).log
    await client.produce("t", batch_of(b"a", producer_id=7))
    producers = log.producers
    (entry,) = producers.entries()
    from semel.log.producers import ENTRY

    producers.load({7: ENTRY.pack(*entry._replace(last_sequence=LAST_SEQUENCE - 1))})
    assert (await client.produce("t", batch_of(b"b", b"c", producer_id=7, sequence=LAST_SEQUENCE))).base_offset == 1
    assert (await client.produce("t", batch_of(b"d", producer_id=7, sequence=1))).base_offset == 3
    assert (await client.produce("t", batch_of(b"b", b"c", producer_id=7, sequence=LAST_SEQUENCE))).base_offset == 1


@pytest.mark.parametrize("how", ["restart", "killed_and_started", "power_cut_and_started"])
@simulated()
async def test_duplicates_are_known_after_a_restart(node: Node, how: str) -> None:
    client = await node.client()
    await client.create_topic("t")
    for number in range(7):
        await client.produce("t", batch_of(b"%d" % number, producer_id=7, sequence=number))
    await getattr(node, how)()
    client = await node.client()
    for number in range(2, 7):
        again = await client.produce("t", batch_of(b"%d" % number, producer_id=7, sequence=number))
        assert (again.error_code, again.base_offset) == (0, number)
    older = await client.produce("t", batch_of(b"1", producer_id=7, sequence=1))
    assert older.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert (await client.produce("t", batch_of(b"7", producer_id=7, sequence=7))).base_offset == 7
    assert await client.values("t") == [b"%d" % number for number in range(8)]


@simulated()
async def test_a_duplicate_of_what_is_not_flushed_yet_waits_as_well(node: Node) -> None:
    client, other = await node.client(), await node.client()
    await client.create_topic("t")
    node.hold_flushes()
    first = asyncio.ensure_future(client.produce("t", batch_of(b"a", producer_id=7)))
    await asyncio.sleep(1)
    await other.produce("t", batch_of(b"b"), acks=1)
    again = asyncio.ensure_future(other.produce("t", batch_of(b"a", producer_id=7)))
    await asyncio.sleep(30)
    assert not first.done()
    assert not again.done()
    assert (await first).base_offset == (await again).base_offset == 0


@simulated(settings={"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100"})
async def test_a_producer_idle_past_its_expiry_is_told_where_the_log_begins(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a", producer_id=7))
    await asyncio.sleep(2)
    result = await client.produce("t", batch_of(b"b", producer_id=7, sequence=1))
    assert (result.error_code, result.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 0)


# -- what is refused


def spoiled(position: int) -> bytearray:
    batch = batch_of(b"a", b"b")
    batch[position] ^= 0x41
    return batch


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"a")[:40], ErrorCode.CORRUPT_MESSAGE),
        (spoiled(70), ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
        (batch_of(b"a", control=True), ErrorCode.INVALID_RECORD),
        (batch_of(b"a", transactional=True, producer_id=1), ErrorCode.INVALID_TXN_STATE),
        (batch_of(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(b"a", timestamp_ms=NOW_MS + 10_000_000), ErrorCode.INVALID_TIMESTAMP),
    ],
)
@simulated()
async def test_bad_batches_have_their_code_and_leave_the_log_as_it_was(
    node: Node, batch: bytearray | None, code: ErrorCode
) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"kept"))
    result = await client.produce("t", batch)
    assert (result.error_code, result.base_offset) == (code, -1)
    assert result.error_message
    assert await client.values("t") == [b"kept"]
    assert (await client.produce("t", batch_of(b"next"))).base_offset == 1


@simulated()
async def test_a_compacted_topic_needs_keys(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"cleanup.policy": "compact"})
    assert (await client.produce("t", batch_of(b"a"))).error_code == ErrorCode.INVALID_RECORD
    assert (await client.produce("t", batch_of(b"a", keys=[b"k"]))).error_code == 0


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
@pytest.mark.parametrize("size", [10, 200_000])
@simulated()
async def test_the_records_to_blame_are_named_to_clients_that_know_how_to_read_it(
    node: Node, version: int, size: int
) -> None:
    """KIP-467: since version 8. A large compressed batch is judged in a thread."""
    client = await node.client()
    await client.create_topic("t", configs={"cleanup.policy": "compact"})
    values = [incompressible(size), b"b", b"c", b"d"]
    batch = batch_of(*values, keys=[b"k", None, b"k", None], codec=Codec.GZIP)
    result = await client.produce("t", batch, version=version)
    assert result.error_code == ErrorCode.INVALID_RECORD
    named = [(one.batch_index, "no key" in one.batch_index_error_message) for one in result.record_errors]
    assert named == ([(1, True), (3, True)] if version >= 8 else [])
    assert bool(result.error_message) == (version >= 8)
    assert node.broker.topics.partition("t", 0).log.end_offset == 0


@simulated()
async def test_an_answer_names_a_thousand_records_at_most(node: Node) -> None:
    """A megabyte of compressed batches can hold millions of records, and all of them can be wrong."""
    client = await node.client()
    await client.create_topic("t", configs={"cleanup.policy": "compact"})
    for large in (b"", incompressible(200_000)):  # the large one takes all of them to a thread
        data = [
            PartitionProduceData(index=0, records=memoryview(batch_of(*values, codec=Codec.ZSTD)))
            for values in ([large] * 1, [b"v"] * 700, [b"v"] * 700, [b"v"] * 700)
        ]
        request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        response = await client.ask(request, 12)
        results = response.responses[0].partition_responses
        assert [one.error_code for one in results] == [ErrorCode.INVALID_RECORD] * 4
        assert [len(one.record_errors) for one in results] == [1, 700, 299, 0]
        assert all("of 700 records 700 have no key" in one.error_message for one in results[1:])


@pytest.mark.parametrize("acks", [2, -2, 100])
@simulated()
async def test_other_numbers_of_acks_are_refused(node: Node, acks: int) -> None:
    client = await node.client()
    await client.create_topic("t")
    result = await client.produce("t", batch_of(b"a"), acks=acks)
    assert result.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert node.broker.topics.partition("t", 0).log.end_offset == 0


@simulated(settings={"min.insync.replicas": "2"})
async def test_no_more_replicas_have_to_be_in_sync_than_a_partition_has(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    assert await client.values("t") == [b"a"]


@simulated()
async def test_zstd_needs_a_version_that_knows_it(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    batch = batch_of(b"a" * 100, codec=Codec.ZSTD)
    assert (await client.produce("t", batch, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await client.produce("t", batch, version=7)).error_code == 0


@simulated()
async def test_the_broker_can_stamp_the_time_of_the_append(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    result = await client.produce("t", batch_of(b"a", timestamp_ms=5, producer_id=7))
    assert result.log_append_time_ms >= NOW_MS
    (header,) = headers_in(await client.fetch("t"))
    assert header.max_timestamp == result.log_append_time_ms
    assert header.is_log_append_time


# -- large compressed batches are judged elsewhere


def incompressible(length: int) -> bytes:
    import random

    return random.Random(1).randbytes(length)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@simulated()
async def test_large_compressed_batches_are_written_whole_and_in_order(node: Node, codec: Codec) -> None:
    client = await node.client()
    await client.create_topic("t")
    value = incompressible(150_000)
    answers = [
        client.send(produce_request("t", batch_of(value + b"%d" % number, codec=codec)), 12) for number in range(3)
    ]
    small = client.send(produce_request("t", batch_of(b"small")), 12)
    assert [(await answer).responses[0].partition_responses[0].base_offset for answer in [*answers, small]] == [
        0,
        1,
        2,
        3,
    ]
    for number in range(3):
        assert (await client.values("t", number))[0] == value + b"%d" % number


@simulated()
async def test_a_batch_that_waits_for_a_thread_is_not_written_over_by_the_next_read(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came in one read, so it lies in the buffer into which all connections are read."""
    client, other = await node.client(), await node.client()
    await client.create_topic("t")
    await client.create_topic("u")
    value = incompressible(150_000)
    wires = node.world.wires
    monkeypatch.setattr("semel.sim.link.WINDOW_BYTES", 1 << 20)
    monkeypatch.setattr("semel.sim.link.WORTHWHILE_BYTES", 1 << 20)
    monkeypatch.setattr("semel.sim.link.WHOLE_CHUNK_CHANCE", 1.0)
    assert wires is not None
    first = client.send(produce_request("t", batch_of(value, codec=Codec.LZ4)), 12)
    second = other.send(produce_request("u", batch_of(b"y" * 200_000)), 12)
    assert (await first).responses[0].partition_responses[0].error_code == 0
    assert (await second).responses[0].partition_responses[0].error_code == 0
    assert await client.values("t") == [value]


@pytest.mark.parametrize(
    ("options", "version", "code"),
    [
        ({"transactional": True, "producer_id": 1}, 12, ErrorCode.INVALID_TXN_STATE),
        ({}, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
@simulated()
async def test_large_batches_are_refused_for_the_same_reasons_as_small_ones(
    node: Node, options: dict[str, Any], version: int, code: ErrorCode
) -> None:
    client = await node.client()
    await client.create_topic("t")
    batch = batch_of(incompressible(150_000), codec=Codec.ZSTD, **options)
    assert (await client.produce("t", batch, version=version)).error_code == code
    assert node.broker.topics.partition("t", 0).log.end_offset == 0


@simulated()
async def test_a_large_bad_batch_among_good_ones_is_refused_alone(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", partitions=3)
    large = batch_of(incompressible(150_000), codec=Codec.LZ4)
    spoilt = bytearray(large)
    spoilt[-1] ^= 1
    data = [
        PartitionProduceData(index=0, records=memoryview(large)),
        PartitionProduceData(index=1, records=memoryview(spoilt)),
        PartitionProduceData(index=2, records=None),
        PartitionProduceData(index=7, records=memoryview(large)),
    ]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    assert await results(client, request) == [
        (0, 0),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (ErrorCode.INVALID_RECORD, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


# -- ends


@simulated()
async def test_a_producer_that_leaves_does_not_take_its_batch_back(node: Node) -> None:
    client, other = await node.client(), await node.client()
    await client.create_topic("t")
    node.hold_flushes(1000)
    client.send(produce_request("t", batch_of(b"a")), 12).add_done_callback(lambda future: future.exception())
    await asyncio.sleep(0.5)
    client.close()
    await asyncio.sleep(10)
    assert await other.values("t") == [b"a"]


@simulated()
async def test_producers_that_wait_when_their_topic_is_deleted_are_sent_to_look_for_it(node: Node) -> None:
    from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState

    client, admin = await node.client(), await node.client()
    await client.create_topic("t")
    node.hold_flushes(1000)
    answer = client.send(produce_request("t", batch_of(b"a")), 12)
    deleted = admin.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    result = (await answer).responses[0].partition_responses[0]
    assert (result.error_code, result.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    await deleted
    assert not node.broken


@simulated()
async def test_a_clean_stop_under_load_keeps_every_acknowledged_batch(node: Node) -> None:
    clients = [await node.client() for _ in range(5)]
    await clients[0].create_topic("t")
    node.hold_flushes(3)
    acknowledged: list[bytes] = []

    async def produce(client: RawClient, name: int) -> None:
        for number in range(1000):
            value = b"%d-%d" % (name, number)
            await client.produce("t", batch_of(value))
            acknowledged.append(value)

    tasks = [asyncio.ensure_future(produce(client, name)) for name, client in enumerate(clients)]
    await asyncio.sleep(0.1)
    await node.stop()
    await asyncio.gather(*tasks, return_exceptions=True)
    node.let_flushes_go()
    await node.start()
    assert node.broker.store.was_clean
    client = await node.client()
    found = await client.values("t")
    assert acknowledged
    assert set(acknowledged) <= set(found)
    assert len(set(found)) == len(found)


@simulated()
async def test_a_request_that_does_not_fit_in_one_read_is_served(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    frame = request_bytes(produce_request("t", batch_of(b"a" * 900_000)), 12, 99, "raw")
    for start in range(0, len(frame), 100_001):
        client.link.send([frame[start : start + 100_001]])
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert client.frames
    assert await client.values("t") == [b"a" * 900_000]
    assert node.broker.server.budget.used_bytes == 0


@simulated()
async def test_a_log_that_cannot_be_cut_back_after_a_failed_write_ends_the_node(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert (await client.produce("t", batch_of(b"fine"))).error_code == 0
    node.disk.fail_at("write")
    node.disk.fail_at("truncate")
    with pytest.raises((ConnectionError, EOFError)):
        await client.produce("t", batch_of(b"half"))
    assert {type(error) for error in node.broken} == {BrokenLog}
    node.broken.clear()
