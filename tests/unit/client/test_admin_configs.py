"""Settings and the cluster itself through the admin."""

from __future__ import annotations

import pytest
from admin_fakes import FakeCluster, faked
from admin_world import on_broker

from client_world import ClientWorld, batch_of
from semel.client.admin.admin import Admin
from semel.client.admin.configs import config_text
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import ConfigResource, ConfigResourceType, ConfigSource, ConfigType, NewTopic
from semel.client.errors import BadSetting, BrokerRefused, UnknownTopic, UnsupportedByBroker
from semel.client.metadata import TopicPartition
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)

TOPIC = ConfigResource.topic("t")


@on_broker()
async def test_groups_and_loggers_have_settings_too(world: ClientWorld, admin: Admin) -> None:
    group, loggers = (
        ConfigResource(ConfigResourceType.GROUP, "g"),
        ConfigResource(ConfigResourceType.BROKER_LOGGER, "1"),
    )
    await admin.alter_configs(group, set={"consumer.session.timeout.ms": 50_000})
    described = await admin.describe_configs([group, loggers])
    session = described[group]["consumer.session.timeout.ms"]
    assert (session.value, session.source) == ("50000", ConfigSource.GROUP)
    assert described[loggers]["root"].source is ConfigSource.BROKER_LOGGER
    with pytest.raises(BrokerRefused, match="nobody"):
        await admin.alter_configs(loggers, set={"nobody": "DEBUG"})


@on_broker()
async def test_settings_of_a_topic_are_told_with_their_sources(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1, configs={"retention.ms": 1000}))
    configs = (await admin.describe_configs(TOPIC, synonyms=True, documentation=True))[TOPIC]
    retention = configs["retention.ms"]
    assert (retention.value, retention.source, retention.kind) == ("1000", ConfigSource.TOPIC, ConfigType.LONG)
    assert not retention.is_default
    assert retention.documentation
    assert retention.synonyms[0].value == "1000"
    assert configs["cleanup.policy"].is_default
    some = (await admin.describe_configs([TOPIC], names=["cleanup.policy"]))[TOPIC]
    assert list(some) == ["cleanup.policy"]
    assert some["cleanup.policy"].synonyms == ()


@on_broker()
async def test_settings_are_set_deleted_appended_and_subtracted(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))

    async def value(name: str) -> str | None:
        return (await admin.describe_configs(TOPIC, names=[name]))[TOPIC][name].value

    await admin.alter_configs(TOPIC, set={"retention.ms": 5000, "preallocate": True, "cleanup.policy": ["compact"]})
    assert [await value(name) for name in ("retention.ms", "preallocate", "cleanup.policy")] == [
        "5000",
        "true",
        "compact",
    ]
    await admin.alter_configs(TOPIC, append={"cleanup.policy": "delete"}, delete=["retention.ms"])
    assert await value("cleanup.policy") == "compact,delete"
    assert await value("retention.ms") == "604800000"
    await admin.alter_configs(TOPIC, append={"cleanup.policy": "delete"})
    assert await value("cleanup.policy") == "compact,delete", "appending again changes nothing"
    await admin.alter_configs(TOPIC, subtract={"cleanup.policy": "compact"})
    assert await value("cleanup.policy") == "delete"
    await admin.alter_configs(TOPIC, set={"retention.ms": 1}, validate_only=True)
    assert await value("retention.ms") == "604800000"


@on_broker()
async def test_changes_are_refused_resource_by_resource(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))
    other = ConfigResource.topic("missing")
    with pytest.raises(AdminErrors) as failed:
        await admin.alter_configs([TOPIC, other], set={"retention.ms": 7})
    assert isinstance(failed.value.errors[other], UnknownTopic)
    assert list(failed.value.results) == [TOPIC]
    with pytest.raises(BrokerRefused, match=r"retention\.ms") as refused:
        await admin.alter_configs(TOPIC, set={"retention.ms": "soon"})
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(BadSetting, match="nothing"):
        await admin.alter_configs(TOPIC)
    with pytest.raises(UnknownTopic):
        await admin.describe_configs(other)


@on_broker()
async def test_settings_of_brokers_are_told_and_changed(world: ClientWorld, admin: Admin) -> None:
    one, all_of_them = ConfigResource.broker(1), ConfigResource.all_brokers()
    await admin.alter_configs(all_of_them, set={"log.retention.ms": 9000})
    told = await admin.describe_configs([one, all_of_them], synonyms=True)
    assert told[one]["log.retention.ms"].source == ConfigSource.ALL_BROKERS
    assert told[one]["node.id"].is_read_only
    assert told[all_of_them]["log.retention.ms"].value == "9000"
    assert [str(resource) for resource in told] == ["broker '1'", "all brokers"]


def test_values_of_settings_are_written_as_brokers_read_them() -> None:
    assert [config_text(value) for value in (True, 5, 0.5, "x", ["a", "b"])] == ["true", "5", "0.5", "x", "a,b"]
    with pytest.raises(BadSetting, match="None"):
        config_text(None)


@faked(1)
async def test_what_a_newer_broker_says_is_unknown_and_no_error(cluster: FakeCluster) -> None:
    config = DescribedConfig(name="x", value=None, config_source=99, config_type=99, is_sensitive=True)
    cluster.answers[DescribeConfigsRequest] = lambda node_id, request: DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_type=2, resource_name="t", configs=[config])]
    )
    async with cluster.admin() as admin:
        told = (await admin.describe_configs(TOPIC))[TOPIC]["x"]
    assert (told.source, told.kind, told.value, told.is_sensitive) == (
        ConfigSource.UNKNOWN,
        ConfigType.UNKNOWN,
        None,
        True,
    )


# -- the cluster


@on_broker()
async def test_the_cluster_is_described(world: ClientWorld, admin: Admin) -> None:
    cluster = await admin.describe_cluster(include_fenced=True)
    assert cluster.cluster_id == world.node.broker.cluster_id
    assert cluster.controller_id == 1
    assert list(cluster.nodes) == [1]
    assert cluster.fenced == frozenset()


@faked(1, 2)
async def test_an_old_cluster_is_described_by_its_metadata(cluster: FakeCluster) -> None:
    cluster.hidden = {60}
    async with cluster.admin() as admin:
        described = await admin.describe_cluster()
        assert (described.cluster_id, described.controller_id, sorted(described.nodes)) == ("fake", 1, [1, 2])
        with pytest.raises(UnsupportedByBroker):
            await admin.describe_cluster(include_fenced=True)


@on_broker()
async def test_versions_and_features_of_nodes_are_told(world: ClientWorld, admin: Admin) -> None:
    versions = await admin.describe_versions()
    assert versions[1].apis[19] == (2, 7)
    assert versions[1].finalized_features["transaction.version"] == 2
    assert versions[1].supported_features["transaction.version"].highest == 2
    assert await admin.describe_versions([1]) == versions


@on_broker()
async def test_log_directories_are_told_with_the_sizes_of_replicas(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics([NewTopic("t", 2, 1), NewTopic("u", 1, 1)])
    client = await world.node.client()
    assert (await client.produce("t", batch_of(b"a" * 1000))).error_code == 0
    (directory,) = (await admin.describe_log_dirs())[1].values()
    assert directory.replicas[TopicPartition("t", 0)].size_bytes > 1000
    assert TopicPartition("u", 0) in directory.replicas
    assert directory.total_bytes is not None
    assert directory.usable_bytes is not None
    (directory,) = (await admin.describe_log_dirs([1], "t"))[1].values()
    assert set(directory.replicas) == {TopicPartition("t", 0), TopicPartition("t", 1)}


@on_broker()
async def test_what_our_broker_does_not_serve_is_told_as_unsupported(world: ClientWorld, admin: Admin) -> None:
    from semel.client.admin.security_values import QuotaEntity

    await admin.create_topics(NewTopic("t", 1, 1))
    for call in (
        admin.describe_client_quotas(),
        admin.alter_client_quotas({QuotaEntity(user="u"): {"producer_byte_rate": 1.0}}),
    ):
        with pytest.raises(UnsupportedByBroker):
            await call


@on_broker()
async def test_access_rules_are_refused_because_there_is_no_authoriser(world: ClientWorld, admin: Admin) -> None:
    from semel.client.admin.security_values import AclFilter

    for call in (admin.describe_acls(), admin.delete_acls(AclFilter())):
        with pytest.raises(BrokerRefused, match="no authoriser") as refused:
            await call
        assert refused.value.code == ErrorCode.SECURITY_DISABLED
