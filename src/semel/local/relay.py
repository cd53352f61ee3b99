"""Passes on connections between nodes of one machine, and does not while they are cut: run as a process of its own.

    python -m semel.local.relay '[[node, port to listen on, the node's port, is_for_clients], ...]'

A node is told apart by the client id of its first request. Each line of standard input is JSON,
{"cut": [[from, to], ...], "delays": [[from, to, seconds], ...]}: the pairs that are cut, and those whose bytes take
longer; it is answered by a line when it holds. What is cut is not read: it waits where it is, and goes on when the
cut is over, as packets that are sent again do. The relay ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Sequence

CLIENTS = 0
"""Stands for all clients in a pair."""
_UNKNOWN = -1
_HOST = "127.0.0.1"
_PIECE_BYTES = 1 << 16
_MOST_WAITING = 64
"""Pieces of one direction of a connection that wait for their time."""
_HEADER_END = 14  # length, API key, version, correlation id, length of the client id
_NODE_NAME = re.compile(rb"(?:broker|controller|raft-client)-(\d+)(?:-|\Z)")


class Relay:
    def __init__(self) -> None:
        self._cut: frozenset[tuple[int, int]] = frozenset()
        self._delays_s: dict[tuple[int, int], float] = {}
        self._news = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Nothing goes from one to the other of each pair from now on; all others are free."""
        self._cut = frozenset(pairs)
        news, self._news = self._news, asyncio.Event()
        news.set()

    def delay(self, delays: Iterable[tuple[int, int, float]]) -> None:
        """What goes from one to the other of each pair arrives so much later from now on; all others are quick."""
        self._delays_s = {(source, target): seconds for source, target, seconds in delays}

    async def listen(self, node_id: int, port: int, target: int, *, is_for_clients: bool) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
            try:
                await self._serve(reader, writer, node_id, target, is_for_clients=is_for_clients)
            except (OSError, asyncio.IncompleteReadError):
                pass  # one of the two is gone, or the node is down: the other is told below
            finally:
                writer.transport.abort()

        await asyncio.start_server(accept, _HOST, port, reuse_address=True)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        node_id: int,
        target: int,
        *,
        is_for_clients: bool,
    ) -> None:
        peer, first = (CLIENTS, b"") if is_for_clients else await _who(reader)
        await self._until_free(peer, node_id)
        node_reader, node_writer = await asyncio.open_connection(_HOST, target)
        try:
            node_writer.write(first)
            ways = [
                asyncio.ensure_future(self._pass_on(reader, node_writer, peer, node_id)),
                asyncio.ensure_future(self._pass_on(node_reader, writer, node_id, peer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            node_writer.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int, target: int
    ) -> None:
        """Reads on while what was read waits for its time, so that a delay is one and not a low speed."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_WAITING)
        writing = asyncio.ensure_future(self._write(waiting, writer, source, target))
        loop = asyncio.get_running_loop()
        try:
            data = b"."
            while data and not writing.done():
                await self._until_free(source, target)
                data = await reader.read(_PIECE_BYTES)
                due_s = loop.time() + self._delays_s.get((source, target), 0.0)
                await waiting.put((due_s, data))
            await writing
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write(
        self, waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, source: int, target: int
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s, data = await waiting.get()
            if due_s > loop.time():
                await asyncio.sleep(due_s - loop.time())
            await self._until_free(source, target)
            if not data:
                writer.close()
                await writer.wait_closed()  # what was sent before the end arrives before it
                return
            writer.write(data)
            await writer.drain()

    async def _until_free(self, source: int, target: int) -> None:
        while (source, target) in self._cut:
            await self._news.wait()


async def _who(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The node that its first request names, and what was read to find out."""
    head = await reader.readexactly(_HEADER_END)
    length = max(0, int.from_bytes(head[-2:], "big", signed=True))
    client_id = await reader.readexactly(length)
    found = _NODE_NAME.match(client_id)
    return (_UNKNOWN if found is None else int(found[1])), head + client_id


async def _run(listeners: Sequence[tuple[int, int, int, bool]]) -> None:
    relay = Relay()
    for node_id, port, target, is_for_clients in listeners:
        await relay.listen(node_id, port, target, is_for_clients=is_for_clients)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("ready", flush=True)
    while line := await lines.readline():
        told = json.loads(line)
        relay.cut((source, target) for source, target in told["cut"])
        relay.delay((source, target, seconds) for source, target, seconds in told["delays"])
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.argv[1])))
