"""A record that fails is seen by whoever looks at its delivery, or else by `flush`, `commit` and `close`."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from producer_steps import IMPATIENT, ONE_RECORD_EACH, refusing, sent_each

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import (
    BadRecord,
    Closed,
    DeliveryTimedOut,
    NotAuthorised,
    ProducerFenced,
    RecordTooLarge,
    RefusedWithOthers,
    SemelError,
    TransactionFailed,
)
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.client.producer.unseen import UnseenFailures, raise_or_note
from semel.wire.errors import ErrorCode
from semel.wire.spec.produce import ProduceRequest, RecordError


async def left_behind(cluster: ScriptedCluster, **settings: Any) -> Producer:
    """A producer that was started outside of any block."""
    producer = cluster.producer(**settings)
    await producer.start()
    return producer


def refused(cluster: ScriptedCluster, code: int = ErrorCode.INVALID_RECORD) -> None:
    cluster.topic("t")
    cluster.rules[ProduceRequest] = refusing(code)


# -- judged at once


@pytest.mark.parametrize(
    ("topic", "value", "kind"),
    [
        ("t", {"amount": 10}, BadRecord),
        ("not a name", b"x", BadRecord),
        ("..", b"x", BadRecord),
        ("x" * 250, b"x", BadRecord),
        ("t", b"x" * 5_000_000, RecordTooLarge),
    ],
    ids=["a dict", "a bad name", "dots", "a long name", "5 MB"],
)
@scripted()
async def test_what_no_broker_takes_raises_in_send_and_nobody_is_asked(
    cluster: ScriptedCluster, topic: str, value: Any, kind: type[SemelError]
) -> None:
    async with cluster.producer() as producer:
        asked = len(cluster.asked)
        with pytest.raises(kind):
            await producer.send(topic, value)
        assert len(cluster.asked) == asked


# -- raised later


@scripted()
async def test_leaving_the_block_raises_what_nobody_has_seen(cluster: ScriptedCluster) -> None:
    refused(cluster)

    async def program() -> None:
        async with cluster.producer() as producer:
            await producer.send("t", b"1")

    with pytest.raises(BadRecord, match="t-0: INVALID_RECORD"):
        await program()


@scripted()
async def test_the_first_failure_is_raised_with_the_count_of_the_others(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD]

    def rule(asked: Asked) -> None:
        code = codes[int(asked.values[0] or b"")]
        asked.refuse(code) if code else asked.accept()

    cluster.rules[ProduceRequest] = rule
    async with cluster.producer(**ONE_RECORD_EACH, enable_idempotence=False) as producer:
        await sent_each(producer, b"0", b"1", b"2", b"3")
        with pytest.raises(NotAuthorised, match=r"t-0: TOPIC_AUTHORIZATION.*; 2 other records were not") as raised:
            await producer.flush()
        assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert str(raised.value).count(NotAuthorised.advice) == 1
    assert cluster.logs("t") == [b"1"]


@scripted()
async def test_a_failure_is_raised_once(cluster: ScriptedCluster) -> None:
    refused(cluster)
    async with cluster.producer() as producer:
        delivery = await producer.send("t", b"1")
        with pytest.raises(BadRecord):
            await producer.flush()
        await producer.flush()
        assert isinstance(delivery.exception(), BadRecord)
        cluster.release(ProduceRequest)
        await producer.send("t", b"2")
        await producer.flush()


@scripted()
async def test_each_new_failure_is_raised_though_older_deliveries_are_looked_at_late(cluster: ScriptedCluster) -> None:
    refused(cluster)
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        old = await sent_each(producer, b"1", b"2")
        with pytest.raises(BadRecord, match="1 other record was not delivered"):
            await producer.flush()
        await sent_each(producer, b"3")
        await asyncio.sleep(1)
        assert all(delivery.exception() for delivery in old)
        with pytest.raises(BadRecord):
            await producer.flush()


@scripted()
async def test_closing_raises_it_too_and_has_closed(cluster: ScriptedCluster) -> None:
    refused(cluster)
    producer = await left_behind(cluster)
    await producer.send("t", b"1")
    with pytest.raises(BadRecord):
        await producer.close()
    await producer.close()
    with pytest.raises(Closed):
        await producer.send("t", b"2")


@scripted()
async def test_what_was_not_delivered_when_the_time_to_close_was_over_is_raised(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.hold(ProduceRequest)
    producer = await left_behind(cluster, linger_ms=10)
    for value in (b"1", b"2", b"3"):
        await producer.send("t", value)
    with pytest.raises(Closed, match="2 other records were not delivered"):
        await producer.close(timeout_s=1)


@scripted()
async def test_columns_that_fail_are_raised_too(cluster: ScriptedCluster) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    refused(cluster)
    rows = pyarrow.table({"value": [b"1", b"2", b"3"]})
    async with cluster.producer() as producer:
        await producer.send_columns("t", rows)
        with pytest.raises(BadRecord, match="2 other records were not delivered"):
            await producer.flush()
        with pytest.raises(BadRecord):
            await (await producer.send_columns("t", rows))
        seen = await producer.send_columns("t", rows)
        await asyncio.sleep(1)
        assert isinstance(seen.exception(), BadRecord)
        await producer.flush()


@scripted()
async def test_the_halves_of_a_batch_are_counted_once(cluster: ScriptedCluster) -> None:
    cluster.topic("t")

    def rule(asked: Asked) -> None:
        too_large = len(asked.values) > 1 or asked.values[0] in (b"1", b"3")
        asked.refuse(ErrorCode.MESSAGE_TOO_LARGE) if too_large else asked.accept()

    cluster.rules[ProduceRequest] = rule
    async with cluster.producer(linger_ms=10) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(6)]
        with pytest.raises(RecordTooLarge, match="1 other record was not delivered"):
            await producer.flush()
        more = [await producer.send("t", b"%d" % number) for number in range(6)]
        await asyncio.sleep(1)
        assert isinstance(more[3].exception(), RecordTooLarge)
        with pytest.raises(RecordTooLarge) as raised:
            await producer.flush()
        assert "other record" not in str(raised.value)
    assert [delivery.exception() is None for delivery in deliveries] == [True, False, True, False, True, True]


@scripted()
async def test_of_a_batch_in_which_records_were_named_the_first_of_those_is_raised(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    bad = [RecordError(batch_index=2, batch_index_error_message="no key")]
    cluster.rules[ProduceRequest] = refusing(ErrorCode.INVALID_RECORD, record_errors=bad)
    async with cluster.producer(linger_ms=10) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(4)]
        with pytest.raises(RefusedWithOthers):
            await deliveries[0]
        with pytest.raises(BadRecord, match=r"record 2 of the batch: .*no key; 2 other records were not delivered"):
            await producer.flush()


@scripted()
async def test_memory_does_not_grow_with_what_fails(cluster: ScriptedCluster) -> None:
    refused(cluster)
    producer = await left_behind(cluster, **ONE_RECORD_EACH)
    for _ in range(300):
        await producer.send("t", b"x")
    await asyncio.sleep(1)
    assert len(producer.unseen._kinds) == 1
    assert not producer._accumulator.unfinished
    with pytest.raises(BadRecord, match="299 other records were not delivered"):
        await producer.close()


# -- seen by the program


@scripted()
async def test_a_delivery_that_was_awaited_or_asked_is_not_raised_again(cluster: ScriptedCluster) -> None:
    refused(cluster)
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        awaited, asked, again = await sent_each(producer, b"1", b"2", b"3")
        for _ in range(2):
            with pytest.raises(BadRecord):
                await awaited
        await asyncio.sleep(1)
        with pytest.raises(BadRecord):
            asked.result()
        assert again.exception() is again.exception() is not None


@scripted()
async def test_a_delivery_with_a_callback_is_not_raised(cluster: ScriptedCluster) -> None:
    refused(cluster)
    called: list[Delivery] = []
    async with cluster.producer() as producer:
        await producer.send("t", b"1", on_delivery=called.append)
        later = await producer.send("t", b"2")
        await asyncio.sleep(1)
        later.add_done_callback(called.append)
        await producer.flush()
    assert len(called) == 2


@scripted()
async def test_of_one_batch_only_what_nobody_has_looked_at_is_raised(cluster: ScriptedCluster) -> None:
    refused(cluster)
    async with cluster.producer(linger_ms=10) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(5)]
        with pytest.raises(BadRecord):
            await deliveries[0]
        assert deliveries[1].exception() is not None
        with pytest.raises(BadRecord, match="2 other records were not delivered"):
            await producer.flush()


@scripted()
async def test_who_waits_for_a_delivery_sees_it_and_a_flush_beside_it_is_silent(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.hold(ProduceRequest)
    async with cluster.producer() as producer:
        delivery = await producer.send("t", b"1")
        flushing = asyncio.create_task(producer.flush())
        await cluster.settle()

        async def wait() -> None:
            with pytest.raises(BadRecord):
                await delivery

        waiting = asyncio.create_task(wait())
        (await cluster.next(ProduceRequest)).refuse(ErrorCode.INVALID_RECORD)
        await flushing
        await waiting


@scripted()
async def test_who_has_given_up_waiting_has_not_seen_it(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.hold(ProduceRequest)
    async with cluster.producer() as producer:
        delivery = await producer.send("t", b"1")

        async def wait() -> None:
            await delivery

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 1)
        (await cluster.next(ProduceRequest)).refuse(ErrorCode.INVALID_RECORD)
        with pytest.raises(BadRecord):
            await producer.flush()


@scripted()
async def test_who_is_cancelled_when_the_answer_comes_has_not_seen_it(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.hold(ProduceRequest)
    async with cluster.producer() as producer:
        delivery = await producer.send("t", b"1")

        async def wait() -> None:
            await delivery

        waiting = asyncio.create_task(wait())
        asked = await cluster.next(ProduceRequest)
        delivery._batch.when_done(lambda _: waiting.cancel(), None)
        asked.refuse(ErrorCode.INVALID_RECORD)
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        with pytest.raises(BadRecord):
            await producer.flush()


# -- beside an exception of the program


@scripted()
async def test_an_exception_of_the_program_is_not_masked_and_says_what_was_lost(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    refused(cluster)

    async def program() -> None:
        async with cluster.producer() as producer:
            await producer.send("t", b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        await program()
    assert len(raised.value.__notes__) == 1
    assert "records were not delivered either: t-0: INVALID_RECORD" in raised.value.__notes__[0]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@scripted()
async def test_a_finally_that_closes_does_not_mask_it_either(cluster: ScriptedCluster) -> None:
    refused(cluster)
    producer = await left_behind(cluster)

    async def program() -> None:
        try:
            await producer.send("t", b"1")
            raise ZeroDivisionError
        finally:
            await producer.close()

    with pytest.raises(ZeroDivisionError) as raised:
        await program()
    assert "INVALID_RECORD" in raised.value.__notes__[0]


@scripted()
async def test_a_block_inside_of_a_handler_raises_all_the_same(cluster: ScriptedCluster) -> None:
    refused(cluster)

    async def program() -> None:
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            async with cluster.producer() as producer:
                await producer.send("t", b"1")

    with pytest.raises(BadRecord):
        await program()


@scripted()
async def test_a_close_that_is_cancelled_notes_what_was_lost(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topic("t")
    cluster.hold(ProduceRequest)
    producer = await left_behind(cluster)
    await producer.send("t", b"1")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(1)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert closing.cancelled()
    assert "records were lost: the producer was closed before the record was delivered" in caplog.text


# -- transactions


@scripted()
async def test_a_flush_in_a_transaction_raises_why_it_cannot_be_committed(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(transactional_id="id", **IMPATIENT) as producer:
        await producer.begin()
        cluster.rules[ProduceRequest] = refusing(ErrorCode.NOT_ENOUGH_REPLICAS)
        await producer.send("t", b"1")
        with pytest.raises(
            TransactionFailed, match=r"not acknowledged within 8 s.*1 record was not delivered"
        ) as raised:
            await producer.flush()
        assert isinstance(raised.value.__cause__, DeliveryTimedOut)
        with pytest.raises(TransactionFailed):
            await producer.commit()
        await producer.abort()


@scripted()
async def test_a_commit_says_how_many_were_not_delivered_and_the_block_nothing_more(cluster: ScriptedCluster) -> None:
    refused(cluster)
    async with cluster.producer(transactional_id="id", linger_ms=10) as producer:
        await producer.begin()
        for value in (b"1", b"2", b"3"):
            await producer.send("t", value)
        with pytest.raises(BadRecord, match="3 records were not delivered"):
            await producer.commit()


@scripted()
async def test_what_the_program_has_aborted_is_not_raised(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(transactional_id="id", linger_ms=1000) as producer:
        await producer.begin()
        delivery = await producer.send("t", b"1")
        await producer.abort()
        assert isinstance(delivery.exception(), TransactionFailed)
        await producer.begin()
        await producer.send("t", b"2")
        # Nobody commits it: the end of the block aborts it, as is documented.


def test_a_transaction_that_nobody_commits_has_nothing_to_lose_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is aborted at the end, whether or not a record of it has failed before."""

    @scripted()
    async def left_open(cluster: ScriptedCluster) -> None:
        refused(cluster)
        async with cluster.producer(transactional_id="id") as producer:
            await producer.begin()
            await producer.send("t", b"1")
            await asyncio.sleep(1)

    caplog.set_level(logging.WARNING, "semel.producer")
    left_open()  # type: ignore[call-arg]
    assert [record.getMessage() for record in caplog.records] == [
        "id was closed with a transaction open: it is aborted, and nothing that was sent in it counts"
    ]


@scripted()
async def test_a_producer_that_was_told_that_it_is_fenced_is_not_told_again_at_its_end(
    cluster: ScriptedCluster,
) -> None:
    refused(cluster, ErrorCode.PRODUCER_FENCED)
    async with cluster.producer(transactional_id="id", **ONE_RECORD_EACH) as producer:
        await producer.begin()
        await sent_each(producer, b"1", b"2")
        await asyncio.sleep(1)
        with pytest.raises(ProducerFenced):
            await producer.commit()


# -- counting


def test_counts_are_of_each_kind_and_what_is_seen_in_time_does_not_count() -> None:
    failures = UnseenFailures()
    first, second = BadRecord("first"), Closed("second")
    one = failures.add(first, 1)
    failures.add(second, 2)
    one.see()
    raised = failures.take()
    assert isinstance(raised, Closed)
    assert str(raised) == "second; 1 other record was not delivered"
    assert failures.take() is None


def test_threads_that_look_at_once_are_counted_right() -> None:
    failures = UnseenFailures()
    entry = failures.add(BadRecord("text"), 40_001)
    threads = [threading.Thread(target=lambda: [entry.see() for _ in range(10_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entry.count == 1
    failures.clear()
    raise_or_note(failures.take(), None)
