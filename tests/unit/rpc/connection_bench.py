"""A client's connection on a link that the test holds in its hands."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fake_links import FakeLink

from semel.rpc.connection import Connection
from semel.sim.loop import SimLoop, run
from semel.wire.frame import read_request_header, response_parts
from semel.wire.schema import Response
from semel.wire.spec.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

LIMIT = 100_000


class Bench:
    """A connection on a link that the test holds."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.link = FakeLink("10.0.0.1:9092")
        self.ended: list[Connection] = []
        self.connection = Connection(self.link, client_id="me", max_frame_bytes=LIMIT, ended=self.ended.append)

    def ask(self, timeout_s: float = 30) -> asyncio.Future[InitProducerIdResponse]:
        return self.connection.send(InitProducerIdRequest(), 4, InitProducerIdResponse, timeout_s)

    def ask_for_bytes(self) -> asyncio.Future[SaslAuthenticateResponse]:
        return self.connection.send(SaslAuthenticateRequest(), 2, SaslAuthenticateResponse, 30)

    def asked(self) -> list[tuple[int, int, int]]:
        """Key, version and correlation id of the requests that were sent, taken out."""
        headers = [read_request_header(frame) for frame in self.link.answers()]
        return [(header.api_key, header.api_version, header.correlation_id) for header in headers]

    def answer(self, correlation_id: int, producer_id: int = 0, **fields: Any) -> bytes:
        return framed(correlation_id, InitProducerIdResponse(producer_id=producer_id, **fields), 4)


def bytes_answer(correlation_id: int, content: bytes) -> bytes:
    return framed(correlation_id, SaslAuthenticateResponse(auth_bytes=content), 2)


def fetched(correlation_id: int, records: bytes) -> bytes:
    topic = FetchResponseTopic(topic="t", partitions=[FetchResponsePartition(records=memoryview(records))])
    return framed(correlation_id, FetchResponse(responses=[topic]), 12)


def framed(correlation_id: int, response: Response, version: int) -> bytes:
    parts: list[Any] = response_parts(correlation_id, response, version)
    return b"".join(parts)


Test = Callable[..., Coroutine[Any, Any, None]]


def bench(test: Test) -> Callable[..., None]:
    def in_virtual_time(**arguments: Any) -> None:
        loop = SimLoop(end_s=10_000)
        raised: list[Any] = []
        loop.set_exception_handler(lambda _, context: raised.append(context))

        async def scenario() -> None:
            await test(Bench(loop), **arguments)

        run(scenario(), loop=loop)
        assert not raised, raised

    in_virtual_time.__name__ = test.__name__
    signature = inspect.signature(test)
    in_virtual_time.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:]
    )
    return in_virtual_time
