"""ListConfigResources (74), versions 0-1: the names of all that has settings.

Version 0 knew client metrics only, of which there are none here.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.broker import Broker
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


def handle(broker: Broker, request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    try:
        context.authorise_cluster(Operation.DESCRIBE_CONFIGS)
    except Refused as refusal:
        return ListConfigResourcesResponse(error_code=refusal.code)
    if context.version < _TYPES_SINCE:
        return ListConfigResourcesResponse()
    node = str(broker.node_id)
    names = {
        TOPIC_RESOURCE: list(broker.image.topics),
        BROKER_RESOURCE: [node],
        LOGGER_RESOURCE: [node],
        METRICS_RESOURCE: [],
        GROUP_RESOURCE: [name for kind, name in broker.image.configs if kind == GROUP_RESOURCE],
    }
    wanted = set(request.resource_types) or set(names)
    if not wanted <= names.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind) for kind in sorted(wanted) for name in names[kind]
        ]
    )
