"""Membership by the protocol of KIP-848: the broker assigns, and one request, the heartbeat, does everything.

An answer may bring an assignment. Inside `reconcile` the program gives up what is not in it and takes what is new; each
change is confirmed at once by a heartbeat that says what is owned now. The broker never gives a partition to two: what
is in an assignment may be taken. Partitions are told apart by topic id, so that a topic that was deleted and made again
is another one.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING
from uuid import UUID

from semel.client.cluster import Cluster
from semel.client.consumer.membership.api import Owner, Partitions
from semel.client.consumer.membership.base import BaseMembership
from semel.client.consumer.membership.modern_heartbeat import (
    JOINING,
    PATTERN_SINCE,
    Places,
    Remedy,
    Speech,
    Told,
    refusal,
    remedy_for,
    unsupported,
)
from semel.client.consumer.membership.modern_states import Event, State, next_state
from semel.client.consumer.membership.topic_names import TopicNames
from semel.client.coordinators import Coordinators
from semel.client.errors import FatalError, SemelError, UnsupportedByBroker, code_text
from semel.client.metadata import TopicPartition
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from semel.client.consumer.settings import ConsumerSettings

logger = logging.getLogger("semel.client.group")

_NEVER_S = float("inf")


class ModernMembership(BaseMembership):
    def __init__(
        self, cluster: Cluster, coordinators: Coordinators, settings: ConsumerSettings, owner: Owner, group_id: str
    ) -> None:
        super().__init__(cluster, coordinators, settings, owner, group_id)
        self._member_id = _new_member_id(cluster.host.random.randbytes(16))
        self._names = TopicNames(cluster, owner)
        self._speech = Speech(settings, group_id, self._member_id)
        self._state = State.OUT
        self._epoch = JOINING
        self._target: Places = frozenset()
        self._held: dict[TopicPartition, bytes] = {}
        self._has_step = False
        self._is_unconfirmed = False
        self._may_be_known = False
        self._failures = 0
        self._news = asyncio.Event()

    # -- what the consumer says

    def is_settled(self) -> bool:
        return (
            (self._state is State.MEMBER or self._state is State.OUT)
            and not self._has_step
            and not self._is_lost
            and self._problem is None
            and self._callbacks.is_idle
        )

    def subscription_changed(self) -> None:
        if self._state is State.OUT:
            self._move(Event.WANTED)
            self._keeper.start()
            self._owner.unsettled()
        self._keeper.beat_now()

    # -- what the program does, inside poll

    async def _step(self, wait: bool) -> bool:
        if self._state is State.LOST:
            self._move(Event.TOLD)
            self._keeper.beat_now()
        elif self._state is State.JOINING and wait:
            self._news.clear()
            await self._news.wait()
        elif self._state is State.MEMBER and self._has_step:
            await self._reconcile()
        else:
            return False
        return True

    async def _reconcile(self) -> None:
        """One step: gives up what is not ours any more, or else takes what is new."""
        owned = self._owner.owned()
        if giving_up := self._to_give_up(owned):
            await self._callbacks.run(self._owner.revoke, giving_up)
        elif taking := self._to_take(owned):
            self._held.update(taking)
            logger.info(
                "group %s, epoch %d: takes %s", self._group_id, self._epoch, ", ".join(map(str, sorted(taking)))
            )
            await self._callbacks.run(self._owner.assign, frozenset(taking))

    def _to_give_up(self, owned: Partitions) -> Partitions:
        return frozenset(one for one in owned if (self._held.get(one), one.partition) not in self._target)

    def _to_take(self, owned: Partitions) -> dict[TopicPartition, bytes]:
        """Of what is assigned, that whose name is known."""
        taking = {}
        for topic_id, index in self._target:
            name = self._names.name(topic_id)
            if name is not None and (one := TopicPartition(name, index)) not in owned:
                taking[one] = topic_id
        return taking

    def _look_at_topics(self) -> None:
        """Whether the program has a step to do. When the last one is done, the coordinator is to know."""
        had_step = self._has_step
        owned = self._owner.owned()
        is_member = self._state is State.MEMBER and not self._is_lost
        self._has_step = is_member and bool(self._to_give_up(owned) or self._to_take(owned))
        if self._has_step and not had_step:
            self._owner.unsettled()
        is_news = self._speech.is_news(self._places(owned)) or (self._is_unconfirmed and not self._has_step)
        if is_member and is_news and self._callbacks.is_idle and not self._failures:
            self._keeper.beat_now()

    def _places(self, owned: Partitions) -> Places:
        return frozenset((self._held[one], one.partition) for one in owned if one in self._held)

    # -- heartbeats, in the keeper's task

    async def _beat(self) -> float:
        """Returns in how many seconds the next one is due."""
        if self._state is not State.JOINING and self._state is not State.MEMBER:
            return _NEVER_S
        state, epoch = self._state, self._epoch
        pattern = self._owner.pattern()
        topics = () if pattern is not None else tuple(sorted(self._owner.subscription()))
        now = Told(topics, pattern, self._places(self._owner.owned()))
        confirms = self._is_unconfirmed and not self._has_step and self._callbacks.is_idle
        if confirms:
            self._is_unconfirmed = False
        request = self._speech.request(epoch, now, confirms=confirms)
        self._may_be_known = True
        timeout_s = min(self._settings.request_timeout_ms, self._settings.session_timeout_ms / 3) / 1000
        at_least = 0 if pattern is None else PATTERN_SINCE
        try:
            answer = await self._line.ask(request, ConsumerGroupHeartbeatResponse, timeout_s, at_least=at_least)
        except UnsupportedByBroker as error:
            self._fail(unsupported(self._group_id, str(error)))
            return _NEVER_S
        except FatalError as error:
            self._fail(error)
            return _NEVER_S
        except SemelError as error:
            return self._failed(str(error))
        if answer.error_code != ErrorCode.NONE:
            return self._refused(answer)
        if (self._state, self._epoch) == (state, epoch):
            self._heard(answer)
        return answer.heartbeat_interval_ms / 1000

    def _heard(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self._failures = 0
        self._epoch = answer.member_epoch
        self.identity = self._outside._replace(generation_id=self._epoch, member_id=self._member_id)
        if self._state is State.JOINING:
            self._move(Event.ADMITTED)
            self._owner.unsettled()
        if answer.assignment is not None:
            self._target = frozenset(
                (topic.topic_id, index) for topic in answer.assignment.topic_partitions for index in topic.partitions
            )
            self._is_unconfirmed = True
            self._names.want(frozenset(topic_id for topic_id, _ in self._target))
        self._look_at_topics()

    def _refused(self, answer: ConsumerGroupHeartbeatResponse) -> float:
        remedy = remedy_for(answer.error_code, self._epoch)
        error = refusal(answer.error_code, self._group_id, answer.error_message)
        reason = code_text(answer.error_code) + (f" ({answer.error_message})" if answer.error_message else "")
        if remedy is Remedy.NONE:
            self._fail(error)
            return _NEVER_S
        if remedy is Remedy.REJOIN and self._state is State.MEMBER:
            self._may_be_known = False
            self._drop(reason)
            return _NEVER_S
        if answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID and not self._failures:
            logger.warning("waiting until group.instance.id %r is free: %s", self._settings.group_instance_id, reason)
        if remedy is Remedy.ELSEWHERE:
            self._line.moved()
        return self._failed(reason)

    def _failed(self, reason: str) -> float:
        """The answer may have been lost with what it said: the next heartbeat tells and asks for everything."""
        logger.info("a heartbeat to group %s failed: %s", self._group_id, reason)
        self._speech.unheard()
        self._failures += 1
        return self._cluster.backoff_s(self._failures)

    # -- leaving

    def _has_place(self) -> bool:
        return self._state is State.MEMBER

    def _is_out(self) -> bool:
        return self._state is State.OUT

    def _step_out(self) -> str:
        self._forget_membership()
        self._is_lost = False
        self.failure = self._problem = None
        self._move(Event.LEFT)
        return self._goodbye_id()

    def _let_go(self, reason: str) -> str:
        self._drop(reason)
        return self._goodbye_id()

    def _goodbye_id(self) -> str:
        is_known, self._may_be_known = self._may_be_known, False
        return self._member_id if is_known else ""

    async def _say_goodbye(self, member_id: str, reason: str) -> None:
        """The protocol has no room for a reason."""
        if not member_id:
            return
        timeout_s = self._settings.request_timeout_ms / 1000
        try:
            await self._line.ask(self._speech.leaving(), ConsumerGroupHeartbeatResponse, timeout_s)
        except SemelError as error:
            logger.info("group %s was not told that we leave: %s", self._group_id, error)

    async def close(self) -> None:
        await super().close()
        await self._names.close()

    # -- notes

    def _move(self, event: Event) -> None:
        self._state = next_state(self._state, event)
        self._news.set()

    def _drop(self, reason: str) -> None:
        """The group goes on without us. What the program still has is lost, which it is told in its next poll."""
        logger.warning("no longer a member of group %s: %s", self._group_id, reason)
        self._forget_membership()
        self._move(Event.FENCED)
        self._owner.unsettled()

    def _fail(self, error: SemelError) -> None:
        self.failure = error
        self._may_be_known = False
        self._forget_membership()
        self._move(Event.BROKEN)
        self._owner.unsettled()

    def _forget_membership(self) -> None:
        self.identity = self._outside
        self._epoch = JOINING
        self._target = frozenset()
        self._held.clear()
        self._has_step = False
        self._is_unconfirmed = False
        self._is_lost = True
        self._speech.unheard()
        self._names.want(frozenset())

    def _note_problem(self, error: Exception) -> None:
        super()._note_problem(error)
        self._news.set()


def _new_member_id(chance: bytes) -> str:
    """As Kafka's clients write the ids that they make."""
    return urlsafe_b64encode(UUID(bytes=chance, version=4).bytes).rstrip(b"=").decode()
