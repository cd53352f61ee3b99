"""DescribeCluster (60) on listeners of controllers, versions 1-2: the controllers, and which is active."""

from __future__ import annotations

from collections.abc import Mapping

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.config import NodeListener
from semel.quorum.owner import LogReplica
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    request: DescribeClusterRequest,
    context: RequestContext,
    *,
    node: NodeInfo,
    replica: LogReplica,
    cluster: ClusterView,
    bound: Mapping[str, NodeListener],
) -> DescribeClusterResponse:
    if request.endpoint_type == _BROKERS:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is an endpoint of controllers, not of brokers")
    if request.endpoint_type != _CONTROLLERS:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} is none of 2 (controllers)"
        )
    listener = bound[context.listener]
    response = DescribeClusterResponse(
        endpoint_type=_CONTROLLERS,
        cluster_id=node.cluster_id,
        controller_id=replica.told_leader()[0],
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id, host=listener.advertised_host or listener.host, port=listener.advertised_port
            ),
            *(
                DescribeClusterBroker(broker_id=controller_id, host=one.host, port=one.port)
                for controller_id, registered in sorted(cluster.image.controllers.items())
                if controller_id != node.node_id
                for one in registered.end_points
                if one.name == context.listener
            ),
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = 0
        if context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            response.cluster_authorized_operations = context.authorised_bits(ResourceType.CLUSTER, CLUSTER_NAME)
    return response


def _refused(code: ErrorCode, text: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=text)
