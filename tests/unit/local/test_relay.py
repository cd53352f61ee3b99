"""The relay between nodes: it passes on, holds what is cut, and knows a node by its first request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from semel.local.ports import HOST, HeldPorts
from semel.local.relay import CLIENTS, Relay
from semel.wire.frame import request_bytes
from semel.wire.spec.metadata import MetadataRequest

NODE = 2
SHORT_S = 0.2
PATIENCE_S = 10.0


class Echo:
    """Stands for a node: says what it hears."""

    def __init__(self) -> None:
        self.connections = 0
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while data := await reader.read(1 << 16):
            writer.write(data)
        self.ended += 1
        writer.close()


class World:
    def __init__(self, relay: Relay, echo: Echo, ports: list[int]) -> None:
        self.relay = relay
        self.echo = echo
        self._for_nodes, self._for_clients = ports

    async def connect(self, client_id: str) -> Talk:
        return await Talk.begin(self._for_nodes, client_id)

    async def connect_client(self) -> Talk:
        return await Talk.begin(self._for_clients, "anybody")


class Talk:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def begin(cls, port: int, client_id: str) -> Talk:
        reader, writer = await asyncio.open_connection(HOST, port)
        talk = cls(reader, writer)
        talk.first = request_bytes(MetadataRequest(), 9, 1, client_id)
        talk.say(talk.first)
        return talk

    first = b""

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def hears(self, data: bytes) -> bool:
        return await asyncio.wait_for(self._reader.readexactly(len(data)), PATIENCE_S) == data

    async def hears_nothing(self) -> bool:
        try:
            await asyncio.wait_for(self._reader.read(1), SHORT_S)
        except TimeoutError:
            return True
        return False

    async def is_over(self) -> bool:
        return await asyncio.wait_for(self._reader.read(1), PATIENCE_S) == b""

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    held, relay, echo = HeldPorts(), Relay(), Echo()
    server = await asyncio.start_server(echo.serve, HOST, 0)
    target = server.sockets[0].getsockname()[1]
    ports = held.take(2)
    await relay.listen(NODE, ports[0], target, is_for_clients=False)
    await relay.listen(NODE, ports[1], target, is_for_clients=True)
    yield World(relay, echo, ports)
    held.close()
    server.close()


async def test_what_goes_through_arrives_whole(world: World) -> None:
    talk = await world.connect("broker-1-replica-fetch")
    assert await talk.hears(talk.first)
    large = bytes(range(256)) * 8000
    talk.say(large)
    assert await talk.hears(large)
    talk.close()


async def test_a_cut_holds_what_is_sent_until_it_is_over(world: World) -> None:
    talk, other = await world.connect("broker-1-x"), await world.connect("broker-13-x")
    assert await talk.hears(talk.first)
    assert await other.hears(other.first)
    world.relay.cut([(1, NODE), (NODE, 1)])
    talk.say(b"held")
    other.say(b"free")
    assert await other.hears(b"free"), "another node's number begins with the same digit"
    assert await talk.hears_nothing()
    world.relay.cut([])
    assert await talk.hears(b"held")


async def test_a_cut_one_way_lets_the_other_way_through(world: World) -> None:
    talk = await world.connect("raft-client-1")
    assert await talk.hears(talk.first)
    world.relay.cut([(1, NODE)])
    talk.say(b"held")
    assert await talk.hears_nothing()
    world.relay.cut([(NODE, 1)])
    assert await talk.hears_nothing(), "the node has it by now, and its answer is held"
    world.relay.cut([])
    assert await talk.hears(b"held")


async def test_who_connects_during_a_cut_is_answered_after_it(world: World) -> None:
    world.relay.cut([(1, NODE)])
    talk = await world.connect("broker-1-x")
    assert await talk.hears_nothing()
    assert world.echo.connections == 0
    world.relay.cut([])
    assert await talk.hears(talk.first)


async def test_an_end_is_not_heard_of_during_a_cut(world: World) -> None:
    talk = await world.connect("broker-1-x")
    assert await talk.hears(talk.first)
    world.relay.cut([(1, NODE), (NODE, 1)])
    talk.close()
    await asyncio.sleep(SHORT_S)
    assert world.echo.ended == 0
    world.relay.cut([])
    async with asyncio.timeout(PATIENCE_S):
        while not world.echo.ended:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_clients_are_all_one(world: World) -> None:
    talk, node = await world.connect_client(), await world.connect("broker-1-x")
    assert await talk.hears(talk.first)
    assert await node.hears(node.first)
    world.relay.cut([(CLIENTS, NODE)])
    talk.say(b"held")
    node.say(b"free")
    assert await node.hears(b"free")
    assert await talk.hears_nothing()


async def test_a_node_that_is_down_refuses(world: World) -> None:
    held = HeldPorts()
    listening, nobody = held.take(2)
    await world.relay.listen(NODE, listening, nobody, is_for_clients=True)
    talk = await Talk.begin(listening, "x")
    try:
        assert await talk.is_over()
    except ConnectionResetError:
        pass
    held.close()
