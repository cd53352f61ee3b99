"""Stands between clients and a cluster, shows every request to an observer, and may answer in the cluster's place.

Clients are told the proxy's own addresses wherever the cluster names its nodes, so that all they say comes by here.
Frames pass as they are; only answers that name nodes, versions or features are written anew.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from struct import Struct
from typing import Any, Protocol

from semel.wire.apis import API, request_class, response_class
from semel.wire.codec import decode
from semel.wire.errors import ErrorCode, UnknownApi, WireError
from semel.wire.frame import read_request_header, read_response, response_parts
from semel.wire.schema import Response
from semel.wire.spec.api_versions import ApiVersionsResponse
from semel.wire.spec.describe_cluster import DescribeClusterResponse
from semel.wire.spec.find_coordinator import FindCoordinatorResponse
from semel.wire.spec.metadata import MetadataResponse
from semel.wire.spec.produce import ProduceResponse

HOST = "127.0.0.1"
_LENGTH = Struct(">i")
_CORRELATION_ID = Struct(">i")
_API_VERSIONS = 18
_FETCH = 1
_LAST_FETCH_WITHOUT_NODES = 15
_NAMING_NODES: dict[int, type[Response]] = {
    response.api_key: response
    for response in (MetadataResponse, FindCoordinatorResponse, DescribeClusterResponse, ProduceResponse)
}


class Exchange:
    """One request and its answer. `api` is None for an API that is not known here: then nothing can be read of it."""

    def __init__(self, body: bytes, connection: int) -> None:
        self.connection = connection
        self.frame = body
        self.correlation_id = 0
        self.version = -1
        self.client_id: str | None = None
        self._position = 0
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """The frame that the client gets, without its length."""
        try:
            header = read_request_header(body)
        except UnknownApi as unknown:
            self.api, self.correlation_id = None, unknown.correlation_id
            return
        self.api = API[header.api_key]
        self.version, self.correlation_id = header.api_version, header.correlation_id
        self.client_id, self._position = header.client_id, header.body_position

    @property
    def key(self) -> int:
        return -1 if self.api is None else self.api.key

    def request(self) -> Any:
        """The decoded request. Raises WireError."""
        return decode(request_class(self.key), self.version, memoryview(self.frame)[self._position :])

    def response(self, frame: bytes) -> Any:
        """The decoded answer. Raises WireError."""
        return read_response(response_class(self.key), self.version, memoryview(frame))[1]

    def written(self, response: Response) -> bytes:
        """An answer as a frame without its length."""
        return b"".join(bytes(part) for part in response_parts(self.correlation_id, response, self.version))[4:]  # type: ignore[arg-type]


class Observer(Protocol):
    """What the proxy tells. Both are awaited: the request, or its answer, goes on when they return."""

    async def asked(self, exchange: Exchange) -> Awaitable[Response] | None:
        """A request, before the cluster has it. If an answer is returned, it is given in the cluster's place when it is
        there, and the cluster never gets the request."""

    async def answered(self, exchange: Exchange, frame: bytes) -> None:
        """What the cluster has answered, before the client has it. ConnectionError ends the connection instead."""

    def lost(self, exchange: Exchange) -> None:
        """The connection has ended before there was an answer."""


class Proxy:
    """`features` are told to clients at these levels at most: with `transaction.version` 1 they use the first
    generation of transactions."""

    def __init__(
        self, observer: Observer, *, features: Mapping[str, int] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._observer = observer
        self._features = dict(features or {})
        self._tls = tls
        self._ports: dict[tuple[str, int], asyncio.Future[int]] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0

    async def __aenter__(self) -> Proxy:
        return self

    async def __aexit__(self, *failure: object) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def port_for(self, host: str, port: int, *, listen: int = 0) -> int:
        """The port of this machine behind which a node is."""
        place = (host, port)
        if place not in self._ports:
            made = self._ports[place] = asyncio.get_running_loop().create_future()
            try:
                server = await asyncio.start_server(
                    lambda reader, writer: self._accept(reader, writer, place), HOST, listen
                )
            except BaseException as error:
                self._ports.pop(place).cancel()
                raise error
            self._servers.append(server)
            made.set_result(server.sockets[0].getsockname()[1])
        return await self._ports[place]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: tuple[str, int]) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with suppress(asyncio.CancelledError, OSError):  # the proxy ends, or one of the two is gone
            await self._serve(reader, writer, place)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: tuple[str, int]) -> None:
        self._connections += 1
        waiting: deque[Exchange] = deque()
        node_reader, node_writer = await asyncio.open_connection(
            *place, ssl=self._tls, server_hostname=place[0] if self._tls else None
        )
        news = asyncio.Event()
        work = [
            asyncio.ensure_future(self._requests(reader, node_writer, waiting, news, self._connections)),
            asyncio.ensure_future(self._answers(node_reader, waiting)),
            asyncio.ensure_future(_in_order(writer, waiting, news)),
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in work:
                one.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            for exchange in waiting:
                self._observer.lost(exchange)
            node_writer.transport.abort()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        node: asyncio.StreamWriter,
        waiting: deque[Exchange],
        news: asyncio.Event,
        connection: int,
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                body = await _frame(reader)
                exchange = Exchange(body, connection)
                given = await self._observer.asked(exchange)
                if _is_answered(exchange):
                    waiting.append(exchange)
                    news.set()
                if given is not None:
                    answering = asyncio.ensure_future(_answer(exchange, given))
                    self._tasks.add(answering)
                    answering.add_done_callback(self._tasks.discard)
                    continue
                node.write(_LENGTH.pack(len(body)) + body)
                await node.drain()

    async def _answers(self, node: asyncio.StreamReader, waiting: deque[Exchange]) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(node)
                (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
                exchange = next(
                    one for one in waiting if one.correlation_id == correlation_id and not one.answer.done()
                )
                await self._observer.answered(exchange, frame)
                exchange.answer.set_result(await self._rewritten(exchange, frame))

    async def _rewritten(self, exchange: Exchange, frame: bytes) -> bytes:
        if exchange.key == _API_VERSIONS:
            return self._versions(exchange, frame)
        if exchange.key not in _NAMING_NODES:
            return frame
        response = exchange.response(frame)
        nodes = _nodes_in(response)
        if not nodes:
            return frame
        for node in nodes:
            if node.port > 0:
                node.host, node.port = HOST, await self.port_for(node.host, node.port)
        return exchange.written(response)

    def _versions(self, exchange: Exchange, frame: bytes) -> bytes:
        """No version is offered that cannot be read here, no API that names nodes in a way that is not known."""
        if int.from_bytes(frame[4:6], "big", signed=True) != ErrorCode.NONE:
            return frame  # in version 0, whatever was asked
        response = exchange.response(frame)
        if not isinstance(response, ApiVersionsResponse):
            raise WireError("ApiVersions was answered with something else")
        kept = []
        for api in response.api_keys:
            known = API.get(api.api_key)
            if known is None:
                continue
            limit = _LAST_FETCH_WITHOUT_NODES if api.api_key == _FETCH else known.max_version
            api.max_version = min(api.max_version, limit)
            if api.min_version <= api.max_version:
                kept.append(api)
        response.api_keys = kept
        for feature in response.finalized_features:
            level = min(feature.max_version_level, self._features.get(feature.name, feature.max_version_level))
            feature.max_version_level = level
            feature.min_version_level = min(feature.min_version_level, level)
        return exchange.written(response)


async def _answer(exchange: Exchange, given: Awaitable[Response]) -> None:
    exchange.answer.set_result(exchange.written(await given))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(max(length, 0))


async def _in_order(writer: asyncio.StreamWriter, waiting: deque[Exchange], news: asyncio.Event) -> None:
    """Answers leave in the order of their requests, as a client may expect of one connection."""
    with suppress(OSError):
        while True:
            while waiting:
                frame = await asyncio.shield(waiting[0].answer)
                waiting.popleft()
                writer.write(_LENGTH.pack(len(frame)) + frame)
                await writer.drain()
            news.clear()
            await news.wait()


def _is_answered(exchange: Exchange) -> bool:
    """Only a produce with acks=0 is not."""
    return exchange.key != 0 or exchange.request().acks != 0


def _nodes_in(response: Response) -> list[Any]:
    """All that have a `host` and a `port` in an answer."""
    if isinstance(response, MetadataResponse | DescribeClusterResponse):
        return list(response.brokers)
    if isinstance(response, ProduceResponse):
        return list(response.node_endpoints)
    if isinstance(response, FindCoordinatorResponse):
        return list(response.coordinators) or [response]
    return []
