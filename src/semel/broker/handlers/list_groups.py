"""ListGroups (16), versions 0-5: the groups that this node coordinates, filtered by state (4+) and type (5+).

Who may describe the cluster sees them all, others those that they may describe.
"""

from __future__ import annotations

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.wire.spec.list_groups import ListGroupsRequest, ListGroupsResponse


async def handle(
    request: ListGroupsRequest, context: RequestContext, *, groups: GroupCoordinator
) -> ListGroupsResponse:
    try:
        listed = await groups.list()
    except Refused as refusal:
        return ListGroupsResponse(error_code=refusal.code)
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    sees_all = context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return ListGroupsResponse(
        groups=[
            group
            for group in listed
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type in types)
            and (sees_all or context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ]
    )
