"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs through the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import Node, RawClient, batch_of, simulated

from semel.config import BROKER_SETTINGS, TOPIC_SETTINGS, ConfigSource, Kind
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from semel.wire.spec.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResult
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    client: RawClient, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **options: Any
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    response = await client.ask(DescribeConfigsRequest(resources=[resource], **options), version)
    (result,) = response.results
    assert isinstance(result, DescribeConfigsResult)
    return result


async def change(
    client: RawClient, kind: int, name: str, *operations: tuple[int, str, str | None], **options: Any
) -> int:
    resource = IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[ConfigAlteration(config_operation=code, name=key, value=value) for code, key, value in operations],
    )
    version = options.pop("version", 1)
    response = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], **options), version)
    (result,) = response.responses
    assert bool(result.error_message) == bool(result.error_code)
    return int(result.error_code)


async def put(client: RawClient, kind: int, name: str, settings: dict[str, str | None], **options: Any) -> int:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in settings.items()],
    )
    version = options.pop("version", 2)
    response = await client.ask(AlterConfigsRequest(resources=[resource], **options), version)
    (result,) = response.responses
    assert bool(result.error_message) == bool(result.error_code)
    return int(result.error_code)


async def value_of(client: RawClient, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = (await describe(client, kind, name, [key])).configs
    return config.value, config.config_source


# -- DescribeConfigs


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("keys", [None, []])
@simulated()
async def test_all_settings_of_a_topic_are_described_when_none_is_named(
    node: Node, version: int, keys: list[str] | None
) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"segment.bytes": "1000"})
    result = await describe(client, TOPIC, "t", keys, version)
    assert {config.name for config in result.configs} == set(TOPIC_SETTINGS)
    (segment,) = [config for config in result.configs if config.name == "segment.bytes"]
    assert (segment.value, segment.config_source, segment.read_only) == ("1000", ConfigSource.TOPIC_CONFIG, False)


@simulated(settings={"log.segment.bytes": "2000"})
async def test_synonyms_and_documentation_come_when_they_are_asked_for(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"segment.bytes": "1000"})
    plain = await describe(client, TOPIC, "t", ["segment.bytes"])
    assert (list(plain.configs[0].synonyms), plain.configs[0].documentation) == ([], None)
    assert plain.configs[0].config_type == Kind.INT
    full = await describe(client, TOPIC, "t", ["segment.bytes"], include_synonyms=True, include_documentation=True)
    assert full.configs[0].documentation == TOPIC_SETTINGS["segment.bytes"].sentence
    assert [(synonym.name, synonym.value, synonym.source) for synonym in full.configs[0].synonyms] == [
        ("segment.bytes", "1000", ConfigSource.TOPIC_CONFIG),
        ("log.segment.bytes", "2000", ConfigSource.STATIC_BROKER),
        ("log.segment.bytes", str(BROKER_SETTINGS["log.segment.bytes"].default), ConfigSource.DEFAULT),
    ]


@simulated()
async def test_unknown_names_among_the_settings_are_not_mentioned(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    result = await describe(client, TOPIC, "t", ["segment.bytes", "no.such.thing"])
    assert [config.name for config in result.configs] == ["segment.bytes"]


@simulated()
async def test_a_node_is_described_by_its_number(node: Node) -> None:
    client = await node.client()
    result = await describe(client, BROKER, "1")
    assert {config.name for config in result.configs} == set(BROKER_SETTINGS)
    (node_id,) = [config for config in result.configs if config.name == "node.id"]
    assert (node_id.value, node_id.read_only, node_id.config_source) == ("1", True, ConfigSource.STATIC_BROKER)


@simulated()
async def test_without_a_number_only_what_was_changed_for_the_whole_cluster_is_described(node: Node) -> None:
    client = await node.client()
    assert not (await describe(client, BROKER, "")).configs
    assert await change(client, BROKER, "", (SET, "log.retention.ms", "7000")) == 0
    assert await change(client, BROKER, "1", (SET, "log.segment.bytes", "9000")) == 0
    (config,) = (await describe(client, BROKER, "")).configs
    assert (config.name, config.value, config.config_source) == (
        "log.retention.ms",
        "7000",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ErrorCode.INVALID_REQUEST),
        (99, "", ErrorCode.INVALID_REQUEST),
    ],
)
@simulated()
async def test_what_cannot_be_described_has_its_code(node: Node, kind: int, name: str, code: ErrorCode) -> None:
    result = await describe(await node.client(), kind, name)
    assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
    assert result.error_message
    assert not result.configs


# -- IncrementalAlterConfigs


@pytest.mark.parametrize("version", [0, 1])
@simulated()
async def test_settings_of_a_topic_are_set_edited_and_taken_back(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert await change(client, TOPIC, "t", (SET, "segment.bytes", "1000"), version=version) == 0
    partition = node.broker.topics.partition("t", 0)
    assert partition.config.segment_bytes == 1000
    assert await change(client, TOPIC, "t", (APPEND, "cleanup.policy", "compact")) == 0
    assert partition.config.cleanup_policy == {"compact", "delete"}
    assert await change(client, TOPIC, "t", (SUBTRACT, "cleanup.policy", "delete")) == 0
    assert partition.config.cleanup_policy == {"compact"}
    assert await change(client, TOPIC, "t", (DELETE, "segment.bytes", None), (DELETE, "cleanup.policy", None)) == 0
    assert partition.config.segment_bytes == BROKER_SETTINGS["log.segment.bytes"].default
    assert node.broker.image.config(TOPIC, "t") == {}


@simulated()
async def test_a_change_is_answered_when_it_is_durable(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    node.hold_flushes()
    answer = asyncio.ensure_future(change(client, TOPIC, "t", (SET, "segment.bytes", "1000")))
    await asyncio.sleep(30)
    assert not answer.done()
    assert node.broker.topics.by_name["t"].config.segment_bytes != 1000
    assert await answer == 0
    await node.power_cut_and_started()
    assert node.broker.topics.by_name["t"].config.segment_bytes == 1000


@simulated()
async def test_a_change_of_the_node_reaches_the_topics_that_do_not_say_otherwise(node: Node) -> None:
    client = await node.client()
    await client.create_topic("own", configs={"segment.bytes": "500"})
    await client.create_topic("inherits")
    assert await change(client, BROKER, "", (SET, "log.segment.bytes", "3000")) == 0
    assert await value_of(client, TOPIC, "inherits", "segment.bytes") == ("3000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert await change(client, BROKER, "1", (SET, "log.segment.bytes", "4000")) == 0
    assert node.broker.topics.partition("inherits", 0).config.segment_bytes == 4000
    assert node.broker.topics.partition("own", 0).config.segment_bytes == 500
    await node.restart()
    assert node.broker.topics.partition("inherits", 0).config.segment_bytes == 4000
    assert node.broker.config.int("log.segment.bytes") == 4000


@pytest.mark.parametrize(
    ("kind", "name", "operations", "code"),
    [
        (TOPIC, "nobody", [(SET, "segment.bytes", "1000")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", [(SET, "log.retention.ms", "1000")], ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", [(SET, "root", "DEBUG")], ErrorCode.INVALID_REQUEST),
        (METRICS, "m", [(SET, "interval.ms", "1000")], ErrorCode.INVALID_REQUEST),
        (GROUP, "", [(SET, "consumer.session.timeout.ms", "50000")], ErrorCode.INVALID_REQUEST),
        (GROUP, "g", [(SET, "consumer.session.timeout.ms", "5")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [(SET, "consumer.session.timeout.ms", "60001")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [(SET, "consumer.heartbeat.interval.ms", "15001")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [(SET, "consumer.heartbeat.interval.ms", "often")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [(SET, "share.session.timeout.ms", "50000")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [(SET, "remote.storage.enable", "true")], ErrorCode.INVALID_CONFIG),
        (BROKER, "1", [(SET, "num.io.threads", "many")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [(SET, "segment.bytes", "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [(SET, "no.such.thing", "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "nobody", [(DELETE, "no.such.thing", None)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "t", [(APPEND, "segment.bytes", "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [(SET, "segment.bytes", None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [(4, "segment.bytes", "1")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [(SET, "segment.bytes", "1000"), (DELETE, "segment.bytes", None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [(SET, "segment.ms", "1000"), (SET, "segment.bytes", "x")], ErrorCode.INVALID_CONFIG),
        (BROKER, "1", [(SET, "node.id", "7")], ErrorCode.INVALID_CONFIG),
    ],
)
@simulated()
async def test_what_cannot_be_changed_has_its_code_and_changes_nothing(
    node: Node, kind: int, name: str, operations: list[tuple[int, str, str | None]], code: ErrorCode
) -> None:
    client = await node.client()
    await client.create_topic("t")
    end_offset = node.broker.metadata.next_offset
    assert await change(client, kind, name, *operations) == code
    assert node.broker.metadata.next_offset == end_offset


@simulated()
async def test_to_delete_what_nobody_knows_changes_nothing(node: Node) -> None:
    """MirrorMaker copies the settings of a topic that way, those of tiered storage and of other brokers among them."""
    client = await node.client()
    await client.create_topic("t", configs={"retention.ms": "5000"})
    end_offset = node.broker.metadata.next_offset
    for kind, name in ((TOPIC, "t"), (BROKER, "1"), (BROKER, ""), (GROUP, "g")):
        assert await change(client, kind, name, (DELETE, "no.such.thing", None)) == 0
    assert await change(client, BROKER, "1", (DELETE, "node.id", None)) == 0
    assert node.broker.metadata.next_offset == end_offset
    assert await change(client, TOPIC, "t", (DELETE, "nothing", None), (SET, "retention.ms", "6000")) == 0
    assert node.broker.image.config(TOPIC, "t") == {"retention.ms": "6000"}


@simulated()
async def test_settings_of_kafka_that_semel_has_no_use_for_are_taken_and_said_to_be_without_effect(node: Node) -> None:
    client = await node.client()
    tiered = {"remote.storage.enable": "false", "local.retention.ms": "-2", "remote.log.copy.disable": "true"}
    assert (await client.create_topic("t", configs=tiered)).error_code == 0
    assert await value_of(client, TOPIC, "t", "local.retention.ms") == ("-2", ConfigSource.TOPIC_CONFIG)
    refused = await client.create_topic("u", configs={"remote.storage.enable": "true"})
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "false: semel keeps all data on its own disk" in (refused.error_message or "")
    relogin = "sasl.kerberos.min.time.before.relogin"
    assert await change(client, BROKER, "1", (SET, relogin, "58000"), (SET, "num.io.threads", "16")) == 0
    assert await value_of(client, BROKER, "1", relogin) == ("58000", ConfigSource.DYNAMIC_BROKER)
    (described,) = (await describe(client, BROKER, "1", ["num.io.threads"], include_documentation=True)).configs
    assert (described.documentation or "").startswith("Accepted and without effect")


@simulated()
async def test_a_resource_named_twice_is_refused_both_times(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    one = IncrementalAlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[ConfigAlteration(name="segment.bytes", config_operation=SET, value="1000")],
    )
    response = await client.ask(IncrementalAlterConfigsRequest(resources=[one, one]))
    assert [result.error_code for result in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert node.broker.image.config(TOPIC, "t") == {}


@simulated()
async def test_a_validated_change_is_not_made(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    end_offset = node.broker.metadata.next_offset
    assert await change(client, TOPIC, "t", (SET, "segment.bytes", "1000"), validate_only=True) == 0
    assert await change(client, TOPIC, "t", (SET, "segment.bytes", "x"), validate_only=True) == ErrorCode.INVALID_CONFIG
    assert await put(client, TOPIC, "t", {"segment.bytes": "1000"}, validate_only=True) == 0
    assert node.broker.metadata.next_offset == end_offset


@simulated()
async def test_taking_a_change_back_must_not_uncover_a_value_that_does_not_fit(node: Node) -> None:
    """The node could neither go on nor start again with settings that contradict each other."""
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    client = await node.client()
    assert await change(client, BROKER, "", (SET, most, "3")) == 0
    assert await change(client, BROKER, "1", (SET, most, "10"), (SET, least, "5")) == 0
    assert await change(client, BROKER, "1", (DELETE, most, None)) == ErrorCode.INVALID_CONFIG
    assert await change(client, BROKER, "1", (DELETE, most, None), (DELETE, least, None)) == 0
    await node.restart()
    assert node.broker.config.int(most) == 3
    assert not node.broken


@simulated()
async def test_a_topic_flushed_by_the_system_becomes_one_that_flushes_and_wakes_its_producers(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"flush.messages": "1000000"})
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    assert await change(client, TOPIC, "t", (SET, "flush.messages", "1")) == 0
    await asyncio.sleep(1)
    log = node.broker.topics.partition("t", 0).log
    assert log.flushed_offset == 1
    assert (await client.produce("t", batch_of(b"b"))).base_offset == 1
    assert log.flushed_offset == 2


# -- AlterConfigs


@pytest.mark.parametrize("version", range(3))
@simulated()
async def test_all_settings_are_replaced(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"segment.bytes": "1000", "retention.ms": "5000"})
    assert await put(client, TOPIC, "t", {"retention.ms": "6000"}, version=version) == 0
    assert node.broker.image.config(TOPIC, "t") == {"retention.ms": "6000"}
    assert await put(client, TOPIC, "t", {}) == 0
    assert node.broker.image.config(TOPIC, "t") == {}


@pytest.mark.parametrize(
    ("kind", "name", "settings", "code"),
    [
        (TOPIC, "nobody", {"segment.bytes": "1000"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", {}, ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", {}, ErrorCode.INVALID_REQUEST),
        (METRICS, "m", {}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", {"segment.bytes": None}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", {"segment.bytes": "x"}, ErrorCode.INVALID_CONFIG),
        (BROKER, "1", {"node.id": "7"}, ErrorCode.INVALID_CONFIG),
    ],
)
@simulated()
async def test_what_cannot_be_replaced_has_its_code_and_changes_nothing(
    node: Node, kind: int, name: str, settings: dict[str, str | None], code: ErrorCode
) -> None:
    client = await node.client()
    await client.create_topic("t", configs={"retention.ms": "5000"})
    assert await put(client, kind, name, settings) == code
    assert node.broker.image.config(TOPIC, "t") == {"retention.ms": "5000"}
    assert node.broker.image.config(BROKER, "1") == {}
