"""A transaction whose coordinator, partitions and group are on different nodes."""

from __future__ import annotations

import asyncio

import pytest
from across_nodes import FEW, ONE_REPLICA, Across, Producer, counted_questions
from cluster_harness import Cluster, in_a_cluster
from transaction_harness import TOPIC, V1, V2

from semel.coordinator.topic_names import OFFSETS_TOPIC
from semel.coordinator.txn.state import TransactionState
from semel.wire.errors import ErrorCode
from semel.wire.spec.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

VERSIONS = pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
COORDINATOR = 2


@VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@in_a_cluster(brokers=3, settings=FEW)
async def test_a_transaction_ends_on_all_nodes_before_its_end_is_answered(
    cluster: Cluster, versions: dict[str, int], commit: bool
) -> None:
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(COORDINATOR), versions)
    for number in range(2):
        values = [b"%d" % number]
        with counted_questions() as asked:
            if versions is V1:
                assert await producer.add(0, 1, 2) == 0
            for partition in range(3):
                assert await producer.write_to(partition, *values) == 0
                assert await producer.write_to(partition, b"more") == 0
        assert asked == [(producer.transactional_id, versions is V1)] * 2, "once for each partition on another node"
        assert await across.read_committed(1) == ([b"0", b"more"] if number and commit else [])
        assert await producer.end(commit=commit) == 0
        for partition in range(3):
            wanted = [b"0", b"more", b"1", b"more"][: 2 * number + 2] if commit else []
            assert await across.read_committed(partition) == wanted, "its client finds it at once"
    await asyncio.sleep(0.5)
    state = across.state(producer.transactional_id)
    assert state == (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)


@in_a_cluster(brokers=3, settings=FEW)
async def test_what_has_not_joined_is_not_written_wherever_the_coordinator_is(cluster: Cluster) -> None:
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(COORDINATOR), V1)
    for partition in range(3):
        assert await producer.write_to(partition, b"x") == ErrorCode.TRANSACTION_ABORTABLE
    for node in cluster.brokers:
        assert not len(node.broker.broker_part.coordinators._guards), "guards are given back"
    assert await producer.add(1) == 0
    producer.sequences.clear()
    assert await producer.write_to(1, b"x") == 0
    assert await producer.write_to(2, b"x") == ErrorCode.TRANSACTION_ABORTABLE


OLD_OFFSETS, NEW_OFFSETS = 3, 5


async def commit_offset(across: Across, producer: Producer, group: str, offset: int, version: int) -> ErrorCode:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    client = await across.coordinator(group, OFFSETS_TOPIC).client()
    answer = await client.ask(request, version)
    client.close()
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed_offset(across: Across, group: str) -> int:
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])], require_stable=True
    )
    client = await across.coordinator(group, OFFSETS_TOPIC).client()
    found = (await client.ask(request, 7)).topics[0].partitions[0]
    client.close()
    assert found.error_code in (0, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return int(found.committed_offset)


@VERSIONS
@in_a_cluster(brokers=3, settings=FEW)
async def test_offsets_of_a_group_on_another_node_are_part_of_the_transaction(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(COORDINATOR), versions)
    group = across.name_on(COORDINATOR + 1, OFFSETS_TOPIC)
    version = OLD_OFFSETS if versions is V1 else NEW_OFFSETS
    if versions is V1:
        assert await commit_offset(across, producer, group, 5, version) == ErrorCode.INVALID_TXN_STATE
        assert await producer.add_offsets(group) == 0
    with counted_questions() as asked:
        assert await commit_offset(across, producer, group, 7, version) == 0
        assert await commit_offset(across, producer, group, 8, version) == 0
    assert asked == [(producer.transactional_id, versions is V1)]
    assert await committed_offset(across, group) == -1
    assert await producer.commit() == 0
    assert await committed_offset(across, group) == 8


@VERSIONS
@in_a_cluster(brokers=3, settings={**FEW, **ONE_REPLICA})
async def test_a_leader_that_is_away_holds_up_an_end_for_a_second_and_the_others_not_at_all(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(COORDINATOR), versions)
    other = await across.producer(across.name_on(COORDINATOR, nth=1), versions)
    for one, partitions in ((producer, (1, 2)), (other, (2,))):
        if versions is V1:
            assert await one.add(*partitions) == 0
        for partition in partitions:
            assert await one.write_to(partition, one.transactional_id.encode()) == 0
    away = across.nodes[across.leader(TOPIC, 1)]
    cluster.world.wires.part([away.name], [across.nodes[COORDINATOR].name])
    loop = asyncio.get_running_loop()
    began = loop.time()
    end = asyncio.ensure_future(producer.commit())
    await asyncio.sleep(0.1)
    assert await other.commit() == 0
    assert loop.time() - began < 0.3
    assert await end == 0
    assert 0.9 < loop.time() - began < 1.3
    assert await across.read_committed(2) == [producer.transactional_id.encode(), other.transactional_id.encode()]
    assert await across.read_committed(1) == []
    assert across.state(producer.transactional_id) == TransactionState.PREPARE_COMMIT
    cluster.world.wires.heal()
    await asyncio.sleep(15)
    assert await across.read_committed(1) == [producer.transactional_id.encode()]
    assert across.state(producer.transactional_id) == TransactionState.COMPLETE_COMMIT
