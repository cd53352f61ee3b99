"""A commit that was answered is carried out, whatever a partition says to its marker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import Node, RawClient, simulated
from transaction_harness import (
    ID,
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    check_replay_equals_live,
    coordinator,
    known,
    read_committed,
    started,
    with_transactions,
)

from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.coordinator.txn.state import TransactionState
from semel.log.errors import Refused
from semel.records.control import ControlType
from semel.wire.errors import ErrorCode
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

UNKNOWN_EPOCH = (1 << 31) - 1


async def send_marker(
    client: RawClient, producer: TransactionalProducer, coordinator_epoch: int, *, topic: str = TOPIC
) -> ErrorCode:
    """What anybody may send who may act for the cluster."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )
    answer = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
@pytest.mark.parametrize("coordinator_epoch", [1, UNKNOWN_EPOCH])
@simulated()
async def test_a_marker_of_a_coordinator_epoch_that_nobody_knows_leaves_no_trace(
    node: Node, versions: dict[str, int], coordinator_epoch: int
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    if versions is V1:
        assert await producer.add(0) == 0
    assert await producer.write(b"paid") == 0
    log = node.broker.topics.partition(TOPIC, 0).log
    before = log.end_offset, log.producers.rows()
    assert await send_marker(client, producer, coordinator_epoch) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (log.end_offset, log.producers.rows()) == before
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"paid"]
    assert known(node).state == TransactionState.COMPLETE_COMMIT


@simulated()
async def test_a_marker_of_an_unknown_coordinator_epoch_finds_no_state_to_stay_in(node: Node) -> None:
    """Not even where the producer has never written: there its next transaction would be fenced."""
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await send_marker(client, producer, UNKNOWN_EPOCH) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not len(node.broker.topics.partition(TOPIC, 0).log.producers)
    assert await send_marker(client, producer, 0) == 0, "the first epoch of every partition"


def fence(node: Node, producer: TransactionalProducer, coordinator_epoch: int) -> None:
    """As if a later coordinator had ended the producer's transaction in the partition, before this one has begun."""
    partition = node.broker.topics.partition(TOPIC, 0)
    partition.append_marker(
        ControlType.ABORT, producer.producer_id, producer.epoch, coordinator_epoch, bumps_epoch=False
    )


async def committed_but_fenced(node: Node) -> tuple[RawClient, TransactionalProducer]:
    client = await with_transactions(node)
    producer = await started(client, V1)
    fence(node, producer, 1)
    assert await producer.add(0) == 0
    assert await producer.write(b"paid") == 0
    assert await producer.commit() == 0
    await asyncio.sleep(30)
    return client, producer


@simulated()
async def test_a_commit_whose_marker_is_refused_is_not_told_as_done_and_is_carried_out_when_it_can(node: Node) -> None:
    client, producer = await committed_but_fenced(node)
    assert known(node).state == TransactionState.PREPARE_COMMIT
    assert await read_committed(client) == []
    await node.power_cut_and_started()
    await asyncio.sleep(1)
    assert known(node).state == TransactionState.COMPLETE_COMMIT
    assert await read_committed(await node.client()) == [b"paid"]
    check_replay_equals_live(node)
    producer.client = await node.client()
    await producer.transaction(b"next")


@simulated()
async def test_a_coordinator_that_was_elected_anew_loads_its_state_and_goes_on_in_its_new_epoch(node: Node) -> None:
    client, _ = await committed_but_fenced(node)
    old = coordinator(node).shards.for_key(ID)
    old.partition.leader_epoch += 1
    await asyncio.sleep(2)
    new = coordinator(node).shards.for_key(ID)
    assert new is not old
    assert (old.epoch, new.epoch) == (0, 1)
    assert known(node).state == TransactionState.COMPLETE_COMMIT
    assert await read_committed(client) == [b"paid"]
    (entry,) = node.broker.topics.partition(TOPIC, 0).log.producers.entries()
    assert entry.coordinator_epoch == 1
    check_replay_equals_live(node)


@simulated()
async def test_a_deleted_topic_leaves_the_transaction_whose_marker_it_refused(node: Node) -> None:
    client, producer = await committed_but_fenced(node)
    assert known(node).state == TransactionState.PREPARE_COMMIT
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)]))
    await asyncio.sleep(2)
    assert known(node).state == TransactionState.COMPLETE_COMMIT
    assert await producer.add(0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated()
async def test_a_shard_of_groups_that_is_being_loaded_is_a_leader_that_is_not_there_yet(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add_offsets("group") == 0
    shards: Any = node.broker.groups.shards
    shards._loaded.clear()
    monkeypatch.setattr("semel.coordinator.shards._AT_ONCE_BYTES", -1)
    assert await send_marker(client, producer, 0, topic=OFFSETS_TOPIC) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
@simulated()
async def test_the_topics_of_the_coordinators_join_no_transaction_by_name(node: Node, topic: str) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add_offsets("group") == 0
    assert await producer.add(0, topic=topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (topic, 0) not in known(node).partitions or topic == OFFSETS_TOPIC


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "after the append"])
@simulated()
async def test_a_coordinator_is_told_nothing_that_kafkas_does_not_understand(
    node: Node, refused: ErrorCode, told: ErrorCode, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown code stops a broker of Kafka."""
    client = await with_transactions(node)
    producer = await started(client, V1)

    def refuse(*rest: Any) -> Any:
        if not is_late:
            raise Refused(refused, "planted")
        committed = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.1, committed.set_exception, Refused(refused, "planted"))
        return committed

    monkeypatch.setattr(node.broker.markers, "write_marker", refuse)
    assert await send_marker(client, producer, 0) == told


@simulated()
async def test_markers_of_a_request_are_written_before_the_first_is_waited_for(node: Node) -> None:
    client = await with_transactions(node, 3)
    producer = await started(client, V1)
    node.hold_flushes(1000)
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 1, 2])],
    )
    asked = client.send(WriteTxnMarkersRequest(markers=[marker]), 2)
    await asyncio.sleep(0.1)
    assert [node.broker.topics.partition(TOPIC, index).log.end_offset for index in range(3)] == [1, 1, 1]
    assert not asked.done()
    node.let_flushes_go()
    await asyncio.sleep(2)
    assert asked.done()


@simulated()
async def test_markers_over_a_connection_that_their_node_has_replaced_are_refused(node: Node) -> None:
    """Read late, they would end the producer's next transaction: its epoch is the same in the first generation."""
    client = await with_transactions(node)
    markers = node.broker.markers
    of_a_node, of_a_tool = f"broker-{node.broker.node.node_id}-markers", "adminclient-1"
    for sender in (of_a_node, of_a_tool, "broker-77-markers", "broker-x-markers", None):
        markers.check_sender(sender, 5)
        markers.check_sender(sender, 7)
        if sender is of_a_node:
            with pytest.raises(Refused) as error:
                markers.check_sender(sender, 5)
            assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            markers.check_sender(sender, 5)
        markers.check_sender(sender, 7)
    assert list(markers._senders) == [of_a_node], "nothing is kept of senders that are no nodes"
    client.close()
