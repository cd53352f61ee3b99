"""Entries for `__consumer_offsets`, ready to be appended."""

from __future__ import annotations

from semel.coordinator.shard import Entry
from semel.wire.schema import Message
from semel.wire.spec.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    key_bytes,
    value_bytes,
)


def entry(key: Message, value: Message | None) -> Entry:
    """A value of None takes the key away."""
    return Entry(key_bytes(key), None if value is None else value_bytes(value))


def group_entry(group_id: str, value: GroupMetadataValue | None) -> Entry:
    return entry(GroupMetadataKey(group=group_id), value)


def offset_entry(group_id: str, topic: str, partition: int, value: OffsetCommitValue | None) -> Entry:
    return entry(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value)
