"""Groups as documents: their members, what they have committed, and how far they are behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel.client.admin.admin import Admin
from semel.client.admin.group_values import GroupDescription, GroupMember, ListedGroup, PartitionLag
from semel.client.errors import UnknownGroup
from semel.client.metadata import TopicPartition
from semel.views.refusals import Missing


def listed_document(group: ListedGroup) -> dict[str, Any]:
    """One of a list."""
    return {"group": group.group_id, "state": group.state, "kind": group.kind, "protocol_type": group.protocol_type}


async def described(admin: Admin, name: str) -> tuple[GroupDescription, dict[TopicPartition, PartitionLag]]:
    """A group and how far it is behind; Missing if there is none."""
    try:
        group = (await admin.describe_groups(name))[name]
        return group, (await admin.group_lag(name))[name]
    except UnknownGroup:
        raise Missing(
            f"there is no group {name!r}; semel group list shows what there is (a group that nobody uses is forgotten)"
        ) from None


def group_document(group: GroupDescription, lag: Mapping[TopicPartition, PartitionLag]) -> dict[str, Any]:
    coordinator = group.coordinator
    return {
        "group": group.group_id,
        "state": group.state,
        "kind": group.kind,
        "assignor": group.assignor,
        "coordinator": None if coordinator is None else f"{coordinator.host}:{coordinator.port}",
        "members": [_member(member) for member in group.members],
        "partitions": [_partition(where, lag[where]) for where in sorted(lag)],
    }


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.client_host.removeprefix("/"),
        "partitions": [f"{topic}/{number}" for topic, number in sorted(member.assignment)],
    }


def _partition(where: TopicPartition, lag: PartitionLag) -> dict[str, Any]:
    return {
        "topic": where.topic,
        "partition": where.partition,
        "committed": None if lag.committed is None else lag.committed.offset,
        "start_offset": lag.start_offset,
        "end_offset": lag.end_offset,
        "lag": lag.lag,
        "member_id": lag.member_id,
    }
