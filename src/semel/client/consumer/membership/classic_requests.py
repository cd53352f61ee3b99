"""The requests of the classic protocol, and what helps when the coordinator refuses one."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from semel.client.consumer.membership.protocol import PROTOCOL_TYPE
from semel.client.errors import is_retriable
from semel.client.values import GroupIdentity
from semel.wire.errors import ErrorCode
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel.wire.spec.leave_group import LeaveGroupRequest, LeavingMember
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from semel.client.consumer.settings import ConsumerSettings

_REASON_LENGTH_MAX = 255


def join_request(
    settings: ConsumerSettings,
    group_id: str,
    member_id: str,
    protocols: list[JoinGroupRequestProtocol],
    reason: str | None,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=None if reason is None else reason[:_REASON_LENGTH_MAX],
    )


def sync_request(
    identity: GroupIdentity, assignor_name: str, assignments: list[SyncGroupRequestAssignment]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=identity.group_id,
        generation_id=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=assignor_name,
        assignments=assignments,
    )


def heartbeat_request(identity: GroupIdentity) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=identity.group_id,
        generation_id=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
    )


def leave_request(group_id: str, member_id: str, reason: str) -> LeaveGroupRequest:
    """The member stands in it twice, for old versions and for new ones."""
    leaving = LeavingMember(member_id=member_id, reason=reason[:_REASON_LENGTH_MAX])
    return LeaveGroupRequest(group_id=group_id, member_id=member_id, members=[leaving])


class Remedy(Enum):
    AT_ONCE = "ask again at once"
    LATER = "ask again after a pause"
    ELSEWHERE = "look for the coordinator, and ask again after a pause"
    NEW_GENERATION = "what we had is lost; join again under our id"
    NEW_MEMBER = "what we had is lost; join again as somebody new"
    NONE = "nothing helps"


_R = Remedy
REMEDIES: dict[int, Remedy] = {
    ErrorCode.MEMBER_ID_REQUIRED: _R.AT_ONCE,
    ErrorCode.REBALANCE_IN_PROGRESS: _R.AT_ONCE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _R.LATER,
    ErrorCode.NOT_COORDINATOR: _R.ELSEWHERE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _R.ELSEWHERE,
    ErrorCode.ILLEGAL_GENERATION: _R.NEW_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: _R.NEW_MEMBER,
}


def remedy_for(code: int) -> Remedy:
    """Also of heartbeats. A code that we do not know is final."""
    return REMEDIES.get(code, _R.LATER if is_retriable(code) else _R.NONE)
