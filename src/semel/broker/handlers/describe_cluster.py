"""DescribeCluster (60), versions 0-2: the nodes of the cluster, and what the asker may do with it.

Left out: controllers as an endpoint type of their own: here every node is reached as a broker. Fenced nodes are not
known yet. As in Kafka, everyone may ask; only the operations need a permission.
"""

from __future__ import annotations

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType, authorised_bits
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

_BROKERS, _CONTROLLERS = 1, 2


def handle(broker: Broker, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is an endpoint of brokers, not of controllers")
    if request.endpoint_type != _BROKERS:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} is none of 1 (brokers)"
        )
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=broker.advertised_host,
                port=broker.advertised_port,
                rack=broker.config.text("broker.rack"),
            )
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = 0
        if context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            response.cluster_authorized_operations = authorised_bits(
                broker.authoriser, context.principal, ResourceType.CLUSTER, CLUSTER_NAME
            )
    return response


def _refused(code: ErrorCode, text: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=text)
