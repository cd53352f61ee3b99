"""DescribeCluster (60), versions 0-2: the nodes of the cluster, and what the asker may do with it.

Nodes that are fenced are told from version 2 on, when the request asks for them. Left out: controllers as an endpoint
type of their own: here every node is reached as a broker. As in Kafka, everyone may ask; only the operations need a
permission.
"""

from __future__ import annotations

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    request: DescribeClusterRequest, context: RequestContext, *, node: NodeInfo, cluster: ClusterView
) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is an endpoint of brokers, not of controllers")
    if request.endpoint_type != _BROKERS:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} is none of 1 (brokers)"
        )
    endpoints = cluster.endpoints(context.listener, include_fenced=request.include_fenced_brokers)
    response = DescribeClusterResponse(
        cluster_id=node.cluster_id,
        # Any broker takes what is for the controller.
        controller_id=node.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=found.node_id, host=found.host, port=found.port, rack=found.rack, is_fenced=found.is_fenced
            )
            for found in endpoints.values()
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = 0
        if context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            response.cluster_authorized_operations = context.authorised_bits(ResourceType.CLUSTER, CLUSTER_NAME)
    return response


def _refused(code: ErrorCode, text: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=text)
