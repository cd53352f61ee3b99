"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords through the wire."""

from __future__ import annotations

import asyncio

import pytest
from broker_harness import NOW_MS, Node, RawClient, batch_of, simulated

from semel.wire.errors import ErrorCode
from semel.wire.spec.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from semel.wire.spec.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


async def list_offset(
    client: RawClient,
    timestamp_ms: int,
    *,
    topic: str = "t",
    partition: int = 0,
    epoch: int = -1,
    version: int = 11,
    isolation: int = 0,
) -> tuple[int, int, int]:
    """Error code, timestamp and offset."""
    wanted = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp_ms)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    answer = (await client.ask(request, version)).topics[0].partitions[0]
    return answer.error_code, answer.timestamp, answer.offset


# -- ListOffsets


@pytest.mark.parametrize("version", range(1, 12))
@simulated()
async def test_the_ends_of_a_log_and_offsets_by_time(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert await list_offset(client, LATEST, version=version) == (0, -1, 0)
    assert await list_offset(client, NOW_MS, version=version) == (0, -1, -1)
    for number in range(4):
        batch = batch_of(b"a", b"b", timestamps_ms=[NOW_MS + 100 * number, NOW_MS + 100 * number + 50])
        await client.produce("t", batch)
    assert await list_offset(client, EARLIEST, version=version) == (0, -1, 0)
    assert await list_offset(client, LATEST, version=version) == (0, -1, 8)
    assert await list_offset(client, NOW_MS + 120, version=version) == (0, NOW_MS + 150, 3)
    assert await list_offset(client, NOW_MS + 200, version=version) == (0, NOW_MS + 200, 4)
    assert await list_offset(client, NOW_MS + 351, version=version) == (0, -1, -1)
    assert await list_offset(client, MAX_TIMESTAMP, version=version) == (0, NOW_MS + 350, 7)
    assert await list_offset(client, EARLIEST_LOCAL, version=version) == (0, -1, 0)
    assert await list_offset(client, LATEST_TIERED, version=version) == (0, -1, -1)


@simulated()
async def test_what_is_not_flushed_yet_is_not_there_for_a_search_either(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    node.hold_flushes()
    assert (await client.produce("t", batch_of(b"b", timestamp_ms=NOW_MS + 50), acks=1)).base_offset == 1
    assert await list_offset(client, LATEST) == (0, -1, 1)
    assert await list_offset(client, NOW_MS + 50) == (0, -1, -1)


@simulated()
async def test_a_reader_of_committed_data_is_told_the_last_stable_offset(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    log = node.broker.topics.partition("t", 0).log
    batch = batch_of(b"b", producer_id=1, transactional=True)
    await client.produce("t", batch)  # refused: transactions are not served yet
    assert log.end_offset == 1
    assert await list_offset(client, LATEST, isolation=1) == (0, -1, 1)


@simulated()
async def test_what_cannot_be_listed_has_its_code(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert (await list_offset(client, LATEST, topic="nobody"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await list_offset(client, LATEST, partition=3))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await list_offset(client, LATEST, epoch=1))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await list_offset(client, -77))[0] == ErrorCode.INVALID_REQUEST
    await node.restart()
    client = await node.client()
    assert (await list_offset(client, LATEST, epoch=0))[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert (await list_offset(client, LATEST, epoch=1))[0] == 0


# -- OffsetForLeaderEpoch


async def epoch_end(
    client: RawClient, epoch: int, *, current: int = -1, topic: str = "t", partition: int = 0, version: int = 4
) -> tuple[int, int, int]:
    """Error code, leader epoch and end offset."""
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    answer = (await client.ask(request, version)).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", range(2, 5))
@simulated()
async def test_an_epoch_ends_where_the_next_one_begins(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a", b"b"))
    await node.restart()
    await node.restart()
    client = await node.client()
    await client.produce("t", batch_of(b"c"))
    assert await epoch_end(client, 0, version=version) == (0, 0, 2)
    assert await epoch_end(client, 1, version=version) == (0, 0, 2), "nothing was written in epoch 1"
    assert await epoch_end(client, 2, version=version) == (0, 2, 3)
    assert await epoch_end(client, 3, version=version) == (0, -1, -1)
    assert await epoch_end(client, 0, current=2, version=version) == (0, 0, 2)
    assert await epoch_end(client, 0, current=1, version=version) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert await epoch_end(client, 0, current=3, version=version) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


@simulated()
async def test_epochs_of_unknown_partitions_have_their_code(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert await epoch_end(client, 0, topic="nobody") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert await epoch_end(client, 0, partition=4) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


# -- DeleteRecords


async def delete_before(
    client: RawClient, offset: int, *, topic: str = "t", partition: int = 0, version: int = 2
) -> tuple[int, int]:
    """Error code and low watermark."""
    wanted = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
    )
    response = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), version)
    result = response.topics[0].partitions[0]
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", range(3))
@simulated()
async def test_records_below_an_offset_are_gone_for_everyone(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t")
    for value in (b"a", b"b", b"c"):
        await client.produce("t", batch_of(value))
    assert await delete_before(client, 2, version=version) == (0, 2)
    assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await client.values("t", 2) == [b"c"]
    assert await list_offset(client, EARLIEST) == (0, -1, 2)
    assert await delete_before(client, 1, version=version) == (0, 2), "it never goes back"
    assert (await client.fetch("t", 2)).log_start_offset == 2


@simulated()
async def test_minus_one_is_the_high_watermark(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a", b"b"))
    assert await delete_before(client, -1) == (0, 2)
    assert (await client.produce("t", batch_of(b"c"))).base_offset == 2
    assert await client.values("t", 2) == [b"c"]


@simulated()
async def test_only_what_may_be_read_may_be_deleted(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    node.hold_flushes()
    await client.produce("t", batch_of(b"b"), acks=1)
    assert await delete_before(client, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete_before(client, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    node.let_flushes_go()
    assert await delete_before(client, -1) == (0, 1)


@simulated()
async def test_what_cannot_be_deleted_has_its_code(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.create_topic("compacted", configs={"cleanup.policy": "compact"})
    await client.create_topic("__consumer_offsets", -1)
    assert await delete_before(client, 0, topic="nobody") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete_before(client, 0, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete_before(client, 0, topic="compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    assert await delete_before(client, 0, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
@simulated()
async def test_deleted_records_do_not_come_back_after_a_power_cut(node: Node, flush_messages: str) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"flush.messages": flush_messages})
    for value in (b"a", b"b", b"c"):
        await client.produce("t", batch_of(value))
    assert await delete_before(client, 2) == (0, 2)
    await node.power_cut_and_started()
    client = await node.client()
    assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await list_offset(client, EARLIEST) == (0, -1, 2)
    if flush_messages == "1":
        assert await client.values("t", 2) == [b"c"]
    assert (await client.produce("t", batch_of(b"d"))).base_offset >= 2


@simulated()
async def test_the_answer_waits_until_the_new_start_is_on_disk(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    node.hold_flushes()
    answer = asyncio.ensure_future(delete_before(client, 1))
    await asyncio.sleep(30)
    assert not answer.done()
    assert await answer == (0, 1)


@simulated()
async def test_a_disk_that_refuses_the_new_start_ends_the_node(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    node.disk.fail_at("flush")
    with pytest.raises(ConnectionError):
        await delete_before(client, 1)
    assert isinstance(node.broken[0], OSError)


@simulated(settings={"log.segment.bytes": "150", "log.retention.check.interval.ms": "1000"})
async def test_segments_of_deleted_records_go_with_the_next_retention_check(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    for number in range(5):
        await client.produce("t", batch_of(b"%d" % number * 50))
    log = node.broker.topics.partition("t", 0).log
    assert len(log.segments) == 5
    assert await delete_before(client, 3) == (0, 3)
    await asyncio.sleep(2)
    assert [segment.base_offset for segment in log.segments] == [3, 4]
    assert await client.values("t", 3) == [b"3" * 50]
    assert await client.values("t", 4) == [b"4" * 50]
