"""AlterConfigs (33), versions 0-2: sets all settings of a resource anew; those that are not named go back to their
defaults. Answered when all changes are committed.

Left out: client metrics, and the loggers of a node: they are refused.
"""

from __future__ import annotations

from semel.broker.context import RequestContext
from semel.broker.controller_channel import AdminChannel
from semel.broker.handlers.config_resources import Alteration, alter
from semel.broker.node_info import NodeInfo
from semel.config import Operation
from semel.rpc.slices import Slices
from semel.wire.spec.alter_configs import AlterConfigsRequest, AlterConfigsResponse, AlterConfigsResult


async def handle(
    request: AlterConfigsRequest,
    context: RequestContext,
    *,
    controller: AdminChannel,
    node: NodeInfo,
    slices: Slices,
) -> AlterConfigsResponse:
    alterations = [
        Alteration(resource, [(int(Operation.SET), config.name, config.value) for config in resource.configs])
        for resource in request.resources
    ]
    results = await alter(
        alterations, controller, node, context, slices, replaces=True, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResult(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, text) in zip(request.resources, results, strict=True)
        ]
    )
