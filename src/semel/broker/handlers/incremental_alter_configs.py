"""IncrementalAlterConfigs (44), versions 0-1: sets, deletes, or edits the list of single settings of a resource.
Answered when all changes are committed.

Left out: client metrics, which are refused. To delete a setting that nobody knows changes nothing, as in Kafka.
"""

from __future__ import annotations

from semel.broker.context import RequestContext
from semel.broker.controller_channel import AdminChannel
from semel.broker.handlers.config_resources import Alteration, alter
from semel.broker.node_info import NodeInfo
from semel.rpc.slices import Slices
from semel.wire.spec.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResult,
)


async def handle(
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
    *,
    controller: AdminChannel,
    node: NodeInfo,
    slices: Slices,
) -> IncrementalAlterConfigsResponse:
    alterations = [
        Alteration(resource, [(config.config_operation, config.name, config.value) for config in resource.configs])
        for resource in request.resources
    ]
    results = await alter(alterations, controller, node, context, slices, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResult(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, text) in zip(request.resources, results, strict=True)
        ]
    )
