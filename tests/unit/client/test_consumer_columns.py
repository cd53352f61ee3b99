"""Polling by columns: the same records as one by one, the same positions, and never a record object."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from consumer_world import Node, Shelf, at, batch_of, consumer_of, on_broker, produce, values_of
from transaction_harness import TOPIC, V2, started, with_transactions

from scripted_broker import ScriptedCluster, scripted
from semel.client.errors import BadSetting, CorruptRecords, IllegalState

COLUMNS = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value"]


def values(table: pa.Table) -> list[Any]:
    return table.column("value").to_pylist()


@on_broker()
async def test_a_table_holds_what_polls_would_have_given(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", 2)
    await produce(node, "t-0", b"a", b"b", keys=[b"k", None], headers=[[("h", b"1"), ("n", None)], []])
    await produce(node, "t-0", b"c", codec=4, timestamp_ms=1234)
    await produce(node, "t-1", b"d", timestamp_ms=99)
    settings = {"group_id": "g", "enable_auto_commit": False}
    async with consumer_of(node, "t", **settings) as consumer:
        messages = []
        while len(messages) < 4:
            messages += [one for found in (await consumer.getmany(timeout_ms=1000)).values() for one in found]
    async with consumer_of(node, "t", **settings) as consumer:
        tables = []
        while sum(len(table) for table in tables) < 4:
            tables.append(await consumer.poll_columns(timeout_ms=1000, with_headers=True))
        table = pa.concat_tables(tables)
        assert table.column_names == [*COLUMNS, "headers"]
        assert table.schema.field("partition").type == pa.int32()
        assert table.schema.field("topic").type == pa.string()
        assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
        rows = [
            (
                row["topic"],
                row["partition"],
                row["offset"],
                int(row["timestamp"].timestamp() * 1000),
                row["timestamp_type"],
                row["key"],
                row["value"],
                tuple((one["key"], one["value"]) for one in row["headers"] or ()),
            )
            for row in table.to_pylist()
        ]
        assert sorted(rows) == sorted(tuple(message) for message in messages)
        assert await consumer.position(at("t-0")) == 3
        await consumer.commit()
        assert await consumer.committed(at("t-1")) == 1


@on_broker()
async def test_an_empty_table_has_the_same_columns(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", 1)
    async with consumer_of(node, "t") as consumer:
        table = await consumer.poll_columns(timeout_ms=100, timestamp_unit="us")
        assert (table.num_rows, table.column_names) == (0, COLUMNS)
        assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
        with pytest.raises(BadSetting, match="timestamp_unit"):
            await consumer.poll_columns(timestamp_unit="s")
        with pytest.raises(IllegalState, match="max_records=0"):
            await consumer.poll_columns(max_records=0)


@on_broker()
async def test_max_records_cuts_a_batch_and_the_next_poll_goes_on_inside_it(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", 1)
    for start in (0, 4, 8):
        await produce(node, "t-0", *[b"%d" % number for number in range(start, start + 4)])
    async with consumer_of(node, "t") as consumer:
        got = []
        for most in (3, 3, 1, 100):
            table = await consumer.poll_columns(timeout_ms=1000, max_records=most)
            assert table.num_rows <= most
            got += values(table)
            assert await consumer.position(at("t-0")) == len(got)
        assert got == [b"%d" % number for number in range(12)]


@on_broker()
async def test_columns_and_messages_can_take_turns(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", 1)
    for start in (0, 6):
        await produce(node, "t-0", *[b"%d" % number for number in range(start, start + 6)])
    async with consumer_of(node, "t") as consumer:
        got = [(await consumer.getone()).value]
        got += values(await consumer.poll_columns(timeout_ms=1000, max_records=2))
        got += values_of(await consumer.getmany(timeout_ms=1000, max_records=2))
        async for message in consumer:
            got.append(message.value)
            if message.value == b"6":
                break
        got += values(await consumer.poll_columns(timeout_ms=1000))
        assert got == [b"%d" % number for number in range(12)]


@on_broker()
async def test_aborted_records_and_markers_are_not_in_the_table(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    await producer.transaction(b"kept 1")
    await producer.transaction(b"gone", commit=False)
    await producer.transaction(b"kept 2")
    async with consumer_of(node, TOPIC, isolation_level="read_committed") as consumer:
        assert values(await consumer.poll_columns(timeout_ms=1000)) == [b"kept 1", b"kept 2"]
        assert await consumer.position(at(f"{TOPIC}-0")) == 6
        assert (await consumer.poll_columns(timeout_ms=700)).num_rows == 0
    async with consumer_of(node, TOPIC) as consumer:
        assert values(await consumer.poll_columns(timeout_ms=1000)) == [b"kept 1", b"gone", b"kept 2"]


@pytest.mark.parametrize("checks_crcs", [True, False])
@scripted()
async def test_what_lies_before_a_broken_batch_is_given_and_then_the_error(
    cluster: ScriptedCluster, checks_crcs: bool
) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"0", b"1")
    shelf.put("t-0", b"2")
    broken = batch_of(b"3", b"4")
    shelf.put("t-0", batch=broken)
    broken[61] = 0x7F
    shelf.put("t-0", b"5")
    async with consumer_of(cluster, "t", check_crcs=checks_crcs) as consumer:
        assert values(await consumer.poll_columns(timeout_ms=1000)) == [b"0", b"1", b"2"]
        for _ in range(2):
            with pytest.raises(CorruptRecords, match="t-0, offset 3") as caught:
                await consumer.poll_columns(timeout_ms=1000)
        consumer.seek(at("t-0"), caught.value.next_offset)
        assert values(await consumer.poll_columns(timeout_ms=1000)) == [b"5"]


@on_broker()
async def test_a_failed_program_leaves_its_last_table_to_the_next(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", 1)
    await produce(node, "t-0", b"0", b"1", b"2", b"3")

    async def fails() -> None:
        async with consumer_of(node, "t", group_id="g") as consumer:
            await consumer.poll_columns(timeout_ms=1000, max_records=2)
            await consumer.poll_columns(timeout_ms=1000, max_records=1)
            raise ValueError("the program's own")

    with pytest.raises(ValueError, match="own"):
        await fails()
    async with consumer_of(node, "t", group_id="g") as consumer:
        assert values(await consumer.poll_columns(timeout_ms=1000)) == [b"2", b"3"]
