"""AlterConfigs (33), versions 0-2: sets all settings of a resource anew; those that are not named go back to their
defaults. Answered when all changes are committed.

Left out: client metrics, and the loggers of a node: they are refused.
"""

from __future__ import annotations

from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.handlers.config_resources import Alterations
from semel.config import Operation
from semel.wire.spec.alter_configs import AlterConfigsRequest, AlterConfigsResponse, AlterConfigsResult


async def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    alterations = Alterations(broker, context, request.resources, validate_only=request.validate_only)
    results = []
    for resource in request.resources:
        operations = [(int(Operation.SET), config.name, config.value) for config in resource.configs]
        code, text = alterations.decide(resource, operations, replaces=True)
        results.append(
            AlterConfigsResult(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    await alterations.committed()
    return AlterConfigsResponse(responses=results)
