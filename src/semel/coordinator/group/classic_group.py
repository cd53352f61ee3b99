"""A group of the classic protocol as it lives: members, who of them waits, who leads, which protocol they share.

Only what the last rebalance decided is in the topic (`as_record`, `from_record`); a rebalance that is under way lives
here and nowhere else, and a new coordinator begins again from the last one that was completed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from semel.coordinator.group.classic_states import ClassicState, Event, next_state
from semel.coordinator.group.group_memory import bytes_of_protocols
from semel.coordinator.group.subscriptions import CONSUMER_PROTOCOL, all_subscribed_topics
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.group_records import GroupMember, GroupMetadataValue
from semel.wire.spec.join_group import JoinGroupResponse, JoinGroupResponseMember
from semel.wire.spec.sync_group import SyncGroupResponse

Protocols = Sequence[tuple[str, bytes]]


class ClassicMember:
    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        # A member whose first JoinGroup still waits: it has no id yet, so nothing but a timeout shows that it is gone.
        self.is_new = False
        self.syncing: asyncio.Future[SyncGroupResponse] | None = None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Whether the member was waiting."""
        waited, self.syncing = self.syncing, None
        if waited is not None and not waited.done():
            waited.set_result(response)
        return waited is not None


class ClassicGroup:
    def __init__(self, group_id: str, now_ms: int, count: Callable[[int], None] = lambda _: None) -> None:
        """`count` is told whenever its members bring more metadata, or less."""
        self.group_id = group_id
        self.metadata_bytes = 0
        self._tell_count = count
        self.state = ClassicState.EMPTY
        self.since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        # Every join asks who else has joined and which protocols all have: both are kept, so that a rebalance does
        # not cost the square of its members.
        self.joining: dict[str, asyncio.Future[JoinGroupResponse]] = {}
        self._with_protocol: Counter[str] = Counter()
        self.static: dict[str, str] = {}
        # Members that were given an id and have not come back with it (KIP-394).
        self.pending_join: set[str] = set()
        self.pending_sync: set[str] = set()
        # The first rebalance of a group waits for more members: is it under way, and has anyone come meanwhile?
        self.is_initial = False
        self.has_new_member = False

    # -- the topic

    @classmethod
    def from_record(
        cls, group_id: str, record: GroupMetadataValue, now_ms: int, count: Callable[[int], None] = lambda _: None
    ) -> ClassicGroup:
        since_ms = record.current_state_timestamp if record.current_state_timestamp >= 0 else now_ms
        group = cls(group_id, since_ms, count)
        group.state = ClassicState.STABLE if record.members else ClassicState.EMPTY
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        group.protocol = record.protocol
        group.leader = record.leader
        for member in record.members:
            known = ClassicMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout,
                member.session_timeout,
                [(record.protocol or "", member.subscription)],
                member.assignment,
            )
            group._put(known)
        return group

    def as_record(self, since_ms: int, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The group as it is, or as it will be with these assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=since_ms,
            members=[
                GroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    # -- moving

    def move(self, event: Event, now_ms: int) -> None:
        self.state = next_state(self.state, event)
        self.since_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Everyone who is left has joined: vote, and wait for the leader's assignment. Or nobody is left."""
        self.generation += 1
        self.is_initial = self.has_new_member = False
        self.pending_sync = set(self.members)
        if self.members:
            self.protocol = self.elected_protocol()
            self.move(Event.JOINED, now_ms)
        else:
            self.protocol = self.leader = None
            self.move(Event.EMPTIED, now_ms)

    # -- members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self._put(member)
        self.pending_join.discard(member.member_id)

    def _put(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        self._with_protocol.update(_names(member.protocols))
        self._count(bytes_of_protocols(member.protocols))
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._with_protocol -= Counter(_names(member.protocols))
            self._count(-bytes_of_protocols(member.protocols))
            if member.instance_id is not None:
                self.static.pop(member.instance_id, None)
        self.joining.pop(member_id, None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, old_id: str, new_id: str) -> ClassicMember:
        """A static member came back under a new id: what it had, it keeps, and so does its place in the group."""
        member = self.members[old_id]
        member.member_id = new_id
        self.members = {new_id if name == old_id else name: one for name, one in self.members.items()}
        if member.instance_id is not None:
            self.static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.joining:
            self.joining[new_id] = self.joining.pop(old_id)
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(new_id)
        return member

    def change_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._with_protocol -= Counter(_names(member.protocols))
        self._with_protocol.update(_names(protocols))
        self._count(bytes_of_protocols(protocols) - bytes_of_protocols(member.protocols))
        member.protocols = protocols

    def _count(self, more_bytes: int) -> None:
        self.metadata_bytes += more_bytes
        self._tell_count(more_bytes)

    def end(self) -> None:
        """It is kept no longer, and counts no more."""
        self._count(-self.metadata_bytes)
        self._tell_count = lambda _: None

    def wait_for_others(self, member: ClassicMember) -> asyncio.Future[JoinGroupResponse]:
        """The member has joined; the future is its answer."""
        answer: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        self.joining[member.member_id] = answer
        return answer

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        waited = self.joining.pop(member.member_id, None)
        if waited is not None and not waited.done():
            waited.set_result(response)

    def is_waiting(self, member: ClassicMember) -> bool:
        """A member that waits for others cannot send heartbeats, and need not."""
        return not member.is_new and (member.member_id in self.joining or member.syncing is not None)

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Refuses who is not a member, and a static member whose place another process has taken (KIP-345)."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id!r}")
            if current != member_id:
                raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id!r} is {current} now, not {member_id}")
        member = self.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of {self.group_id!r}")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise Refused(
                ErrorCode.ILLEGAL_GENERATION, f"generation {generation} is not {self.generation}, the current"
            )

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return not self.pending_join and len(self.joining) == len(self.members)

    def leader_among_joined(self) -> bool:
        """Whether somebody who has joined leads; the first who has joined takes over from one who has not."""
        if self.leader in self.joining:
            return True
        joined = next((member_id for member_id in self.members if member_id in self.joining), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    # -- the protocol they share

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols fits the group: the same type, and one that everybody has."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(self._is_shared(name) for name, _ in protocols)

    def _is_shared(self, protocol: str) -> bool:
        return self._with_protocol[protocol] == len(self.members)

    def elected_protocol(self) -> str:
        """Each member votes for the first of its own protocols that everybody has; the most votes win, and among
        equals the one that was voted for first."""
        votes = Counter(
            next(name for name, _ in member.protocols if self._is_shared(name)) for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that its members read; None when that is not known."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if self.members and self.protocol is None:
            return None
        return all_subscribed_topics(member.metadata(self.protocol) for member in self.members.values())

    # -- answers

    def join_response(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """Only the leader is told who the members are."""
        is_leader = member.member_id == self.leader
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata(self.protocol)
                )
                for one in self.members.values()
            ]
            if is_leader
            else [],
        )

    def sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )


def _names(protocols: Protocols) -> set[str]:
    return {name for name, _ in protocols}
