"""Connections to the nodes of a cluster: made when needed, shared, made again, closed when idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from semel.peer.backoff import Backoff
from semel.peer.errors import AuthenticationFailed, Closed, PeerError, Unreachable
from semel.peer.nodes import Nodes
from semel.rpc.connection import Connection
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run


class Place(NamedTuple):
    host: str
    port: int = 9092


ONE, TWO, THREE = Place("one"), Place("two"), Place("three")


class FakeConnection:
    """What Nodes sees of a Connection."""

    def __init__(self, ended: Callable[[Any], None]) -> None:
        self.is_open = True
        self.in_flight = 0
        self._ended = ended

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._ended(self)


class Bench:
    """Nodes whose connections the test makes: at once, after a while, or never."""

    def __init__(self, loop: SimLoop, *, backoff_ms: tuple[int, int], idle_s: float) -> None:
        self.loop = loop
        self.opened: list[tuple[float, str]] = []
        self.delay_s = 0.0
        self.problem: PeerError | None = None
        self.closes_at_once = False
        self.ended: list[int] = []
        self.connected: list[int] = []
        random = SimWorld(loop, 1).host("caller").random
        self.nodes = Nodes(random, self._open, backoff=Backoff(random, *backoff_ms), idle_s=idle_s)  # type: ignore[arg-type]
        self.nodes.ended = self.ended.append
        self.nodes.connected = self.connected.append
        self.nodes.update({1: ONE, 2: TWO})

    async def _open(self, host: str, port: int, ended: Callable[[Any], None]) -> FakeConnection:
        self.opened.append((self.loop.time(), host))
        await asyncio.sleep(self.delay_s)
        if self.problem is not None:
            raise self.problem
        made = FakeConnection(ended)
        if self.closes_at_once:
            made.close()
        return made

    async def connect(self, node_id: int) -> FakeConnection:
        connection: Any = await self.nodes.connect(node_id)
        return connection  # type: ignore[no-any-return]


Test = Callable[[Bench], Coroutine[Any, Any, None]]


def bench(*, backoff_ms: tuple[int, int] = (50, 1000), idle_s: float = 540.0) -> Callable[[Test], Callable[[], None]]:
    def decorate(test: Test) -> Callable[[], None]:
        def in_virtual_time() -> None:
            loop = SimLoop(end_s=100_000)
            raised: list[Any] = []
            loop.set_exception_handler(lambda _, context: raised.append(context))

            async def scenario() -> None:
                made = Bench(loop, backoff_ms=backoff_ms, idle_s=idle_s)
                await test(made)
                await made.nodes.close()
                await asyncio.sleep(0)
                left = [task for task in loop.unfinished_tasks() if task is not asyncio.current_task()]
                assert not left, left

            run(scenario(), loop=loop)
            assert not raised, raised

        in_virtual_time.__name__ = test.__name__
        return in_virtual_time

    return decorate


# -- making


@bench()
async def test_nothing_is_connected_before_it_is_needed(nodes: Bench) -> None:
    await asyncio.sleep(10)
    assert nodes.opened == []
    assert nodes.nodes.known == [1, 2]


@bench()
async def test_asking_for_a_connection_that_is_not_there_makes_one_and_tells_when_it_is(nodes: Bench) -> None:
    nodes.delay_s = 1
    assert nodes.nodes.connection(1) is None
    assert nodes.nodes.connection(1) is None
    await asyncio.sleep(2)
    assert nodes.connected == [1]
    assert nodes.nodes.connection(1) is not None
    assert [host for _, host in nodes.opened] == ["one"]


@bench()
async def test_all_who_need_a_connection_wait_for_the_same_attempt(nodes: Bench) -> None:
    nodes.delay_s = 1
    made = await asyncio.gather(*[nodes.connect(1) for _ in range(5)])
    assert len(set(made)) == 1
    assert len(nodes.opened) == 1
    assert await nodes.connect(1) is made[0]


@bench()
async def test_one_who_gives_up_does_not_end_the_attempt_of_the_others(nodes: Bench) -> None:
    nodes.delay_s = 1
    first, second = asyncio.create_task(nodes.connect(1)), asyncio.create_task(nodes.connect(1))
    await asyncio.sleep(0.5)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    assert (await second).is_open
    assert len(nodes.opened) == 1


@bench()
async def test_a_failed_attempt_is_told_to_all_who_wait(nodes: Bench) -> None:
    nodes.problem = Unreachable("no way")
    results = await asyncio.gather(nodes.connect(1), nodes.connect(1), return_exceptions=True)
    assert results == [nodes.problem, nodes.problem]
    assert nodes.ended == [1]


@bench()
async def test_a_node_that_is_none_of_the_cluster_is_refused(nodes: Bench) -> None:
    with pytest.raises(Unreachable, match="node 7 is not part of the cluster"):
        await nodes.connect(7)
    assert nodes.nodes.connection(7) is None


@bench(backoff_ms=(100, 1000))
async def test_attempts_that_fail_are_repeated_after_longer_and_longer_pauses(nodes: Bench) -> None:
    nodes.problem = Unreachable("no way")
    for _ in range(7):
        with pytest.raises(Unreachable):
            await nodes.connect(1)
    times_s = [at_s for at_s, _ in nodes.opened]
    for (before, after), pause_s in zip(pairwise(times_s), [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
        assert pause_s * 0.8 <= after - before <= pause_s * 1.2
    nodes.problem = None
    made = await nodes.connect(1)
    made.close()
    began_s = nodes.loop.time()
    await nodes.connect(1)
    assert nodes.loop.time() - began_s <= 0.12, "after a success the pause is short again"
    (await nodes.connect(1)).close()
    nodes.problem = Unreachable("no way")
    for _ in range(2):
        with pytest.raises(Unreachable):
            await nodes.connect(1)
    assert nodes.opened[-1][0] - nodes.opened[-2][0] <= 0.24, "and grows from there"


@bench(backoff_ms=(10, 5000))
async def test_a_refused_login_is_repeated_after_the_longest_pause_only(nodes: Bench) -> None:
    nodes.problem = AuthenticationFailed("wrong password")
    for _ in range(2):
        with pytest.raises(AuthenticationFailed):
            await nodes.connect(1)
    assert nodes.opened[1][0] - nodes.opened[0][0] >= 4


@bench()
async def test_a_connection_that_ends_right_away_counts_as_failed(nodes: Bench) -> None:
    nodes.closes_at_once = True
    assert nodes.nodes.connection(1) is None
    await asyncio.sleep(0.01)
    assert nodes.ended == [1], "or nobody would ever try again"
    assert nodes.connected == []
    with pytest.raises(Unreachable):
        await nodes.connect(1)
    assert nodes.opened[1][0] - nodes.opened[0][0] >= 0.03
    nodes.closes_at_once = False
    await nodes.connect(1)


# -- losing


@bench()
async def test_a_connection_that_ended_is_told_and_made_again_after_a_pause(nodes: Bench) -> None:
    (await nodes.connect(1)).close()
    assert nodes.ended == [1]
    began_s = nodes.loop.time()
    assert nodes.nodes.connection(1) is None
    await nodes.connect(1)
    assert 0.04 <= nodes.loop.time() - began_s <= 0.06
    assert len(nodes.opened) == 2


@bench()
async def test_an_old_connection_that_ends_late_does_not_take_the_new_one_along(nodes: Bench) -> None:
    old = await nodes.connect(1)
    old.is_open = False
    old._ended(old)
    new = await nodes.connect(1)
    old._ended(old)
    assert await nodes.connect(1) is new
    assert nodes.ended == [1]


@bench()
async def test_a_node_that_is_gone_loses_its_connection_and_its_attempts(nodes: Bench) -> None:
    first = await nodes.connect(1)
    nodes.delay_s = 5
    waiting = asyncio.create_task(nodes.connect(2))
    await asyncio.sleep(1)
    nodes.nodes.update({3: THREE})
    assert not first.is_open
    with pytest.raises(Unreachable, match="node 2 is not part of the cluster any more"):
        await waiting
    assert nodes.nodes.known == [3]
    with pytest.raises(Unreachable):
        await nodes.connect(1)


@bench()
async def test_a_node_that_has_moved_is_connected_to_at_its_new_place(nodes: Bench) -> None:
    old = await nodes.connect(1)
    untouched = await nodes.connect(2)
    nodes.nodes.update({1: Place("elsewhere"), 2: TWO})
    assert not old.is_open
    assert untouched.is_open
    await nodes.connect(1)
    assert nodes.opened[-1][1] == "elsewhere"


@bench()
async def test_an_attempt_to_a_place_that_was_left_meanwhile_is_dropped(nodes: Bench) -> None:
    nodes.delay_s = 2
    assert nodes.nodes.connection(1) is None
    await asyncio.sleep(1)
    nodes.nodes.update({1: Place("elsewhere")})
    await asyncio.sleep(5)
    assert nodes.connected == []
    await nodes.connect(1)
    assert [host for _, host in nodes.opened] == ["one", "elsewhere"]


# -- idling


@bench(idle_s=10)
async def test_an_idle_connection_is_closed_quietly_and_made_again_at_once_when_needed(nodes: Bench) -> None:
    idle = await nodes.connect(1)
    used = await nodes.connect(2)
    busy_until_s = 30
    while nodes.loop.time() < busy_until_s:
        await asyncio.sleep(1)
        nodes.nodes.connection(2)
    assert not idle.is_open
    assert used.is_open
    assert nodes.ended == []
    began_s = nodes.loop.time()
    await nodes.connect(1)
    assert nodes.loop.time() == began_s


@bench(idle_s=10)
async def test_a_connection_that_waits_for_an_answer_is_not_idle(nodes: Bench) -> None:
    busy = await nodes.connect(1)
    busy.in_flight = 1
    await asyncio.sleep(60)
    assert busy.is_open
    busy.in_flight = 0
    await asyncio.sleep(60)
    assert not busy.is_open


# -- choosing


@bench()
async def test_the_least_loaded_node_is_the_connected_one_with_the_least_to_do(nodes: Bench) -> None:
    nodes.nodes.update({1: ONE, 2: TWO, 3: THREE})
    for node_id, load_now in ((1, 5), (2, 2)):
        (await nodes.connect(node_id)).in_flight = load_now
    assert {nodes.nodes.least_loaded() for _ in range(20)} == {2}
    assert {nodes.nodes.least_loaded({2}) for _ in range(20)} == {1}
    assert {nodes.nodes.least_loaded({1, 2}) for _ in range(20)} == {3}
    assert nodes.nodes.least_loaded({1, 2, 3}) is None


@bench()
async def test_among_equals_chance_decides(nodes: Bench) -> None:
    assert {nodes.nodes.least_loaded() for _ in range(40)} == {1, 2}


@bench()
async def test_a_node_that_has_just_failed_is_chosen_last(nodes: Bench) -> None:
    nodes.problem = Unreachable("no way")
    with pytest.raises(Unreachable):
        await nodes.connect(1)
    assert {nodes.nodes.least_loaded() for _ in range(20)} == {2}
    assert nodes.nodes.least_loaded({2}) == 1
    await asyncio.sleep(10)
    assert {nodes.nodes.least_loaded() for _ in range(40)} == {1, 2}


@bench()
async def test_a_node_that_is_being_connected_to_is_chosen_before_one_that_is_not(nodes: Bench) -> None:
    nodes.delay_s = 1
    assert nodes.nodes.connection(2) is None
    await asyncio.sleep(0)
    assert {nodes.nodes.least_loaded() for _ in range(20)} == {2}
    await asyncio.sleep(2)


@bench()
async def test_without_nodes_there_is_none_to_choose(nodes: Bench) -> None:
    nodes.nodes.update({})
    assert nodes.nodes.least_loaded() is None


# -- closing


@bench()
async def test_closing_ends_connections_and_attempts_and_refuses_new_ones(nodes: Bench) -> None:
    made = await nodes.connect(1)
    nodes.delay_s = 100
    waiting = asyncio.create_task(nodes.connect(2))
    await asyncio.sleep(1)
    await nodes.nodes.close()
    assert not made.is_open
    with pytest.raises(Closed):
        await waiting
    with pytest.raises(Closed):
        await nodes.connect(1)
    assert nodes.ended == []


def test_a_connection_is_what_nodes_take_it_for() -> None:
    """The fake has nothing that the real one has not."""
    for name in ("is_open", "in_flight", "close"):
        assert name in Connection.__init__.__code__.co_names or hasattr(Connection, name)
