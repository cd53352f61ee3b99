"""One try to get from being known to having an assignment: JoinGroup, the leader's part, SyncGroup.

What the coordinator refuses comes back as a Refusal with its code, and `remedy_for` says what helps. The identity is
handed on as soon as it is known: heartbeats need it while the leader thinks, and so does whoever leaves meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from semel.client.consumer.membership.api import Owner
from semel.client.consumer.membership.assignors import Assignor, Subscriptions
from semel.client.consumer.membership.classic_requests import join_request, sync_request
from semel.client.consumer.membership.group_topics import GroupTopics
from semel.client.consumer.membership.line import CoordinatorLine
from semel.client.consumer.membership.protocol import (
    Assignment,
    Subscription,
    assignment_bytes,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from semel.client.errors import BrokerRefused, SemelError, error_for
from semel.client.values import GroupIdentity
from semel.wire.errors import ErrorCode, WireError
from semel.wire.schema import Request, Response
from semel.wire.spec.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from semel.wire.spec.sync_group import SyncGroupRequestAssignment, SyncGroupResponse

if TYPE_CHECKING:
    from semel.client.consumer.settings import ConsumerSettings

logger = logging.getLogger("semel.client.group")

R = TypeVar("R", bound=Response)
_SPARE_S = 5.0


class Refusal(NamedTuple):
    code: int
    error: SemelError


class Synced(NamedTuple):
    assignor: Assignor
    assignment: Assignment


class ClassicJoin:
    def __init__(
        self,
        line: CoordinatorLine,
        settings: ConsumerSettings,
        owner: Owner,
        assignors: Sequence[Assignor],
        group_topics: GroupTopics,
        adopt: Callable[[GroupIdentity], None],
    ) -> None:
        self._line = line
        self._settings = settings
        self._owner = owner
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._group_topics = group_topics
        self._adopt = adopt
        # The coordinator decides how long members may take to join, by what they told it; we only wait a little longer.
        self._join_timeout_s = max(settings.max_poll_interval_ms, settings.request_timeout_ms) / 1000 + _SPARE_S
        self._sync_timeout_s = settings.request_timeout_ms / 1000
        self.is_waiting = False
        """A request is on its way: heartbeats would have to wait behind it."""
        self.topics: frozenset[str] | None = None
        """The subscription as the group knows it."""

    async def attempt(
        self, group_id: str, member_id: str, owned_generation: int, reason: str | None
    ) -> Synced | Refusal:
        """Raises errors of the line, and what an assignor raises."""
        settings = self._settings
        protocols = self._protocols(owned_generation)
        join = join_request(settings, group_id, member_id, protocols, reason)
        joined = await self._ask(join, JoinGroupResponse, self._join_timeout_s)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._adopt(GroupIdentity(group_id, member_id=joined.member_id, instance_id=settings.group_instance_id))
        if joined.error_code != ErrorCode.NONE:
            return self._refusal("joining", group_id, joined.error_code)
        assignor = self._assignors.get(joined.protocol_name or "")
        if assignor is None:
            return self._refusal(
                f"joining, where {joined.protocol_name!r} was chosen, ", group_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            )
        identity = GroupIdentity(group_id, joined.generation_id, joined.member_id, settings.group_instance_id)
        self._adopt(identity)
        assignments = await self._lead(joined, assignor) if joined.leader == joined.member_id else self._follow()
        sync = sync_request(identity, assignor.name, assignments)
        synced = await self._ask(sync, SyncGroupResponse, self._sync_timeout_s)
        if synced.error_code != ErrorCode.NONE:
            return self._refusal("taking the assignment of", group_id, synced.error_code)
        return Synced(assignor, read_assignment(synced.assignment))

    async def _ask(self, request: Request, response: type[R], timeout_s: float) -> R:
        self.is_waiting = True
        try:
            return await self._line.ask(request, response, timeout_s)
        except asyncio.CancelledError:
            # Its answer may be minutes away, and whatever we ask next would wait behind it.
            self._line.hang_up()
            raise
        finally:
            self.is_waiting = False

    def _protocols(self, owned_generation: int) -> list[JoinGroupRequestProtocol]:
        """No await in here: what is told of topics and partitions is true at the same time."""
        self.topics = topics = self._owner.subscription()
        owned = tuple(sorted(self._owner.owned()))
        wish = Subscription(
            tuple(sorted(topics)), owned=owned, generation=owned_generation, rack=self._settings.client_rack or None
        )
        return [
            JoinGroupRequestProtocol(
                name=name, metadata=subscription_bytes(wish._replace(user_data=assignor.subscription(topics)))
            )
            for name, assignor in self._assignors.items()
        ]

    def _follow(self) -> list[SyncGroupRequestAssignment]:
        self._group_topics.forget()
        return []

    async def _lead(self, joined: JoinGroupResponse, assignor: Assignor) -> list[SyncGroupRequestAssignment]:
        """A static leader that was only away for a while makes no assignment, but watches again (KIP-814)."""
        subscriptions = {
            member.member_id: _readable(member.member_id, member.metadata, member.group_instance_id)
            for member in joined.members
        }
        topics = frozenset(topic for member in subscriptions.values() for topic in member.topics)
        counts = await self._group_topics.learn(topics)
        if joined.skip_assignment:
            return []
        assignments = dict(assignor.assign(counts, subscriptions))
        _check(assignor, assignments, subscriptions)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=assignment_bytes(assignments.get(member_id, Assignment()))
            )
            for member_id in subscriptions
        ]

    def _refusal(self, doing: str, group_id: str, code: int) -> Refusal:
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            ours = ", ".join(self._assignors)
            error: SemelError = BrokerRefused(
                f"{doing} group {group_id!r}: its members have no assignor in common with this one, which has {ours} "
                "(Kafka: Member does not support protocol); give all members of the group at least one "
                "partition_assignment_strategy in common, or another group_id",
                code=code,
            )
        else:
            error = error_for(code, f"{doing} group {group_id!r}")
        return Refusal(code, error)


def _readable(member_id: str, metadata: bytes | memoryview, instance_id: str | None) -> Subscription:
    try:
        return read_subscription(metadata, instance_id)
    except WireError as error:
        logger.warning("the subscription of %s cannot be read, so it is assigned nothing: %s", member_id, error)
        return Subscription((), instance_id=instance_id)


def _check(assignor: Assignor, assignments: dict[str, Assignment], subscriptions: Subscriptions) -> None:
    """An assignor of the program may be wrong; members that have one partition twice would be worse than no group."""
    given: dict[tuple[str, int], str] = {}
    for member_id, assignment in assignments.items():
        if member_id not in subscriptions:
            raise ValueError(f"assignor {assignor.name!r} has assigned something to {member_id!r}, who is no member")
        for partition in assignment.partitions:
            other = given.setdefault(partition, member_id)
            if other != member_id:
                raise ValueError(f"assignor {assignor.name!r} has given {partition} to both {other} and {member_id}")
    if assignor.is_cooperative:
        for member_id, member in subscriptions.items():
            for partition in member.owned:
                if given.get(partition, member_id) != member_id:
                    raise ValueError(
                        f"assignor {assignor.name!r} calls itself cooperative, but has given {partition} to "
                        f"{given[partition]} while {member_id} still has it"
                    )
