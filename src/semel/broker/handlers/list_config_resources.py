"""ListConfigResources (74), versions 0-1: the names of all that has settings.

Version 0 knew client metrics only, of which there are none here.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.controller.image import BROKER_RESOURCE, GROUP_RESOURCE, LOGGER_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES_SINCE = 1


def handle(
    request: ListConfigResourcesRequest, context: RequestContext, *, cluster: ClusterView
) -> ListConfigResourcesResponse:
    try:
        context.authorise_cluster(Operation.DESCRIBE_CONFIGS)
    except Refused as refusal:
        return ListConfigResourcesResponse(error_code=refusal.code)
    if context.version < _TYPES_SINCE:
        return ListConfigResourcesResponse()
    brokers = [str(node_id) for node_id in cluster.image.brokers]
    names = {
        TOPIC_RESOURCE: list(cluster.image.topics),
        BROKER_RESOURCE: brokers,
        LOGGER_RESOURCE: brokers,
        METRICS_RESOURCE: [],
        GROUP_RESOURCE: [name for kind, name in cluster.image.configs if kind == GROUP_RESOURCE],
    }
    wanted = set(request.resource_types) or set(names)
    if not wanted <= names.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind) for kind in sorted(wanted) for name in names[kind]
        ]
    )
