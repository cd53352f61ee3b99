"""DeleteGroups (42), versions 0-3: takes groups without members away, and their offsets with them. From version 3
on a refusal comes with its text."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.spec.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(
    request: DeleteGroupsRequest, context: RequestContext, *, groups: GroupCoordinator, slices: Slices
) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id=group_id)
        results.append(result)
        try:
            context.authorise(Operation.DELETE, ResourceType.GROUP, group_id)
            await groups.delete(group_id)
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
        if slices.step():
            await slices.next()
    return DeleteGroupsResponse(results=results)
