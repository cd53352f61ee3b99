"""What a KIP-848 member says in its heartbeats: everything when it joins or an answer was lost, else what has changed.

And what helps when the coordinator refuses one.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from semel.client.errors import SemelError, UnsupportedByBroker, error_for, is_retriable
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, OwnedTopicPartitions

if TYPE_CHECKING:
    from semel.client.consumer.settings import ConsumerSettings

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
PATTERN_SINCE = 1

Places = frozenset[tuple[bytes, int]]
"""Partitions by topic id."""


class Told(NamedTuple):
    """What the coordinator knows of us."""

    topics: tuple[str, ...]
    pattern: str | None
    owned: Places


class Remedy(Enum):
    LATER = "ask again after a pause"
    ELSEWHERE = "look for the coordinator, and ask again after a pause"
    REJOIN = "what we had is lost; join again"
    NONE = "nothing helps"


_R = Remedy
_REMEDIES: dict[int, Remedy] = {
    ErrorCode.UNKNOWN_MEMBER_ID: _R.REJOIN,
    ErrorCode.FENCED_MEMBER_EPOCH: _R.REJOIN,
    ErrorCode.UNRELEASED_INSTANCE_ID: _R.LATER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _R.LATER,
    ErrorCode.NOT_COORDINATOR: _R.ELSEWHERE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _R.ELSEWHERE,
}


def remedy_for(code: int, epoch: int) -> Remedy:
    if code == ErrorCode.GROUP_ID_NOT_FOUND and epoch > JOINING:
        return _R.REJOIN  # the group was deleted under us
    return _REMEDIES.get(code, _R.LATER if is_retriable(code) else _R.NONE)


_HINTS = {
    ErrorCode.UNSUPPORTED_ASSIGNOR: "choose another group_remote_assignor, or none",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker resolves the pattern, in RE2's syntax",
    ErrorCode.GROUP_ID_NOT_FOUND: 'the group may have members of the other protocol: group_protocol="classic"',
}


def refusal(code: int, group_id: str, message: str | None) -> SemelError:
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return unsupported(group_id, message or "it refused")
    hint = next((f" ({text})" for known, text in _HINTS.items() if known == code), "")
    return error_for(code, f"a heartbeat to group {group_id!r}{hint}", message)


def unsupported(group_id: str, why: str) -> UnsupportedByBroker:
    return UnsupportedByBroker(
        f'the broker does not offer group {group_id!r} the protocol of KIP-848: {why}; set group_protocol="classic"'
    )


class Speech:
    """Remembers what was told, so that nothing is told twice; `unheard` makes it tell everything once more."""

    def __init__(self, settings: ConsumerSettings, group_id: str, member_id: str) -> None:
        self._settings = settings
        self._group_id = group_id
        self._member_id = member_id
        self._told: Told | None = None
        self._has_told_pattern = False

    def request(self, epoch: int, now: Told, *, confirms: bool) -> ConsumerGroupHeartbeatRequest:
        """`confirms` tells what is owned even if that is not news: it answers an assignment."""
        settings = self._settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=settings.group_instance_id,
        )
        told = None if epoch == JOINING else self._told
        if told is None:
            request.rack_id = settings.client_rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor
        if told is None or told.topics != now.topics:
            request.subscribed_topic_names = list(now.topics)
        if told is None or told.pattern != now.pattern:
            # An empty one takes an older one away; brokers that know none must not be told of one at all.
            request.subscribed_topic_regex = now.pattern or ("" if self._has_told_pattern else None)
        if told is None or confirms or told.owned != now.owned:
            request.topic_partitions = [] if epoch == JOINING else by_topic(now.owned)
        self._told = now
        self._has_told_pattern = self._has_told_pattern or now.pattern is not None
        return request

    def leaving(self) -> ConsumerGroupHeartbeatRequest:
        """A static member is expected back: its partitions wait for it until its session ends."""
        instance_id = self._settings.group_instance_id
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=LEAVING if instance_id is None else LEAVING_FOR_A_WHILE,
            instance_id=instance_id,
        )

    def is_news(self, owned: Places) -> bool:
        return self._told is not None and self._told.owned != owned

    def unheard(self) -> None:
        """An answer was lost, or an error: the next heartbeat tells everything."""
        self._told = None


def by_topic(places: Iterable[tuple[bytes, int]]) -> list[OwnedTopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        topics.setdefault(topic_id, []).append(index)
    return [OwnedTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]
