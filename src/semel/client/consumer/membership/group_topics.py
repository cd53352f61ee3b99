"""What a leader must know beyond its own subscription: the topics of all members, and when their partitions change."""

from __future__ import annotations

from semel.client.cluster import Cluster
from semel.client.consumer.membership.api import Owner
from semel.wire.errors import ErrorCode


class GroupTopics:
    """Watches the topics of the whole group while this member leads it."""

    def __init__(self, cluster: Cluster, owner: Owner) -> None:
        self._cluster = cluster
        self._owner = owner
        self._counts: dict[str, int] | None = None
        self._watched: frozenset[str] = frozenset()

    async def learn(self, topics: frozenset[str]) -> dict[str, int]:
        """The partition counts of those topics that exist; from now on `changed` compares with them."""
        self._watch(topics - self._owner.subscription())
        if not topics <= self._cluster.topics.keys():
            await self._cluster.refresh()
        self._counts = {topic: self._count(topic, 0) for topic in topics}
        return {topic: count for topic, count in self._counts.items() if count}

    def changed(self) -> str | None:
        """What is no longer as it was when the assignment was made: the reason to make another one."""
        for topic, before in sorted((self._counts or {}).items()):
            now = self._count(topic, before)
            if now != before:
                return f"topic {topic!r} has {now} partitions now, it had {before}"
        return None

    def forget(self) -> None:
        """Somebody else leads."""
        self._counts = None
        self._watch(frozenset())

    def _count(self, topic: str, before: int) -> int:
        known = self._cluster.topics.get(topic)
        if known is None or known.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return 0
        # Any other error passes, and says nothing about the partitions.
        return len(known.partitions) if known.error_code == ErrorCode.NONE else before

    def _watch(self, topics: frozenset[str]) -> None:
        gone = self._watched - topics - self._owner.subscription()
        self._watched = topics
        self._cluster.unwatch(gone)
        self._cluster.watch(topics)
