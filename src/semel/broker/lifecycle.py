"""The life of a broker among others: it registers, is fenced until it has caught up, serves, and asks to be let go.

```
            registered               caught up             unfenced
  STARTING ------------> CATCHING_UP ----------> RECOVERY ----------> RUNNING
                                                                         | stop
                        let go, or no time left                          v
      STOPPED <------------------------------------- PENDING_CONTROLLED_SHUTDOWN
```

Heartbeats say in which of these states the broker is; the controller's answers move it on. A broker that the controller
does not know any more, or knows by another epoch, registers again, with the same incarnation id: that keeps its epoch
if the controller has it still. One task sends; there is one request under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Protocol

from semel.broker.node_info import NO_BROKER_EPOCH, NodeInfo
from semel.config import BrokerConfig
from semel.host.complaints import Complaints
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from semel.wire.spec.broker_registration import (
    BrokerFeature,
    BrokerListener,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

logger = logging.getLogger("semel.broker")

_CATCHING_UP_S = 0.01
_SHUTDOWN_S = 0.05
SHUTDOWN_LIMIT_S = 30.0
"""How long a broker waits to be let go before it stops all the same."""

_FINAL = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
"""A registration that was refused so will be refused again."""
_UNKNOWN_HERE = (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH)


class CannotJoin(Exception):
    """The cluster does not take this node, or there is none."""


class State(Enum):
    STARTING = auto()
    CATCHING_UP = auto()
    RECOVERY = auto()
    RUNNING = auto()
    PENDING_CONTROLLED_SHUTDOWN = auto()
    STOPPED = auto()


_MOVES = frozenset(
    {
        (State.STARTING, State.CATCHING_UP),
        (State.CATCHING_UP, State.RECOVERY),
        (State.RECOVERY, State.RUNNING),
        (State.RUNNING, State.PENDING_CONTROLLED_SHUTDOWN),
        (State.PENDING_CONTROLLED_SHUTDOWN, State.STOPPED),
    }
)


class RegistrationChannel(Protocol):
    """The way to the controller, wherever that is. Refused: there is none that answers in time."""

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse: ...

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse: ...


class BrokerLifecycle:
    """`current_offset` is the offset of the last record that this node's image has."""

    def __init__(
        self,
        node: NodeInfo,
        channel: RegistrationChannel,
        current_offset: Callable[[], int],
        *,
        incarnation_id: bytes,
        listeners: Sequence[BrokerListener],
        features: Sequence[BrokerFeature],
        log_dirs: Sequence[bytes],
        previous_epoch: int,
        on_broken: Callable[[BaseException], None],
        on_new_epoch: Callable[[int], Awaitable[None]],
    ) -> None:
        """`on_new_epoch` is told when a later registration of this start has got another epoch than the first."""
        self.state = State.STARTING
        self.is_fenced = True
        self._node = node
        self._channel = channel
        self._current_offset = current_offset
        self._incarnation_id = incarnation_id
        self._listeners = listeners
        self._features = features
        self._log_dirs = log_dirs
        self._previous_epoch = previous_epoch
        self._on_broken = on_broken
        self._on_new_epoch = on_new_epoch
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._is_hurried = False
        self._complaints = Complaints(logger)

    @property
    def _config(self) -> BrokerConfig:
        return self._node.config

    # -- registration

    async def register(self) -> None:
        """Returns when the controller has taken this broker; raises CannotJoin."""
        timeout_s = self._config.int("initial.broker.registration.timeout.ms") / 1000
        problem = "no controller has answered"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        if await self._try_to_register():
                            break
                        problem = "another broker of this id has not been silent for long enough"
                    except Refused as refusal:
                        problem = refusal.text
                    await asyncio.sleep(min(self._heartbeat_s, timeout_s / 10))
        except TimeoutError:
            raise CannotJoin(
                f"broker {self._node.node_id} could not register with the controller within {timeout_s:g} s: {problem}"
            ) from None
        self._move(State.CATCHING_UP)

    async def _try_to_register(self) -> bool:
        answer = await self._channel.register_broker(self._registration())
        code = answer.error_code
        if code in _FINAL:
            what = ErrorCode(code)
            raise CannotJoin(f"the controller does not take broker {self._node.node_id}: {what.name}, {what.text}")
        if code:
            self._complaints.say(
                code,
                logging.WARNING,
                "the controller does not take broker %d yet: %s",
                self._node.node_id,
                ErrorCode(code).name,
            )
            return False
        self._node.broker_epoch = answer.broker_epoch
        logger.info("broker %d is registered, broker epoch %d", self._node.node_id, answer.broker_epoch)
        return True

    def _registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self._node.node_id,
            cluster_id=self._node.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=list(self._listeners),
            features=list(self._features),
            rack=self._config.text("broker.rack"),
            log_dirs=list(self._log_dirs),
            previous_broker_epoch=self._previous_epoch,
        )

    # -- heartbeats

    def start_heartbeats(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._beat())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_broken(error)

    @property
    def _heartbeat_s(self) -> float:
        return self._config.int("broker.heartbeat.interval.ms") / 1000

    async def _beat(self) -> None:
        while not self._is_over:
            pause_s = await self._beat_once()
            self._wake.clear()
            if not self._is_over:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()

    @property
    def _is_over(self) -> bool:
        return self.state is State.STOPPED

    async def _beat_once(self) -> float:
        """How long to pause until the next one."""
        sent_in = self.state
        request = BrokerHeartbeatRequest(
            broker_id=self._node.node_id,
            broker_epoch=self._node.broker_epoch,
            current_metadata_offset=self._current_offset(),
            want_fence=sent_in in (State.STARTING, State.CATCHING_UP, State.RECOVERY),
            want_shut_down=sent_in is State.PENDING_CONTROLLED_SHUTDOWN,
        )
        try:
            answer = await self._channel.heartbeat(request)
            if answer.error_code in _UNKNOWN_HERE:
                return await self._register_again(ErrorCode(answer.error_code))
        except (Refused, CannotJoin) as error:
            self._complaints.say("heartbeat", logging.WARNING, "broker %d: %s", self._node.node_id, error)
            if self.state is State.PENDING_CONTROLLED_SHUTDOWN:
                self._move(State.STOPPED)  # nobody is there who could give its partitions to others
            return min(self._heartbeat_s, 1.0)
        if answer.error_code:
            text = "the controller refuses the heartbeat of broker %d: %s"
            self._complaints.say(answer.error_code, logging.WARNING, text, self._node.node_id, answer.error_code)
            return self._heartbeat_s
        return self._answered(sent_in, answer)

    def _answered(self, sent_in: State, answer: BrokerHeartbeatResponse) -> float:
        if self.is_fenced != answer.is_fenced:
            self.is_fenced = answer.is_fenced
            logger.info("broker %d is %s", self._node.node_id, "fenced" if answer.is_fenced else "unfenced")
            self._look()
        if sent_in is not self.state:
            return 0.0  # it has moved on meanwhile, and there is something else to say
        if sent_in is State.CATCHING_UP:
            if not answer.is_caught_up:
                return _CATCHING_UP_S
            self._move(State.RECOVERY)
            return self._heartbeat_s  # or as soon as this node is ready
        if sent_in is State.RECOVERY:
            return self._heartbeat_s
        if sent_in is State.PENDING_CONTROLLED_SHUTDOWN:
            if answer.should_shut_down:
                self._move(State.STOPPED)
            return _SHUTDOWN_S
        return self._heartbeat_s

    async def _register_again(self, code: ErrorCode) -> float:
        """The controller has forgotten this broker, or knows a later registration of its id. Returns the pause until
        the next heartbeat: if this one came to nothing, that is refused like the last, and it is tried again."""
        logger.warning("broker %d registers again: %s", self._node.node_id, code.name)
        before, self._node.broker_epoch = self._node.broker_epoch, NO_BROKER_EPOCH
        if not await self._try_to_register():
            return self._heartbeat_s
        if self._node.broker_epoch != before:
            await self._on_new_epoch(self._node.broker_epoch)
        return 0.0

    # -- states

    async def until_caught_up(self) -> None:
        """Waits until the committed image is as new as this broker's own registration."""
        await self._until(lambda: self.state is not State.CATCHING_UP)

    async def until_unfenced(self) -> None:
        """Says that everything is loaded, and waits until the controller lets others know of this broker."""
        self._move(State.RUNNING)
        await self._until(lambda: not self.is_fenced)

    async def until_let_go(self) -> None:
        """Asks the controller to give its partitions to others. Waits for that, but not for ever."""
        if self._task is None or self.state is not State.RUNNING or self._is_hurried:
            return
        self._move(State.PENDING_CONTROLLED_SHUTDOWN)
        try:
            async with asyncio.timeout(SHUTDOWN_LIMIT_S):
                await self._until(lambda: self.state is State.STOPPED or self._is_hurried)
        except TimeoutError:
            logger.warning(
                "broker %d stops before the controller has let it go: it has waited for %g s",
                self._node.node_id,
                SHUTDOWN_LIMIT_S,
            )

    def hurry(self) -> None:
        """Nobody is there who could take its partitions: it stops without that."""
        self._is_hurried = True
        self._look()

    def _move(self, state: State) -> None:
        if (self.state, state) not in _MOVES:
            raise RuntimeError(f"broker {self._node.node_id} cannot go from {self.state.name} to {state.name}")
        logger.debug("broker %d: %s, then %s", self._node.node_id, self.state.name, state.name)
        self.state = state
        self._wake.set()
        self._look()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((is_so, future))
            await future

    def _look(self) -> None:
        waiting, self._waiting = self._waiting, []
        for is_so, future in waiting:
            if future.done():
                continue
            if is_so():
                future.set_result(None)
            else:
                self._waiting.append((is_so, future))

    async def close(self) -> None:
        self.state = State.STOPPED
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
