"""Membership without a group: the consumer reads every partition of the topics it has subscribed to, by itself."""

from __future__ import annotations

from semel.client.cluster import Cluster
from semel.client.consumer.membership.api import Owner, Partitions
from semel.client.errors import SemelError
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity


class Alone:
    """A Membership that asks nobody: what the cluster has is what is assigned."""

    def __init__(self, cluster: Cluster, owner: Owner) -> None:
        self.identity = GroupIdentity("")
        self.failure: SemelError | None = None
        self._cluster = cluster
        self._owner = owner
        self._is_member = False
        self._wanted: Partitions = frozenset()
        cluster.changed.append(self._look)

    def is_settled(self) -> bool:
        return not self._is_member or self._wanted == self._owner.owned()

    async def reconcile(self, *, wait: bool = True) -> None:
        while not self.is_settled():
            gone = self._owner.owned() - self._wanted
            if gone:
                await self._owner.revoke(gone)
            new = self._wanted - self._owner.owned()
            if new:
                await self._owner.assign(new)

    def polled(self) -> None:
        pass

    def returned(self) -> None:
        pass

    def subscription_changed(self) -> None:
        self._is_member = True
        self._look()

    def commit_refused(self, code: int) -> None:
        pass

    async def leave(self, *, reason: str = "") -> None:
        self._is_member = False
        owned = self._owner.owned()
        if owned:
            await self._owner.revoke(owned)

    async def close(self) -> None:
        if self._look in self._cluster.changed:
            self._cluster.changed.remove(self._look)

    def _look(self) -> None:
        """A topic that cannot be seen at the moment keeps its partitions: it may be a broker that has just started."""
        if not self._is_member:
            return
        wanted: set[TopicPartition] = set()
        for name in self._owner.subscription():
            topic = self._cluster.topics.get(name)
            if topic is not None and topic.is_usable:
                wanted.update(TopicPartition(name, number) for number in topic.partitions)
            else:
                wanted.update(partition for partition in self._owner.owned() if partition.topic == name)
        self._wanted = frozenset(wanted)
        if not self.is_settled():
            self._owner.unsettled()
