"""Subscriptions and assignments of the classic protocol as values, to bytes and back.

Written in the newest version; read in any: one that is newer than ours begins with what we know, and the rest is
skipped. Bytes that cannot be read raise WireError.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct as Packed
from typing import NamedTuple, TypeVar

from semel.client.metadata import TopicPartition
from semel.wire.codec import decoder, encode
from semel.wire.errors import WireError
from semel.wire.schema import Message
from semel.wire.spec.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
)

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
_VERSION = Packed(">h")

M = TypeVar("M", bound=Message)


class Subscription(NamedTuple):
    """What one member wants, and what it has: `owned` is what it keeps through the rebalance, as of `generation`."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack: str | None = None


class Assignment(NamedTuple):
    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def subscription_bytes(subscription: Subscription) -> bytes:
    return _versioned(
        ConsumerProtocolSubscription(
            topics=list(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=by_topic(subscription.owned),
            generation_id=subscription.generation,
            rack_id=subscription.rack,
        )
    )


def read_subscription(data: bytes | memoryview, instance_id: str | None = None) -> Subscription:
    """The instance id travels beside the bytes, in the answer to JoinGroup."""
    message = _read(ConsumerProtocolSubscription, bytes(data))
    return Subscription(
        tuple(message.topics),
        _optional(message.user_data),
        in_row(message.owned_partitions),
        message.generation_id,
        instance_id,
        message.rack_id,
    )


def assignment_bytes(assignment: Assignment) -> bytes:
    return _versioned(
        ConsumerProtocolAssignment(assigned_partitions=by_topic(assignment.partitions), user_data=assignment.user_data)
    )


def read_assignment(data: bytes | memoryview) -> Assignment:
    """No bytes at all are no partitions: so a coordinator answers a member that the leader has left out."""
    if not len(data):
        return Assignment()
    message = _read(ConsumerProtocolAssignment, bytes(data))
    return Assignment(in_row(message.assigned_partitions), _optional(message.user_data))


def by_topic(partitions: Iterable[TopicPartition]) -> list[ConsumerTopicPartitions]:
    """Grouped, in the order in which topics are first seen."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [ConsumerTopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()]


def in_row(topics: Iterable[ConsumerTopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(entry.topic, index) for entry in topics for index in entry.partitions)


def _optional(data: bytes | memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)


def _versioned(message: Message) -> bytes:
    return _VERSION.pack(message.max_version) + encode(message, message.max_version)


def _read(cls: type[M], data: bytes) -> M:
    if len(data) < _VERSION.size:
        raise WireError(f"{cls.__name__} ends before its version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise WireError(f"{cls.__name__} cannot have version {version}")
    message, _ = decoder(cls, min(version, cls.max_version))(data, _VERSION.size)
    return message
