"""The channel to the controller of this process: an answer comes when what it rests on is committed."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_harness import Node, simulated

from semel.broker.controller_channel import ConfigChange, ControllerChannel, NewPartitions
from semel.controller.controller import NewTopic
from semel.controller.image import TOPIC_RESOURCE
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

SET = 0


def channel(node: Node) -> ControllerChannel:
    return node.broker.roles.controller


def codes(results: list[Any]) -> list[int]:
    return [result.code if isinstance(result, Refused) else 0 for result in results]


@simulated()
async def test_when_a_decision_returns_the_committed_image_shows_it(node: Node) -> None:
    node.hold_flushes(100)
    image = node.broker.image
    assert codes(await channel(node).create_topics([NewTopic("t"), NewTopic("t")])) == [
        0,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]
    assert len(image.topics["t"].partitions) == 1
    assert codes(await channel(node).create_partitions([NewPartitions("t", 3), NewPartitions("no", 3)])) == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(image.topics["t"].partitions) == 3
    change = ConfigChange(TOPIC_RESOURCE, "t", [(SET, "retention.ms", "5000")])
    assert codes(await channel(node).alter_configs([change])) == [0]
    assert image.config(TOPIC_RESOURCE, "t") == {"retention.ms": "5000"}
    topic_id = image.topics["t"].topic_id
    assert codes(await channel(node).delete_topics([topic_id, topic_id])) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert not image.topics


@simulated()
async def test_a_refusal_waits_for_the_decision_that_it_rests_on(node: Node) -> None:
    node.hold_flushes(100)
    first = asyncio.ensure_future(channel(node).create_topics([NewTopic("t")]))
    await asyncio.sleep(0)
    assert "t" not in node.broker.image.topics
    assert codes(await channel(node).create_topics([NewTopic("t")])) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert "t" in node.broker.image.topics, "who is told that it is there finds it"
    await first


@simulated()
async def test_what_is_only_validated_changes_nothing(node: Node) -> None:
    (made,) = await channel(node).create_topics([NewTopic("t")], validate_only=True)
    assert not isinstance(made, Refused)
    assert (made.topic_id, made.partitions) == (None, 1)
    assert not node.broker.image.topics
