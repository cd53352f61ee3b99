"""What cannot be read: offsets that are gone, batches that are broken, topics not allowed. The rest goes on."""

from __future__ import annotations

from typing import Any

import pytest
from consumer_world import Shelf, at, batch_of, consumer_of, values_of

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import CorruptRecords, NotAuthorised, OffsetOutOfRange
from semel.records.batch import read_header, set_base_offset
from semel.wire.errors import ErrorCode
from semel.wire.spec.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


@scripted()
async def test_an_offset_out_of_range_is_reset_by_policy(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.starts[at("t-0")] = 10
    shelf.put("t-0", b"ten")
    async with consumer_of(cluster) as consumer:
        consumer.assign([at("t-0")])
        consumer.seek(at("t-0"), 3)
        assert (await consumer.getone()).offset == 10
    async with consumer_of(cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([at("t-0")])
        consumer.seek(at("t-0"), 99)
        assert await consumer.getmany(timeout_ms=1000) == {}
        assert await consumer.position(at("t-0")) == 11


@scripted()
async def test_without_a_policy_an_offset_out_of_range_names_partition_and_offset(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    shelf = Shelf(cluster)
    shelf.starts[at("t-0")] = 10
    shelf.put("t-0", b"ten")
    shelf.put("t-1", b"other")
    async with consumer_of(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([at("t-0"), at("t-1")])
        consumer.seek(at("t-0"), 3)
        consumer.seek(at("t-1"), 0)
        seen: list[Any] = []
        for _ in range(3):
            try:
                seen += values_of(await consumer.getmany(timeout_ms=1000))
            except OffsetOutOfRange as error:
                seen.append((error.partition, error.offset, "t-0 does not hold offset 3" in str(error)))
        assert b"other" in seen, "the other partition goes on"
        assert (at("t-0"), 3, True) in seen
        assert await consumer.position(at("t-1")) == 1
        consumer.seek(at("t-0"), 10)
        assert (await consumer.getone()).value == b"ten"


@scripted()
async def test_a_batch_that_does_not_match_its_checksum_stops_its_partition_alone(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    shelf = Shelf(cluster)
    shelf.put("t-0", b"good 0", b"good 1")
    broken = batch_of(b"bad 2", b"bad 3")
    broken[-3] ^= 1
    shelf.put("t-0", batch=broken)
    shelf.put("t-0", b"good 4")
    for number in range(5):
        shelf.put("t-1", b"other %d" % number)
    async with consumer_of(cluster, "t", max_poll_records=2) as consumer:
        seen: list[Any] = []
        errors: list[CorruptRecords] = []
        for _ in range(8):
            try:
                seen += values_of(await consumer.getmany(timeout_ms=1000))
            except CorruptRecords as error:
                errors.append(error)
        assert sorted(seen) == [b"good 0", b"good 1"] + [b"other %d" % number for number in range(5)]
        assert len(errors) >= 2, "it stays until the program does something"
        assert (errors[0].partition, errors[0].offset, errors[0].next_offset) == (at("t-0"), 2, 4)
        assert "t-0, offset 2" in str(errors[0])
        consumer.seek(at("t-0"), errors[0].next_offset)
        assert (await consumer.getone()).value == b"good 4"


@scripted()
async def test_the_check_of_checksums_can_be_left_out(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    broken = batch_of(b"a", b"b")
    broken[20] ^= 1
    shelf.put("t-0", batch=broken)
    async with consumer_of(cluster, "t", check_crcs=False) as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"a", b"b"]


@pytest.mark.parametrize("spoil", ["magic", "length", "records", "bomb"])
@scripted()
async def test_bytes_that_are_no_batch_are_told_apart_from_no_bytes(cluster: ScriptedCluster, spoil: str) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"good")
    batch = batch_of(b"a", b"b", **({"codec": 4} if spoil == "bomb" else {}))
    if spoil == "bomb":
        batch = batch_of(bytes(100_000), codec=4)
    shelf.put("t-0", batch=batch)
    if spoil == "magic":
        batch[16] = 1
    elif spoil == "length":
        batch[8:12] = (5).to_bytes(4, "big")
    elif spoil == "records":
        batch[61] = 0x7F
    settings = {"check_crcs": False, "max_decompressed_bytes": 50_000}
    async with consumer_of(cluster, "t", **settings) as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"good"]
        with pytest.raises(CorruptRecords, match="t-0, offset 1") as caught:
            await consumer.getmany(timeout_ms=1000)
        assert caught.value.offset == 1
        assert caught.value.next_offset >= 2


@scripted()
async def test_a_cut_batch_at_the_end_of_an_answer_comes_whole_with_the_next(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    whole = shelf._records

    def cut(partition: Any, wanted: Any) -> bytes:
        data = whole(partition, wanted)
        return data + bytes(batch_of(b"b" * 100))[:70] if wanted.fetch_offset == 0 else data

    shelf._records = cut  # type: ignore[method-assign]
    async with consumer_of(cluster, "t") as consumer:
        assert (await consumer.getone()).value == b"a"
        shelf.put("t-0", b"b" * 100)
        assert (await consumer.getone()).value == b"b" * 100


@scripted()
async def test_a_piece_of_a_batch_alone_is_asked_for_again_with_pauses(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a" * 200)
    whole = shelf._records
    shelf._records = lambda partition, wanted: whole(partition, wanted)[:100]  # type: ignore[method-assign]
    async with consumer_of(cluster, "t") as consumer:
        assert await consumer.getmany(timeout_ms=5000) == {}
        assert 3 < len(shelf.fetches()) < 40
        shelf._records = whole  # type: ignore[method-assign]
        assert (await consumer.getone()).value == b"a" * 200


@scripted()
async def test_a_batch_before_the_position_gives_only_the_records_from_it_on(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"0", b"1", b"2", b"3")
    async with consumer_of(cluster) as consumer:
        consumer.assign([at("t-0")])
        consumer.seek(at("t-0"), 2)
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"2", b"3"]


@scripted()
async def test_offsets_that_compaction_has_taken_are_passed_over(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"0")
    later = batch_of(b"7")
    set_base_offset(later, 7)
    shelf.batches[at("t-0")].append(later)
    assert read_header(later).base_offset == 7
    async with consumer_of(cluster, "t") as consumer:
        assert [message.offset for message in (await consumer.getmany(timeout_ms=1000))[at("t-0")]] == [0, 7]
        assert await consumer.position(at("t-0")) == 8


@scripted()
async def test_a_topic_that_may_not_be_read_is_told_by_poll_and_tried_again(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    shelf.codes[at("t-0")] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with consumer_of(cluster, "t") as consumer:
        with pytest.raises(NotAuthorised, match="t-0"):
            await consumer.getmany(timeout_ms=5000)
        shelf.codes.clear()
        assert (await consumer.getone()).value == b"a"


@scripted()
async def test_a_topic_that_may_not_even_be_seen_is_told_by_every_poll(cluster: ScriptedCluster) -> None:
    cluster.topic("t").error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    Shelf(cluster)
    async with consumer_of(cluster, "t") as consumer:
        for _ in range(2):
            with pytest.raises(NotAuthorised, match="'t'"):
                await consumer.getmany(timeout_ms=5000)


@scripted()
async def test_a_damaged_log_of_the_broker_is_told_with_its_place(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    shelf.codes[at("t-0")] = ErrorCode.CORRUPT_MESSAGE
    async with consumer_of(cluster, "t") as consumer:
        with pytest.raises(CorruptRecords, match="t-0, offset 0"):
            await consumer.getmany(timeout_ms=5000)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    ],
)
@scripted()
async def test_a_position_is_looked_for_until_the_leader_knows_it(cluster: ScriptedCluster, code: int) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    plain = cluster.rules[ListOffsetsRequest]
    refusals = 3

    def list_offsets(asked: Asked) -> Any:
        nonlocal refusals
        assert asked.body.replica_id == -1
        if not refusals:
            return plain(asked)
        refusals -= 1
        part = ListOffsetsPartitionResponse(partition_index=0, error_code=code)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])

    cluster.rules[ListOffsetsRequest] = list_offsets
    async with consumer_of(cluster, "t") as consumer:
        assert (await consumer.getone()).value == b"a"
        refusals = 3
        assert await consumer.end_offsets([at("t-0")]) == {at("t-0"): 1}
