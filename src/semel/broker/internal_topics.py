"""The topics in which coordinators keep their state: made when somebody first needs one.

Replica counts are Kafka's, but never more than the cluster has nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.controller.controller import NewTopic
from semel.coordinator.topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.broker.broker import Broker


async def ensure(broker: Broker, name: str) -> None:
    """Returns when the topic can be used; Refused when it cannot be made."""
    if name in broker.topics.by_name:
        return
    try:
        committed = broker.controller.create_topic(new_topic(broker, name)).committed
    except Refused as refusal:
        if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created: {refusal.text}") from refusal
        # Somebody else is creating it at this moment: decisions are committed in order, so the next one comes after.
        committed = broker.metadata.when_committed()
    if committed is not None:
        await committed


def new_topic(broker: Broker, name: str) -> NewTopic:
    """What a topic is made like when nobody says: an internal one by settings of its own."""
    if name not in INTERNAL_TOPICS:
        return NewTopic(name)
    config, nodes = broker.config, len(broker.image.brokers)
    if name == OFFSETS_TOPIC:
        prefix, in_sync = "offsets.topic", 1
    else:
        prefix, in_sync = "transaction.state.log", config.int("transaction.state.log.min.isr")
    replicas = min(config.int(f"{prefix}.replication.factor"), nodes)
    settings = {
        "cleanup.policy": "compact",
        # Batches stay as the coordinator wrote them.
        "compression.type": "producer",
        "segment.bytes": str(config.int(f"{prefix}.segment.bytes")),
        "min.insync.replicas": str(min(in_sync, replicas)),
    }
    return NewTopic(name, config.int(f"{prefix}.num.partitions"), replicas, configs=settings)
