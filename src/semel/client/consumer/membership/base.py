"""What memberships of both protocols have in common: the order in which the program is told things, and how one leaves.

Requests run in tasks of their own, so that polls may be as short as they like. They only note what they find.
`reconcile` looks at the notes and takes one step at a time, each of which may be the last for now. No step is forgotten
when a poll ends, since nothing but the notes says which is next.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from semel.client.cluster import Cluster
from semel.client.consumer.membership.api import Owner
from semel.client.consumer.membership.callbacks import Callbacks
from semel.client.consumer.membership.keeper import Keeper
from semel.client.consumer.membership.line import CoordinatorLine
from semel.client.consumer.membership.poll_clock import PollClock
from semel.client.coordinators import Coordinators
from semel.client.errors import SemelError
from semel.client.values import GroupIdentity

if TYPE_CHECKING:
    from semel.client.consumer.settings import ConsumerSettings

logger = logging.getLogger("semel.client.group")


class BaseMembership(ABC):
    def __init__(
        self, cluster: Cluster, coordinators: Coordinators, settings: ConsumerSettings, owner: Owner, group_id: str
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._group_id = group_id
        self._line = CoordinatorLine(cluster, coordinators, group_id)
        self._clock = PollClock(settings.max_poll_interval_ms)
        self._callbacks = Callbacks(self._clock)
        self._keeper = Keeper(
            self._clock,
            beat=self._beat,
            has_place=self._has_place,
            is_away=self._program_is_away,
            broken=self._note_problem,
        )
        self._outside = GroupIdentity(group_id, instance_id=settings.group_instance_id)
        self.identity = self._outside
        self.failure: SemelError | None = None
        self._is_lost = False
        self._is_leaving = False
        self._problem: Exception | None = None
        cluster.changed.append(self._look_at_topics)

    def polled(self) -> None:
        self._clock.polled()

    def returned(self) -> None:
        self._clock.returned()

    def commit_refused(self, code: int) -> None:
        """The commit may be of an older generation: a heartbeat with the current one tells what is true now."""
        self._keeper.beat_now()

    # -- what the program does, inside poll

    async def reconcile(self, *, wait: bool = True) -> None:
        while True:
            try:
                await self._callbacks.finish()
            finally:
                self._look_at_topics()
            if self._is_leaving:
                return
            if self._is_lost:
                self._is_lost = False
                if owned := self._owner.owned():
                    await self._callbacks.run(self._owner.lose, owned)
            elif self.failure is not None:
                raise self.failure
            elif self._problem is not None:
                problem, self._problem = self._problem, None
                raise problem
            elif not await self._step(wait):
                return

    @abstractmethod
    async def _step(self, wait: bool) -> bool:
        """One step of the protocol, with at most one callback; whether there was one to take."""

    async def leave(self, *, reason: str = "") -> None:
        self._callbacks.check_outside()
        if self._is_out():
            return
        problem: Exception | None = None
        self._is_leaving = True
        try:
            for step in (self._callbacks.finish, self._end_requests, self._give_up_everything):
                try:
                    await step()
                except Exception as error:  # a listener's: we are out all the same, and then it is told
                    problem = problem or error
            member_id = self._step_out()
            await self._keeper.stop()
            await self._say_goodbye(member_id, reason or "the consumer leaves")
        finally:
            self._is_leaving = False
            if not self._is_out():
                self._step_out()
        if problem is not None:
            raise problem

    async def _give_up_everything(self) -> None:
        if owned := self._owner.owned():
            is_member = bool(self.identity.member_id) and not self._is_lost
            await self._callbacks.run(self._owner.revoke if is_member else self._owner.lose, owned)

    async def close(self) -> None:
        if self._look_at_topics in self._cluster.changed:
            self._cluster.changed.remove(self._look_at_topics)
        await self._end_requests()
        await self._keeper.stop()
        await self._callbacks.close()
        await self._line.close()

    # -- in the keeper's task

    @abstractmethod
    async def _beat(self) -> float:
        """Does what is due to stay in the group; in how many seconds something is due again."""

    @abstractmethod
    def _has_place(self) -> bool:
        """Whether others wait for us: we are a member, or about to be."""

    async def _program_is_away(self) -> None:
        logger.warning(
            "the program has not polled for more than max_poll_interval_ms (%d ms): leaving group %s, so that others "
            "can read on; poll more often, ask for fewer records at a time (max_poll_records), or raise the limit",
            *(self._clock.limit_ms, self._group_id),
        )
        member_id = self._let_go("the program has not polled for too long")
        await self._say_goodbye(member_id, "the program has not polled within max.poll.interval.ms")

    # -- what the protocols do in their own ways

    @abstractmethod
    def _is_out(self) -> bool: ...

    @abstractmethod
    def _step_out(self) -> str:
        """Out, by our own will, as if we had never been in; the id to say goodbye with."""

    @abstractmethod
    def _let_go(self, reason: str) -> str:
        """Out, to come back with the next poll; the id to say goodbye with."""

    async def _end_requests(self) -> None:  # noqa: B027
        """Ends what else than the keeper asks the coordinator in the background."""

    @abstractmethod
    async def _say_goodbye(self, member_id: str, reason: str) -> None:
        """Tells the coordinator, once: the session would end anyway."""

    @abstractmethod
    def _look_at_topics(self) -> None:
        """The cluster's view has changed, or what is owned: is something to be done about it?"""

    def _note_problem(self, error: Exception) -> None:
        logger.error("the membership of group %s has ended", self._group_id, exc_info=error)
        self._problem = error
        self._owner.unsettled()
