"""IncrementalAlterConfigs (44), versions 0-1: sets, deletes, or edits the list of single settings of a resource.
Answered when all changes are committed.

Left out: client metrics, which are refused. To delete a setting that nobody knows changes nothing, as in Kafka.
"""

from __future__ import annotations

from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.handlers.config_resources import Alterations
from semel.wire.spec.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResult,
)


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    alterations = Alterations(broker, context, request.resources, validate_only=request.validate_only)
    results = []
    for resource in request.resources:
        operations = [(config.config_operation, config.name, config.value) for config in resource.configs]
        code, text = alterations.decide(resource, operations)
        results.append(
            IncrementalAlterConfigsResult(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    await alterations.committed()
    return IncrementalAlterConfigsResponse(responses=results)
