"""Partitions that exist, but that another node leads: what this node tells of them, and that it does not serve them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import Node, RawClient, batch_of, fetch_request, partition_of, produce_request, simulated

from semel.broker.handlers.list_offsets import DEBUGGING
from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.wire.errors import ErrorCode
from semel.wire.primitives import coordinator_partition
from semel.wire.spec.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from semel.wire.spec.describe_cluster import DescribeClusterRequest
from semel.wire.spec.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
)
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic
from semel.wire.spec.metadata_records import BrokerEndpoint, ConfigRecord, PartitionChangeRecord, RegisterBrokerRecord
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

HERE, OTHER = 1, 2


async def register_other(node: Node, listener: str = "PLAINTEXT", *, fenced: bool = False) -> None:
    end_point = BrokerEndpoint(name=listener, host="other", port=9999)
    await node.broker.controller.metadata.write(
        [RegisterBrokerRecord(broker_id=OTHER, end_points=[end_point], rack="attic", fenced=fenced)]
    )


async def set_leader(node: Node, topic: str, leader: int, index: int = 0) -> None:
    topic_id = node.broker.image.topics[topic].topic_id
    change = PartitionChangeRecord(
        partition_id=index, topic_id=topic_id, leader=leader, replicas=[HERE, OTHER], isr=[HERE, OTHER]
    )
    await node.broker.controller.metadata.write([change])


async def led_by_other(node: Node, topic: str = "t") -> RawClient:
    """A topic of two partitions with a record each; the other node leads the first."""
    client = await node.client()
    await client.create_topic(topic, partitions=2)
    for index in range(2):
        await client.produce(topic, batch_of(b"a"), partition=index)
    await register_other(node)
    await set_leader(node, topic, OTHER)
    return client


async def described(client: RawClient, topic: str, version: int = 13) -> Any:
    response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), version)
    return response.brokers, response.topics[0].partitions


@pytest.mark.parametrize("version", range(14))
@simulated()
async def test_metadata_tells_leaders_replicas_and_addresses_as_they_are_committed(node: Node, version: int) -> None:
    client = await led_by_other(node)
    brokers, partitions = await described(client, "t", version)
    assert [(found.node_id, found.host, found.port) for found in brokers] == [
        (HERE, "127.0.0.1", 9092),
        (OTHER, "other", 9999),
    ]
    if version >= 1:
        assert [found.rack for found in brokers] == [None, "attic"]
    assert [(one.leader_id, one.error_code) for one in partitions] == [(OTHER, 0), (HERE, 0)]
    assert (list(partitions[0].replica_nodes), list(partitions[0].isr_nodes)) == ([HERE, OTHER], [HERE, OTHER])
    if version >= 7:
        assert [one.leader_epoch for one in partitions] == [1, 0]


@simulated()
async def test_a_node_that_is_fenced_leads_nothing_and_is_told_only_when_asked_for(node: Node) -> None:
    client = await led_by_other(node)
    await register_other(node, fenced=True)
    brokers, partitions = await described(client, "t")
    assert [found.node_id for found in brokers] == [HERE]
    assert (partitions[0].error_code, partitions[0].leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert list(partitions[0].offline_replicas) == [OTHER]
    for include, expected in ((False, [(HERE, False)]), (True, [(HERE, False), (OTHER, True)])):
        response = await client.ask(DescribeClusterRequest(include_fenced_brokers=include))
        assert [(found.broker_id, found.is_fenced) for found in response.brokers] == expected


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)])
@simulated()
async def test_a_leader_without_the_listener_of_the_request_cannot_be_reached(
    node: Node, version: int, code: ErrorCode
) -> None:
    client = await led_by_other(node)
    await register_other(node, "ANOTHER")
    brokers, partitions = await described(client, "t", version)
    assert [found.node_id for found in brokers] == [HERE]
    assert (partitions[0].error_code, partitions[0].leader_id) == (code, -1)


@simulated()
async def test_describe_topic_partitions_tells_the_same(node: Node) -> None:
    client = await led_by_other(node)
    response = await client.ask(DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequestTopic(name="t")]))
    found = [(one.leader_id, one.leader_epoch, list(one.replica_nodes)) for one in response.topics[0].partitions]
    assert found == [(OTHER, 1, [HERE, OTHER]), (HERE, 0, [HERE])]


@pytest.mark.parametrize("version", [9, 10, 13])
@simulated()
async def test_a_produce_is_refused_with_the_leader(node: Node, version: int) -> None:
    client = await led_by_other(node)
    request = produce_request("t", batch_of(b"x"))
    if version >= 13:
        request.topic_data[0].topic_id = node.broker.image.topics["t"].topic_id
    response = await client.ask(request, version)
    result = response.responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (OTHER, 1)
        assert [(one.node_id, one.host, one.port) for one in response.node_endpoints] == [(OTHER, "other", 9999)]
    missing = await client.produce("nowhere", batch_of(b"x"))
    assert (missing.error_code, missing.current_leader) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


@pytest.mark.parametrize("version", [4, 12, 15, 16, 18])
@simulated()
async def test_a_fetch_is_refused_with_the_leader(node: Node, version: int) -> None:
    client = await led_by_other(node)
    topic: str | bytes = "t" if version < 13 else node.broker.image.topics["t"].topic_id
    response = await client.ask(fetch_request({(topic, 0): 0}), version)
    result = partition_of(response, topic)
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 12:
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (OTHER, 1)
    assert [one.node_id for one in response.node_endpoints] == ([OTHER] if version >= 16 else [])


@simulated()
async def test_a_fetch_that_waits_is_told_when_the_leader_changes(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    held = client.send(fetch_request({("t", 0): 0}, max_wait_ms=1_000_000), 12)
    await asyncio.sleep(1)
    await set_leader(node, "t", OTHER)
    await asyncio.sleep(1)
    assert partition_of(held.result(), "t").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated()
async def test_a_partition_that_comes_back_is_led_on_from_where_it_was(node: Node) -> None:
    client = await led_by_other(node)
    old = node.broker.topics.by_name["t"].partitions[0]
    await client.ask(produce_request("t", batch_of(b"x")), 12)
    await set_leader(node, "t", HERE)
    now = node.broker.topics.partition("t", 0)
    assert (now is not old, now.leader_epoch) == (True, 2)
    assert (await client.produce("t", batch_of(b"b"))).base_offset == 1
    assert await client.values("t") == [b"a", b"b"]


@pytest.mark.parametrize("how", ["restart", "killed_and_started"])
@simulated()
async def test_a_start_does_not_take_what_another_node_leads(node: Node, how: str) -> None:
    await led_by_other(node)
    await getattr(node, how)()
    client = await node.client()
    _, partitions = await described(client, "t")
    assert [(one.leader_id, one.leader_epoch) for one in partitions] == [(OTHER, 1), (HERE, 1)]
    assert (await client.produce("t", batch_of(b"x"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await set_leader(node, "t", HERE)
    assert await client.values("t") == [b"a"]


@simulated()
async def test_settings_of_a_partition_that_is_led_elsewhere_count_when_it_comes_back(node: Node) -> None:
    await led_by_other(node)
    topic = node.broker.topics.by_name["t"]
    await node.broker.controller.metadata.write(
        [ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="2000")]
    )
    await set_leader(node, "t", HERE)
    assert node.broker.topics.partition("t", 0).config.segment_bytes == topic.config.segment_bytes == 2000


@simulated()
async def test_a_topic_that_another_node_leads_can_be_deleted(node: Node) -> None:
    await led_by_other(node)
    topic_id = node.broker.image.topics["t"].topic_id
    (refused,) = await node.broker.roles.controller.delete_topics([topic_id])
    assert refused is None
    assert "t" not in node.broker.topics.by_name
    assert not any(key[0] == "t" for key in node.broker.store.logs)


# -- coordinators


@simulated(settings={"offsets.topic.num.partitions": "2"})
async def test_the_coordinator_is_the_leader_of_the_partition_wherever_it_is(node: Node) -> None:
    client = await node.client()
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    assert (await client.ask(request)).coordinators[0].node_id == HERE
    await register_other(node)
    await set_leader(node, OFFSETS_TOPIC, OTHER, coordinator_partition("g", 2))
    (found,) = (await client.ask(request)).coordinators
    assert (found.error_code, found.node_id, found.host, found.port) == (0, OTHER, "other", 9999)
    response = await client.ask(HeartbeatRequest(group_id="g", member_id="m", generation_id=1))
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    await register_other(node, fenced=True)
    (found,) = (await client.ask(request)).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@simulated(settings={"transaction.state.log.num.partitions": "1"})
async def test_transactions_take_partitions_and_offsets_of_topics_that_another_node_leads(node: Node) -> None:
    client = await led_by_other(node)
    await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]))
    made = await client.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000))
    assert made.error_code == 0
    asked = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    response = await client.ask(asked, 3)
    assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    asked.v3_and_below_topics[0].partitions = [7]
    response = await client.ask(asked, 3)
    result = response.results_by_topic_v3_and_below[0].results_by_partition[0]
    assert result.partition_error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    committed = await client.ask(
        TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[offset])],
        ),
        5,
    )
    assert committed.topics[0].partitions[0].error_code == 0


@simulated(settings={"transaction.state.log.num.partitions": "1"})
async def test_a_transaction_is_refused_where_another_node_coordinates_it(node: Node) -> None:
    client = await node.client()
    await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]))
    await set_leader(node, TRANSACTIONS_TOPIC, OTHER)
    made = await client.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000))
    assert made.error_code == ErrorCode.NOT_COORDINATOR


@simulated()
async def test_tools_are_told_where_the_log_here_ends_whoever_leads_it(node: Node) -> None:
    client = await led_by_other(node)
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 2)]
    found = {}
    for replica_id in (-1, DEBUGGING):
        request = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=wanted)])
        answered = (await client.ask(request, 11)).topics[0].partitions
        found[replica_id] = [(one.error_code, one.offset) for one in answered]
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert found[-1] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (0, 1), unknown]
    assert found[DEBUGGING] == [(0, 1), (0, 1), unknown]
