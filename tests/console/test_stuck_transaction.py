"""A transaction that is held open is found, explained and ended, in the browser."""

from __future__ import annotations

import asyncio

import pytest

import semel
from console.browsing import Looker, LoopThread
from console.shop import Shop

pytestmark = pytest.mark.xdist_group("browser")


def test_a_transaction_held_open_is_found_and_ended(looker: Looker, opened: Shop, loop_thread: LoopThread) -> None:
    opening, may_commit = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with opened.producer("forgotten") as producer, producer.transaction():
            await producer.send("receipts", b"never to be seen", key=b"held", partition=0)
            await producer.flush()
            opening.set()
            await may_commit.wait()

    holding = loop_thread.begin(hold())
    loop_thread.run(opening.wait())
    loop_thread.run(_write(opened.address, b"waits behind it"))
    page = looker.go("/transactions?partition=receipts%2F0")
    card = page.locator(".held-card")
    card.get_by_text("forgotten", exact=True).first.wait_for()
    told = card.inner_text()
    assert "stops at offset" in told
    assert "wait behind it" in told
    assert "its time is over 10 min after it began" in told
    assert "semel txn abort forgotten --bootstrap" in told
    assert page.locator(".timeline .row", has_text="forgotten").locator(".bar.open").count() == 1

    card.get_by_role("button", name="End this transaction").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Its producer is fenced").wait_for()
    dialog.get_by_role("button", name="Abort it").click()
    looker.shows("the transaction of forgotten was aborted")
    page.get_by_text("Nobody is held back").wait_for()
    page.locator(".timeline .row", has_text="forgotten").locator(".bar.aborted").first.wait_for()

    # What waited is read now, and what was aborted is not; the producer is told.
    values = loop_thread.run(_read_committed(opened.address))
    assert b"waits behind it" in values
    assert b"never to be seen" not in values
    loop_thread.run(_set(may_commit))
    with pytest.raises(semel.errors.SemelError):
        holding.result(30)
    page.goto(looker.url + "/topics/receipts/messages?key=held&partition=0")
    page.locator("tr.message.aborted", has_text="never to be seen").wait_for()


async def _write(address: str, value: bytes) -> None:
    async with semel.Producer(bootstrap_servers=address) as producer:
        await producer.send_and_wait("receipts", value, key=b"held", partition=0)


async def _read_committed(address: str) -> list[bytes | None]:
    async with semel.Consumer(
        "receipts", bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        found: list[bytes | None] = []
        for _ in range(20):
            for messages in (await consumer.poll(500, 1000)).values():
                found += [one.value for one in messages]
            if b"waits behind it" in found:
                break
        return found


async def _set(event: asyncio.Event) -> None:
    event.set()
