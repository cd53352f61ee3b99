"""10,000 topics and 1,000 groups stay usable: pages are bounded, searching is quick, one question serves many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import cast

import pytest
from playwright.sync_api import Browser

from console.browsing import Looker, LoopThread
from semel.client.admin.admin import Admin
from semel.console.app import Console, ConsoleSettings
from semel.console.serving import listen, serve
from unit.console.test_api import MemoryAdmin

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def many(browser: Browser, loop_thread: LoopThread) -> Iterator[Looker]:
    def no_admin() -> AbstractAsyncContextManager[Admin]:
        raise AssertionError("nobody follows records here")

    closing, ending = asyncio.Event(), asyncio.Event()
    listening = listen("127.0.0.1", 0)

    async def run() -> None:
        admin = cast(Admin, MemoryAdmin(topics=10_000, groups=1_000))
        console = Console(ConsoleSettings(shown_cluster="many"), admin, no_admin, closing)
        console.watch.start()
        serving = asyncio.create_task(serve(console.app(), listening, closing))
        await ending.wait()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await console.watch.close()

    async def end() -> None:
        ending.set()

    running = loop_thread.begin(run())
    context = browser.new_context()
    yield Looker(context.new_page(), f"http://127.0.0.1:{listening.getsockname()[1]}")
    context.close()
    loop_thread.run(end())
    running.result(30)
    listening.close()


def test_many_topics_and_groups_are_pages_that_can_be_searched(many: Looker) -> None:
    page = many.go("/topics")
    many.shows("10,000 in all, page 1 of 200")
    assert page.locator("tbody tr").count() == 50
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    page.get_by_role("button", name="Next").click()
    many.shows("topic-00050")
    page.get_by_label("Search topics").fill("09999")
    many.shows("topic-09999")
    page.locator("tbody tr").nth(1).wait_for(state="detached")
    page = many.go("/groups?sort=name")
    many.shows("1,000 in all, page 1 of 20")
    page.get_by_label("Search groups").fill("0777")
    many.shows("group-0777")
    many.go("/")
    many.shows("10,001")
    assert many.wrong == []
