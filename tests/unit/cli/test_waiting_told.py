"""A command says that it waits for a node, once and not at once; and when the node is back."""

from __future__ import annotations

import asyncio
import errno
import io
import socket
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from semel.cli.waiting import NobodyListens, WatchedNetwork
from semel.host.api import Link, Listener
from semel.sim.loop import SimLoop, run

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9092)")


class Wires:
    """A network whose nodes are reached, refused or silent, as the test says."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.is_silent = False

    async def listen(self, host: str, port: int, accept: Callable[[Link], None]) -> Listener:
        raise NotImplementedError

    async def connect(self, host: str, port: int) -> Link:
        if self.is_silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return cast(Link, None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class World:
    def __init__(self, notes: io.StringIO, *, gives_up: bool = False) -> None:
        self.wires = Wires()
        self.network = WatchedNetwork(self.wires, notes, gives_up=gives_up)
        self._notes = notes

    @property
    def lines(self) -> list[str]:
        return self._notes.getvalue().splitlines()

    async def reaches(self, host: str = "127.0.0.1", timeout_s: float = 30) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self.network.connect(host, 9092)
        except (OSError, TimeoutError):
            return False
        return True

    async def tries_for(self, seconds: float) -> None:
        """As a client does: again and again."""
        for _ in range(round(seconds * 2)):
            await self.reaches()
            await asyncio.sleep(0.5)


def in_virtual_time(scenario: Callable[[World], Coroutine[Any, Any, None]], notes: io.StringIO | None = None) -> World:
    world = World(notes or io.StringIO())
    run(scenario(world), loop=SimLoop(end_s=1000))
    return world


def test_a_node_that_refuses_for_two_seconds_is_told_once_and_so_is_its_return() -> None:
    async def scenario(world: World) -> None:
        world.wires.error = REFUSED
        await world.tries_for(1.5)
        assert world.lines == []
        await world.tries_for(20)
        assert world.lines == ["Waiting for 127.0.0.1:9092: connection refused"]
        world.wires.error = None
        await world.tries_for(5)

    assert in_virtual_time(scenario).lines[1:] == ["127.0.0.1:9092 is back"]


def test_a_short_absence_is_not_worth_a_word() -> None:
    async def scenario(world: World) -> None:
        for _ in range(3):
            world.wires.error = REFUSED
            await world.tries_for(1.5)
            world.wires.error = None
            await world.tries_for(1.5)

    assert in_virtual_time(scenario).lines == []


def test_a_silent_node_is_told_while_the_attempt_runs() -> None:
    async def scenario(world: World) -> None:
        world.wires.is_silent = True
        assert not await world.reaches(timeout_s=5)
        assert world.lines == ["Waiting for 127.0.0.1:9092: no answer"]

    in_virtual_time(scenario)


def test_a_node_that_nobody_needs_any_more_is_no_reason_to_wait() -> None:
    """One of several addresses was tried once, and again much later: another one served meanwhile."""

    async def scenario(world: World) -> None:
        world.wires.error = REFUSED
        for _ in range(3):
            await world.reaches("gone")
            await asyncio.sleep(60)

    assert in_virtual_time(scenario).lines == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (OSError("no address"), "no address"),
        (OSError(errno.EHOSTUNREACH, "x"), "no route to host"),
    ],
    ids=str,
)
def test_the_reason_is_told_in_words(error: OSError, reason: str) -> None:
    async def scenario(world: World) -> None:
        world.wires.error = error
        await world.tries_for(4)

    assert in_virtual_time(scenario).lines == [f"Waiting for 127.0.0.1:9092: {reason}"]


def test_who_was_never_reached_and_refuses_is_not_waited_for() -> None:
    async def scenario() -> None:
        world = World(io.StringIO(), gives_up=True)
        world.wires.error = REFUSED
        await world.tries_for(1.5)
        with pytest.raises(NobodyListens, match=r"nothing listens at 127\.0\.0\.1:9092: start a node there"):
            await world.reaches()
        assert world.lines == []

    run(scenario(), loop=SimLoop(end_s=100))


@pytest.mark.parametrize("case", ["silent", "reached before", "another is silent"])
def test_whoever_may_come_is_waited_for(case: str) -> None:
    async def scenario() -> None:
        world = World(io.StringIO(), gives_up=True)
        if case == "reached before":
            await world.reaches()
        world.wires.is_silent = case != "reached before"
        await world.reaches("other", timeout_s=3)
        world.wires.is_silent, world.wires.error = case == "silent", REFUSED
        for _ in range(10):
            await world.reaches(timeout_s=1)

    run(scenario(), loop=SimLoop(end_s=100))


def test_on_a_terminal_it_takes_the_place_of_a_bar() -> None:
    async def scenario(world: World) -> None:
        world.wires.error = REFUSED
        await world.tries_for(4)

    terminal = Terminal()
    in_virtual_time(scenario, terminal)
    assert terminal.getvalue().startswith("\r\x1b[KWaiting for ")
