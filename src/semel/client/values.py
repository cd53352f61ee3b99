"""The values that programs exchange with producer and consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

if TYPE_CHECKING:
    # Python 3.13 has defaults in typing; until then only those who check types need them.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    K_co = TypeVar("K_co", default=bytes, covariant=True)
    V_co = TypeVar("V_co", default=bytes, covariant=True)
else:
    from typing import TypeVar

    K, V, K_co, V_co = map(TypeVar, ("K", "V", "K_co", "V_co"))

Content: TypeAlias = bytes | bytearray | memoryview | str
"""What is sent as it is, a text as UTF-8."""

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


class Message(NamedTuple, Generic[K_co, V_co]):
    """A record that was read. Key and value are bytes unless the consumer has deserializers; None stays None."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: K_co | None
    value: V_co | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


AnyMessage: TypeAlias = Message[Any, Any]


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
