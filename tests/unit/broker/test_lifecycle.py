"""A broker's registration and heartbeats, against a controller that answers what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from semel.broker.lifecycle import SHUTDOWN_LIMIT_S, BrokerLifecycle, CannotJoin, State
from semel.broker.node_info import NodeInfo
from semel.config import BrokerConfig
from semel.log.errors import Refused
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from semel.wire.spec.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

INCARNATION = bytes(range(16))
UNREACHABLE = Refused(ErrorCode.REQUEST_TIMED_OUT, "nobody answers")


class Controller:
    """Answers with what is put here; without, as one that has nothing against the broker."""

    def __init__(self) -> None:
        self.registrations: list[BrokerRegistrationRequest] = []
        self.heartbeats: list[tuple[float, BrokerHeartbeatRequest]] = []
        self.answers: list[int | Refused] = []  # to registrations
        self.epoch = 100
        self.refuses = 0
        self.is_silent = False
        self.registered_at = 50
        self.lets_go = True

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        self.registrations.append(request)
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Refused):
            raise answer
        if answer:
            return BrokerRegistrationResponse(error_code=answer)
        self.epoch += 1
        return BrokerRegistrationResponse(broker_epoch=self.epoch)

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        self.heartbeats.append((asyncio.get_running_loop().time(), request))
        if self.is_silent:
            raise UNREACHABLE
        if self.refuses:
            code, self.refuses = self.refuses, 0
            return BrokerHeartbeatResponse(error_code=code)
        return BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= self.registered_at,
            is_fenced=request.want_fence,
            should_shut_down=request.want_shut_down and self.lets_go,
        )


class Life:
    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.controller = Controller()
        self.offset = 60
        self.broken: list[BaseException] = []
        self.later_epochs: list[int] = []
        self.node = NodeInfo(4, BrokerConfig({"node.id": "4", **(settings or {})}), "cluster")
        self.broker = BrokerLifecycle(
            self.node,
            self.controller,
            lambda: self.offset,
            incarnation_id=INCARNATION,
            listeners=[],
            features=[],
            log_dirs=[],
            previous_epoch=77,
            on_broken=self.broken.append,
            on_new_epoch=self.note_epoch,
        )

    async def note_epoch(self, epoch: int) -> None:
        self.later_epochs.append(epoch)

    async def until_running(self) -> None:
        await self.broker.register()
        self.broker.start_heartbeats()
        await self.broker.until_caught_up()
        await self.broker.until_unfenced()

    @property
    def last(self) -> BrokerHeartbeatRequest:
        return self.controller.heartbeats[-1][1]


def lived(scenario: Callable[[Life], Coroutine[Any, Any, None]], settings: dict[str, str] | None = None) -> None:
    async def live() -> None:
        life = Life(settings)
        await scenario(life)
        await life.broker.close()
        assert not life.broken

    run(live(), loop=SimLoop(end_s=3600))


def test_it_registers_catches_up_loads_and_serves() -> None:
    async def scenario(life: Life) -> None:
        life.offset = 49
        await life.broker.register()
        (request,) = life.controller.registrations
        assert (request.broker_id, request.cluster_id, request.incarnation_id) == (4, "cluster", INCARNATION)
        assert request.previous_broker_epoch == 77
        assert life.node.broker_epoch == 101
        life.broker.start_heartbeats()
        await asyncio.sleep(1.0)
        assert life.broker.state is State.CATCHING_UP
        assert len(life.controller.heartbeats) > 50, "it asks often, as it only has to hear that it has caught up"
        assert life.last.want_fence
        assert life.last.broker_epoch == 101
        life.offset = 50
        await life.broker.until_caught_up()
        told = len(life.controller.heartbeats)
        await asyncio.sleep(3.9)
        assert len(life.controller.heartbeats) - told <= 2, "it loads, and only has to be alive"
        assert life.broker.state is State.RECOVERY

    lived(scenario)


def test_it_is_fenced_until_it_says_that_everything_is_loaded() -> None:
    async def scenario(life: Life) -> None:
        await life.broker.register()
        life.broker.start_heartbeats()
        await life.broker.until_caught_up()
        await asyncio.sleep(10)
        assert all(request.want_fence for _, request in life.controller.heartbeats)
        await life.broker.until_unfenced()
        assert not life.last.want_fence
        assert life.broker.state is State.RUNNING

    lived(scenario)


def test_it_waits_while_another_of_its_id_may_still_live() -> None:
    async def scenario(life: Life) -> None:
        life.controller.answers = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 3
        began_s = asyncio.get_running_loop().time()
        await life.broker.register()
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(6.0, abs=1.0)
        assert len({request.incarnation_id for request in life.controller.registrations}) == 1

    lived(scenario)


@pytest.mark.parametrize(
    "code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION]
)
def test_a_refusal_that_will_not_change_ends_the_start_in_one_line(code: ErrorCode) -> None:
    async def scenario(life: Life) -> None:
        life.controller.answers = [int(code)]
        with pytest.raises(CannotJoin, match=code.name) as refused:
            await life.broker.register()
        assert "\n" not in str(refused.value)
        assert len(life.controller.registrations) == 1

    lived(scenario)


def test_a_start_without_a_controller_has_an_end_and_says_what_was_missing() -> None:
    async def scenario(life: Life) -> None:
        life.controller.answers = [UNREACHABLE] * 1000
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(CannotJoin, match="within 60 s: nobody answers"):
            await life.broker.register()
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(60.0, abs=0.5)

    lived(scenario)


@pytest.mark.parametrize("code", [ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH])
def test_a_broker_that_the_controller_does_not_know_registers_again(code: ErrorCode) -> None:
    async def scenario(life: Life) -> None:
        await life.until_running()
        life.controller.refuses = int(code)
        await asyncio.sleep(3.0)
        assert [request.incarnation_id for request in life.controller.registrations] == [INCARNATION] * 2
        assert life.node.broker_epoch == 102 == life.last.broker_epoch
        assert life.later_epochs == [102], "a kill from now on is one of this epoch"
        assert life.broker.state is State.RUNNING

    lived(scenario)


def test_a_registration_that_is_refused_later_is_tried_again_and_nothing_ends() -> None:
    async def scenario(life: Life) -> None:
        await life.until_running()
        life.controller.answers = [int(ErrorCode.DUPLICATE_BROKER_REGISTRATION), UNREACHABLE]
        for _ in range(3):
            life.controller.refuses = int(ErrorCode.STALE_BROKER_EPOCH)
            await asyncio.sleep(3.0)
        await asyncio.sleep(3.0)
        assert len(life.controller.registrations) == 4
        assert life.node.broker_epoch == 102

    lived(scenario)


def test_heartbeats_go_on_without_the_controller() -> None:
    async def scenario(life: Life) -> None:
        await life.until_running()
        life.controller.is_silent = True
        await asyncio.sleep(30.0)
        life.controller.is_silent = False
        told = len(life.controller.heartbeats)
        await asyncio.sleep(10.0)
        assert len(life.controller.heartbeats) > told
        assert life.broker.state is State.RUNNING

    lived(scenario)


def test_it_asks_to_be_let_go_at_once_and_until_it_is() -> None:
    async def scenario(life: Life) -> None:
        await life.until_running()
        life.controller.lets_go = False
        began_s = asyncio.get_running_loop().time()
        leaving = asyncio.ensure_future(life.broker.until_let_go())
        await asyncio.sleep(0.001)
        assert life.last.want_shut_down
        await asyncio.sleep(1.0)
        assert not leaving.done()
        life.controller.lets_go = True
        await leaving
        assert asyncio.get_running_loop().time() - began_s < 1.2
        assert life.broker.state is State.STOPPED

    lived(scenario)


def test_it_does_not_wait_for_ever_to_be_let_go() -> None:
    async def scenario(life: Life) -> None:
        await life.until_running()
        life.controller.lets_go = False
        began_s = asyncio.get_running_loop().time()
        await life.broker.until_let_go()
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(SHUTDOWN_LIMIT_S, abs=0.1)

    lived(scenario)


def test_it_does_not_wait_for_a_controller_that_is_gone() -> None:
    async def scenario(life: Life) -> None:
        await life.until_running()
        life.controller.is_silent = True
        began_s = asyncio.get_running_loop().time()
        await life.broker.until_let_go()
        assert asyncio.get_running_loop().time() - began_s < 1.0

    lived(scenario)
