"""Leaders that move, logs that were cut back, replicas that are nearer: brokers that follow a script."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from consumer_world import Shelf, at, consumer_of, values_of

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import LogTruncated
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchResponse, LeaderIdAndEpoch, NodeEndpoint
from semel.wire.spec.list_offsets import ListOffsetsRequest
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.offset_for_leader_epoch import OffsetForLeaderEpochRequest


@scripted(nodes=2)
async def test_the_leader_named_in_a_refusal_is_asked_at_once(cluster: ScriptedCluster) -> None:
    """KIP-951: without a question for metadata in between."""
    topic = cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    async with consumer_of(cluster, "t", retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as consumer:
        await consumer.getone()
        topic.move(0, 2)
        shelf.fields[at("t-0")] = {"current_leader": LeaderIdAndEpoch(leader_id=2, leader_epoch=1)}
        plain = cluster.rules[FetchRequest]

        def fetch(asked: Asked) -> Any:
            answer = plain(asked)
            if isinstance(answer, FetchResponse):
                broker = cluster.node(2)
                answer.node_endpoints = [NodeEndpoint(node_id=2, host=broker.name, port=broker.port)]
            return answer

        cluster.rules[FetchRequest] = fetch
        asked_before = len(cluster.all(MetadataRequest))
        shelf.put("t-0", b"b", epoch=1)
        began_s = asyncio.get_running_loop().time()
        assert (await consumer.getone()).value == b"b"
        assert asyncio.get_running_loop().time() - began_s < 1
        assert len(cluster.all(MetadataRequest)) == asked_before
        assert shelf.fetches()[-1].broker.node_id == 2


@scripted(nodes=2)
async def test_without_a_hint_the_new_leader_is_looked_up(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    async with consumer_of(cluster, "t") as consumer:
        await consumer.getone()
        topic.move(0, 2)
        shelf.put("t-0", b"b", epoch=1)
        assert (await consumer.getone()).value == b"b"
        asked = shelf.fetches()[-1]
        assert asked.broker.node_id == 2
        assert asked.body.topics[0].partitions[0].current_leader_epoch == 1


@scripted(nodes=2)
async def test_a_node_that_goes_away_costs_nothing_but_time(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t", [1, 2])
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    shelf.put("t-1", b"b")
    async with consumer_of(cluster, "t") as consumer:
        assert sorted([(await consumer.getone()).value for _ in range(2)]) == [b"a", b"b"]
        cluster.node(2).stop()
        shelf.put("t-0", b"c")
        assert (await consumer.getone()).value == b"c"
        topic.move(1, 1)
        shelf.put("t-1", b"d", epoch=1)
        assert (await consumer.getone()).value == b"d"


@scripted(nodes=2)
async def test_a_position_is_checked_with_a_new_leader_before_it_is_used(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a", b"b", epoch=0)
    async with consumer_of(cluster, "t") as consumer:
        await consumer.getmany(timeout_ms=1000)
        topic.move(0, 2)
        shelf.put("t-0", b"c", epoch=1)
        assert (await consumer.getone()).value == b"c"
        (asked,) = cluster.all(OffsetForLeaderEpochRequest)
        part = asked.body.topics[0].partitions[0]
        assert (part.leader_epoch, part.current_leader_epoch) == (0, 1)
        assert asked.broker.node_id == 2
        first_fetch = next(fetch for fetch in shelf.fetches() if fetch.broker.node_id == 2)
        assert cluster.asked.index(asked) < cluster.asked.index(first_fetch)


@scripted(nodes=2)
async def test_a_log_that_was_cut_back_is_read_on_where_it_diverged(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a", b"b", epoch=0)
    shelf.put("t-0", b"lost", epoch=0)
    async with consumer_of(cluster, "t") as consumer:
        assert len(values_of(await consumer.getmany(timeout_ms=1000))) == 3
        shelf.batches[at("t-0")].pop()
        topic.move(0, 2)
        shelf.put("t-0", b"other", epoch=1)
        shelf.epoch_ends[at("t-0"), 0] = (0, 2)
        with caplog.at_level(logging.WARNING, "semel.client"):
            message = await consumer.getone()
        assert (message.offset, message.value) == (2, b"other")
        assert "diverge at offset 2" in caplog.text


@scripted(nodes=2)
async def test_without_a_policy_a_log_that_was_cut_back_is_an_error_that_says_where(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a", b"b", b"lost", epoch=0)
    async with consumer_of(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([at("t-0")])
        consumer.seek(at("t-0"), 0)
        assert len(values_of(await consumer.getmany(timeout_ms=1000))) == 3
        shelf.batches[at("t-0")].clear()
        shelf.put("t-0", b"a", b"b", epoch=0)
        shelf.put("t-0", b"other", b"more", epoch=1)
        topic.move(0, 2)
        shelf.epoch_ends[at("t-0"), 0] = (0, 2)
        for _ in range(2):
            with pytest.raises(LogTruncated, match="diverge at offset 2") as caught:
                await consumer.getmany(timeout_ms=30_000)
        assert (caught.value.partition, caught.value.offset, caught.value.diverging_offset) == (at("t-0"), 3, 2)
        consumer.seek(at("t-0"), caught.value.diverging_offset)
        assert (await consumer.getone()).value == b"other"


@scripted(nodes=2)
async def test_what_was_fetched_but_not_handed_out_is_fetched_again_if_it_was_cut_off(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a", b"b", epoch=0)
    shelf.put("t-0", b"lost", epoch=0)
    async with consumer_of(cluster, "t") as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000, max_records=1)) == [b"a"]
        await asyncio.sleep(0.1)
        shelf.batches[at("t-0")].pop()
        shelf.epoch_ends[at("t-0"), 0] = (0, 2)
        topic.move(0, 2)
        shelf.put("t-0", b"other", epoch=1)
        await asyncio.sleep(5)
        assert values_of(await consumer.getmany(timeout_ms=5000)) == [b"b", b"other"]


@scripted(nodes=2)
async def test_a_near_replica_is_read_when_the_leader_names_it_and_the_leader_again_later(
    cluster: ScriptedCluster,
) -> None:
    """KIP-392."""
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    plain = cluster.rules[FetchRequest]

    def fetch(asked: Asked) -> Any:
        is_leader = asked.broker.node_id == 1
        named = {"preferred_read_replica": 2, "records": b""}
        shelf.fields[at("t-0")] = {"followers_may_read": True, **(named if is_leader else {})}
        return plain(asked)

    cluster.rules[FetchRequest] = fetch
    async with consumer_of(cluster, "t", metadata_max_age_ms=60_000, client_rack="b") as consumer:
        assert (await consumer.getone()).value == b"a"
        assert [asked.broker.node_id for asked in shelf.fetches()] == [1, 2]
        assert await consumer.getmany(timeout_ms=55_000) == {}
        assert {asked.broker.node_id for asked in shelf.fetches()[1:]} == {2}
        assert await consumer.getmany(timeout_ms=10_000) == {}
        assert 1 in {asked.broker.node_id for asked in shelf.fetches()[1:]}, "it is asked anew from time to time"


@scripted(nodes=2)
async def test_a_near_replica_that_does_not_have_the_offset_sends_back_to_the_leader(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    plain = cluster.rules[FetchRequest]
    is_first = True

    def fetch(asked: Asked) -> Any:
        nonlocal is_first
        if asked.broker.node_id == 2:
            shelf.codes[at("t-0")] = ErrorCode.OFFSET_OUT_OF_RANGE
        shelf.fields[at("t-0")] = {"preferred_read_replica": 2 if is_first else -1}
        is_first = False
        try:
            return plain(asked)
        finally:
            shelf.codes.clear()

    cluster.rules[FetchRequest] = fetch
    async with consumer_of(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([at("t-0")])
        consumer.seek(at("t-0"), 0)
        await consumer.getmany(timeout_ms=1000)
        shelf.put("t-0", b"a")
        assert (await consumer.getone()).value == b"a", "no reset, no error"
        assert [asked.broker.node_id for asked in shelf.fetches()][:3] == [1, 2, 1]


# -- answers that come too late


@scripted()
async def test_an_answer_for_a_partition_that_was_given_up_is_dropped(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    shelf = Shelf(cluster)
    async with consumer_of(cluster) as consumer:
        consumer.assign([at("t-0")])
        await consumer.getmany(timeout_ms=1000)
        consumer.assign([at("t-1")])
        shelf.put("t-0", b"not ours any more")
        shelf.put("t-1", b"ours")
        assert values_of(await consumer.getmany(timeout_ms=2000)) == [b"ours"]
        assert await consumer.getmany(timeout_ms=2000) == {}


@scripted()
async def test_an_answer_for_where_we_were_before_a_seek_is_dropped(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    for number in range(4):
        shelf.put("t-0", b"%d" % number)
    plain = cluster.rules[FetchRequest]
    cluster.hold(FetchRequest)
    async with consumer_of(cluster) as consumer:
        consumer.assign([at("t-0")])
        consumer.seek(at("t-0"), 0)
        assert await consumer.getmany(timeout_ms=500) == {}
        (late,) = cluster.held(FetchRequest)
        consumer.seek(at("t-0"), 2)
        cluster.rules[FetchRequest] = plain
        late.answer(plain(late))  # type: ignore[arg-type]
        assert values_of(await consumer.getmany(timeout_ms=2000)) == [b"2", b"3"]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE])
@scripted(nodes=2)
async def test_of_two_nodes_that_answer_for_the_same_offset_the_second_is_not_heard(
    cluster: ScriptedCluster, code: int
) -> None:
    topic = cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a", b"b")
    plain = cluster.rules[FetchRequest]
    cluster.hold(FetchRequest)
    async with consumer_of(cluster, metadata_max_age_ms=500) as consumer:
        consumer.assign([at("t-0")])
        consumer.seek(at("t-0"), 0)
        assert await consumer.getmany(timeout_ms=300) == {}
        (late,) = cluster.held(FetchRequest)
        shelf.codes[at("t-0")] = code
        answer = plain(late)
        shelf.codes.clear()
        topic.move(0, 2)
        cluster.rules[FetchRequest] = plain
        assert values_of(await consumer.getmany(timeout_ms=5000)) == [b"a", b"b"]
        assert answer is not None
        late.answer(answer)
        assert await consumer.getmany(timeout_ms=5000) == {}
        assert await consumer.position(at("t-0")) == 2


@scripted()
async def test_a_seek_wins_over_an_answer_that_is_still_on_its_way(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    for number in range(4):
        shelf.put("t-0", b"%d" % number)
    plain = cluster.rules[ListOffsetsRequest]
    cluster.hold(ListOffsetsRequest)
    async with consumer_of(cluster, "t") as consumer:
        assert await consumer.getmany(timeout_ms=500) == {}
        (late,) = cluster.held(ListOffsetsRequest)
        consumer.seek(at("t-0"), 2)
        answer = plain(late)
        assert answer is not None
        late.answer(answer)
        assert values_of(await consumer.getmany(timeout_ms=2000)) == [b"2", b"3"]


@scripted(nodes=2)
async def test_what_an_old_leader_still_answers_is_not_taken_for_the_new_ones(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a")
    plain = cluster.rules[FetchRequest]
    async with consumer_of(cluster, "t", metadata_max_age_ms=500) as consumer:
        assert (await consumer.getone()).value == b"a"
        cluster.hold(FetchRequest)
        for asked in shelf.parked:
            asked.answer(shelf._answer(asked))
        assert await consumer.getmany(timeout_ms=300) == {}
        late = cluster.held(FetchRequest)[-1]
        shelf.put("t-0", b"never on the new leader")
        answer = plain(late)
        shelf.batches[at("t-0")].pop()
        cluster.hold(OffsetForLeaderEpochRequest)
        topic.move(0, 2)
        assert await consumer.getmany(timeout_ms=1000) == {}
        assert answer is not None
        late.answer(answer)
        await asyncio.sleep(0.1)
        cluster.rules[FetchRequest] = plain
        cluster.rules[OffsetForLeaderEpochRequest] = shelf._epoch_end
        for asked in cluster.held(OffsetForLeaderEpochRequest):
            asked.answer(shelf._epoch_end(asked))
        shelf.put("t-0", b"b", epoch=1)
        assert (await consumer.getone()).value == b"b"
