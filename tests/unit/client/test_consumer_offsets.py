"""Committing and reading back, with our whole broker: by hand, in the background, by itself, and when it goes wrong."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from consumer_world import Node, at, consumer_of, on_broker, produce, values_of
from transaction_harness import V1, TransactionalProducer, with_transactions

from semel.client.errors import CommitFailed, IllegalState, SemelError
from semel.client.values import OffsetAndMetadata
from semel.wire.errors import ErrorCode
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


async def topic_with(node: Node, *values: bytes, name: str = "t", partitions: int = 1) -> None:
    client = await node.client()
    assert (await client.create_topic(name, partitions)).error_code == 0
    client.close()
    if values:
        await produce(node, f"{name}-0", *values)


async def committed(node: Node, group: str = "g", place: str = "t-0") -> int | None:
    async with consumer_of(node, group_id=group) as other:
        return await other.committed(at(place))


@on_broker()
async def test_a_commit_is_where_the_next_consumer_begins(node: Node) -> None:
    await topic_with(node, b"0", b"1", b"2", b"3")
    async with consumer_of(node, "t", group_id="g", enable_auto_commit=False) as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000, max_records=3)) == [b"0", b"1", b"2"]
        assert await consumer.committed(at("t-0")) is None
        await consumer.commit()
        assert await consumer.committed(at("t-0")) == 3
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"3"]
    async with consumer_of(node, "t", group_id="g") as consumer:
        assert (await consumer.getone()).value == b"3"


@on_broker()
async def test_a_commit_inside_a_loop_counts_the_message_in_hand(node: Node) -> None:
    await topic_with(node, b"0", b"1", b"2", b"3")
    async with consumer_of(node, "t", group_id="g", enable_auto_commit=False) as consumer:
        async for message in consumer:
            if message.value == b"2":
                await consumer.commit()
                break
        assert await consumer.committed(at("t-0")) == 3


@on_broker()
async def test_offsets_can_be_given_with_a_note(node: Node) -> None:
    await topic_with(node, b"0", b"1", b"2", partitions=2)
    async with consumer_of(node, group_id="g") as consumer:
        consumer.assign([at("t-0"), at("t-1")])
        await consumer.commit({at("t-0"): OffsetAndMetadata(2, "half way"), at("t-1"): 7})
        assert await consumer.committed_with_metadata(at("t-0")) == OffsetAndMetadata(2, "half way")
        assert await consumer.committed(at("t-1")) == 7
        with pytest.raises(IllegalState, match="-1 cannot be committed"):
            await consumer.commit({at("t-0"): -1})
        await consumer.unsubscribe()


@on_broker()
async def test_commits_in_the_background_keep_their_order_and_tell_how_it_went(node: Node) -> None:
    await topic_with(node, b"0", b"1", b"2")
    told: list[tuple[Any, SemelError | None]] = []
    async with consumer_of(node, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([at("t-0")])
        for offset in range(1, 4):
            consumer.commit_async({at("t-0"): offset}, lambda offsets, error: told.append((offsets, error)))
        consumer.commit_async({at("t-0"): 2})
    assert told == [({at("t-0"): OffsetAndMetadata(offset)}, None) for offset in range(1, 4)]
    assert await committed(node) == 2


@on_broker()
async def test_auto_commit_commits_what_earlier_polls_gave_when_the_interval_has_passed(node: Node) -> None:
    await topic_with(node, *[b"%d" % number for number in range(9)])
    async with consumer_of(node, "t", group_id="g", auto_commit_interval_ms=2000) as consumer:
        await consumer.getmany(timeout_ms=1000, max_records=3)
        await consumer.getmany(timeout_ms=1000, max_records=3)
        await asyncio.sleep(1)
        assert await committed(node) is None
        await asyncio.sleep(1.5)
        assert await committed(node) is None, "only a poll commits"
        await consumer.getmany(timeout_ms=1000, max_records=1)
        await asyncio.sleep(0.1)
        assert await committed(node) == 6, "not what this poll gave"


@on_broker()
async def test_auto_commit_goes_on_while_a_slow_program_takes_messages_one_by_one(node: Node) -> None:
    await topic_with(node, *[b"%d" % number for number in range(20)])
    async with consumer_of(node, "t", group_id="g", auto_commit_interval_ms=2000) as consumer:
        async for message in consumer:
            await asyncio.sleep(1)
            if message.offset == 7:
                found = await committed(node)
                assert found is not None
                assert 4 <= found <= 7, "the one in hand is not done"
                break


@on_broker()
async def test_auto_commit_at_close_commits_everything_that_was_handed_out(node: Node) -> None:
    await topic_with(node, *[b"%d" % number for number in range(9)])
    async with consumer_of(node, "t", group_id="g") as consumer:
        await consumer.getmany(timeout_ms=1000, max_records=4)
    assert await committed(node) == 4


@on_broker()
async def test_a_program_that_fails_leaves_what_it_worked_on_to_the_next(node: Node) -> None:
    await topic_with(node, *[b"%d" % number for number in range(9)])

    async def fails_in_loop() -> None:
        async with consumer_of(node, "t", group_id="loop") as consumer:
            async for message in consumer:
                if message.offset == 5:
                    raise ValueError("the program's own")

    async def fails_after_poll() -> None:
        async with consumer_of(node, "t", group_id="poll") as consumer:
            await consumer.getmany(timeout_ms=1000, max_records=3)
            await consumer.getmany(timeout_ms=1000, max_records=3)
            raise ValueError("the program's own")

    for program in (fails_in_loop, fails_after_poll):
        with pytest.raises(ValueError, match="own"):
            await program()
    assert await committed(node, "loop") == 5
    assert await committed(node, "poll") == 3


@on_broker()
async def test_auto_commit_holds_a_first_position_even_if_nothing_was_read(node: Node) -> None:
    """Or a record written between two runs of an idle consumer would be missed."""
    await topic_with(node, b"0", b"1")
    async with consumer_of(node, "t", group_id="g", auto_offset_reset="latest") as consumer:
        await consumer.getmany(timeout_ms=1000)
    assert await committed(node) == 2


@on_broker()
async def test_auto_commit_can_be_off(node: Node) -> None:
    await topic_with(node, b"0", b"1")
    async with consumer_of(node, "t", group_id="g", enable_auto_commit=False) as consumer:
        await consumer.getmany(timeout_ms=1000)
        assert not consumer.group_metadata().auto_commits
    assert await committed(node) is None


@on_broker()
async def test_the_group_metadata_says_who_reads_and_whether_it_commits_by_itself(node: Node) -> None:
    await topic_with(node, b"0")
    async with consumer_of(node, "t", group_id="g", group_instance_id="one") as consumer:
        assert consumer.group_metadata().generation_id == -1
        assert consumer.group_metadata().is_outside
        await consumer.getmany(timeout_ms=1000)
        identity = consumer.group_metadata()
        assert (identity.group_id, identity.generation_id, identity.instance_id) == ("g", 1, "one")
        assert identity.member_id
        assert identity.auto_commits
        assert not identity.is_outside


# -- when it goes wrong


@on_broker()
async def test_a_commit_of_a_member_that_was_put_out_fails_and_the_member_joins_again(node: Node) -> None:
    await topic_with(node, b"0", b"1", partitions=1)
    settings = {"group_id": "g", "session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}
    async with consumer_of(node, "t", enable_auto_commit=False, **settings) as consumer:
        assert len(values_of(await consumer.getmany(timeout_ms=1000))) == 2
        # Its heartbeats and commits do not arrive for longer than its session, nobody tells it.
        cut_off = node.world.wires
        name = next(link.node for link in cut_off.links() if link.node.startswith("consumer"))
        cut_off.part([name], ["broker"])
        await asyncio.sleep(10)
        cut_off.heal()
        with pytest.raises(CommitFailed, match="poll again"):
            await consumer.commit()
        again = values_of(await consumer.getmany(timeout_ms=30_000))
        assert again == [b"0", b"1"], "nothing was committed, so it begins again"
        await consumer.commit()
        assert await consumer.committed(at("t-0")) == 2


@on_broker()
async def test_a_member_that_has_left_does_not_commit_as_if_it_were_nobody(node: Node) -> None:
    """An empty group takes commits of anybody."""
    await topic_with(node, b"0", b"1")
    settings = {"group_id": "g", "max_poll_interval_ms": 1000, "enable_auto_commit": False}
    async with consumer_of(node, "t", **settings) as consumer:
        assert len(values_of(await consumer.getmany(timeout_ms=900))) == 2
        await asyncio.sleep(5)
        with pytest.raises(CommitFailed, match="not a member"):
            await consumer.commit()
        assert await consumer.committed(at("t-0")) is None


@on_broker()
async def test_committed_waits_while_a_transaction_may_still_change_the_offset(node: Node) -> None:
    await topic_with(node, b"0", b"1")
    assert await committed(node) is None  # and so the topic of the groups is made
    client = await with_transactions(node)
    producer = TransactionalProducer(client, V1)
    assert await producer.init() == ErrorCode.NONE
    assert await producer.add_offsets("g") == ErrorCode.NONE
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=2)
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=[part])]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="g",
        topics=topics,
    )
    assert (await client.ask(request, 3)).topics[0].partitions[0].error_code == 0
    loop = asyncio.get_running_loop()
    async with consumer_of(node, group_id="g") as consumer:
        began_s = loop.time()
        asking = asyncio.ensure_future(consumer.committed(at("t-0")))
        consumer.assign([at("t-0")])
        reading = asyncio.ensure_future(consumer.getmany(timeout_ms=60_000))
        await asyncio.sleep(5)
        assert not asking.done()
        assert await producer.commit() == ErrorCode.NONE
        assert await asking == 2
        assert loop.time() - began_s < 7
        await produce(node, "t-0", b"2")
        assert values_of(await reading) == [b"2"], "reading began where the transaction says"
        await consumer.unsubscribe()


@on_broker()
async def test_auto_commit_that_fails_is_logged_and_does_not_stop_the_program(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await topic_with(node, b"0", b"1")
    with caplog.at_level(logging.WARNING, "semel.client"):
        async with consumer_of(node, "t", group_id="g", default_api_timeout_ms=500) as consumer:
            await consumer.getmany(timeout_ms=1000)
            refused = ErrorCode.OFFSET_METADATA_TOO_LARGE
            group = consumer._parts.group()

            async def refuse(offsets: object, timeout_s: float) -> None:
                raise SemelError("refused", code=refused)

            group.commit = refuse  # type: ignore[method-assign, assignment]
    assert "auto-commit failed: refused" in caplog.text
