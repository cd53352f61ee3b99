"""One broker with a shop on it, one console, one browser for all tests of the pages.

They end with this package: while a browser is driven, its loop runs in this thread, and tests that
are coroutines could not run after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the console's extra is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import Browser

from console.browsing import ConsoleProcess, Looker, LoopThread, chromium, skip_without_browser
from console.shop import Shop, shop
from semel.testing import Broker


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    skip_without_browser()
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="package")
def opened(browser: Browser, loop_thread: LoopThread) -> Iterator[Shop]:
    """`browser` comes first: without one nothing needs to be written."""
    few = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
    with Broker(settings={**few, "log.flush.interval.messages": (1 << 63) - 1}) as broker:
        within = shop(broker.bootstrap_servers, payments=240)
        yield loop_thread.run(within.__aenter__())
        loop_thread.run(within.__aexit__(None, None, None))


@pytest.fixture(scope="package")
def console(opened: Shop) -> Iterator[ConsoleProcess]:
    process = ConsoleProcess(opened.address, "--allow-changes")
    yield process
    process.close()


@pytest.fixture
def looker(browser: Browser, console: ConsoleProcess) -> Iterator[Looker]:
    """Nothing may go wrong in a page, whatever the test is about."""
    context = browser.new_context(viewport={"width": 1360, "height": 850}, color_scheme="light", locale="en-US")
    found = Looker(context.new_page(), console.url)
    yield found
    context.close()
    assert found.wrong == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """With a failure comes what was on the page."""
    report = yield
    looker = getattr(item, "funcargs", {}).get("looker")
    if report.failed and call.when == "call" and looker is not None:
        report.sections.append(("the page", f"{looker.page.url}\n{looker.text('body')}\n{looker.wrong}"))
    return report
