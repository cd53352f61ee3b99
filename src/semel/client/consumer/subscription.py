"""What the program has asked to read: topics by name or by pattern, or partitions by hand. One of them at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from semel.client.errors import BadSetting, IllegalState
from semel.client.metadata import Topic


class Mode(Enum):
    NOTHING = "nothing is subscribed to or assigned"
    TOPICS = "topics are subscribed to"
    PATTERN = "a pattern is subscribed to"
    BROKER_PATTERN = "a pattern is subscribed to, which the broker resolves"
    BY_HAND = "partitions are assigned by hand"


SUBSCRIBED = (Mode.TOPICS, Mode.PATTERN, Mode.BROKER_PATTERN)


class Subscription:
    """`names` are the topics as far as they are known here; patterns match whole names, as the broker's do."""

    def __init__(self, *, broker_resolves: bool, excludes_internal: bool) -> None:
        self.mode = Mode.NOTHING
        self.names: frozenset[str] = frozenset()
        self.broker_pattern: str | None = None
        self.listener: Any = None
        self._broker_resolves = broker_resolves
        self._excludes_internal = excludes_internal
        self._pattern: re.Pattern[str] | None = None

    @property
    def is_subscribed(self) -> bool:
        return self.mode in SUBSCRIBED

    @property
    def needs_all_topics(self) -> bool:
        return self.mode is Mode.PATTERN

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None, listener: Any) -> None:
        names = frozenset([topics] if isinstance(topics, str) else topics)
        if self.mode is Mode.BY_HAND:
            raise IllegalState("partitions are assigned by hand: call unsubscribe before subscribe")
        if names and pattern is not None:
            raise IllegalState("subscribe takes topics or a pattern, not both")
        if not names and pattern is None:
            raise IllegalState("subscribe needs at least one topic, or a pattern; to read nothing call unsubscribe")
        for name in names:
            if not isinstance(name, str) or not name:
                raise IllegalState(f"{name!r} is no name of a topic")
        if pattern is None:
            self._become(Mode.TOPICS, names, listener)
        elif isinstance(pattern, str) and self._broker_resolves:
            self._become(Mode.BROKER_PATTERN, frozenset(), listener)
            self.broker_pattern = pattern
        else:
            compiled = _compiled(pattern)
            self._become(Mode.PATTERN, frozenset(), listener)
            self._pattern = compiled

    def assign(self) -> None:
        if self.is_subscribed:
            raise IllegalState(f"{self.mode.value}: call unsubscribe before assign")
        self._become(Mode.BY_HAND, frozenset(), None)

    def clear(self) -> None:
        self._become(Mode.NOTHING, frozenset(), None)

    def _become(self, mode: Mode, names: frozenset[str], listener: Any) -> None:
        self.mode = mode
        self.names = names
        self.listener = listener
        self.broker_pattern = None
        self._pattern = None

    def resolve(self, topics: Mapping[str, Topic]) -> bool:
        """Matches the pattern against the topics of the cluster. Whether `names` has changed."""
        if self._pattern is None:
            return False
        before = self.names
        self.names = frozenset(
            name
            for name, topic in topics.items()
            if topic.is_usable
            and not (topic.is_internal and self._excludes_internal)
            and self._pattern.fullmatch(name) is not None
        )
        return self.names != before


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise BadSetting(f"pattern {pattern!r}: {error}") from None
