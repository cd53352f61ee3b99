"""A real browser for the tests of the console, and consoles to look at."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from real_broker import clean_environment

CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
START_TIMEOUT_S = 60


def skip_without_browser() -> None:
    if CHROMIUM is None:
        pytest.skip("there is no chromium to drive: apt-get install chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Where tests run as root, as in containers, the sandbox has no users to change to.
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*sandbox, "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Looker:
    """A page that notes what goes wrong in it: errors of scripts, and what the policy has stopped."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.wrong: list[str] = []
        page.set_default_timeout(15_000)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        """What was asked for and refused, on purpose, is told by the browser, too."""
        is_refusal = "Failed to load resource" in message.text and "/api/" in message.location["url"]
        if message.type in ("error", "warning") and not is_refusal:
            self.wrong.append(message.text)

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("h1")
        return self.page

    def shows(self, text: str, *, within: str = "body") -> None:
        self.page.locator(within).get_by_text(text).locator("visible=true").first.wait_for()

    def text(self, selector: str = "main") -> str:
        return self.page.locator(selector).inner_text()


class ConsoleProcess:
    """`semel console` as its users start it."""

    def __init__(self, address: str, *options: str, stdin: Any = subprocess.PIPE) -> None:
        command = [sys.executable, "-m", "semel.cli.main", "console", "--bootstrap", address, "--port", "0", "--json"]
        self.process = subprocess.Popen(
            [*command, "--stop-at-eof", *options],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the console did not start: {self.process.communicate()[1]}")
        self.ready: dict[str, Any] = json.loads(line)
        self.url = str(self.ready["url"])

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=START_TIMEOUT_S)


class LoopThread:
    """A loop of its own: a browser that is driven from the test's thread blocks that."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = 120) -> Any:
        return self.begin(work).result(timeout_s)

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
