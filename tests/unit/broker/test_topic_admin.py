"""CreateTopics, DeleteTopics and CreatePartitions through the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import Node, RawClient, batch_of, produce_request, simulated

from semel.config import TOPIC_SETTINGS, ConfigSource
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from semel.wire.spec.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState


def wanted(name: str, partitions: int = -1, replicas: int = -1, **options: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **options)


async def create(client: RawClient, *topics: CreatableTopic, version: int = 7, **options: Any) -> dict[str, Any]:
    response = await client.ask(CreateTopicsRequest(topics=list(topics), **options), version)
    return {topic.name: topic for topic in response.topics}


# -- CreateTopics


@simulated(settings={"num.partitions": "3"})
async def test_a_created_topic_is_answered_with_its_id_its_counts_and_its_settings(node: Node) -> None:
    client = await node.client()
    made = await create(client, wanted("t", configs=[CreatableTopicConfig(name="retention.ms", value=" 5000 ")]))
    topic = made["t"]
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 3, 1)
    assert topic.topic_id == node.broker.topics.by_name["t"].topic_id != NO_UUID
    settings = {config.name: config for config in topic.configs}
    assert set(settings) == set(TOPIC_SETTINGS)
    assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == (
        "5000",
        ConfigSource.TOPIC_CONFIG,
    )
    assert settings["segment.ms"].config_source == ConfigSource.DEFAULT
    assert not any(config.is_sensitive for config in topic.configs)


@pytest.mark.parametrize("version", range(2, 8))
@simulated()
async def test_topics_are_created_in_every_version(node: Node, version: int) -> None:
    client = await node.client()
    made = await create(client, wanted("t", 2, 1), version=version)
    assert made["t"].error_code == 0
    assert list(node.broker.topics.by_name["t"].partitions) == [0, 1]


@simulated()
async def test_the_answer_waits_until_the_topic_is_durable(node: Node) -> None:
    client = await node.client()
    node.hold_flushes()
    answer = client.send(CreateTopicsRequest(topics=[wanted("t"), wanted("u")]))
    await asyncio.sleep(30)
    assert not answer.done()
    assert "t" not in node.broker.topics.by_name
    await answer
    assert {"t", "u"} <= set(node.broker.topics.by_name)


@simulated()
async def test_all_topics_of_one_request_share_their_flushes(node: Node) -> None:
    client = await node.client()
    before = node.flushes("__cluster_metadata")
    await create(client, *(wanted(f"t{number}") for number in range(50)))
    assert node.flushes("__cluster_metadata") - before <= 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("t.x"), ErrorCode.NONE),
        (wanted("not a name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("u_v"), ErrorCode.INVALID_TOPIC_EXCEPTION),  # collides with u.v
        (wanted("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (wanted("n", 0), ErrorCode.INVALID_PARTITIONS),
        (wanted("n", -2), ErrorCode.INVALID_PARTITIONS),
        (wanted("n", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("n", configs=[CreatableTopicConfig(name="retention.mss", value="1")]), ErrorCode.INVALID_CONFIG),
        (wanted("n", configs=[CreatableTopicConfig(name="retention.ms", value="x")]), ErrorCode.INVALID_CONFIG),
        (wanted("n", configs=[CreatableTopicConfig(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
        (
            wanted("n", 1, assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            wanted("n", assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            wanted("n", assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            wanted("n", assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
@simulated()
async def test_what_is_wrong_with_a_new_topic_has_its_code_and_changes_nothing(
    node: Node, topic: CreatableTopic, code: ErrorCode
) -> None:
    client = await node.client()
    await create(client, wanted("t"), wanted("u.v"))
    end_offset = node.broker.metadata.next_offset
    result = (await create(client, topic, wanted("fine")))[topic.name]
    assert result.error_code == code
    assert "fine" in node.broker.topics.by_name, "one that is wrong does not stop the others"
    if code:
        assert result.error_message
        assert (result.num_partitions, result.replication_factor, result.topic_id) == (-1, -1, NO_UUID)
        assert node.broker.metadata.next_offset == end_offset + 2, "only the good one is written"


@simulated()
async def test_partitions_can_be_assigned_by_hand(node: Node) -> None:
    client = await node.client()
    hands = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in (1, 0)]
    assert (await create(client, wanted("t", assignments=hands)))["t"].num_partitions == 2


@simulated()
async def test_a_topic_named_twice_is_refused_once_and_not_created(node: Node) -> None:
    client = await node.client()
    response = await client.ask(CreateTopicsRequest(topics=[wanted("t"), wanted("u"), wanted("t", 4)]))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]
    assert list(node.broker.topics.by_name) == ["u"]


@simulated()
async def test_a_validated_topic_is_described_but_not_created(node: Node) -> None:
    client = await node.client()
    end_offset = node.broker.metadata.next_offset
    made = await create(client, wanted("t", 4), wanted("n", 0), validate_only=True)
    assert (made["t"].error_code, made["t"].num_partitions, made["t"].topic_id) == (0, 4, NO_UUID)
    assert made["n"].error_code == ErrorCode.INVALID_PARTITIONS
    assert node.broker.metadata.next_offset == end_offset
    assert not node.broker.topics.by_name


@simulated()
async def test_two_requests_at_once_create_a_topic_once(node: Node) -> None:
    one, other = await node.client(), await node.client()
    node.hold_flushes(100)
    results = await asyncio.gather(create(one, wanted("t")), create(other, wanted("t")))
    assert sorted(result["t"].error_code for result in results) == [0, ErrorCode.TOPIC_ALREADY_EXISTS]


# -- DeleteTopics


async def delete(client: RawClient, *topics: DeleteTopicState, version: int = 6) -> list[tuple[Any, int]]:
    request = DeleteTopicsRequest(topics=list(topics), timeout_ms=1000)
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[topic.name or "" for topic in topics], timeout_ms=1000)
    response = await client.ask(request, version)
    return [(topic.name, topic.error_code) for topic in response.responses]


@pytest.mark.parametrize("version", range(1, 7))
@simulated()
async def test_topics_are_deleted_by_name_in_every_version(node: Node, version: int) -> None:
    client = await node.client()
    await create(client, wanted("t"))
    assert await delete(client, DeleteTopicState(name="t"), version=version) == [("t", 0)]
    assert not node.broker.topics.by_name
    assert "t" not in node.broker.image.topics


@simulated()
async def test_topics_are_deleted_by_id(node: Node) -> None:
    client = await node.client()
    made = (await create(client, wanted("t")))["t"]
    response = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=made.topic_id)]))
    (result,) = response.responses
    assert (result.name, result.topic_id, result.error_code) == ("t", made.topic_id, 0)
    assert not node.broker.topics.by_id


@simulated()
async def test_what_is_wrong_with_a_deletion_has_its_code(node: Node) -> None:
    client = await node.client()
    made = (await create(client, wanted("t")))["t"]
    unknown = DeleteTopicState(name="nobody"), DeleteTopicState(topic_id=b"\x07" * 16)
    malformed = DeleteTopicState(), DeleteTopicState(name="t", topic_id=made.topic_id)
    twice = DeleteTopicState(name="t")
    assert await delete(client, *unknown, *malformed, twice, twice) == [
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
        ("t", ErrorCode.INVALID_REQUEST),
        ("t", ErrorCode.INVALID_REQUEST),
    ]
    assert "t" in node.broker.topics.by_name


@simulated()
async def test_a_topic_named_by_name_and_by_id_is_deleted_once(node: Node) -> None:
    client = await node.client()
    made = (await create(client, wanted("t")))["t"]
    result = await delete(client, DeleteTopicState(name="t"), DeleteTopicState(topic_id=made.topic_id))
    assert result == [("t", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.TOPIC_DELETION_DISABLED), (2, ErrorCode.INVALID_REQUEST)])
@simulated(settings={"delete.topic.enable": "false"})
async def test_deletion_can_be_forbidden(node: Node, version: int, code: ErrorCode) -> None:
    client = await node.client()
    await create(client, wanted("t"))
    assert await delete(client, DeleteTopicState(name="t"), version=version) == [("t", code)]
    assert "t" in node.broker.topics.by_name


@simulated()
async def test_a_deletion_is_answered_when_it_is_durable(node: Node) -> None:
    client = await node.client()
    await create(client, wanted("t"))
    node.hold_flushes()
    answer = client.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    await asyncio.sleep(30)
    assert not answer.done()
    assert "t" in node.broker.topics.by_name
    await answer
    await node.power_cut_and_started()
    assert not node.broker.topics.by_name


@simulated()
async def test_a_producer_of_a_deleted_topic_is_told_to_look_again(node: Node) -> None:
    client, admin = await node.client(), await node.client()
    await create(client, wanted("t"))
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    await delete(admin, DeleteTopicState(name="t"))
    response = await client.ask(produce_request("t", batch_of(b"b")), 12)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- CreatePartitions


async def extend(client: RawClient, *topics: CreatePartitionsTopic, version: int = 3, **options: Any) -> dict[str, int]:
    response = await client.ask(CreatePartitionsRequest(topics=list(topics), **options), version)
    return {result.name: result.error_code for result in response.results}


@pytest.mark.parametrize("version", range(4))
@simulated()
async def test_partitions_are_added_in_every_version(node: Node, version: int) -> None:
    client = await node.client()
    await create(client, wanted("t"))
    await client.produce("t", batch_of(b"kept"))
    assert await extend(client, CreatePartitionsTopic(name="t", count=3, assignments=None), version=version) == {"t": 0}
    assert (await client.produce("t", batch_of(b"new"), partition=2)).error_code == 0
    assert await client.values("t") == [b"kept"]


@simulated()
async def test_what_is_wrong_with_new_partitions_has_its_code(node: Node) -> None:
    client = await node.client()
    await create(client, *(wanted(name, 2) for name in "abcdef"))
    end_offset = node.broker.metadata.next_offset
    on_one, on_two = CreatePartitionsAssignment(broker_ids=[1]), CreatePartitionsAssignment(broker_ids=[2])
    assert await extend(
        client,
        CreatePartitionsTopic(name="nobody", count=3, assignments=None),
        CreatePartitionsTopic(name="a", count=2, assignments=None),
        CreatePartitionsTopic(name="b", count=1, assignments=None),
        CreatePartitionsTopic(name="c", count=4, assignments=[on_one]),
        CreatePartitionsTopic(name="d", count=3, assignments=[on_two]),
        CreatePartitionsTopic(name="e", count=3, assignments=None),
        CreatePartitionsTopic(name="e", count=4, assignments=None),
        CreatePartitionsTopic(name="f", count=200_000, assignments=None),
    ) == {
        "nobody": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a": ErrorCode.INVALID_PARTITIONS,
        "b": ErrorCode.INVALID_PARTITIONS,
        "c": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "d": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "e": ErrorCode.INVALID_REQUEST,
        "f": ErrorCode.INVALID_PARTITIONS,
    }
    assert node.broker.metadata.next_offset == end_offset


@simulated()
async def test_validated_partitions_are_not_added(node: Node) -> None:
    client = await node.client()
    await create(client, wanted("t"))
    new = CreatePartitionsTopic(name="t", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[1])])
    assert await extend(client, new, validate_only=True) == {"t": 0}
    assert len(node.broker.topics.by_name["t"].partitions) == 1
    assert await extend(client, new) == {"t": 0}
    assert len(node.broker.topics.by_name["t"].partitions) == 2
