"""The topics of the coordinators are kept from clients: no request ends every group and transaction."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Node, RawClient, batch_of, simulated

from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from semel.wire.spec.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from semel.wire.spec.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from semel.wire.spec.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "5"}
COUNTS = {OFFSETS_TOPIC: 3, TRANSACTIONS_TOPIC: 5}
SET, DELETE, APPEND = 0, 1, 2
both = pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])


async def ready(node: Node) -> RawClient:
    for topic in COUNTS:
        await node.broker.roles.internal_topics.ensure(topic)
    return await node.client()


@pytest.mark.parametrize("version", [1, 5, 6])
@both
@simulated(settings=SETTINGS)
async def test_they_are_not_deleted_by_name_or_id(node: Node, topic: str, version: int) -> None:
    client = await ready(node)
    topic_id = node.broker.topics.by_name[topic].topic_id
    named = [DeleteTopicState(name=topic)]
    by_id = [DeleteTopicState(topic_id=topic_id)]
    for wanted in (named, by_id) if version >= 6 else (named,):
        request = DeleteTopicsRequest(topics=wanted, topic_names=[topic])
        (result,) = (await client.ask(request, version)).responses
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        if version >= 5:
            assert result.error_message == f"{topic} holds the state of the coordinators, it cannot be deleted"
    assert node.broker.topics.by_name[topic].topic_id == topic_id


@pytest.mark.parametrize("is_trial", [False, True])
@both
@simulated(settings=SETTINGS)
async def test_they_get_no_more_partitions(node: Node, topic: str, is_trial: bool) -> None:
    client = await ready(node)
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic, count=10)], validate_only=is_trial)
    (result,) = (await client.ask(request)).results
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(node.broker.topics.by_name[topic].partitions) == COUNTS[topic]


@both
@simulated(settings=SETTINGS)
async def test_no_client_cuts_them_or_writes_to_them(node: Node, topic: str) -> None:
    client = await ready(node)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])]
    )
    (result,) = (await client.ask(request)).topics[0].partitions
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await client.produce(topic, batch_of(b"x"))).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert node.broker.topics.partition(topic, 0).log.end_offset == 0


async def alter(client: RawClient, topic: str, *operations: tuple[int, str, str | None]) -> tuple[int, str | None]:
    configs = [ConfigAlteration(name=name, config_operation=code, value=value) for code, name, value in operations]
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name=topic, configs=configs)
    (result,) = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    return result.error_code, result.error_message


@pytest.mark.parametrize(
    "operation",
    [
        (SET, "cleanup.policy", "delete"),
        (SET, "cleanup.policy", "compact,delete"),
        (SET, "cleanup.policy", ""),
        (APPEND, "cleanup.policy", "delete"),
        (DELETE, "cleanup.policy", None),
        (SET, "segment.bytes", "1000"),
        (SET, "max.message.bytes", "1000"),
        (SET, "flush.messages", "100"),
        (SET, "unclean.leader.election.enable", "true"),
    ],
)
@both
@simulated(settings=SETTINGS)
async def test_a_setting_that_would_lose_their_state_or_stop_the_coordinators_is_refused(
    node: Node, topic: str, operation: tuple[int, str, str | None]
) -> None:
    client = await ready(node)
    before = dict(node.broker.image.config(2, topic))
    code, text = await alter(client, topic, operation)
    assert code == ErrorCode.INVALID_CONFIG
    assert f"{operation[1]} of {topic}, the state of coordinators, is" in (text or "")
    assert node.broker.image.config(2, topic) == before


@both
@simulated(settings=SETTINGS)
async def test_settings_that_do_no_harm_are_changed(node: Node, topic: str) -> None:
    client = await ready(node)
    operations: list[tuple[int, str, str | None]] = [
        (SET, "cleanup.policy", "compact"),
        (SET, "segment.bytes", "2000000"),
        (SET, "segment.ms", "3600000"),
        (SET, "max.message.bytes", "5000000"),
        (SET, "min.cleanable.dirty.ratio", "0.1"),
        (SET, "delete.retention.ms", "7200000"),
        (DELETE, "compression.type", None),
    ]
    assert await alter(client, topic, *operations) == (0, None)
    assert node.broker.topics.by_name[topic].config.segment_bytes == 2_000_000


@simulated(settings=SETTINGS)
async def test_settings_that_are_set_anew_as_a_whole_have_to_keep_what_matters(node: Node) -> None:
    client = await ready(node)

    async def replaced(configs: dict[str, str]) -> int:
        resource = AlterConfigsResource(
            resource_type=2,
            resource_name=OFFSETS_TOPIC,
            configs=[AlterableConfig(name=name, value=value) for name, value in configs.items()],
        )
        (result,) = (await client.ask(AlterConfigsRequest(resources=[resource]))).responses
        return int(result.error_code)

    assert await replaced({"segment.bytes": "2000000"}) == ErrorCode.INVALID_CONFIG, "without it, it deletes by age"
    assert await replaced({"segment.bytes": "2000000", "cleanup.policy": "compact"}) == 0


# -- whoever creates one first


async def create(client: RawClient, topic: str, **wanted: Any) -> Any:
    wanted = {"num_partitions": -1, "replication_factor": -1, **wanted}
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, **wanted)])
    return (await client.ask(request)).topics[0]


@both
@simulated(settings=SETTINGS)
async def test_a_client_creates_one_as_the_node_would(node: Node, topic: str) -> None:
    client = await node.client()
    assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    in_sync = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
    for wrong, code in (
        ({"num_partitions": 1}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 50}, ErrorCode.INVALID_PARTITIONS),
        ({"assignments": assigned}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        # What a broker of Kafka asks for by its own settings: it is to hear that nodes are missing.
        ({"replication_factor": 3, "configs": in_sync}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": [CreatableTopicConfig(name="cleanup.policy", value="delete")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [CreatableTopicConfig(name="segment.bytes", value="many")]}, ErrorCode.INVALID_CONFIG),
    ):
        assert (await create(client, topic, **wrong)).error_code == code
    assert topic not in node.broker.topics.by_name
    made = await create(client, topic, configs=[CreatableTopicConfig(name="segment.ms", value="3600000")])
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, COUNTS[topic], 1)
    config = node.broker.topics.by_name[topic].config
    assert (config.cleanup_policy, config.segment_ms) == ({"compact"}, 3_600_000)


@simulated(settings=SETTINGS)
async def test_an_assignment_of_every_partition_may_be_given(node: Node) -> None:
    assigned = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(3)]
    made = await create(await node.client(), OFFSETS_TOPIC, assignments=assigned)
    assert (made.error_code, made.num_partitions) == (0, 3)
    assert node.broker.topics.by_name[OFFSETS_TOPIC].config.cleanup_policy == {"compact"}
