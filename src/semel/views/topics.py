"""Topics as documents: a list, and one topic with its partitions, offsets and settings. No secret is in them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from semel.client.admin.admin import Admin
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import ConfigEntry, ConfigResource, OffsetSpec
from semel.client.errors import UnknownTopic
from semel.client.metadata import Topic, TopicPartition
from semel.client.values import OffsetAndTimestamp
from semel.views.refusals import Missing, no_such_topic


def topic_document(topic: Topic) -> dict[str, Any]:
    """One of a list."""
    return {
        "name": topic.name,
        "id": topic_id_text(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication": max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
        "internal": topic.is_internal,
    }


def topic_id_text(topic_id: bytes) -> str | None:
    """As Kafka's tools write it; None where the broker is too old for ids."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode() if any(topic_id) else None


async def described(admin: Admin, names: Iterable[str]) -> dict[str, Topic]:
    """Topics by name; Missing says which are not there."""
    wanted = list(dict.fromkeys(names))
    try:
        return await admin.describe_topics(wanted)
    except UnknownTopic:
        missing = wanted
    except AdminErrors as errors:
        missing = [name for name, error in errors.errors.items() if isinstance(error, UnknownTopic)]
        if len(missing) < len(errors.errors):
            raise
    raise Missing(no_such_topic(*missing))


async def description(admin: Admin, topic: Topic) -> dict[str, Any]:
    """With the offsets of each partition, and all settings."""
    resource = ConfigResource.topic(topic.name)
    settings = (await admin.describe_configs(resource))[resource]
    starts = await admin.list_offsets(topic.name, OffsetSpec.EARLIEST)
    ends = await admin.list_offsets(topic.name, OffsetSpec.LATEST)
    stable = await admin.list_offsets(topic.name, OffsetSpec.LATEST, isolation_level="read_committed")
    return {
        **topic_document(topic),
        "settings": {name: setting_document(settings[name]) for name in sorted(settings)},
        "partitions": [_partition(topic, number, starts, ends, stable) for number in sorted(topic.partitions)],
    }


def setting_document(entry: ConfigEntry) -> dict[str, Any]:
    return {"value": entry.value, "source": entry.source.name.lower()}


def _partition(topic: Topic, number: int, *offsets: Mapping[TopicPartition, OffsetAndTimestamp]) -> dict[str, Any]:
    partition = topic.partitions[number]
    start, end, stable = (some[TopicPartition(topic.name, number)].offset for some in offsets)
    return {
        "partition": number,
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync),
        "start_offset": start,
        "last_stable_offset": stable,
        "end_offset": end,
    }
