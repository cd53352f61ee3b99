"""HTTP for monitoring systems, over links that the test holds."""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

from fake_links import FakeLink

from semel.rpc.http import HttpServer, Page

ASK = b"GET /page HTTP/1.1\r\nHost: node\r\nAccept: text/x\r\n\r\n"


class Pages:
    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.server = HttpServer(cast(Any, None), {"/page": self.page, "/broken": self.broken})

    async def page(self, accept: str) -> Page:
        self.accepted.append(accept)
        await self.gate.wait()
        return Page([b"he", b"llo"], "text/x")

    async def broken(self, accept: str) -> Page:
        raise ValueError("planted")

    def connect(self) -> FakeLink:
        link = FakeLink()
        self.server._accept(cast(Any, link))
        return link


async def answer_to(pages: Pages, sent: bytes) -> str:
    link = pages.connect()
    link.arrive(sent)
    for _ in range(5):
        await asyncio.sleep(0)
    return bytes(link.sent).decode()


async def test_a_page_is_answered_with_its_length_and_type() -> None:
    pages = Pages()
    answer = await answer_to(pages, ASK)
    assert answer.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 5\r\n")
    assert answer.endswith("\r\n\r\nhello")
    assert pages.accepted == ["text/x"]


async def test_several_requests_on_one_connection_are_answered_in_order() -> None:
    answer = await answer_to(Pages(), ASK + ASK.replace(b"/page", b"/nothing") + ASK)
    assert re.findall(r"HTTP/1.1 (\d+)", answer) == ["200", "404", "200"]
    assert "There is no page '/nothing' here. There are: /page, /broken" in answer


async def test_other_methods_and_broken_pages_are_told_so() -> None:
    assert "405 Method Not Allowed" in await answer_to(Pages(), ASK.replace(b"GET", b"DELETE"))
    assert "500 Internal Server Error" in await answer_to(Pages(), ASK.replace(b"/page", b"/broken"))
    head = await answer_to(Pages(), ASK.replace(b"GET", b"HEAD"))
    assert head.endswith("\r\n\r\n")
    assert "Content-Length: 5" in head


async def test_what_is_no_http_is_refused_and_closed() -> None:
    pages = Pages()
    link = pages.connect()
    link.arrive(b"\0\0\0\x10\0\x12\0\0 a request of Kafka\r\n\r\n")
    await asyncio.sleep(0)
    assert bytes(link.sent).startswith(b"HTTP/1.1 400 ")
    assert link.is_ending


async def test_a_connection_more_than_there_may_be_ends_the_one_that_was_heard_of_least_recently() -> None:
    pages = Pages()
    links = [pages.connect() for _ in range(16)]
    links[0].arrive(ASK)
    pages.connect()
    assert [number for number, link in enumerate(links) if link.is_closed] == [1]


async def test_a_peer_that_leaves_while_its_page_is_made_is_not_answered() -> None:
    pages = Pages()
    pages.gate.clear()
    link = pages.connect()
    link.arrive(ASK)
    await asyncio.sleep(0)
    link.end(None)
    pages.gate.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not link.sent
