"""Requests about the metadata log, which is one partition of one topic, and what is in their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from semel.log.types import Epoch, Offset
from semel.peer.calls import HostPort
from semel.quorum.metadata_topic import NO_LEADER, PARTITION, TOPIC, TOPIC_ID
from semel.quorum.snapshot_files import SnapshotId
from semel.wire.spec import fetch, fetch_snapshot

FETCH_WAIT_MS = 500
FETCH_BYTES = 1 << 20
NO_HIGH_WATERMARK = -1


class _Endpoint(Protocol):
    node_id: int
    host: str
    port: int


def fetch_request(
    *,
    cluster_id: str,
    replica_id: int,
    directory_id: bytes,
    epoch: Epoch,
    offset: Offset,
    last_epoch: Epoch,
    high_watermark: Offset,
) -> fetch.FetchRequest:
    """What follows `offset` in the leader's log. `epoch` is the newest that we know of, `last_epoch` that of our last
    record."""
    partition = fetch.FetchRequestPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=FETCH_BYTES,
        replica_directory_id=directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_id=replica_id,
        replica_state=fetch.ReplicaState(replica_id=replica_id),
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        session_id=0,
        session_epoch=-1,
        topics=[fetch.FetchRequestTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
    )


def snapshot_request(
    *, cluster_id: str, replica_id: int, directory_id: bytes, epoch: Epoch, snapshot: SnapshotId, position: int
) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.FetchSnapshotRequestPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=replica_id,
        max_bytes=FETCH_BYTES,
        topics=[fetch_snapshot.FetchSnapshotRequestTopic(name=TOPIC, partitions=[partition])],
    )


def fetched_partition(response: fetch.FetchResponse) -> fetch.FetchResponsePartition | None:
    """The answer's one partition; None if it has another number of them."""
    partitions = [partition for topic in response.responses for partition in topic.partitions]
    return partitions[0] if len(partitions) == 1 else None


def snapshot_piece(
    response: fetch_snapshot.FetchSnapshotResponse,
) -> fetch_snapshot.FetchSnapshotResponsePartition | None:
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    return partitions[0] if len(partitions) == 1 else None


def told_leader(
    leader: fetch.LeaderIdAndEpoch | fetch_snapshot.LeaderIdAndEpoch | None, endpoints: Iterable[_Endpoint]
) -> tuple[Epoch, int, Mapping[int, HostPort]]:
    """Epoch, leader, and where nodes are, as an answer says; an epoch of -1 if it does not say."""
    found = {one.node_id: HostPort(one.host, one.port) for one in endpoints if one.host and one.port > 0}
    return (-1, NO_LEADER, found) if leader is None else (leader.leader_epoch, leader.leader_id, found)
