"""What a topic takes: how many partitions it has, how large a batch may be, and which records it would refuse.

Asked by the tasks that encode rows, so that nothing is staged that the commit could not write. What was learned is kept
for a while in each of Spark's worker processes, with the connection by which it was learned.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from semel.client.admin.values import ConfigEntry, ConfigResource
from semel.client.errors import NotAuthorised, SemelError, UnknownTopic
from semel.host.api import Clock
from semel.host.real import RealClock
from semel.sync.admin import Admin
from semel.sync.producer import Producer

logger = logging.getLogger("semel.spark")

_KEPT_MS = 30_000
_CREATION_WAIT_MS = 10_000
_LONG_MAX = (1 << 63) - 1
_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_NAMES = (
    "max.message.bytes",
    "compression.type",
    "cleanup.policy",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)


@dataclass(frozen=True)
class TopicFacts:
    """Without the right to describe the topic's settings, Kafka's defaults are assumed."""

    name: str
    partition_count: int
    max_batch_bytes: int = 1048588
    codec: int | None = None
    """The codec with which the broker stores batches whatever they come with; None if it keeps the producer's."""
    needs_key: bool = False
    oldest_ms: int = _LONG_MAX
    """How far a record's timestamp may lie in the past, and below how far in the future."""
    newest_ms: int = 3_600_000
    stamps_itself: bool = False


class TopicBook:
    """Facts by topic. A topic that does not exist is made by brokers that make topics on demand, as for any writer."""

    def __init__(self, connection: Mapping[str, Any], clock: Clock) -> None:
        self._settings = dict(connection)
        self._clock = clock
        self._admin: Admin | None = None
        self._known: dict[str, tuple[int, TopicFacts]] = {}

    def facts(self, topic: str) -> TopicFacts:
        """Raises UnknownTopic, or any other error of the client."""
        now_ms = self._clock.monotonic_ms()
        known = self._known.get(topic)
        if known is None or now_ms - known[0] >= _KEPT_MS:
            known = self._known[topic] = (now_ms, self._ask(topic))
        return known[1]

    def _ask(self, topic: str) -> TopicFacts:
        if self._admin is None:
            self._admin = Admin(**self._settings)
        try:
            count = self._partition_count(self._admin, topic)
            settings = self._describe(self._admin, topic)
        except SemelError:
            # The cluster may have moved: the next question begins with a new connection.
            self.close()
            raise
        return read_facts(topic, count, settings)

    def _partition_count(self, admin: Admin, topic: str) -> int:
        try:
            return len(admin.describe_topics(topic)[topic].partitions)
        except UnknownTopic:
            with Producer(**self._settings, max_block_ms=_CREATION_WAIT_MS) as producer:
                return len(producer.partitions_for(topic))

    def _describe(self, admin: Admin, topic: str) -> dict[str, ConfigEntry]:
        resource = ConfigResource.topic(topic)
        try:
            return admin.describe_configs(resource, names=_NAMES)[resource]
        except NotAuthorised as error:
            logger.warning("the settings of topic %r may not be seen: Kafka's defaults are assumed: %s", topic, error)
            return {}

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def read_facts(topic: str, partition_count: int, settings: Mapping[str, ConfigEntry]) -> TopicFacts:
    told = {name: entry.value for name, entry in settings.items() if entry.value is not None}
    default = TopicFacts(topic, partition_count)
    return TopicFacts(
        topic,
        partition_count,
        max_batch_bytes=int(told.get("max.message.bytes", default.max_batch_bytes)),
        codec=_CODECS.get(told.get("compression.type", "producer")),
        needs_key="compact" in told.get("cleanup.policy", ""),
        oldest_ms=int(told.get("message.timestamp.before.max.ms", default.oldest_ms)),
        newest_ms=int(told.get("message.timestamp.after.max.ms", default.newest_ms)),
        stamps_itself=told.get("message.timestamp.type") == "LogAppendTime",
    )


@lru_cache(maxsize=8)
def _shared_book(connection: tuple[tuple[str, Any], ...]) -> TopicBook:
    return TopicBook(dict(connection), RealClock())


def shared_book(connection: Mapping[str, Any]) -> TopicBook:
    """One for all tasks that run in this process with the same settings, one after the other."""
    return _shared_book(tuple(sorted(connection.items())))
