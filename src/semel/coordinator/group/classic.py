"""The requests of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Each checks who asks, then moves the group on. JoinGroup and SyncGroup answer with a future, because the group decides
when; the others at once.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from semel.coordinator.errors import coordinator_error
from semel.coordinator.group.classic_group import ClassicGroup, ClassicMember, Protocols
from semel.coordinator.group.classic_rebalance import ClassicRebalance
from semel.coordinator.group.classic_states import ClassicState
from semel.coordinator.group.group_memory import bytes_of_protocols, check_protocols
from semel.coordinator.group.records import group_entry
from semel.coordinator.group.state import GroupState
from semel.coordinator.group.subscriptions import subscribed_topics
from semel.coordinator.shard import Shard
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupResponse
from semel.wire.spec.leave_group import LeavingMember, LeavingMemberResult
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupResponse

R = TypeVar("R")
_S = ClassicState
# From these versions of JoinGroup on: an id before membership (KIP-394), an assignment that the leader need not make.
_ID_FIRST_SINCE = 4
_SKIPS_ASSIGNMENT_SINCE = 9


class Caller(NamedTuple):
    """Who sent a request, as far as groups remember it."""

    client_id: str
    host: str
    version: int


class ClassicRequests:
    """The classic protocol on one shard."""

    def __init__(self, shard: Shard[GroupState], rebalance: ClassicRebalance, random: Random) -> None:
        self._shard = shard
        self._rebalance = rebalance
        self._random = random

    def _new_member_id(self, name: str) -> str:
        return f"{name}-{UUID(bytes=self._random.randbytes(16), version=4)}"

    def _existing(self, group_id: str) -> ClassicGroup:
        group = self._rebalance.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r} of the classic protocol")
        return group

    # -- JoinGroup

    def join(self, request: JoinGroupRequest, caller: Caller) -> asyncio.Future[JoinGroupResponse]:
        self._check_session_timeout(request.session_timeout_ms)
        groups = self._rebalance.groups
        group = groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id!r}")
            group = groups[request.group_id] = ClassicGroup(
                request.group_id, self._rebalance.clock.wall_ms(), self._rebalance.memory.count
            )
        protocols = [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
        try:
            self._check_size(group, request.member_id)
            self._check_metadata(group, request, protocols)
            if not group.supports(request.protocol_type, protocols):
                raise Refused(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"{request.protocol_type!r} with {[name for name, _ in protocols]} does not fit the group",
                )
            if request.member_id:
                return self._join_again(group, request, protocols, caller)
            return self._join_first(group, request, protocols, caller)
        finally:
            self._rebalance.drop_if_nothing(group)

    def _check_session_timeout(self, timeout_ms: int) -> None:
        config = self._rebalance.config
        lowest, highest = config.int("group.min.session.timeout.ms"), config.int("group.max.session.timeout.ms")
        if not lowest <= timeout_ms <= highest:
            raise Refused(
                ErrorCode.INVALID_SESSION_TIMEOUT, f"a session may last {lowest} to {highest} ms, not {timeout_ms}"
            )

    def _check_size(self, group: ClassicGroup, member_id: str) -> None:
        """While members join, those count who have: so the last to come are left out when the limit was lowered."""
        most = self._rebalance.config.int("group.max.size")
        member = group.members.get(member_id)
        if group.state is _S.PREPARING_REBALANCE:
            accepted = member_id in group.joining or len(group.joining) < most
        else:
            accepted = member is not None or len(group.members) < most
        if not accepted:
            if member is not None:
                self._rebalance.remove_members(group, [member_id])
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"a group has at most {most} members (group.max.size)")

    def _check_metadata(self, group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols) -> None:
        check_protocols(protocols)
        known = group.members.get(request.member_id or group.static.get(request.group_instance_id or "", ""))
        before = 0 if known is None else bytes_of_protocols(known.protocols)
        self._rebalance.memory.check(group.group_id, group.metadata_bytes, bytes_of_protocols(protocols) - before)

    def _join_first(
        self, group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols, caller: Caller
    ) -> asyncio.Future[JoinGroupResponse]:
        """A member without an id."""
        instance_id = request.group_instance_id
        member_id = self._new_member_id(caller.client_id if instance_id is None else instance_id)
        if instance_id is not None and instance_id in group.static:
            return self._replace_static(group, request, protocols, caller, member_id)
        if instance_id is None and caller.version >= _ID_FIRST_SINCE:
            group.pending_join.add(member_id)
            self._rebalance.pending_session(group, member_id, request.session_timeout_ms)
            return _answered(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        return self._add(group, request, protocols, caller, member_id)

    def _add(
        self, group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols, caller: Caller, member_id: str
    ) -> asyncio.Future[JoinGroupResponse]:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.host,
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            protocols,
        )
        member.is_new = True
        group.has_new_member = group.state is _S.PREPARING_REBALANCE and group.is_initial
        group.add(member, request.protocol_type)
        answer = group.wait_for_others(member)
        answer.add_done_callback(lambda _: self._rebalance.answered_or_gone(group, member, answer))
        self._rebalance.new_member_session(group, member)
        self._rebalance.rebalance(group, f"{member_id!r} joins ({request.reason or 'no reason given'!r})")
        return answer

    def _join_again(
        self, group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols, caller: Caller
    ) -> asyncio.Future[JoinGroupResponse]:
        """A member with an id: it takes it up, or has something new to say, or missed an answer."""
        member_id = request.member_id
        if member_id in group.pending_join and request.group_instance_id is None:
            return self._add(group, request, protocols, caller, member_id)
        member = group.check_member(member_id, request.group_instance_id)
        if group.state is not _S.PREPARING_REBALANCE:
            missed_answer = list(member.protocols) == list(protocols)
            leader_of_stable = group.state is _S.STABLE and member_id == group.leader
            if missed_answer and not leader_of_stable:
                response = group.join_response(member)
                if group.state is _S.STABLE:
                    response.members = []
                return _answered(response)
        answer = self._update(group, member, request, protocols)
        self._rebalance.rebalance(group, f"{member_id!r} joins again ({request.reason or 'no reason given'!r})")
        return answer

    def _update(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, protocols: Protocols
    ) -> asyncio.Future[JoinGroupResponse]:
        # A request that still waits on an older connection is of no use to anyone.
        superseded = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        group.answer_join(member, superseded)
        group.change_protocols(member, protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        return group.wait_for_others(member)

    def _replace_static(
        self, group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols, caller: Caller, new_id: str
    ) -> asyncio.Future[JoinGroupResponse]:
        """A static member was started again: it takes its own place, and the old process is fenced.

        In a stable group it also keeps its assignment, without a rebalance, unless it would change the protocol of the
        group or reads other topics than before.
        """
        old_id = group.static[request.group_instance_id or ""]
        old_leader, old = group.leader, group.members[old_id]
        before = (old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
        old_topics = subscribed_topics(old.metadata(group.protocol))
        fenced = ErrorCode.FENCED_INSTANCE_ID
        group.answer_join(old, JoinGroupResponse(error_code=fenced, member_id=old_id))
        old.answer_sync(SyncGroupResponse(error_code=fenced))
        member = group.rename(old_id, new_id)
        answer = self._update(group, member, request, protocols)
        same_topics = subscribed_topics(member.metadata(group.protocol)) == old_topics
        if group.state is _S.STABLE and group.elected_protocol() == group.protocol and same_topics:
            del group.joining[new_id]
            try:
                self._shard.append([group_entry(group.group_id, group.as_record(group.since_ms))])
            except Refused as refusal:
                group.rename(new_id, old_id)
                group.change_protocols(member, before[0])
                _, member.rebalance_timeout_ms, member.session_timeout_ms = before
                raise Refused(coordinator_error(refusal.code), refusal.text) from refusal
            response = group.join_response(member)
            if caller.version >= _SKIPS_ASSIGNMENT_SINCE:
                response.skip_assignment = new_id == group.leader
            else:
                # It must not take itself for the leader and hand out an assignment that nobody waits for.
                response.leader, response.members = old_leader or "", []
            answer.set_result(response)
        self._rebalance.replace_session(group, old_id, member)
        if not answer.done():
            self._rebalance.rebalance(group, f"{request.group_instance_id!r} came back as {new_id!r}")
        return answer

    # -- SyncGroup

    def sync(self, request: SyncGroupRequest) -> asyncio.Future[SyncGroupResponse]:
        group = self._existing(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        for asked, current in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
            if asked is not None and current is not None and asked != current:
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group has {current!r}, not {asked!r}")
        if group.state is _S.PREPARING_REBALANCE:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing: join again")
        self._rebalance.synced(group, member.member_id)
        if group.state is _S.STABLE:
            return _answered(group.sync_response(member))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = answer = _parked()
        if member.member_id == group.leader:
            self._rebalance.assign(group, {one.member_id: bytes(one.assignment) for one in request.assignments})
        return answer

    # -- Heartbeat and LeaveGroup

    def heartbeat(self, request: HeartbeatRequest) -> None:
        group = self._existing(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        self._rebalance.renew_session(group, member)
        if group.state is _S.PREPARING_REBALANCE:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing: join again")

    def leave(self, group_id: str, members: list[LeavingMember]) -> list[LeavingMemberResult]:
        group = self._existing(group_id)
        results: list[LeavingMemberResult] = []
        leaving: list[str] = []
        for one in members:
            result = LeavingMemberResult(member_id=one.member_id, group_instance_id=one.group_instance_id)
            results.append(result)
            try:
                member_id = self._leaving(group, one)
            except Refused as refusal:
                result.error_code = refusal.code
                continue
            if member_id in group.pending_join:
                self._rebalance.forget_pending(group, member_id)
            elif member_id not in leaving:
                leaving.append(member_id)
        if leaving:
            self._rebalance.remove_members(group, leaving)
        return results

    def _leaving(self, group: ClassicGroup, member: LeavingMember) -> str:
        """An administrator names a static member by its instance alone."""
        if not member.member_id and member.group_instance_id in group.static:
            return group.static[member.group_instance_id]
        if member.member_id not in group.pending_join:
            group.check_member(member.member_id, member.group_instance_id)
        return member.member_id


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 knows only one timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _parked() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _answered(response: R) -> asyncio.Future[R]:
    answer: asyncio.Future[R] = _parked()
    answer.set_result(response)
    return answer
