"""Settings of groups and levels of loggers, described and changed while the node runs; and what has settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from broker_harness import Node, RawClient, simulated
from test_config_admin import BROKER, DELETE, GROUP, LOGGER, METRICS, SET, TOPIC, change, describe, put, value_of

from semel.broker.authoriser import Operation, ResourceType
from semel.config import GROUP_SETTINGS, ConfigSource
from semel.coordinator.topic_names import OFFSETS_TOPIC
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_describe import ConsumerGroupDescribeRequest
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel.wire.spec.list_config_resources import ListConfigResourcesRequest

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
APPEND = 2


# -- groups


@simulated(settings={"group.consumer.session.timeout.ms": "46000"})
async def test_a_group_has_the_node_s_settings_until_it_has_its_own(node: Node) -> None:
    client = await node.client()
    described = await describe(client, GROUP, "g")
    assert {config.name for config in described.configs} == set(GROUP_SETTINGS), "it need not be there"
    assert await value_of(client, GROUP, "g", SESSION) == ("46000", ConfigSource.STATIC_BROKER)
    assert await change(client, GROUP, "g", (SET, SESSION, "50000")) == 0
    full = await describe(client, GROUP, "g", [SESSION], include_synonyms=True, include_documentation=True)
    (config,) = full.configs
    assert (config.value, config.config_source, config.read_only) == ("50000", ConfigSource.GROUP_CONFIG, False)
    assert config.documentation == GROUP_SETTINGS[SESSION].sentence
    assert [(one.name, one.value, one.source) for one in config.synonyms] == [
        (SESSION, "50000", ConfigSource.GROUP_CONFIG),
        (f"group.{SESSION}", "46000", ConfigSource.STATIC_BROKER),
        (f"group.{SESSION}", "45000", ConfigSource.DEFAULT),
    ]
    assert await value_of(client, GROUP, "another", SESSION) == ("46000", ConfigSource.STATIC_BROKER)
    await node.restart()
    client = await node.client()
    assert await value_of(client, GROUP, "g", SESSION) == ("50000", ConfigSource.GROUP_CONFIG)
    assert await change(client, GROUP, "g", (DELETE, SESSION, None)) == 0
    assert await value_of(client, GROUP, "g", SESSION) == ("46000", ConfigSource.STATIC_BROKER)
    assert await put(client, GROUP, "g", {HEARTBEAT: "6000"}) == 0
    assert node.broker.image.group_settings("g") == {HEARTBEAT: "6000"}


async def beat(client: RawClient, epoch: int, group_id: str = "g") -> Any:
    is_joining = epoch == 0
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000 if is_joining else -1,
        subscribed_topic_names=["t"] if is_joining else None,
        topic_partitions=[] if is_joining else None,
    )
    answer = await client.ask(request)
    assert answer.error_code == 0, answer.error_message
    return answer


async def members(client: RawClient, group_id: str) -> int:
    (group,) = (await client.ask(ConsumerGroupDescribeRequest(group_ids=[group_id]))).groups
    return len(group.members)


@simulated(settings={"group.consumer.min.session.timeout.ms": "10000"})
async def test_members_of_a_group_live_by_its_own_settings_from_their_next_heartbeat_on(node: Node) -> None:
    client = await node.client()
    await node.broker.roles.internal_topics.ensure(OFFSETS_TOPIC)
    await client.create_topic("t")
    for group_id in ("g", "other"):
        assert (await beat(client, 0, group_id)).heartbeat_interval_ms == 5000
    assert await change(client, GROUP, "g", (SET, SESSION, "12000"), (SET, HEARTBEAT, "7000")) == 0
    assert (await beat(client, 1)).heartbeat_interval_ms == 7000
    assert (await beat(client, 1, "other")).heartbeat_interval_ms == 5000
    await asyncio.sleep(11)
    assert await members(client, "g") == 1
    await asyncio.sleep(2)
    assert [await members(client, group_id) for group_id in ("g", "other")] == [0, 1]


@simulated(settings={"group.consumer.max.heartbeat.interval.ms": "50000"})
async def test_a_session_is_longer_than_the_pause_between_heartbeats(node: Node) -> None:
    client = await node.client()
    assert await change(client, GROUP, "g", (SET, HEARTBEAT, "45000")) == ErrorCode.INVALID_CONFIG
    assert await change(client, GROUP, "g", (SET, HEARTBEAT, "45000"), (SET, SESSION, "45001")) == 0
    assert await change(client, GROUP, "g", (DELETE, SESSION, None)) == ErrorCode.INVALID_CONFIG


@simulated()
async def test_bounds_of_the_node_that_have_moved_count_more_than_what_a_group_was_given(node: Node) -> None:
    client = await node.client()
    await node.broker.roles.internal_topics.ensure(OFFSETS_TOPIC)
    await client.create_topic("t")
    assert await change(client, GROUP, "g", (SET, HEARTBEAT, "14000")) == 0
    node.settings["group.consumer.max.heartbeat.interval.ms"] = "9000"
    await node.restart()
    assert (await beat(await node.client(), 0)).heartbeat_interval_ms == 9000


# -- loggers


@pytest.fixture
def some_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("semel.made.for.a.test")
    root_level = logging.root.level
    yield logger
    logger.setLevel(logging.NOTSET)
    logging.root.setLevel(root_level)


async def level_of(client: RawClient, name: str) -> str | None:
    (config,) = (await describe(client, LOGGER, "1", [name])).configs
    assert (config.config_source, config.read_only) == (ConfigSource.DYNAMIC_BROKER_LOGGER, False)
    return config.value


def test_levels_are_changed_while_the_node_runs(some_logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel.broker")

    @simulated()
    async def scenario(node: Node) -> None:
        client = await node.client()
        names = [config.name for config in (await describe(client, LOGGER, "1")).configs]
        assert names[:2] == ["root", "semel"]
        assert {"semel.broker", some_logger.name} < set(names)
        assert all(name == "root" or name.split(".")[0] == "semel" for name in names)
        assert await change(client, LOGGER, "1", (SET, "root", "ERROR"), (SET, some_logger.name, "DEBUG")) == 0
        assert some_logger.isEnabledFor(logging.DEBUG)
        assert [await level_of(client, name) for name in ("root", some_logger.name)] == ["ERROR", "DEBUG"]
        assert await change(client, LOGGER, "1", (SET, some_logger.name, "FATAL"), validate_only=True) == 0
        assert await level_of(client, some_logger.name) == "DEBUG"
        assert await change(client, LOGGER, "1", (DELETE, some_logger.name, None)) == 0
        assert some_logger.level == logging.NOTSET
        for name in ("TRACE", "INFO", "WARN", "FATAL"):
            assert await change(client, LOGGER, "1", (SET, some_logger.name, name)) == 0
            assert await level_of(client, some_logger.name) == name

    scenario()
    assert f"the level of the logger {some_logger.name} is now DEBUG" in caplog.text


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([(SET, "semel.broker", "LOUD")], ErrorCode.INVALID_CONFIG),
        ([(SET, "semel.broker", "debug")], ErrorCode.INVALID_CONFIG),
        ([(SET, "nobody", "DEBUG")], ErrorCode.INVALID_CONFIG),
        ([(SET, "asyncio", "DEBUG")], ErrorCode.INVALID_CONFIG),
        ([(SET, "semel.broker", None)], ErrorCode.INVALID_REQUEST),
        ([(APPEND, "semel.broker", "DEBUG")], ErrorCode.INVALID_REQUEST),
        ([(DELETE, "root", None)], ErrorCode.INVALID_REQUEST),
        ([(SET, "semel.made.for.a.test", "DEBUG"), (SET, "nobody", "DEBUG")], ErrorCode.INVALID_CONFIG),
        ([(SET, "semel.made.for.a.test", "DEBUG")] * 2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_levels_that_cannot_be_have_their_code_and_change_nothing(
    operations: list[tuple[int, str, str | None]], code: ErrorCode, some_logger: logging.Logger
) -> None:
    @simulated()
    async def scenario(node: Node) -> None:
        assert await change(await node.client(), LOGGER, "1", *operations) == code
        assert some_logger.level == logging.NOTSET

    scenario()


# -- what there is


@simulated()
async def test_all_that_has_settings_is_listed(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert await change(client, GROUP, "g", (SET, SESSION, "50000")) == 0

    async def listed(*types: int, version: int = 1) -> set[tuple[int, str]]:
        answer = await client.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
        assert answer.error_code == 0
        return {(one.resource_type, one.resource_name) for one in answer.config_resources}

    assert await listed() == {(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "g")}
    assert await listed(GROUP) == {(GROUP, "g")}
    assert await listed(METRICS) == await listed(version=0) == set()
    unknown = await client.ask(ListConfigResourcesRequest(resource_types=[99]))
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION


class AllowsNothing:
    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        return False


@simulated(authoriser=AllowsNothing)
async def test_who_may_not_is_told_so(node: Node) -> None:
    client = await node.client()
    for kind, name, code in (
        (GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (LOGGER, "1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ):
        assert (await describe(client, kind, name)).error_code == code
        assert await change(client, kind, name, (SET, SESSION, "50000")) == code
    answer = await client.ask(ListConfigResourcesRequest())
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
