"""Which topics of the cluster match the patterns that groups are subscribed to.

Each name is matched once a pattern: only new topics cost anything. In a large cluster `prepare` does that in pieces
between which the loop goes on. Internal topics match no pattern.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable

from semel.coordinator.group.cluster import ClusterTopics
from semel.coordinator.group.topic_patterns import BadPattern, TopicPattern
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

_NAMES_AT_ONCE = 500
_MOST_PATTERNS = 256


async def _patiently(walk: Generator[None, None, bool]) -> bool:
    while True:
        try:
            next(walk)
        except StopIteration as end:
            return bool(end.value)
        await asyncio.sleep(0)


class PatternMatches:
    def __init__(self, cluster: ClusterTopics) -> None:
        self._cluster = cluster
        self._known: dict[str, tuple[TopicPattern, dict[str, bool]]] = {}

    def compiled(self, text: str) -> tuple[TopicPattern, dict[str, bool]]:
        known = self._known.get(text)
        if known is None:
            try:
                known = TopicPattern(text), {}
            except BadPattern as error:
                raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{text!r}: {error}") from error
            if len(self._known) >= _MOST_PATTERNS:
                # The oldest one: it is compiled again should it still be in use.
                del self._known[next(iter(self._known))]
            self._known[text] = known
        return known

    async def prepare(self, texts: Iterable[str]) -> None:
        for text in texts:
            pattern, matches = self.compiled(text)
            unknown = [name for name in self._cluster.image.topics if name not in matches]
            for start in range(0, len(unknown), _NAMES_AT_ONCE):
                for name in unknown[start : start + _NAMES_AT_ONCE]:
                    matches[name] = await _patiently(pattern.walk(name))
                if start + _NAMES_AT_ONCE < len(unknown):
                    await asyncio.sleep(0)

    def topics(self, text: str) -> frozenset[str]:
        pattern, matches = self.compiled(text)
        topics = self._cluster.image.topics
        for gone in matches.keys() - topics.keys():
            del matches[gone]
        for name in topics:
            if name not in matches:
                matches[name] = pattern.matches(name)
        return frozenset(name for name, is_match in matches.items() if is_match and name not in INTERNAL_TOPICS)
