"""The pictures of the console in docs/console/: three real nodes with a shop on them, and a transaction held open."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize

from console.browsing import CHROMIUM, ConsoleProcess, Looker, LoopThread, chromium
from console.shop import Shop, shop
from semel.testing import Cluster

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "console"
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 400, "height": 800}
PAGES = {
    "overview": ("/", "is held back by"),
    "transactions": ("/transactions?window=60", "holds back"),
    "messages": ("/topics/payments/messages?partition=1&from=-24", "waits"),
    "topic": ("/topics/payments", "Partitions, to scale"),
    "group": ("/groups/reports", "Lag over time"),
    "nodes": ("/nodes", "The quorum"),
}
SHOTS = [
    *((name, "light", WIDE) for name in PAGES),
    ("overview", "dark", WIDE),
    ("transactions", "dark", WIDE),
    ("transactions", "light", NARROW),
]
BUSY_S = 45


async def busy(opened: Shop) -> None:
    """Until it is cancelled, so that lines have a shape."""

    async def sell() -> None:
        for number in count():
            await opened.write("orders", 20 + 15 * (number % 5))
            await opened.pay("till-1", 20)
            if number % 4 == 0:
                await opened.read("reports", ["orders"], 90)
            await asyncio.sleep(0.5)

    async def till(name: str, held_s: float, pause_s: float, aborted: int) -> None:
        for number in count(1):
            await opened.pay(name, 20, held_s=held_s, is_aborted=number % aborted == 0)
            await asyncio.sleep(pause_s * (1 + number % 3))

    await asyncio.gather(
        sell(),
        till("till-2", 0.1, 1.1, 3),
        till("ledger", 3.5, 1, 9),
        till("invoices", 0.8, 2.5, 5),
        till("refunds", 1.6, 4, 2),
    )


def take(browser: Browser, url: str, wanted: Iterable[str]) -> None:
    for name, scheme, size in SHOTS:
        if name not in wanted:
            continue
        path, shown = PAGES[name]
        context = browser.new_context(viewport=size, color_scheme=scheme, locale="en-US")
        looker = Looker(context.new_page(), url)
        looker.go(path)
        looker.shows(shown)
        if name == "messages":
            looker.page.locator("tr.message button").nth(2).click()
        looker.page.wait_for_timeout(1500)
        suffix = ("" if scheme == "light" else "-dark") + ("" if size is WIDE else "-narrow")
        target = PICTURES / f"{name}{suffix}.png"
        looker.page.screenshot(path=target)
        context.close()
        if looker.wrong:
            raise SystemExit(f"{path}: {looker.wrong}")
        print(f"{target.relative_to(ROOT)}  {target.stat().st_size // 1024} KB")


def main() -> None:
    if CHROMIUM is None:
        raise SystemExit("there is no chromium to take pictures with: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    loop_thread = LoopThread()
    few = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
    with Cluster(nodes=3, settings=few) as cluster:
        within = shop(cluster.bootstrap_servers, replicas=3)
        opened = loop_thread.run(within.__aenter__())
        console = ConsoleProcess(cluster.bootstrap_servers, "--allow-changes")
        selling = loop_thread.begin(busy(opened))
        time.sleep(BUSY_S)
        with chromium() as browser:
            take(browser, console.url, sys.argv[1:] or PAGES)
        selling.cancel()
        console.close()
        loop_thread.run(within.__aexit__(None, None, None))
    loop_thread.close()


if __name__ == "__main__":
    main()
