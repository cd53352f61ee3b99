"""The cluster itself: its nodes and controller, what they serve, and how much their disks hold."""

from __future__ import annotations

from collections.abc import Iterable

from semel.client.admin.admin_requests import AdminPart, Places, by_topic, problem_of
from semel.client.admin.values import (
    ClusterDescription,
    LogDir,
    NodeVersions,
    QuorumDescription,
    QuorumReplica,
    ReplicaSize,
    VersionRange,
)
from semel.client.errors import UnsupportedByBroker
from semel.client.metadata import Node, TopicPartition, read_nodes
from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from semel.wire.spec.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
    LogDirDescription,
)
from semel.wire.spec.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from semel.wire.spec.describe_quorum import QuorumReplica as AnsweredReplica
from semel.wire.spec.metadata import MetadataRequest, MetadataResponse

_FENCED_SINCE = 2
_ID_SINCE = 2
_METADATA = "__cluster_metadata"


class ClusterPart(AdminPart):
    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """The cluster's id, its nodes, and the one that takes changes; with `include_fenced` also nodes that are up but
        not ready."""
        doing = "describing the cluster"
        request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
        try:
            answer = await self._ask.one(
                doing,
                request,
                DescribeClusterResponse,
                problem=problem_of,
                at_least=_FENCED_SINCE if include_fenced else 0,
            )
        except UnsupportedByBroker:
            if include_fenced:
                raise
            old = await self._ask.one(doing, MetadataRequest(topics=[]), MetadataResponse, at_least=_ID_SINCE)
            return ClusterDescription(old.cluster_id or "", old.controller_id, read_nodes(old))
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            nodes={node.broker_id: Node(node.broker_id, node.host, node.port, node.rack) for node in answer.brokers},
            fenced=frozenset(node.broker_id for node in answer.brokers if node.is_fenced),
        )

    async def describe_quorum(self) -> QuorumDescription:
        """The controllers that keep the metadata, who of them leads, and how far each node has it."""
        request = DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequestTopic(topic_name=_METADATA, partitions=[DescribeQuorumRequestPartition()]),
            ]
        )
        answer = await self._ask.one(
            "describing the quorum",
            request,
            DescribeQuorumResponse,
            route=self._ask.to_controller,
            problem=_problem_of_quorum,
        )
        found = answer.topics[0].partitions[0]
        return QuorumDescription(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            voters={one.replica_id: _quorum_replica(one) for one in found.current_voters},
            observers={one.replica_id: _quorum_replica(one) for one in found.observers},
            nodes={
                node.node_id: Node(node.node_id, node.listeners[0].host, node.listeners[0].port)
                for node in answer.nodes
                if node.listeners
            },
        )

    async def describe_versions(self, node_ids: Iterable[int] | None = None) -> dict[int, NodeVersions]:
        """Which APIs and features nodes serve, all of them or those named, and the features that are switched on."""
        # An empty name is refused.
        request = ApiVersionsRequest(client_software_name="semel", client_software_version="admin")
        return await self._ask.every_node(
            "describing the versions", request, ApiVersionsResponse, _versions, node_ids=node_ids
        )

    async def describe_log_dirs(
        self, node_ids: Iterable[int] | None = None, partitions: Places | None = None
    ) -> dict[int, dict[str, LogDir]]:
        """The data directories of nodes, all of them or those named, by path; with all replicas, or those of some
        partitions."""
        topics = None
        if partitions is not None:
            topics = [
                DescribeLogDirsRequestTopic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(await self._ask.partitions(partitions)).items()
            ]
        return await self._ask.every_node(
            "describing the log directories",
            DescribeLogDirsRequest(topics=topics),
            DescribeLogDirsResponse,
            lambda answer: {found.log_dir: _log_dir(found) for found in answer.results},
            node_ids=node_ids,
        )


def _problem_of_quorum(answer: DescribeQuorumResponse) -> tuple[int, str | None]:
    """The code is at the top, or that of the one partition."""
    if answer.error_code != ErrorCode.NONE:
        return answer.error_code, answer.error_message
    for topic in answer.topics:
        for partition in topic.partitions:
            return partition.error_code, partition.error_message
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the answer has no partition of the metadata"


def _quorum_replica(one: AnsweredReplica) -> QuorumReplica:
    return QuorumReplica(one.replica_id, one.log_end_offset, one.last_fetch_timestamp, one.last_caught_up_timestamp)


def _versions(answer: ApiVersionsResponse) -> NodeVersions:
    return NodeVersions(
        apis={api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys},
        supported_features={
            feature.name: VersionRange(feature.min_version, feature.max_version)
            for feature in answer.supported_features
        },
        finalized_features={feature.name: feature.max_version_level for feature in answer.finalized_features},
        finalized_epoch=answer.finalized_features_epoch,
    )


def _log_dir(found: LogDirDescription) -> LogDir:
    return LogDir(
        path=found.log_dir,
        error_code=found.error_code,
        replicas={
            TopicPartition(topic.name, one.partition_index): ReplicaSize(
                one.partition_size, one.offset_lag, one.is_future_key
            )
            for topic in found.topics
            for one in topic.partitions
        },
        total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
        usable_bytes=found.usable_bytes if found.usable_bytes >= 0 else None,
        is_cordoned=found.is_cordoned,
    )
