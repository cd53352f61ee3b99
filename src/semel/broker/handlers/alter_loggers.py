"""IncrementalAlterConfigs (44) that names loggers, versions 0-1, on a broker that sends the others to the controller.

The levels of loggers are a matter of one process, so they are changed here. Loggers and other resources in one request
would have to be decided in two places: the others are refused, and may come in a request of their own.
"""

from __future__ import annotations

from collections import Counter

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.config_resources import alter_loggers, authorise_resource
from semel.broker.node_info import NodeInfo
from semel.controller.image import LOGGER_RESOURCE
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResult,
)


def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext, *, node: NodeInfo
) -> IncrementalAlterConfigsResponse:
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    results = []
    for resource in request.resources:
        result = IncrementalAlterConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        results.append(result)
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "a resource may be named once in a request")
            authorise_resource(context, Operation.ALTER_CONFIGS, resource)
            if resource.resource_type != LOGGER_RESOURCE:
                raise Refused(ErrorCode.INVALID_REQUEST, "loggers are changed in a request of their own")
            operations = [(config.config_operation, config.name, config.value) for config in resource.configs]
            alter_loggers(node, resource.resource_name, operations, replaces=False, validate_only=request.validate_only)
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
    return IncrementalAlterConfigsResponse(responses=results)
