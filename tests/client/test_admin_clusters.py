"""The admin on running brokers: topics, settings, records, and the cluster itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from admin_steps import NOW_MS, eventually, write

from semel.client.admin.admin import Admin
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import ConfigResource, ConfigSource, ConfigType, NewTopic, OffsetSpec
from semel.client.errors import BrokerRefused, TopicExists, UnknownTopic
from semel.client.metadata import TopicPartition
from semel.wire.errors import ErrorCode


@pytest.fixture
async def admin(address: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=address) as made:
        yield made


async def test_a_topic_lives_from_creation_to_deletion(admin: Admin, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    made = (await admin.create_topics(NewTopic(name, 2, configs={"retention.ms": 3_600_000})))[name]
    assert (made.partitions, made.replication_factor) == (2, 1)
    assert made.configs is not None
    assert made.configs["retention.ms"].value == "3600000"
    with pytest.raises(TopicExists):
        await admin.create_topics(NewTopic(name, 2, 1))
    topic = (await admin.describe_topics(name))[name]
    assert topic.topic_id == made.topic_id
    assert [len(partition.replicas) for partition in topic.partitions.values()] == [1, 1]
    assert all(partition.leader_id in partition.in_sync for partition in topic.partitions.values())
    await admin.create_partitions({name: 3})
    assert len((await admin.describe_topics(name))[name].partitions) == 3
    assert name in await admin.list_topics()
    await admin.delete_topics(name)
    assert name not in await admin.list_topics()
    with pytest.raises(UnknownTopic):
        await admin.describe_topics(name)
    with pytest.raises(UnknownTopic):
        await admin.delete_topics(name)
    # At once again: deletion was waited for, and so is the new creation.
    again = (await admin.create_topics(NewTopic(name, 1, 1)))[name]
    assert again.topic_id != made.topic_id


async def test_topics_by_assignment_and_by_the_broker_s_numbers(admin: Admin, unique: Callable[[str], str]) -> None:
    by_hand, by_default = unique("hand"), unique("default")
    (node_id,) = (await admin.describe_cluster()).nodes
    await admin.create_topics([NewTopic(by_hand, assignment={0: [node_id], 1: [node_id]}), NewTopic(by_default)])
    found = await admin.describe_topics([by_hand, by_default])
    assert len(found[by_hand].partitions) == 2
    assert len(found[by_default].partitions) >= 1


async def test_what_is_wrong_with_topics_is_told_one_by_one(admin: Admin, unique: Callable[[str], str]) -> None:
    good = unique("good")
    wanted = [
        NewTopic(good, 1, 1),
        NewTopic("b@d", 1, 1),
        NewTopic(unique("wide"), 1, 9),
        NewTopic(unique("odd"), 1, 1, configs={"retention.ms": "soon"}),
    ]
    with pytest.raises(AdminErrors) as failed:
        await admin.create_topics(wanted)
    assert list(failed.value.results) == [good]
    assert [error.code for error in failed.value.errors.values()] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
    ]
    validated = await admin.create_topics(NewTopic(unique("never"), 4, 1), validate_only=True)
    assert not set(validated) & set(await admin.list_topics())


async def test_settings_of_a_topic_are_changed_one_by_one(
    admin: Admin, topic: str, unique: Callable[[str], str]
) -> None:
    resource = ConfigResource.topic(topic)
    await admin.alter_configs(resource, set={"retention.ms": 5000, "cleanup.policy": "compact"})
    await admin.alter_configs(resource, append={"cleanup.policy": "delete"})
    told = await eventually(
        lambda: admin.describe_configs(resource, synonyms=True, documentation=True),
        lambda told: told[resource]["cleanup.policy"].value == "compact,delete",
    )
    configs = told[resource]
    retention = configs["retention.ms"]
    assert (retention.value, retention.source, retention.kind) == ("5000", ConfigSource.TOPIC, ConfigType.LONG)
    assert retention.synonyms[0].value == "5000"
    assert retention.documentation
    assert configs["cleanup.policy"].value == "compact,delete"
    await admin.alter_configs(resource, delete=["retention.ms"], subtract={"cleanup.policy": "compact"})
    told = await eventually(
        lambda: admin.describe_configs(resource, names=["retention.ms", "cleanup.policy"]),
        lambda told: told[resource]["cleanup.policy"].value == "delete",
    )
    configs = told[resource]
    assert set(configs) == {"retention.ms", "cleanup.policy"}
    assert configs["retention.ms"].value == "604800000"
    assert configs["cleanup.policy"].value == "delete"
    with pytest.raises(BrokerRefused) as refused:
        await admin.alter_configs(resource, set={"retention.ms": "soon"})
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(UnknownTopic):
        await admin.describe_configs(ConfigResource.topic(unique("missing")))


async def test_settings_of_a_node_and_of_all_nodes(admin: Admin) -> None:
    (node_id,) = (await admin.describe_cluster()).nodes
    node, all_of_them = ConfigResource.broker(node_id), ConfigResource.all_brokers()
    await admin.alter_configs(all_of_them, set={"log.cleaner.delete.retention.ms": 86_000_000})
    try:
        told = await eventually(
            lambda: admin.describe_configs([node, all_of_them]),
            lambda told: told[node]["log.cleaner.delete.retention.ms"].value == "86000000",
        )
        assert told[node]["log.cleaner.delete.retention.ms"].source == ConfigSource.ALL_BROKERS
        assert told[all_of_them]["log.cleaner.delete.retention.ms"].value == "86000000"
        assert told[node]["node.id"].value == str(node_id)
        assert told[node]["node.id"].is_read_only
    finally:
        await admin.alter_configs(all_of_them, delete=["log.cleaner.delete.retention.ms"])


async def test_offsets_by_end_and_by_time_and_deleted_records(admin: Admin, address: str, topic: str) -> None:
    place, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for number in range(5):
        write(address, topic, b"x", b"y", timestamp_ms=NOW_MS + number * 1000)

    async def at(when: int) -> int:
        return (await admin.list_offsets({place: when}))[place].offset

    assert [await at(OffsetSpec.EARLIEST), await at(OffsetSpec.LATEST)] == [0, 10]
    assert await at(NOW_MS + 2500) == 6
    assert await at(NOW_MS + 60_000) == -1
    latest = (await admin.list_offsets([place], OffsetSpec.MAX_TIMESTAMP))[place]
    assert latest.offset in (8, 9)
    assert latest.timestamp_ms == NOW_MS + 4000
    assert set(await admin.list_offsets(topic)) == {TopicPartition(topic, index) for index in range(3)}
    assert await admin.delete_records({place: 4}) == {place: 4}
    assert await at(OffsetSpec.EARLIEST) == 4
    assert await admin.delete_records({place: OffsetSpec.LATEST, empty: OffsetSpec.LATEST}) == {place: 10, empty: 0}
    with pytest.raises(BrokerRefused, match="OFFSET_OUT_OF_RANGE"):
        await admin.delete_records({place: 11})


async def test_the_cluster_its_versions_and_its_disks(admin: Admin, address: str, topic: str) -> None:
    cluster = await admin.describe_cluster()
    (node,) = cluster.nodes.values()
    assert f"{node.host}:{node.port}" == address
    assert cluster.controller_id == node.node_id
    assert cluster.cluster_id
    versions = (await admin.describe_versions())[node.node_id]
    assert versions.apis[19].highest >= 7
    assert versions.finalized_features["transaction.version"] == 2
    write(address, topic, b"v" * 5000)
    (directory,) = (await admin.describe_log_dirs(partitions=[TopicPartition(topic, 0)]))[node.node_id].values()
    assert directory.error_code == 0
    assert list(directory.replicas) == [TopicPartition(topic, 0)]
    assert directory.replicas[TopicPartition(topic, 0)].size_bytes > 5000
    assert directory.usable_bytes
    assert TopicPartition(topic, 1) in next(iter((await admin.describe_log_dirs())[node.node_id].values())).replicas
