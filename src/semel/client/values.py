"""The values that programs exchange with producer and consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Pairs, because a name may come more than once; a dict does where none does."""

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class RecordMetadata(NamedTuple):
    """Where a record was written. The offset is -1 if nobody was asked (acks 0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int = CREATE_TIME


class Message(NamedTuple):
    """A record that was read. Key and value are bytes unless the consumer has deserializers."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()


class OffsetAndMetadata(NamedTuple):
    """A position in a partition: the offset of the next record to read, with a note of the program's own."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class GroupIdentity(NamedTuple):
    """Which member of which generation of a group speaks: what a transaction needs to commit offsets safely."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
    auto_commits: bool = False
    is_outside: bool = False
    """A subscriber that is not a member, not yet or not any more: nothing may be committed in its name."""
