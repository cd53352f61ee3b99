"""The names of topics that a KIP-848 assignment knows by their ids only.

Usually the cluster's view has them, since they are subscribed to. A pattern that the broker resolves, or a topic that
is younger than the view, is asked for by its id; its name is then watched like the others.
"""

from __future__ import annotations

import asyncio
import logging

from semel.client.cluster import Cluster
from semel.client.consumer.membership.api import Owner
from semel.client.errors import SemelError
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

logger = logging.getLogger("semel.client.group")

_BY_ID_SINCE = 12


class TopicNames:
    """Those who wait for a name are told through the cluster's `changed`: watching a new name brings news."""

    def __init__(self, cluster: Cluster, owner: Owner) -> None:
        self._cluster = cluster
        self._owner = owner
        self._found: dict[bytes, str] = {}
        self._wanted: frozenset[bytes] = frozenset()
        self._task: asyncio.Task[None] | None = None

    def name(self, topic_id: bytes) -> str | None:
        return self._cluster.topic_names.get(topic_id) or self._found.get(topic_id)

    def want(self, topic_ids: frozenset[bytes]) -> None:
        """These are the topics of the assignment from now on."""
        self._wanted = topic_ids
        subscribed = self._owner.subscription()
        gone = [topic_id for topic_id in self._found if topic_id not in topic_ids]
        dropped = {self._found.pop(topic_id) for topic_id in gone}
        self._cluster.unwatch(dropped - subscribed - set(self._found.values()))
        if self._missing() and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._look_up())

    def _missing(self) -> list[bytes]:
        return [topic_id for topic_id in sorted(self._wanted) if self.name(topic_id) is None]

    async def _look_up(self) -> None:
        """Until all are found, or no longer wanted: a topic may be deleted before we have heard its name."""
        failures = 0
        while missing := self._missing():
            topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in missing]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            try:
                answer = await self._cluster.call_any(request, MetadataResponse, at_least=_BY_ID_SINCE)
                self._note(answer)
                await self._cluster.refresh()
            except SemelError as error:
                logger.info("the names of %d assigned topics are not known yet: %s", len(missing), error)
            failures += 1
            await asyncio.sleep(self._cluster.backoff_s(failures))

    def _note(self, answer: MetadataResponse) -> None:
        for topic in answer.topics:
            if topic.name and topic.error_code == ErrorCode.NONE and topic.topic_id in self._wanted:
                self._found[topic.topic_id] = topic.name
        self._cluster.watch(self._found.values())

    async def close(self) -> None:
        self._wanted = frozenset()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._cluster.unwatch(set(self._found.values()) - self._owner.subscription())
        self._found.clear()
