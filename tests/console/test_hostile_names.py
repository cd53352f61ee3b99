"""Whatever a cluster says is text: no name, key, value or header becomes markup or runs."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route

import semel
from console.browsing import Looker, LoopThread
from console.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")

HACK = "window.hacked='yes'"
EVIL = f'<img src=x onerror="{HACK}"><script>{HACK}</script>\'"><svg onload="{HACK}">'
TURNED = "safe\u202egnp.exe\u200b"


def harmless(page: Page) -> None:
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src='x'], svg[onload], main script").count() == 0


@pytest.fixture(scope="module")
def evil_records(opened: Shop, loop_thread: LoopThread) -> None:
    async def write() -> None:
        producer = semel.Producer(bootstrap_servers=opened.address, transactional_id=EVIL, client_id=EVIL)
        async with producer, producer.transaction():
            value = json.dumps({EVIL: EVIL, "turned": TURNED}).encode()
            await producer.send("page-views", value, key=EVIL.encode(), headers=[(EVIL, EVIL.encode())], partition=3)
            await producer.send("page-views", EVIL.encode(), key=TURNED.encode(), partition=3)
        async with semel.Consumer(
            "page-views", bootstrap_servers=opened.address, group_id=EVIL, client_id=EVIL, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.poll(5000, 10)
            await consumer.commit()

    loop_thread.run(write())


@pytest.mark.usefixtures("evil_records")
@pytest.mark.parametrize(
    "path",
    [
        "/groups",
        f"/groups/{quote(EVIL, safe='')}",
        "/transactions",
        f"/transactions/{quote(EVIL, safe='')}",
        "/topics/page-views/producers",
        f"/topics?q={quote(EVIL, safe='')}",
    ],
)
def test_names_are_text(looker: Looker, path: str) -> None:
    page = looker.go(path)
    looker.shows("<img src=x onerror=")
    harmless(page)


@pytest.mark.usefixtures("evil_records")
def test_keys_values_and_headers_are_text_also_when_they_are_opened(looker: Looker) -> None:
    page = looker.go("/topics/page-views/messages?partition=3&limit=2")
    rows = page.locator("tr.message")
    rows.nth(1).wait_for()
    for number in range(2):
        rows.nth(number).locator("button").first.click()
    page.locator("tr.detail").nth(1).wait_for()
    assert "<script>window.hacked" in looker.text()
    harmless(page)
    # What turns the direction of a text, or cannot be seen, is spelled out.
    assert "safe\\u202egnp.exe\\u200b" in looker.text()


def test_topic_names_are_text_even_if_a_broker_allowed_any(looker: Looker) -> None:
    """No broker takes such a name; the page does not rely on that."""

    def answer(route: Route) -> None:
        topic = {"name": EVIL, "id": EVIL, "partitions": 1, "replication": 1, "internal": False, "trouble": EVIL}
        document = {
            "total": 1,
            "all": 1,
            "page": 1,
            "pages": 1,
            "topics": [{**topic, "bytes": 1, "records": 1, "rate": 1}],
        }
        route.fulfill(content_type="text/event-stream", body=f"event: document\ndata: {json.dumps(document)}\n\n")

    looker.page.route("**/api/live/topics*", answer)
    page = looker.go("/topics")
    looker.shows("<img src=x onerror=")
    harmless(page)
    page.locator("td.name a").first.click()
    page.wait_for_url("**/topics/%3Cimg*")
    harmless(page)


def test_the_policy_stops_what_would_get_in_all_the_same(looker: Looker) -> None:
    page = looker.go("/")
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 'yes'";
            document.body.append(script);
            document.body.insertAdjacentHTML("beforeend", `<b onclick="window.hacked = 'yes'" id="trap">x</b>`);
            document.getElementById("trap").click();
        }"""
    )
    assert page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in text for text in looker.wrong)
    looker.wrong.clear()
