"""Offsets of a group inside of a transaction: they count when it is committed, and only if their group still agrees."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from broker_harness import Node, RawClient, simulated
from transaction_harness import (
    OLD,
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    coordinator,
    known,
    started,
    with_transactions,
)

from semel.coordinator.topic_names import OFFSETS_TOPIC
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel.wire.spec.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUP = "group"
COMMIT_VERSION = {id(OLD): 0, id(V1): 3, id(V2): 5}
generations = pytest.mark.parametrize("versions", [OLD, V1, V2], ids=["old clients", "first", "second"])


async def ready(node: Node, versions: Mapping[str, int]) -> tuple[RawClient, TransactionalProducer]:
    client = await with_transactions(node)
    await node.broker.roles.internal_topics.ensure(OFFSETS_TOPIC)
    return client, await started(client, versions)


async def commit_offset(
    producer: TransactionalProducer,
    offset: int,
    *,
    version: int | None = None,
    topic: str = TOPIC,
    topic_id: bytes = NO_UUID,
    on: RawClient | None = None,
    **member: Any,
) -> ErrorCode:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[partition])],
        **member,
    )
    used = COMMIT_VERSION[id(producer.versions)] if version is None else version
    answer = await (on or producer.client).ask(request, used)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed_offset(client: RawClient, *, require_stable: bool = False) -> int | ErrorCode:
    topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    answer = await client.ask(OffsetFetchRequest(group_id=GROUP, topics=[topic], require_stable=require_stable), 7)
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code) if found.error_code else cast(int, found.committed_offset)


async def joined(producer: TransactionalProducer) -> None:
    if producer.versions is not V2:
        assert await producer.add_offsets(GROUP) == 0


@generations
@simulated()
async def test_offsets_count_when_the_transaction_is_committed_and_not_before(
    node: Node, versions: Mapping[str, int]
) -> None:
    client, producer = await ready(node, versions)
    await joined(producer)
    assert await commit_offset(producer, 7) == 0
    assert await committed_offset(client) == -1
    assert await committed_offset(client, require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await committed_offset(client, require_stable=True) == 7
    await joined(producer)
    assert await commit_offset(producer, 9) == 0
    assert await producer.abort() == 0
    await asyncio.sleep(0.1)
    assert await committed_offset(client, require_stable=True) == 7
    await node.power_cut_and_started()
    assert await committed_offset(await node.client(), require_stable=True) == 7


@pytest.mark.parametrize("version", range(5))
@simulated()
async def test_offsets_that_are_not_in_the_transaction_are_refused(node: Node, version: int) -> None:
    client, producer = await ready(node, V1)
    expected = ErrorCode.INVALID_TXN_STATE if version < 4 else ErrorCode.TRANSACTION_ABORTABLE
    assert await commit_offset(producer, 7, version=version) == expected
    assert await producer.add(0) == 0
    assert await commit_offset(producer, 7, version=version) == expected
    assert await committed_offset(client, require_stable=True) == -1, "nothing was written, so nothing is unstable"


@simulated()
async def test_the_second_generation_joins_by_committing_offsets(node: Node) -> None:
    _, producer = await ready(node, V2)
    assert await commit_offset(producer, 7) == 0
    ((topic, _),) = known(node).partitions
    assert topic == OFFSETS_TOPIC


@generations
@simulated()
async def test_late_offsets_after_the_end_write_nothing(node: Node, versions: Mapping[str, int]) -> None:
    client, producer = await ready(node, versions)
    await joined(producer)
    assert await commit_offset(producer, 7) == 0
    identity = producer.identity
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    producer.producer_id, producer.epoch = identity
    late = await commit_offset(producer, 3, on=await node.client())
    assert late in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_ABORTABLE)
    assert await committed_offset(client, require_stable=True) == 7


@pytest.mark.parametrize("version", range(6))
@simulated()
async def test_a_replaced_producer_is_told_that_its_epoch_is_over(node: Node, version: int) -> None:
    client, old = await ready(node, V1)
    await started(client, V1)
    assert await commit_offset(old, 7, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", range(6))
@simulated()
async def test_after_a_time_out_offsets_are_told_what_their_version_can_say(node: Node, version: int) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1, timeout_ms=1000)
    assert await producer.add_offsets(GROUP) == 0
    await asyncio.sleep(12)
    told = ErrorCode.INVALID_PRODUCER_EPOCH if version < 4 else ErrorCode.TRANSACTION_ABORTABLE
    assert await commit_offset(producer, 7, version=version) == told


@simulated()
async def test_offsets_of_a_topic_that_is_not_there_are_refused(node: Node) -> None:
    _, producer = await ready(node, V2)
    assert await commit_offset(producer, 7, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def join(client: RawClient) -> tuple[str, int]:
    """A member that is alone in its group: its id and generation."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    first = await client.ask(request, 7)
    request.member_id = first.member_id
    answer = await client.ask(request, 7)
    assert answer.error_code == 0
    sync = SyncGroupRequest(
        group_id=GROUP,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")],
    )
    assert (await client.ask(sync, 5)).error_code == 0
    return answer.member_id, answer.generation_id


@pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
@simulated()
async def test_the_generation_of_the_group_fences_offsets(node: Node, versions: Mapping[str, int]) -> None:
    """KIP-447: an instance whose partitions went to another one cannot commit them any more."""
    client, producer = await ready(node, versions)
    member_id, generation = await join(client)
    await joined(producer)
    stale = await commit_offset(producer, 7, member_id=member_id, generation_id=generation - 1)
    assert stale == ErrorCode.ILLEGAL_GENERATION
    unknown = await commit_offset(producer, 7, member_id="somebody", generation_id=generation)
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit_offset(producer, 7, member_id=member_id, generation_id=generation) == 0
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await committed_offset(client, require_stable=True) == 7


@simulated()
async def test_from_version_6_on_topics_are_named_by_id_and_the_group_s_reasons_by_their_own_codes(node: Node) -> None:
    """KIP-1319; before, a member of the past and a group that is gone are both an illegal generation."""
    client, producer = await ready(node, V2)
    topic_id = node.broker.image.topics[TOPIC].topic_id
    await joined(producer)
    assert await commit_offset(producer, 7, version=6, topic="", topic_id=topic_id) == 0
    strange = bytes(range(16))
    assert await commit_offset(producer, 7, version=6, topic="", topic_id=strange) == ErrorCode.UNKNOWN_TOPIC_ID
    gone = {"member_id": "m", "generation_id": 4}
    code = await commit_offset(producer, 7, version=6, topic_id=topic_id, **gone)
    assert code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await commit_offset(producer, 7, version=5, **gone) == ErrorCode.ILLEGAL_GENERATION
    member = await consumer_heartbeat(client)
    past = {"member_id": member.member_id, "generation_id": member.member_epoch + 1}
    code = await commit_offset(producer, 7, version=6, topic_id=topic_id, **past)
    assert code == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit_offset(producer, 7, version=5, **past) == ErrorCode.ILLEGAL_GENERATION
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await committed_offset(client, require_stable=True) == 7


async def consumer_heartbeat(client: RawClient) -> ConsumerGroupHeartbeatResponse:
    """Joins the group by KIP-848."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="made-by-the-member",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    answer = await client.ask(request, 1)
    assert answer.error_code == 0, answer.error_message
    return cast(ConsumerGroupHeartbeatResponse, answer)


@simulated()
async def test_offsets_and_records_of_a_takeover_are_aborted_together(node: Node) -> None:
    client, producer = await ready(node, V1)
    await joined(producer)
    assert await producer.add(0) == 0
    assert await producer.write(b"left open") == 0
    assert await commit_offset(producer, 7) == 0
    await started(client, V1)
    assert await committed_offset(client, require_stable=True) == -1
    assert not [t for t in coordinator(node).transactions() if t.state.is_prepared]


@pytest.mark.parametrize("versions", [OLD, V1], ids=["old clients", "first"])
@simulated()
async def test_offsets_of_the_first_generation_that_come_late_do_not_take_back_those_of_a_later_transaction(
    node: Node, versions: Mapping[str, int]
) -> None:
    """They were sent, were sent once more over a new connection, and arrive in another transaction."""
    client, producer = await ready(node, versions)
    old, new = await node.client(), await node.client()
    for connection in (old, new):
        await connection.producer_id()  # a connection counts from its first request on
    await joined(producer)
    assert await commit_offset(producer, 7, on=old) == 0
    assert await commit_offset(producer, 7, on=new) == 0
    assert await producer.commit() == 0
    await joined(producer)
    assert await commit_offset(producer, 9, on=new) == 0
    assert await commit_offset(producer, 7, on=old) == ErrorCode.NOT_COORDINATOR
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await committed_offset(client, require_stable=True) == 9


@simulated()
async def test_offsets_may_go_over_an_older_connection_than_the_rest_of_the_transaction(node: Node) -> None:
    """To the coordinator of the group, while the ends go to that of the transaction."""
    client, producer = await ready(node, V1)
    offsets, producer.client = producer.client, await node.client()
    for offset in (7, 9):
        await joined(producer)
        assert await commit_offset(producer, offset, on=offsets) == 0
        assert await producer.commit() == 0
        await asyncio.sleep(0.1)
        assert await committed_offset(client, require_stable=True) == offset
    assert await producer.init() == 0
    shard = node.broker.groups.shard_of(GROUP)
    assert len(shard.connections) == 1, "it is kept until its epoch tells it from every instance before it"
    node.broker.groups.shard_of(GROUP).partition.log.producers.live_rows.clear()
    await asyncio.sleep(700)
    assert not len(shard.connections)
