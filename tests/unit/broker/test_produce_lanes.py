"""The short way for produce requests that are like the one before: who may go it, and that nobody can tell."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import NOW_MS, Node, RawClient, batch_of, produce_request, simulated
from short_ways import Counted, counted_produces

from semel.broker.authoriser import AllowAll, Operation
from semel.records.compression import Codec
from semel.sim import link
from semel.wire.errors import ErrorCode
from semel.wire.frame import request_bytes
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> Counted:
    monkeypatch.setattr(link, "WHOLE_CHUNK_CHANCE", 1)  # a lane serves only what comes whole
    return counted_produces(monkeypatch)


async def alter(client: RawClient, topic: str, name: str, value: str) -> None:
    change = ConfigAlteration(name=name, config_operation=0, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    response = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert response.responses[0].error_code == 0


def by_id(topic_id: bytes, batch: bytearray) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=memoryview(batch))]
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)])


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("flush_messages", ["1", "1000000", "9223372036854775807"])
def test_the_answers_are_those_of_the_long_way_byte_by_byte(
    version: int, flush_messages: str, short_way: Counted
) -> None:
    told: dict[bool, list[Any]] = {}
    for is_open in (True, False):

        @simulated(settings={"log.flush.interval.messages": flush_messages})
        async def tell(node: Node, is_open: bool = is_open) -> None:
            short_way.is_open = is_open
            client = await node.client()
            topic_id = (await client.create_topic("t")).topic_id
            producer_id = await client.producer_id()
            batches = [batch_of(b"%d" % number) for number in range(3)]
            batches += [batch_of(b"a", b"b", producer_id=producer_id, sequence=2 * number) for number in range(8)]
            batches.append(batch_of(b"a", b"b", producer_id=producer_id, sequence=14))  # once more
            batches.append(batch_of(b"gap", producer_id=producer_id, sequence=99))
            batches.append(batch_of(b"c", producer_id=producer_id, sequence=16))
            batches.append(batch_of(b"old", producer_id=producer_id, sequence=0))
            batches.append(batch_of(b"late", timestamp_ms=NOW_MS + 10**10))
            batches.append(batch_of(b"zipped" * 50, codec=Codec.GZIP))
            for number, batch in enumerate(batches):
                request = by_id(topic_id, batch) if version >= 13 else produce_request("t", batch)
                client.link.send([request_bytes(request, version, 1000 + number, "raw")])
                await asyncio.sleep(1)
            log = node.broker.topics.partition("t", 0).log
            answers = [frame.replace(topic_id, b"\0" * 16) for frame in client.frames]
            content = log.segments[-1].file.read_at(0, log.size_bytes)
            told[is_open] = [answers, content, log.end_offset, [*log.producers.entries()]]

        tell()
    assert len(told[True][0]) == 17
    assert told[True] == told[False]
    assert short_way.served == 11  # of the 17: not the first, and nothing that is not in order


@simulated()
async def test_a_lane_is_for_one_partition_and_a_connection_may_use_many(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t", 3)
    await client.create_topic("another", 1)
    for round_number in range(3):
        for partition in range(3):
            result = await client.produce("t", batch_of(b"."), partition=partition)
            assert (result.index, result.error_code, result.base_offset) == (partition, 0, round_number)
        assert (await client.produce("another", batch_of(b"."))).base_offset == round_number
    assert [node.broker.topics.partition("t", index).log.end_offset for index in range(3)] == [3, 3, 3]
    assert short_way.served > 0


@simulated(settings={"log.flush.interval.messages": "9223372036854775807"})
async def test_a_connection_goes_from_one_quick_lane_to_another(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t", 3)
    for partition in range(3):
        await client.produce("t", batch_of(b"."), partition=partition)
    for _ in range(3):
        for partition in (0, 2, 1, 1):
            await client.produce("t", batch_of(b"."), partition=partition)
    assert [node.broker.topics.partition("t", index).log.end_offset for index in range(3)] == [4, 7, 4]
    assert short_way.served == 12


@simulated(settings={"log.flush.interval.messages": "9223372036854775807"})
async def test_requests_that_come_together_are_written_together(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t", 3)
    producer_id = await client.producer_id()
    for sequence in range(2):
        for partition in range(3):
            batch = batch_of(b".", producer_id=producer_id, sequence=sequence)
            assert (await client.produce("t", batch, partition=partition)).error_code == 0
    calls_before, served_before = len(node.disk.log), short_way.served
    requests = [
        request_bytes(
            produce_request("t", batch_of(b".", producer_id=producer_id, sequence=sequence), partition=partition),
            12,
            10 * sequence + partition,
            "raw",
        )
        for sequence in range(2, 6)
        for partition in range(3)
    ]
    client.link.send([b"".join(requests)])
    await asyncio.sleep(1)
    assert short_way.served - served_before == 12
    ids = [int.from_bytes(frame[:4]) for frame in client.frames]
    assert ids == [10 * sequence + partition for sequence in range(2, 6) for partition in range(3)]
    writes = [
        call for call in list(node.disk.log)[calls_before:] if call.kind == "write" and call.path.endswith(".log")
    ]
    assert len(writes) == 3
    assert [node.broker.topics.partition("t", index).log.end_offset for index in range(3)] == [6] * 3


@simulated(settings={"log.flush.interval.messages": "9223372036854775807"})
async def test_of_those_that_come_together_each_is_told_what_the_disk_refused(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t", 2)
    for partition in (0, 1, 0, 1):
        await client.produce("t", batch_of(b"before"), partition=partition)
    before = short_way.served
    requests = [
        request_bytes(produce_request("t", batch_of(b"more"), partition=number % 2), 12, number, "raw")
        for number in range(10)
    ]
    node.disk.fill_after(0)
    client.link.send([b"".join(requests)])
    await asyncio.sleep(1)
    assert short_way.served == before + 10
    refused = ErrorCode.KAFKA_STORAGE_ERROR.to_bytes(2)
    assert [(int.from_bytes(frame[:4]), refused in frame) for frame in client.frames] == [
        (number, True) for number in range(10)
    ]
    node.disk.mend()
    client.link.send([b"".join(requests)])
    await asyncio.sleep(1)
    assert len(client.frames) == 20
    assert [node.broker.topics.partition("t", index).log.end_offset for index in range(2)] == [7, 7]


@simulated()
async def test_nothing_is_acknowledged_on_the_short_way_before_it_is_flushed(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"first"))
    await client.produce("t", batch_of(b"leader only"), acks=1)
    node.hold_flushes()
    held = [client.send(produce_request("t", batch_of(b"held")), 12) for _ in range(3)]
    await asyncio.sleep(50)
    assert short_way.served == 3
    assert not any(answer.done() for answer in held)
    node.world.lose_power("broker")
    await node.start()
    again = await node.client()
    assert (await again.values("t"))[:2] == [b"first", b"leader only"]


@simulated()
async def test_acks_of_the_leader_do_not_wait_on_the_short_way(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"first"), acks=1)
    node.hold_flushes()
    assert (await client.produce("t", batch_of(b"second"), acks=1)).base_offset == 1
    assert short_way.served == 1


@simulated()
async def test_an_answer_that_waits_ends_with_its_partition_and_tells_why(node: Node, short_way: Counted) -> None:
    client, other = await node.client(), await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"first"))
    node.hold_flushes()
    held = client.send(produce_request("t", batch_of(b"held")), 12)
    await asyncio.sleep(1)
    assert short_way.served == 1
    node.broker.topics.partition("t", 0).abandon()
    result = (await held).responses[0].partition_responses[0]
    assert (result.error_code, result.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert not node.broken
    other.close()


@simulated()
async def test_a_topic_that_is_made_anew_has_no_lane_of_the_old_one(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t")
    for _ in range(3):
        await client.produce("t", batch_of(b"old"))
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
    assert (await client.produce("t", batch_of(b"."))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await client.create_topic("t")
    for number in range(3):
        assert (await client.produce("t", batch_of(b"new"))).base_offset == number
    assert await client.values("t") == [b"new"] * 3
    assert short_way.served == 4


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("max.message.bytes", "100", ErrorCode.MESSAGE_TOO_LARGE),
        ("message.timestamp.before.max.ms", "1000", ErrorCode.INVALID_TIMESTAMP),
        ("cleanup.policy", "compact", ErrorCode.INVALID_RECORD),
    ],
)
def test_settings_that_change_count_for_the_next_request(
    name: str, value: str, code: ErrorCode, short_way: Counted
) -> None:
    @simulated()
    async def change(node: Node) -> None:
        client = await node.client()
        await client.create_topic("t")
        batch = batch_of(b"." * 200, timestamp_ms=NOW_MS - 10**6)
        for _ in range(3):
            assert (await client.produce("t", batch)).error_code == 0
        await alter(client, "t", name, value)
        for _ in range(2):
            assert (await client.produce("t", batch)).error_code == code
        assert short_way.served == 2

    change()


@simulated()
async def test_a_topic_that_stamps_or_compresses_goes_the_long_way(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    await client.create_topic("zipped", configs={"compression.type": "gzip"})
    for topic in ("stamped", "zipped"):
        for number in range(3):
            assert (await client.produce(topic, batch_of(b"."))).base_offset == number
    assert short_way.served == 0


class Fickle(AllowAll):
    may_write = True

    def authorise(self, principal: str, host: str, operation: Operation, resource: Any, name: str | None) -> bool:
        return self.may_write or operation is not Operation.WRITE


FICKLE = Fickle()


@simulated(authoriser=lambda: FICKLE)
async def test_a_permission_that_is_taken_away_counts_for_the_next_request(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t")
    for _ in range(2):
        assert (await client.produce("t", batch_of(b"."))).error_code == 0
    FICKLE.may_write = False
    node.broker.generation.raise_it()
    try:
        assert (await client.produce("t", batch_of(b"."))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    finally:
        FICKLE.may_write = True
    assert (await client.produce("t", batch_of(b"."))).base_offset == 2
    assert short_way.served == 1  # the refusal ended the lane, and what follows makes another


@simulated()
async def test_a_full_segment_is_followed_by_another_on_the_long_way(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"segment.bytes": "1000"})
    for number in range(40):
        assert (await client.produce("t", batch_of(b"." * 100))).base_offset == number
    log = node.broker.topics.partition("t", 0).log
    assert len(log.segments) == 40 // 5
    assert short_way.served == 32
    assert len(await client.values("t", 0)) == 5


@pytest.mark.parametrize("flush_messages", ["1", "9223372036854775807"])
def test_a_write_that_the_disk_refuses_is_told_and_the_next_one_stands_in_its_place(
    flush_messages: str, short_way: Counted
) -> None:
    simulated(settings={"log.flush.interval.messages": flush_messages})(_refused_by_the_disk)()
    assert short_way.served == 3  # the refusal is one of them: the lane has taken it before it was refused


async def _refused_by_the_disk(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    producer_id = await client.producer_id()
    for number in range(2):
        await client.produce("t", batch_of(b"before", producer_id=producer_id, sequence=number))
    node.disk.fill_after(0)
    refused = await client.produce("t", batch_of(b"refused", producer_id=producer_id, sequence=2))
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    node.disk.mend()
    result = await client.produce("t", batch_of(b"after", producer_id=producer_id, sequence=2))
    assert (result.error_code, result.base_offset) == (0, 2)
    assert await client.values("t") == [b"before", b"before", b"after"]


@simulated()
async def test_a_request_of_several_partitions_or_without_an_answer_makes_no_lane(
    node: Node, short_way: Counted
) -> None:
    client = await node.client()
    await client.create_topic("t", 2)
    data = [PartitionProduceData(index=index, records=memoryview(batch_of(b"."))) for index in range(2)]
    for _ in range(2):
        request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        assert {part.error_code for part in (await client.ask(request, 12)).responses[0].partition_responses} == {0}
        client.send(produce_request("t", batch_of(b"."), acks=0), 12, is_answered=False)
        await asyncio.sleep(1)
    assert short_way.tried == 0
    assert node.broker.topics.partition("t", 0).log.end_offset == 4
