"""How a classic group gets from one generation to the next: who waits for whom, and for how long.

A rebalance has two halves. First everyone joins (or is removed when the rebalance timeout is over); then the leader
hands out the assignment (or those who did not come for it are removed). The first rebalance of an empty group waits a
little for more members, and a little longer whenever one comes. Timers and waiting requests are all kept here; a
coordinator that takes over gives every member of the last completed generation a fresh session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from semel.config import BrokerConfig, ConfigSource
from semel.coordinator.errors import coordinator_error
from semel.coordinator.group.classic_group import ClassicGroup, ClassicMember
from semel.coordinator.group.classic_states import ClassicState, Event
from semel.coordinator.group.group_memory import GroupMemory
from semel.coordinator.group.records import group_entry
from semel.coordinator.group.state import GroupState
from semel.coordinator.group.timers import Timers
from semel.coordinator.shard import Shard
from semel.coordinator.work import Steps
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.join_group import JoinGroupResponse
from semel.wire.spec.sync_group import SyncGroupResponse

logger = logging.getLogger("semel.groups")

# A first JoinGroup has no member id and sends no heartbeats: a client that is gone is noticed by this alone.
_NEW_MEMBER_TIMEOUT_MS = 5 * 60_000
_INITIAL_DELAY = "group.initial.rebalance.delay.ms"
_S = ClassicState


class ClassicRebalance:
    """The classic groups of one shard."""

    def __init__(
        self,
        shard: Shard[GroupState],
        timers: Timers,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        memory: GroupMemory,
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.memory = memory
        self._config = config
        self.clock = clock
        self._shard = shard
        self._timers = timers

    @property
    def config(self) -> BrokerConfig:
        return self._config()

    def load(self) -> Steps:
        for group_id, record in list(self._shard.state.classic.items()):
            group = ClassicGroup.from_record(group_id, record, self.clock.wall_ms(), self.memory.count)
            self.groups[group_id] = group
            for member in group.members.values():
                self.renew_session(group, member)
            yield None

    def unload(self) -> Steps:
        """The shard is served here no longer: everyone who waits is told to look for the coordinator again."""
        for group_id in list(self.groups):
            group = self.groups.get(group_id)
            if group is not None:
                self._end(group, ErrorCode.NOT_COORDINATOR)
                del group  # freed one by one, not all with the last
            yield None

    def forget(self) -> None:
        """What was loaded is given up before it began."""
        for group in self.groups.values():
            group.end()
        self.groups.clear()

    def remove(self, group: ClassicGroup) -> None:
        """The group was deleted."""
        self._end(group, ErrorCode.UNKNOWN_MEMBER_ID)

    def _end(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            group.answer_join(member, JoinGroupResponse(error_code=code, member_id=member.member_id))
            member.answer_sync(SyncGroupResponse(error_code=code))
            self._end_session(group, member.member_id)
        for member_id in group.pending_join:
            self._end_session(group, member_id)
        self._timers.cancel(("join", group.group_id))
        self._timers.cancel(("sync", group.group_id))
        group.move(Event.REMOVED, self.clock.wall_ms())
        self.groups.pop(group.group_id, None)
        group.end()

    # -- sessions

    def renew_session(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None) -> None:
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._watch(group, member.member_id, timeout_ms)

    def new_member_session(self, group: ClassicGroup, member: ClassicMember) -> None:
        self.renew_session(group, member, _NEW_MEMBER_TIMEOUT_MS)

    def replace_session(self, group: ClassicGroup, old_id: str, member: ClassicMember) -> None:
        self._end_session(group, old_id)
        self.renew_session(group, member)

    def pending_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        self._watch(group, member_id, timeout_ms)

    def _watch(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        name = ("session", group.group_id, member_id)
        self._timers.set(name, timeout_ms, lambda: self._session_expired(group, member_id))

    def _end_session(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(("session", group.group_id, member_id))

    def _session_expired(self, group: ClassicGroup, member_id: str) -> None:
        if member_id in group.pending_join:
            self.forget_pending(group, member_id)
        member = group.members.get(member_id)
        # Who waits for others is answered and gets a new session when the wait is over.
        if member is not None and not group.is_waiting(member):
            logger.info("%r has left %r: its session is over", member_id, group.group_id)
            self.remove_members(group, [member_id])

    def answered_or_gone(
        self, group: ClassicGroup, member: ClassicMember, answer: asyncio.Future[JoinGroupResponse]
    ) -> None:
        """A new member whose connection ended before its answer was made holds nothing: nobody has to wait for it."""
        if answer.cancelled() and group.joining.get(member.member_id) is answer:
            logger.info("%r has left %r: its connection ended while it joined", member.member_id, group.group_id)
            self.remove_members(group, [member.member_id])

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        self._end_session(group, member_id)
        self._complete_if_all_joined(group)
        self.drop_if_nothing(group)

    def drop_if_nothing(self, group: ClassicGroup) -> None:
        """A group that nobody joined in the end, and of which the topic holds nothing, was never there."""
        is_empty = group.state is _S.EMPTY and not group.pending_join
        if is_empty and group.group_id not in self._shard.state.classic and group.group_id in self.groups:
            self._end(group, ErrorCode.UNKNOWN_MEMBER_ID)

    def remove_members(self, group: ClassicGroup, member_ids: list[str]) -> None:
        """Members left, or died, or were removed: the others rebalance."""
        for member_id in member_ids:
            member = group.members[member_id]
            group.answer_join(member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            group.remove(member_id)
            self._end_session(group, member_id)
        self.rebalance(group, f"{', '.join(map(repr, member_ids))} left")

    # -- the first half: joining

    def rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Begins a rebalance, or goes on with the one that is under way."""
        if group.state is _S.PREPARING_REBALANCE:
            self._complete_if_all_joined(group)
        else:
            self._prepare(group, reason)

    def _prepare(self, group: ClassicGroup, reason: str) -> None:
        if group.state is _S.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self._answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self._timers.cancel(("sync", group.group_id))
        group.is_initial = group.state is _S.EMPTY
        group.has_new_member = False
        logger.info("%r rebalances after generation %d: %s", group.group_id, group.generation, reason)
        group.move(Event.REBALANCE, self.clock.wall_ms())
        if group.is_initial:
            delay_ms = self._initial_delay_ms()
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.all_joined:
            self._complete(group)
        else:
            self._wait_for_all(group)

    def _wait_for_all(self, group: ClassicGroup) -> None:
        self._timers.set(("join", group.group_id), group.rebalance_timeout_ms, lambda: self._complete(group))

    def _initial_delay_ms(self) -> int:
        """A node alone is a laptop or a test: somebody waits for the first record. Who wants a delay there sets it."""
        config = self.config
        if config.layout.is_alone and config.source(_INITIAL_DELAY) is ConfigSource.DEFAULT:
            return 0
        return config.int(_INITIAL_DELAY)

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        def waited() -> None:
            if group.has_new_member and left_ms > 0:
                group.has_new_member = False
                step_ms = min(self._initial_delay_ms(), left_ms)
                self._wait_for_more(group, step_ms, max(left_ms - delay_ms, 0))
            else:
                self._complete(group)

        self._timers.set(("join", group.group_id), delay_ms, waited)

    def _complete_if_all_joined(self, group: ClassicGroup) -> None:
        if group.state is _S.PREPARING_REBALANCE and not group.is_initial and group.all_joined:
            self._complete(group)

    def _complete(self, group: ClassicGroup) -> None:
        """The wait is over: who has not joined is out, unless its membership is static."""
        self._timers.cancel(("join", group.group_id))
        absent = [one for one in group.members.values() if one.member_id not in group.joining]
        for member in [one for one in absent if one.instance_id is None]:
            logger.info("%r has left %r: it did not join in time", member.member_id, group.group_id)
            group.remove(member.member_id)
            self._end_session(group, member.member_id)
        if group.members and not group.leader_among_joined():
            # Only static members are left, and none of them has come: they have as long again.
            self._wait_for_all(group)
            return
        group.next_generation(self.clock.wall_ms())
        if group.state is _S.EMPTY:
            self._store_empty(group)
            return
        logger.info("%r has generation %d with %d members", group.group_id, group.generation, len(group.members))
        for member in group.members.values():
            group.answer_join(member, group.join_response(member))
            member.is_new = False
            self.renew_session(group, member)
        generation = group.generation
        self._timers.set(
            ("sync", group.group_id), group.rebalance_timeout_ms, lambda: self._syncs_overdue(group, generation)
        )

    def _store_empty(self, group: ClassicGroup) -> None:
        try:
            self._shard.append([group_entry(group.group_id, group.as_record(group.since_ms))])
        except Refused as refusal:
            logger.warning("that %r is empty could not be written: %s", group.group_id, refusal)

    # -- the second half: the assignment

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._timers.cancel(("sync", group.group_id))

    def assign(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """The leader has decided. It counts once it is written; the answers go out when it is durable."""
        now_ms = self.clock.wall_ms()
        try:
            self._shard.append([group_entry(group.group_id, group.as_record(now_ms, assignments))])
        except Refused as refusal:
            self._answer_syncs(group, coordinator_error(refusal.code))
            self._prepare(group, f"the assignment could not be written: {refusal}")
            return
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.move(Event.ASSIGNED, now_ms)
        self._answer_syncs(group, ErrorCode.NONE)

    def _answer_syncs(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            response = SyncGroupResponse(error_code=code) if code else group.sync_response(member)
            if member.answer_sync(response):
                self.renew_session(group, member)

    def _syncs_overdue(self, group: ClassicGroup, generation: int) -> None:
        in_time = group.generation != generation or group.state not in (_S.COMPLETING_REBALANCE, _S.STABLE)
        if not in_time and group.pending_sync:
            self.remove_members(group, [name for name in group.members if name in group.pending_sync])
