"""One poll: keeps the membership settled, commits what is due, hands out what is there, and waits for what is not.

Only here, and in close and unsubscribe, does the program's listener run; a poll that has to run it takes as long as it
takes. While the group waits for other members, partitions that stay are read on. A program that always finds something
still lets the loop go round every millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from semel.client.consumer.auto_commit import AutoCommit
from semel.client.consumer.fetcher import Fetcher
from semel.client.consumer.membership.api import Membership
from semel.client.consumer.record_queue import RecordQueue
from semel.client.consumer.wakeup import Wakeup
from semel.client.errors import Closed, IllegalState
from semel.client.serialization import NotReady

T = TypeVar("T")

_LONGEST_TURN_S = 0.001


class Polling:
    def __init__(
        self,
        fetcher: Fetcher,
        record_queue: RecordQueue,
        wakeup: Wakeup,
        auto_commit: AutoCommit | None,
        *,
        problem: Callable[[], BaseException | None],
        pulse_s: float | None,
    ) -> None:
        """`problem`: what else is to be raised. `pulse_s`: how often one who is given messages one by one must poll."""
        self.membership: Membership | None = None
        self.needs_attention = False
        """Set when one who is given messages one by one must poll before the next."""
        self.is_closed = False
        self._fetcher = fetcher
        self._record_queue = record_queue
        self._wakeup = wakeup
        self.auto_commit = auto_commit
        self._problem = problem
        self._pulse_s = pulse_s
        self._pulse: asyncio.TimerHandle | None = None
        self._is_inside = False
        self._turned_s = float("-inf")

    def look(self) -> None:
        """Something is to be looked at, by a poll that waits or by the next one."""
        self.needs_attention = True
        self._wakeup.wake()

    async def poll(self, take: Callable[[], T | None], timeout_s: float | None) -> T | None:
        """What `take` finds: now, or within the time; None if nothing."""
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        self._enter()
        try:
            has_turned = loop.time() - self._turned_s >= _LONGEST_TURN_S
            if has_turned:
                await self._turn()
            while True:
                await self._keep_up()
                try:
                    found = take()
                except NotReady as missing:
                    await asyncio.to_thread(missing.fetch)
                    continue
                if found is not None:
                    return found
                if not has_turned:
                    has_turned = True
                    await self._turn()
                    continue
                if deadline_s is not None and loop.time() >= deadline_s:
                    return None
                if not self._fetcher.poll_waits:
                    self._fetcher.poll_waits = True
                    self._fetcher.kick()
                await self._wakeup.wait(deadline_s)
        finally:
            self._leave()

    async def _turn(self) -> None:
        """Lets the loop go round: answers, heartbeats and the program's other tasks get their turn."""
        await asyncio.sleep(0)
        self._turned_s = asyncio.get_running_loop().time()

    def _enter(self) -> None:
        if self.is_closed:
            raise Closed("the consumer was closed")
        self.refuse_inside("poll")
        self._is_inside = True
        self.needs_attention = False
        self._record_queue.unfinished.clear()
        if self.membership is not None:
            self.membership.polled()

    def _leave(self) -> None:
        self._is_inside = False
        self._fetcher.poll_waits = False
        if self.membership is not None:
            self.membership.returned()
            if not self.membership.is_settled():
                self.needs_attention = True
        if self.is_closed:
            self._wakeup.wake()

    async def _keep_up(self) -> None:
        """The program asks for more, so all that it was given before counts as done."""
        if self.is_closed:
            raise Closed("the consumer was closed")
        problem = self._problem()
        if problem is not None:
            raise problem.with_traceback(None)
        if self.auto_commit is not None:
            self.auto_commit.tick(asyncio.get_running_loop().time())
        membership = self.membership
        if membership is not None:
            if membership.failure is not None:
                raise membership.failure.with_traceback(None)
            if not membership.is_settled():
                await membership.reconcile(wait=False)

    # -- one by one

    def arm(self) -> None:
        """From now on, one who is given messages one by one polls from time to time."""
        if self._pulse is None and self._pulse_s is not None:
            self._pulse = asyncio.get_running_loop().call_later(self._pulse_s, self._beat)

    def _beat(self) -> None:
        self._pulse = None
        self.needs_attention = True

    # -- the end

    def refuse_inside(self, what: str) -> None:
        if self._is_inside:
            raise IllegalState(f"{what} while another task, or a listener, is inside poll: one at a time")

    async def close(self, deadline_s: float) -> None:
        """A poll of another task ends, with Closed."""
        self.is_closed = True
        if self._pulse is not None:
            self._pulse.cancel()
        self._wakeup.wake()
        while self._is_inside and asyncio.get_running_loop().time() < deadline_s:
            await self._wakeup.wait(deadline_s)
