"""ConsumerGroupHeartbeat: one request does everything in a KIP-848 group.

A heartbeat may change the member, and with it the group's epoch; a new epoch needs a new target assignment; and the
member takes one step towards its target. All of that is one decision and one batch. Members that fall silent, or do
not give up their partitions in time, are removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from random import Random
from uuid import UUID

from semel.config import BrokerConfig, GroupConfig, group_config
from semel.coordinator.group import consumer_records as records
from semel.coordinator.group.classic import Caller
from semel.coordinator.group.cluster import ClusterTopics
from semel.coordinator.group.consumer_draft import ConsumerDraft
from semel.coordinator.group.consumer_group import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
    by_topic,
)
from semel.coordinator.group.consumer_view import described_group
from semel.coordinator.group.group_memory import GroupMemory, bytes_of_topics
from semel.coordinator.group.pattern_matches import PatternMatches
from semel.coordinator.group.state import GroupState
from semel.coordinator.group.timers import Timers
from semel.coordinator.shard import Shard
from semel.coordinator.work import Steps
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_describe import DescribedConsumerGroup
from semel.wire.spec.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
)

logger = logging.getLogger("semel.groups")

# From this version on a member makes its own id (KIP-1082).
_OWN_ID_SINCE = 1


class ConsumerRequests:
    """The KIP-848 groups of one shard."""

    def __init__(
        self,
        shard: Shard[GroupState],
        timers: Timers,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        random: Random,
        topics: ClusterTopics,
        memory: GroupMemory,
    ) -> None:
        self._shard = shard
        self._timers = timers
        self._config = config
        self._clock = clock
        self._random = random
        self._topics = topics
        self.patterns = PatternMatches(topics)
        # The version of the cluster's topics that a group has been compared with.
        self._compared: dict[str, int] = {}
        self._memory = memory
        # What the members of a group count in it.
        self._counted: dict[str, int] = {}

    def load(self) -> Steps:
        for group in list(self._shard.state.consumer.values()):
            for member in group.members.values():
                self._watch(group.group_id, member)
            self._count(group.group_id)
            yield None

    def uncount(self) -> None:
        """Nothing of it counts any more."""
        self._memory.count(-sum(self._counted.values()))
        self._counted.clear()

    def _count(self, group_id: str) -> None:
        group = self._shard.state.consumer.get(group_id)
        before, now = self._counted.pop(group_id, 0), 0 if group is None else group.metadata_bytes
        if now:
            self._counted[group_id] = now
        self._memory.count(now - before)

    def _settings(self, group_id: str) -> GroupConfig:
        return group_config(self._topics.image.group_settings(group_id), self._config())

    # -- heartbeats

    async def prepare(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """Before a heartbeat: is it well-formed, and which topics match? In a large cluster that takes a while."""
        self.check_form(request, version)
        group = self._shard.state.consumer.get(request.group_id)
        is_compared = self._compared.get(request.group_id) == self._topics.version
        known = [] if group is None or is_compared else list(group.patterns)
        asked = [request.subscribed_topic_regex] if request.subscribed_topic_regex else []
        if known or asked:
            await self.patterns.prepare([*known, *asked])

    def check_form(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """What is wrong with a request whatever the group is like."""
        for value, what in ((request.group_id, "group"), (request.instance_id, "instance"), (request.rack_id, "rack")):
            if value == "":
                raise Refused(ErrorCode.INVALID_REQUEST, f"the {what} id is empty")
        epoch = request.member_epoch
        if epoch < LEAVING_FOR_A_WHILE:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{epoch} is no epoch of a member")
        if not request.member_id and (epoch != JOINING or version >= _OWN_ID_SINCE):
            raise Refused(ErrorCode.INVALID_REQUEST, "the member id is empty")
        if epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
            raise Refused(ErrorCode.INVALID_REQUEST, "only a static member leaves with epoch -2")
        if epoch == JOINING:
            if request.rebalance_timeout_ms == -1:
                raise Refused(ErrorCode.INVALID_REQUEST, "a member that joins says how long it may take to rebalance")
            if request.topic_partitions is None or request.topic_partitions:
                raise Refused(ErrorCode.INVALID_REQUEST, "a member that joins has no partitions")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise Refused(ErrorCode.INVALID_REQUEST, "a member that joins says which topics it wants")
        offered = self._config().list("group.consumer.assignors")
        if request.server_assignor is not None and request.server_assignor not in offered:
            raise Refused(
                ErrorCode.UNSUPPORTED_ASSIGNOR, f"assignors are {', '.join(offered)}, not {request.server_assignor!r}"
            )
        if request.subscribed_topic_regex:
            self.patterns.compiled(request.subscribed_topic_regex)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return self._leave(request)
        group = self._shard.state.consumer.get(request.group_id)
        if group is None:
            if request.member_epoch != JOINING:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no KIP-848 group {request.group_id!r}")
            group = ConsumerGroup(request.group_id)
        member_id = request.member_id or str(UUID(bytes=self._random.randbytes(16), version=4))
        draft = ConsumerDraft(group, self._topics, self.patterns, self._clock.wall_ms())
        known = self._known(group, member_id, request)
        member = self._admitted(draft, known, member_id, request)
        updated = _updated(member, request, caller)
        before = 0 if known is None else bytes_of_topics(known.topics)
        self._memory.check(group.group_id, group.metadata_bytes, bytes_of_topics(updated.topics) - before)
        draft.set_member(updated, is_new=known is None)
        if draft.is_changed or self._compared.get(request.group_id) != self._topics.version:
            draft.compare_topics()
        draft.assign(self._config().list("group.consumer.assignors"))
        reported = None if request.topic_partitions is None else _reported(request)
        moved = draft.reconcile(updated, reported)
        self._shard.append(draft.entries)
        self._count(request.group_id)
        self._compared[request.group_id] = self._topics.version
        if known is not None and known.member_id != member_id:
            self._unwatch(request.group_id, known.member_id)
        began = known is None or (known.state, known.epoch) != (moved.state, moved.epoch)
        self._watch(request.group_id, moved, began_revoking=began)
        response = ConsumerGroupHeartbeatResponse(
            member_id=moved.member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self._settings(request.group_id).heartbeat_interval_ms,
        )
        if _is_full(request) or known is None or moved.assigned != known.assigned:
            response.assignment = _assignment(moved.assigned)
        return response

    def _known(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerMember | None:
        """The member that asks, or the static one whose place it takes. Refuses who may not speak for it."""
        is_joining = request.member_epoch == JOINING
        if request.instance_id is not None:
            holder = group.static.get(request.instance_id)
            if holder is None and not is_joining:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {request.instance_id!r}")
            if holder is not None and holder != member_id:
                if not is_joining:
                    raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id!r} is {holder} now")
                if group.members[holder].epoch != LEAVING_FOR_A_WHILE:
                    raise Refused(
                        ErrorCode.UNRELEASED_INSTANCE_ID, f"{request.instance_id!r} is still in use by {holder}"
                    )
                return group.members[holder]
        member = group.members.get(member_id)
        if member is None:
            if not is_joining:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of {group.group_id!r}")
            most = self._config().int("group.consumer.max.size")
            if len(group.members) >= most:
                raise Refused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED, f"a group has at most {most} members (group.consumer.max.size)"
                )
            return None
        if not is_joining:
            _check_epoch(member, request)
        return member

    def _admitted(
        self, draft: ConsumerDraft, known: ConsumerMember | None, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerMember:
        if known is None:
            return ConsumerMember(member_id)
        if known.member_id != member_id:
            return draft.replace_static(known, member_id)
        if request.member_epoch == JOINING:
            # It begins anew, with nothing: a member that was fenced, or whose first answer was lost.
            return replace(
                known, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned=NOTHING, revoking=NOTHING
            )
        return known

    # -- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self._shard.state.consumer.get(request.group_id)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no KIP-848 group {request.group_id!r}")
        if request.instance_id is not None:
            holder = group.static.get(request.instance_id)
            if holder is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {request.instance_id!r}")
            if holder != request.member_id:
                raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id!r} is {holder} now")
        member = group.members.get(request.member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id!r} is not in {request.group_id!r}")
        if request.member_epoch == LEAVING_FOR_A_WHILE:
            # Its place and its partitions are kept until its session is over.
            away = replace(member, epoch=LEAVING_FOR_A_WHILE, revoking=NOTHING)
            self._shard.append([records.current(request.group_id, away)])
        else:
            self._remove(group, member.member_id)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _remove(self, group: ConsumerGroup, member_id: str) -> None:
        draft = ConsumerDraft(group, self._topics, self.patterns, self._clock.wall_ms())
        draft.remove_member(member_id)
        draft.compare_topics(matches_anew=False)
        self._shard.append(draft.entries)
        self._count(group.group_id)
        self._unwatch(group.group_id, member_id)

    # -- timers

    def _watch(self, group_id: str, member: ConsumerMember, *, began_revoking: bool = True) -> None:
        """`began_revoking` is false when nothing has changed: the time to give partitions up runs on."""
        member_id = member.member_id
        session_ms = self._settings(group_id).session_timeout_ms
        self._timers.set(
            ("consumer", group_id, member_id), session_ms, lambda: self._overdue(group_id, member_id, "its session")
        )
        if member.state is not MemberState.UNREVOKED:
            self._timers.cancel(("revoke", group_id, member_id))
        elif began_revoking:
            epoch = member.epoch
            self._timers.set(
                ("revoke", group_id, member_id),
                member.rebalance_timeout_ms,
                lambda: self._overdue(group_id, member_id, "the time to give partitions up", epoch),
            )

    def _unwatch(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(("consumer", group_id, member_id))
        self._timers.cancel(("revoke", group_id, member_id))

    def _overdue(self, group_id: str, member_id: str, what: str, epoch: int | None = None) -> None:
        group = self._shard.state.consumer.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or (epoch is not None and member.epoch != epoch):
            return
        logger.info("%r has left %r: %s is over", member_id, group_id, what)
        try:
            self._remove(group, member_id)
        except Refused as refusal:
            logger.warning("%r could not be removed from %r: %s", member_id, group_id, refusal)
            self._watch(group_id, member)

    def forget(self, group_id: str) -> None:
        self._compared.pop(group_id, None)
        self._count(group_id)

    # -- for those who look

    def described(self, group_id: str) -> DescribedConsumerGroup:
        group = self._shard.state.consumer.get(group_id)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no KIP-848 group {group_id!r}")
        return described_group(group, self._topics.image.names, self._config().list("group.consumer.assignors"))


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """The answer with a new epoch may have been lost: a member that comes with the one before, and reads nothing that
    it no longer has, is heard."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    lost_answer = epoch == member.previous_epoch and epoch < member.epoch
    if not lost_answer or request.topic_partitions is None or not _reported(request) <= member.assigned:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the epoch of {member.member_id!r} is {member.epoch}, not {epoch}: it must give up everything and rejoin",
        )


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """What is not in the request stays as it was. An empty pattern takes the pattern away."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        topics=member.topics if names is None else frozenset(names),
        pattern=member.pattern if pattern is None else pattern or None,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
        ),
        assignor=request.server_assignor or member.assignor,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A member that says everything wants to hear everything: it joins, or something went wrong."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    subscribes = names is not None or pattern is not None
    return request.member_epoch == JOINING or (
        request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    )


def _reported(request: ConsumerGroupHeartbeatRequest) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in request.topic_partitions or () for index in topic.partitions)


def _assignment(partitions: Partitions) -> MemberAssignment:
    return MemberAssignment(
        topic_partitions=[
            AssignedTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(partitions).items()
        ]
    )
