"""Groups of both protocols: list, describe, delete, remove members. Asked of their coordinators."""

from __future__ import annotations

from collections.abc import Iterable

from semel.client.admin.admin_requests import AdminPart, names_of
from semel.client.admin.group_values import CLASSIC, CONSUMER, GroupDescription, GroupMember, ListedGroup
from semel.client.admin.outcome import Sheet
from semel.client.consumer.membership.protocol import PROTOCOL_TYPE, read_assignment, read_subscription
from semel.client.coordinators import CoordinatorKind
from semel.client.errors import BadSetting, UnsupportedByBroker
from semel.client.metadata import Node, TopicPartition
from semel.wire.errors import ErrorCode, WireError
from semel.wire.spec.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    MemberAssignment,
)
from semel.wire.spec.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from semel.wire.spec.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from semel.wire.spec.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeavingMember
from semel.wire.spec.list_groups import ListGroupsRequest, ListGroupsResponse

_STATES_SINCE = 4
_KINDS_SINCE = 5
_MANY_LEAVE_SINCE = 3
_DEAD = "Dead"
_NOT_OF_KIP_848 = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupsPart(AdminPart):
    async def list_groups(self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()) -> dict[str, ListedGroup]:
        """All groups that we may see, by id; only those in one of `states` (Stable, Empty, ...) or of one of `kinds`
        (classic, consumer, share, ...), if these are given."""
        request = ListGroupsRequest(states_filter=names_of(states), types_filter=names_of(kinds))
        at_least = _KINDS_SINCE if request.types_filter else _STATES_SINCE if request.states_filter else 0
        listed = await self._ask.every_node(
            "listing the groups", request, ListGroupsResponse, _listed, at_least=at_least
        )
        groups = {group.group_id: group for found in listed.values() for group in found}
        return {group_id: groups[group_id] for group_id in sorted(groups)}

    async def describe_groups(self, groups: str | Iterable[str]) -> dict[str, GroupDescription]:
        """Groups with their state, coordinator and members, and what these subscribe to and read."""
        sheet: Sheet[str, GroupDescription] = Sheet(names_of(groups), lambda name: f"describing group {name!r}")

        async def ask(node_id: int, items: list[str]) -> None:
            coordinator = self._ask.cluster.view.nodes.get(node_id)
            others = await self._describe_of_kip_848(sheet, node_id, items, coordinator)
            if not others:
                return
            request = DescribeGroupsRequest(groups=others)
            answer = await self._ask.cluster.call(node_id, request, DescribeGroupsResponse)
            for group in answer.groups:
                code = group.error_code
                if code == ErrorCode.NONE and group.group_state == _DEAD:
                    code = ErrorCode.GROUP_ID_NOT_FOUND  # older versions do not say so
                if sheet.accepts(group.group_id, code, group.error_message):
                    sheet.done(group.group_id, _classic_group(group, coordinator))

        return await self._ask.work_off(sheet, self._ask.to_coordinators(CoordinatorKind.GROUP, sheet), ask)

    async def _describe_of_kip_848(
        self, sheet: Sheet[str, GroupDescription], node_id: int, items: list[str], coordinator: Node | None
    ) -> list[str]:
        """Describes those that are of the new protocol; returns the others."""
        request = ConsumerGroupDescribeRequest(group_ids=items)
        try:
            answer = await self._ask.cluster.call(node_id, request, ConsumerGroupDescribeResponse)
        except UnsupportedByBroker:
            return items
        others = []
        for group in answer.groups:
            if group.error_code in _NOT_OF_KIP_848:
                others.append(group.group_id)
            elif sheet.accepts(group.group_id, group.error_code, group.error_message):
                sheet.done(group.group_id, _consumer_group(group, coordinator))
        return others

    async def delete_groups(self, groups: str | Iterable[str]) -> None:
        """Deletes groups without members, and their offsets. Raises GroupNotEmpty, UnknownGroup; the latter not when
        the answer to an earlier attempt was lost, since that may have deleted the group."""
        sheet: Sheet[str, None] = Sheet(
            names_of(groups), lambda name: f"deleting group {name!r}", made_already=(ErrorCode.GROUP_ID_NOT_FOUND,)
        )

        async def ask(node_id: int, items: list[str]) -> None:
            answer = await self._ask.cluster.call(
                node_id, DeleteGroupsRequest(groups_names=items), DeleteGroupsResponse
            )
            for result in answer.results:
                if sheet.accepts(result.group_id, result.error_code, result.error_message):
                    sheet.done(result.group_id, None)

        await self._ask.work_off(sheet, self._ask.to_coordinators(CoordinatorKind.GROUP, sheet), ask)

    async def remove_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] = (),
        member_ids: Iterable[str] = (),
        everybody: bool = False,
        reason: str = "removed by an administrator",
    ) -> None:
        """Removes members of a group of the classic protocol: static ones by their instance id, others by their member
        id, or everybody. Members that still run will join again. One that is gone already is an error, unless
        everybody was to go or the answer to an earlier attempt was lost."""
        leaving = {name: LeavingMember(group_instance_id=name, reason=reason) for name in names_of(instance_ids)}
        leaving |= {name: LeavingMember(member_id=name, reason=reason) for name in names_of(member_ids)}
        if everybody:
            if leaving:
                raise BadSetting("remove_members: either everybody or some")
            for member in (await self.describe_groups(group_id))[group_id].members:
                name = member.instance_id or member.member_id
                leaving[name] = LeavingMember(
                    member_id="" if member.instance_id else name, group_instance_id=member.instance_id, reason=reason
                )
        elif not leaving:
            raise BadSetting("remove_members: nobody is named; everybody=True removes all")
        sheet: Sheet[str, None] = Sheet(
            leaving,
            lambda name: f"removing member {name!r} of group {group_id!r}",
            made_already=(ErrorCode.UNKNOWN_MEMBER_ID,),
        )

        async def ask(node_id: int, items: list[str]) -> None:
            request = LeaveGroupRequest(group_id=group_id, members=[leaving[name] for name in items])
            answer = await self._ask.cluster.call(node_id, request, LeaveGroupResponse, at_least=_MANY_LEAVE_SINCE)
            if answer.error_code != ErrorCode.NONE:
                for name in items:
                    sheet.accepts(name, answer.error_code)
                return
            for result in answer.members:
                name = result.group_instance_id or result.member_id
                is_gone = everybody and result.error_code == ErrorCode.UNKNOWN_MEMBER_ID
                if sheet.accepts(name, ErrorCode.NONE if is_gone else result.error_code):
                    sheet.done(name, None)

        await self._ask.work_off(sheet, self._ask.to_coordinator(CoordinatorKind.GROUP, group_id, sheet), ask)


def _listed(answer: ListGroupsResponse) -> list[ListedGroup]:
    return [
        ListedGroup(group.group_id, group.protocol_type, group.group_state, group.group_type.lower())
        for group in answer.groups
    ]


def _classic_group(group: DescribedGroup, coordinator: Node | None) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        kind=CLASSIC,
        protocol_type=group.protocol_type,
        state=group.group_state,
        assignor=group.protocol_data,
        members=tuple(_classic_member(group.protocol_type, member) for member in group.members),
        coordinator=coordinator,
    )


def _classic_member(protocol_type: str, member: DescribedGroupMember) -> GroupMember:
    topics: frozenset[str] = frozenset()
    assignment: frozenset[TopicPartition] = frozenset()
    rack = None
    metadata, assigned = bytes(member.member_metadata), bytes(member.member_assignment)
    if protocol_type == PROTOCOL_TYPE:
        # Other programs wrote these bytes, and brokers do not look at them: what cannot be read is left out.
        try:
            if metadata:
                subscription = read_subscription(metadata)
                topics, rack = frozenset(subscription.topics), subscription.rack
            assignment = frozenset(read_assignment(assigned).partitions)
        except WireError:
            pass
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.group_instance_id,
        rack=rack,
        subscription=topics,
        assignment=assignment,
        metadata=metadata,
        assignment_bytes=assigned,
    )


def _consumer_group(group: DescribedConsumerGroup, coordinator: Node | None) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        kind=CONSUMER,
        protocol_type=PROTOCOL_TYPE,
        state=group.group_state,
        assignor=group.assignor_name,
        members=tuple(_consumer_member(member) for member in group.members),
        coordinator=coordinator,
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
    )


def _consumer_member(member: ConsumerGroupMember) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        rack=member.rack_id,
        subscription=frozenset(member.subscribed_topic_names),
        pattern=member.subscribed_topic_regex or None,
        assignment=_assigned(member.assignment),
        target=_assigned(member.target_assignment),
        epoch=member.member_epoch,
    )


def _assigned(assignment: MemberAssignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )
