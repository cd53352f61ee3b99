"""Membership by the classic protocol: members join, the leader assigns, heartbeats keep the group together.

Eager members give up everything before they join; cooperative ones, whose assignors all are, keep what they have and
give up only what moves, then join once more (KIP-429). The join and the heartbeats note what they find in `_rejoin`,
`_synced`, `_is_lost` and `failure`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from semel.client.cluster import Cluster
from semel.client.consumer.membership.api import Owner
from semel.client.consumer.membership.assignors import assignors_for
from semel.client.consumer.membership.base import BaseMembership
from semel.client.consumer.membership.classic_join import ClassicJoin, Refusal, Synced
from semel.client.consumer.membership.classic_requests import Remedy, heartbeat_request, leave_request, remedy_for
from semel.client.consumer.membership.classic_states import Event, State, next_state
from semel.client.consumer.membership.group_topics import GroupTopics
from semel.client.consumer.membership.protocol import NO_GENERATION
from semel.client.coordinators import Coordinators
from semel.client.errors import FatalError, SemelError, code_text, error_for
from semel.client.values import GroupIdentity
from semel.wire.errors import ErrorCode
from semel.wire.spec.heartbeat import HeartbeatResponse
from semel.wire.spec.leave_group import LeaveGroupResponse

if TYPE_CHECKING:
    from semel.client.consumer.settings import ConsumerSettings

logger = logging.getLogger("semel.client.group")


class ClassicMembership(BaseMembership):
    def __init__(
        self, cluster: Cluster, coordinators: Coordinators, settings: ConsumerSettings, owner: Owner, group_id: str
    ) -> None:
        assignors = assignors_for(settings.partition_assignment_strategy)
        super().__init__(cluster, coordinators, settings, owner, group_id)
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._group_topics = GroupTopics(cluster, owner)
        self._join = ClassicJoin(self._line, settings, owner, assignors, self._group_topics, self._adopt)
        self._state = State.OUT
        self._member_id = ""
        self._owned_generation = NO_GENERATION
        self._rejoin: str | None = None
        self._synced: Synced | None = None
        self._joining: asyncio.Task[None] | None = None
        self._join_failures = 0
        self._beat_failures = 0
        self._heard_s = 0.0

    # -- what the consumer says

    def is_settled(self) -> bool:
        return (
            (self._state is State.STABLE or self._state is State.OUT)
            and self._rejoin is None
            and not self._is_lost
            and self._problem is None
            and self._callbacks.is_idle
        )

    def subscription_changed(self) -> None:
        if self._state is State.OUT:
            self._move(Event.WANTED)
            self._keeper.start()
            self._owner.unsettled()
        elif self._owner.subscription() != self._join.topics:
            self._join_again("the subscription has changed")

    # -- what the program does, inside poll

    async def _step(self, wait: bool) -> bool:
        if self._state is State.UNJOINED:
            await self._prepare()
        elif self._state is State.JOINING and wait and self._joining is not None:
            await asyncio.wait([self._joining])
        elif self._state is State.ASSIGNED:
            await self._take()
        elif self._state is State.STABLE and self._rejoin is not None:
            self._move(Event.AGAIN)
        else:
            return False
        return True

    async def _prepare(self) -> None:
        """Before joining: eager members give up everything, cooperative ones what they no longer subscribe to."""
        giving_up = self._owner.owned()
        if self._is_cooperative:
            topics = self._owner.subscription()
            giving_up = frozenset(one for one in giving_up if one.topic not in topics)
        if giving_up:
            await self._callbacks.run(self._owner.revoke, giving_up)
            return
        reason, self._rejoin = self._rejoin, None
        self._move(Event.BEGUN)
        self._joining = asyncio.get_running_loop().create_task(self._run_join(reason))

    async def _take(self) -> None:
        """Gives up what is no longer ours, then takes what is new: two steps, each of which may be the last for now."""
        if self._synced is None:
            raise RuntimeError("an assignment is to be taken, but there is none")
        assignor, assignment = self._synced
        topics, owned = self._owner.subscription(), self._owner.owned()
        wanted = frozenset(one for one in assignment.partitions if one.topic in topics)
        if giving_up := owned - wanted:
            self._rejoin = self._rejoin or "partitions were given up, for others to take"
            await self._callbacks.run(self._owner.revoke, giving_up)
            return
        self._move(Event.TAKEN)
        self._synced = None
        self._owned_generation = self.identity.generation_id
        logger.info("group %s, generation %d: %s", *self.identity[:2], ", ".join(map(str, sorted(wanted))) or "nothing")
        try:
            assignor.on_assignment(assignment, self.identity)
        except Exception as error:  # the program's own: told in this poll, after what must be done in any case
            self._problem = error
        await self._callbacks.run(self._owner.assign, wanted - owned)

    # -- joining, in a task of its own

    async def _run_join(self, reason: str | None) -> None:
        try:
            while self._state is State.JOINING:
                await self._try_to_join(reason)
        except Exception as error:  # an assignor of the program has failed: poll tells it, and tries again
            self._move(Event.AGAIN)
            self._problem = error
        self._owner.unsettled()

    async def _try_to_join(self, reason: str | None) -> None:
        self._rejoin = None
        generation = self._owned_generation if self._owner.owned() else NO_GENERATION
        try:
            outcome = await self._join.attempt(self._group_id, self._member_id, generation, reason)
        except FatalError as error:
            self._fail(error)
        except SemelError as error:
            await self._pause_join(error)
        else:
            if isinstance(outcome, Refusal):
                await self._mend(outcome)
                return
            self._synced = outcome
            self._join_failures = 0
            self._heard()
            self._move(Event.SYNCED)

    async def _mend(self, refusal: Refusal) -> None:
        remedy = remedy_for(refusal.code)
        if remedy is Remedy.NONE:
            self._fail(refusal.error)
        elif remedy is Remedy.NEW_MEMBER or remedy is Remedy.NEW_GENERATION:
            await self._pause_join(refusal.error, free=1)
            self._drop(code_text(refusal.code), keep_id=remedy is Remedy.NEW_GENERATION)
        elif remedy is not Remedy.AT_ONCE:
            if remedy is Remedy.ELSEWHERE:
                self._line.moved()
            await self._pause_join(refusal.error)

    async def _pause_join(self, error: SemelError, *, free: int = 0) -> None:
        """So many failures are free of pauses."""
        logger.info("joining group %s once more: %s", self._group_id, error)
        self._join_failures += 1
        await asyncio.sleep(self._cluster.backoff_s(self._join_failures - free))

    def _adopt(self, identity: GroupIdentity) -> None:
        self._member_id = identity.member_id
        if identity.generation_id != NO_GENERATION:
            self.identity = identity
            self._heard()

    # -- staying, in the keeper's task

    def _has_place(self) -> bool:
        return self.identity.generation_id != NO_GENERATION or self._state is State.JOINING

    async def _beat(self) -> float:
        interval_s = self._settings.heartbeat_interval_ms / 1000
        if self._line.awaits_answer:
            self._heard()  # a join is with the coordinator, which keeps us alive meanwhile
        elif self._join.is_waiting:
            self._look_at_session()
        elif self.identity.generation_id != NO_GENERATION:
            if not await self._heartbeat():
                self._beat_failures += 1
                self._look_at_session()
                return min(interval_s, self._cluster.backoff_s(self._beat_failures))
            self._beat_failures = 0
        return interval_s

    async def _heartbeat(self) -> bool:
        """Whether it was answered, in whatever way."""
        asked, sent_s = self.identity, self._now_s()
        timeout_s = min(self._settings.request_timeout_ms, self._settings.session_timeout_ms / 3) / 1000
        try:
            answer = await self._line.ask(heartbeat_request(asked), HeartbeatResponse, timeout_s)
        except FatalError as error:
            self._cancel_join()
            self._fail(error)
            return True
        except SemelError as error:
            logger.info("a heartbeat to group %s failed: %s", self._group_id, error)
            return False
        return self.identity != asked or self._heed(answer.error_code, sent_s)

    def _heed(self, code: int, sent_s: float) -> bool:
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heard_s = sent_s
            if code == ErrorCode.REBALANCE_IN_PROGRESS and self._state is not State.JOINING:
                self._join_again("the group rebalances")
            return True
        if self._state is State.JOINING:
            return False  # the join under way finds out, and knows better what to do
        error = error_for(code, f"a heartbeat to group {self._group_id!r}")
        remedy = remedy_for(code)
        if remedy is Remedy.NONE:
            self._fail(error)
        elif remedy is Remedy.NEW_MEMBER or remedy is Remedy.NEW_GENERATION:
            self._drop(code_text(code), keep_id=remedy is Remedy.NEW_GENERATION)
        else:
            logger.info("a heartbeat to group %s failed: %s", self._group_id, error)
            if remedy is Remedy.ELSEWHERE:
                self._line.moved()
            return False
        return True

    def _look_at_session(self) -> None:
        silent_s = self._now_s() - self._heard_s
        if silent_s * 1000 >= self._settings.session_timeout_ms and self.identity.generation_id != NO_GENERATION:
            self._cancel_join()
            self._drop(f"no heartbeat was answered for {silent_s:.0f} s, which ends the session", keep_id=True)

    # -- leaving

    def _is_out(self) -> bool:
        return self._state is State.OUT

    def _step_out(self) -> str:
        member_id = self._member_id
        self._cancel_join()
        self._forget_membership(keep_id=False)
        self._is_lost = False
        self.failure = self._problem = None
        self._group_topics.forget()
        self._move(Event.LEFT)
        return member_id

    def _let_go(self, reason: str) -> str:
        member_id = self._member_id
        self._cancel_join()
        self._drop(reason, keep_id=False)
        return member_id

    async def _say_goodbye(self, member_id: str, reason: str) -> None:
        """Dynamic members only: a static one is expected back (KIP-345)."""
        if not member_id or self._settings.group_instance_id is not None:
            return
        request = leave_request(self._group_id, member_id, reason)
        try:
            await self._line.ask(request, LeaveGroupResponse, self._settings.request_timeout_ms / 1000)
        except SemelError as error:
            logger.info("group %s was not told that we leave: %s", self._group_id, error)

    def _cancel_join(self) -> None:
        """No await between this and what follows it: whoever waits for the join must find the state after both."""
        if self._joining is not None:
            self._joining.cancel()
        if self._state is State.JOINING:
            self._move(Event.AGAIN)

    async def _end_requests(self) -> None:
        self._cancel_join()
        if self._joining is not None:
            await asyncio.gather(self._joining, return_exceptions=True)

    # -- notes

    def _move(self, event: Event) -> None:
        self._state = next_state(self._state, event)

    def _join_again(self, reason: str) -> None:
        if self._rejoin is None and self._state in (State.JOINING, State.ASSIGNED, State.STABLE):
            self._rejoin = reason
            self._owner.unsettled()

    def _look_at_topics(self) -> None:
        changed = self._group_topics.changed()
        if changed is not None:
            self._join_again(changed)

    def _drop(self, reason: str, *, keep_id: bool) -> None:
        """The group goes on without us. What the program still has is lost, which it is told in its next poll."""
        logger.warning("no longer a member of group %s: %s", self._group_id, reason)
        self._forget_membership(keep_id=keep_id)
        self._move(Event.DROPPED)
        self._owner.unsettled()

    def _fail(self, error: SemelError) -> None:
        self.failure = error
        self._forget_membership(keep_id=False)
        self._move(Event.BROKEN)
        self._owner.unsettled()

    def _forget_membership(self, *, keep_id: bool) -> None:
        self.identity = self._outside
        self._member_id = self._member_id if keep_id else ""
        self._owned_generation = NO_GENERATION
        self._is_lost = True
        self._synced = None
        self._rejoin = None

    def _heard(self) -> None:
        self._heard_s = self._now_s()

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
