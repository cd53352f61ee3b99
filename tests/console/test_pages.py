"""Every page with real data, in a real browser."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from playwright.sync_api import Browser

import semel
from console.browsing import ConsoleProcess, Looker, LoopThread
from console.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")

PAGES = {
    "/": ["Open transactions", "Groups with the most lag", "payments/1 is held back by till-3"],
    "/topics": ["payments", "page-views", "in sync"],
    "/topics?internal=1": ["__transaction_state"],
    "/topics/payments": ["Partitions, to scale", "node 1"],
    "/topics/payments/settings": ["retention.ms", "604800000"],
    "/topics/payments/readers": ["billing"],
    "/topics/payments/producers": ["till-1"],
    "/topics/payments/messages": ["committed", '"currency": "CHF"'],
    "/groups": ["billing", "reports", "search-index"],
    "/groups/reports": ["payments/0", "Lag over time"],
    "/transactions": ["payments/1", "stops at offset", "till-3", "holds back"],
    "/transactions/till-2": ["aborted", "What it has done"],
    "/nodes": ["broker", "controller", "leader"],
    "/nodes/1": ["num.partitions"],
}


@pytest.mark.parametrize("path", PAGES)
def test_every_view_has_its_address_and_shows_what_is_there(looker: Looker, path: str) -> None:
    looker.go(path)
    for text in PAGES[path]:
        looker.shows(text)


@pytest.mark.parametrize("path", PAGES)
def test_what_can_be_used_has_a_name_and_nothing_is_wider_than_a_phone(looker: Looker, path: str) -> None:
    looker.page.set_viewport_size({"width": 400, "height": 800})
    looker.page.emulate_media(color_scheme="dark")
    page = looker.go(path)
    looker.shows(PAGES[path][0])
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), select, table, nav, [role=img]")]
            .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length
                || one.querySelector("img[alt]:not([alt=''])")))
            .map((one) => one.outerHTML.slice(0, 120))"""
    )
    assert nameless == []


def test_dark_is_dark_and_the_choice_is_kept(looker: Looker) -> None:
    page = looker.go("/")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(background)
    page.keyboard.press("d")
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    page.wait_for_selector("h1")
    assert page.evaluate(background) == dark


def test_the_keyboard_is_enough(looker: Looker) -> None:
    page = looker.go("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    looker.shows("page-views")
    page.keyboard.press("/")
    page.keyboard.type("pay")
    page.wait_for_url("**/topics?q=pay")
    page.locator("tbody tr").nth(1).wait_for(state="detached")
    assert page.evaluate("document.activeElement.value") == "pay"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/payments")
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("this list").wait_for()
    page.go_back()
    page.wait_for_url("**/topics?q=pay")


def test_messages_are_found_by_position_key_filter_and_fate(looker: Looker) -> None:
    page = looker.go("/topics/payments/messages?partition=1&from=0&limit=5")
    page.locator("tr.message").nth(4).wait_for()
    assert page.locator("tr.message button").first.inner_text() == "1 · 0"
    page.get_by_label("Filter").fill(".order.city=Zug .amount>200")
    page.get_by_role("button", name="Read").click()
    page.wait_for_url("**filter=**")
    page.locator("tr.message").first.wait_for()
    page.wait_for_function(
        "[...document.querySelectorAll('tr.message .value')].every((one) => one.textContent.includes('Zug'))"
    )
    page.goto(looker.url + "/topics/payments/messages?fate=aborted")
    page.locator("tr.message.aborted").first.wait_for()
    assert page.locator("tr.message:not(.aborted)").count() == 0
    page.goto(looker.url + "/topics/payments/messages?fate=open")
    page.locator("tr.message.open").nth(3).wait_for()
    assert page.locator("tr.message").count() == 4
    assert "waits" in page.locator("tr.message").first.inner_text()
    page.goto(looker.url + "/topics/orders/messages?key=7&limit=3")
    page.locator("tr.message").nth(2).wait_for()
    assert set(page.locator("tr.message .key").all_inner_texts()) == {"7"}
    page.get_by_role("button", name="Older").click()
    page.locator("tr.message").nth(3).wait_for()


def test_a_message_opens_with_headers_json_and_bytes(looker: Looker) -> None:
    page = looker.go("/topics/payments/messages?fate=committed&limit=3")
    page.locator("tr.message button").first.click()
    detail = page.locator("tr.detail")
    detail.wait_for()
    assert "0x0102ff" in detail.inner_text()
    assert '\n  "order": {\n    "id"' in detail.locator("pre.payload", has_text='"order"').first.inner_text()
    detail.get_by_text("as bytes").nth(1).click()
    detail.get_by_text("000000  7b").wait_for()


def test_the_tail_shows_records_as_they_come_and_how_they_end(
    looker: Looker, opened: Shop, loop_thread: LoopThread
) -> None:
    page = looker.go("/topics/returns/messages?live=1")
    looker.shows("● live")
    written, may_end = asyncio.Event(), asyncio.Event()

    async def give_back() -> None:
        async with opened.producer("desk") as producer, producer.transaction():
            await producer.send("returns", b"one pair of shoes", key=b"live")
            await producer.flush()
            written.set()
            await may_end.wait()

    giving = loop_thread.begin(give_back())
    loop_thread.run(written.wait())
    row = page.locator("tr.message", has_text="one pair of shoes")
    row.get_by_text("open", exact=True).wait_for()
    loop_thread.run(_set(may_end))
    giving.result(30)
    row.get_by_text("committed", exact=True).wait_for()


async def _set(event: asyncio.Event) -> None:
    event.set()


def test_a_group_is_reset_after_a_preview(looker: Looker, opened: Shop, loop_thread: LoopThread) -> None:
    before = loop_thread.run(_committed(opened.address, "search-index"))
    page = looker.go("/groups/search-index")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("select").select_option("orders")
    dialog.locator("input[name=to]").fill("earliest")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_text("again").first.wait_for()
    dialog.get_by_role("button", name="Reset", exact=True).click()
    looker.shows("was set to other offsets")
    after = loop_thread.run(_committed(opened.address, "search-index"))
    assert any(offset > 0 for place, offset in before.items() if place.topic == "orders")
    assert after == {place: 0 if place.topic == "orders" else offset for place, offset in before.items()}


async def _committed(address: str, group: str) -> dict[Any, int]:
    async with semel.Admin(bootstrap_servers=address) as admin:
        found = (await admin.list_group_offsets(group))[group]
    return {place: one.offset for place, one in found.items()}


def test_topics_are_made_changed_and_deleted(looker: Looker) -> None:
    page = looker.go("/topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("no such name!")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_role("alert").get_by_text("no such name!").wait_for()
    dialog.get_by_label("Name").fill("made-here")
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("Settings").fill("retention.ms=1000")
    dialog.get_by_role("button", name="Create").click()
    page.wait_for_url("**/topics/made-here")
    page.goto(looker.url + "/topics/made-here/settings")
    page.locator("tr", has_text="retention.ms").filter(has_text="1000").first.wait_for()
    page.goto(looker.url + "/topics/made-here")
    page.get_by_role("button", name="Delete topic").click()
    dialog.get_by_label("Type made-here").fill("made-her")
    dialog.get_by_role("button", name="Delete topic").click()
    dialog.get_by_text("type its name").wait_for()
    dialog.get_by_label("Type made-here").fill("made-here")
    dialog.get_by_role("button", name="Delete topic").click()
    page.wait_for_url("**/topics")
    looker.shows("topic made-here was deleted")


def test_what_a_page_follows_comes_by_itself(looker: Looker, opened: Shop, loop_thread: LoopThread) -> None:
    page = looker.go("/topics/fraud-alerts")
    page.locator("tbody td").last.get_by_text("0", exact=True).wait_for()
    loop_thread.run(opened.write("fraud-alerts", 7))
    page.locator("tbody td").last.get_by_text("7", exact=True).wait_for()


def test_who_only_looks_has_no_buttons_for_changes_and_cannot_make_any(browser: Browser, opened: Shop) -> None:
    console = ConsoleProcess(opened.address)
    context = browser.new_context()
    try:
        looker = Looker(context.new_page(), console.url)
        page = looker.go("/topics/payments")
        looker.shows("This console only shows.")
        assert page.get_by_role("button", name="Delete").count() == 0
        status = page.evaluate(
            """async () => {
                const { csrf } = await (await fetch("/api/session")).json();
                const headers = { "content-type": "application/json", "x-semel-console": csrf };
                const body = JSON.stringify({ name: "payments", confirm: "payments" });
                return (await fetch("/api/changes/delete-topic", { method: "POST", headers, body })).status;
            }"""
        )
        assert status == 403
        looker.go("/topics/payments")
    finally:
        context.close()
        console.close()


def test_beyond_this_machine_a_password_is_asked_for(browser: Browser, opened: Shop) -> None:
    console = ConsoleProcess(opened.address, "--host", "0.0.0.0")
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(console.url.replace("0.0.0.0", "127.0.0.1") + "/topics")
        page.wait_for_url("**/login")
        page.get_by_label("Password").fill("guessed")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("that is not the password").wait_for()
        page.get_by_label("Password").fill(str(console.ready["password"]))
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("The cluster").first.wait_for()
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
    finally:
        context.close()
        console.close()


def test_a_console_that_is_gone_is_told_and_found_again(browser: Browser, opened: Shop) -> None:
    console = ConsoleProcess(opened.address)
    context = browser.new_context()
    try:
        looker = Looker(context.new_page(), console.url)
        looker.go("/topics")
        console.close()
        looker.shows("The console does not answer; trying again.")
    finally:
        context.close()


def test_documents_are_json_that_no_page_can_take_for_a_script(looker: Looker) -> None:
    page = looker.go("/")
    kinds = page.evaluate("async () => (await fetch('/api/overview')).headers.get('content-type')")
    assert kinds == "application/json"
    assert json.loads(page.evaluate("async () => JSON.stringify(await (await fetch('/api/session')).json())"))["csrf"]
