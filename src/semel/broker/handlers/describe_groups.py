"""DescribeGroups (15), versions 0-6: state and members of groups of the classic protocol.

Before version 6 a group that is not there is described as dead, without an error.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

_MISSING_IS_AN_ERROR_SINCE = 6


async def handle(
    request: DescribeGroupsRequest, context: RequestContext, *, groups: GroupCoordinator, slices: Slices
) -> DescribeGroupsResponse:
    described: list[DescribedGroup] = []
    for group_id in dict.fromkeys(request.groups):
        described.append(await _described(groups, context, group_id))
        if slices.step():
            await slices.next()
    if request.include_authorized_operations:
        for group in described:
            if group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                group.authorized_operations = context.authorised_bits(ResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=described)


async def _described(groups: GroupCoordinator, context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        context.authorise(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        return await groups.describe(group_id)
    except Refused as refusal:
        missing = refusal.code == ErrorCode.GROUP_ID_NOT_FOUND
        group = DescribedGroup(group_id=group_id, group_state="Dead" if missing else "")
        if not missing or context.version >= _MISSING_IS_AN_ERROR_SINCE:
            group.error_code, group.error_message = refusal.code, refusal.text
        return group
