"""What goes to a leader, and when: sessions, flushes, cuts, pauses, requests aside."""

from __future__ import annotations

import asyncio
import random

import pytest
from follower_world import (
    BROKER_EPOCH,
    FollowerWorld,
    append,
    append_to,
    config_of,
    mark,
    open_log,
    topic_id,
)
from leader_world import B
from test_partition_leader import simulated

from semel.log.log import Log
from semel.peer.errors import Unreachable
from semel.records.control import ControlType
from semel.replication.fetcher import fetch_version, list_offsets_version
from semel.replication.following import Phase
from semel.sim.disk import SimDisk
from semel.wire.errors import ErrorCode


def contents(log: Log) -> bytes:
    return b"".join(segment.file.read_at(0, 1 << 30) for segment in log.segments)


def now_s() -> float:
    return asyncio.get_running_loop().time()


@simulated
async def test_a_follower_becomes_what_its_leader_is_and_the_leader_commits_by_it() -> None:
    world = FollowerWorld()
    partition = world.lead(segment_bytes=500)
    for number in range(30):
        append(partition, b"value %d" % number, producer=5, sequence=number)
    follower = world.follow(segment_bytes=500)
    await world.caught_up()
    assert contents(follower.log) == contents(partition.log)
    assert follower.log.epochs.entries == partition.log.epochs.entries
    await world.close()


@simulated
async def test_what_is_appended_is_followed_and_flushed_in_a_few_milliseconds() -> None:
    world = FollowerWorld(flush_ms=3)
    partition = world.lead()
    world.follow()
    for number in range(20):
        append(partition, b"x")
        began = now_s()
        await world.caught_up()
        assert now_s() - began < 0.02 or number == 0
    await world.close()


@simulated
async def test_nothing_counts_before_it_is_flushed() -> None:
    world = FollowerWorld(flush_ms=400)
    partition = world.lead()
    follower = world.follow()
    append(partition, b"x")
    while follower.log.end_offset == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.3)
    assert partition.log.high_watermark == 0
    await world.caught_up()
    await world.close()


@simulated
async def test_a_slow_flush_of_one_partition_holds_no_other_up() -> None:
    """Each has a disk of its own here: one of them needs two seconds to flush."""
    world = FollowerWorld(flush_ms=2)
    slow = SimDisk(7, flush_latency_ms=(2000, 2000))
    partitions = [world.lead(number) for number in range(3)]
    world.follow(0, log=open_log(slow, "/data/slow", config_of()))
    for number in (1, 2):
        world.follow(number)
    append(partitions[0], b"slow")
    await asyncio.sleep(0.1)
    for _ in range(20):
        for number in (1, 2):
            append(partitions[number], b"quick")
        began = now_s()
        for number in (1, 2):
            await world.caught_up(number)
        assert now_s() - began < 0.04
    assert partitions[0].log.high_watermark == 0
    assert now_s() < 2
    await world.caught_up(0)
    await world.close()


@simulated
async def test_a_partition_leaves_the_session_while_it_is_flushed_and_comes_back() -> None:
    world = FollowerWorld(flush_ms=30)
    partitions = [world.lead(number) for number in range(2)]
    for number in range(2):
        world.follow(number)
    append(partitions[0], b"x")
    await world.caught_up(0)
    names = [
        (
            [topic.topic_id[-1] - 1 for topic in request.topics],
            [topic.topic_id[-1] - 1 for topic in request.forgotten_topics_data],
        )
        for request in world.leader.requests
        if request.session_epoch > 0
    ]
    assert ([], [0]) in names
    assert ([0], []) in names[names.index(([], [0])) :]
    await world.close()


@simulated
async def test_a_node_at_rest_asks_twice_a_second() -> None:
    world = FollowerWorld()
    for number in range(5):
        append(world.lead(number), b"x")
        world.follow(number)
    for number in range(5):
        await world.caught_up(number)
    await asyncio.sleep(1)
    before = len(world.leader.requests)
    await asyncio.sleep(10)
    assert 15 <= len(world.leader.requests) - before <= 21
    assert all(not request.topics for request in world.leader.requests[before:])
    await world.close()


@simulated
async def test_a_round_costs_what_is_new_however_many_partitions_there_are() -> None:
    world = FollowerWorld()
    partitions = [world.lead(number) for number in range(200)]
    for number in range(200):
        world.follow(number)
    await asyncio.sleep(2)
    before = len(world.leader.requests)
    for _ in range(10):
        append(partitions[7], b"x")
        await world.caught_up(7)
    named = [sum(len(topic.partitions) for topic in r.topics) for r in world.leader.requests[before:]]
    assert max(named) == 1
    assert len(named) < 50
    await world.close()


@simulated
async def test_many_partitions_are_named_in_several_requests() -> None:
    world = FollowerWorld()
    for number in range(255):
        world.lead(number)
    for number in range(255):
        world.follow(number)
    await asyncio.sleep(2)
    named = [sum(len(topic.partitions) for topic in r.topics) for r in world.leader.requests]
    assert max(named) <= 250
    assert sum(named) == 255
    await world.close()


@simulated
async def test_logs_that_part_are_cut_and_go_on_as_the_leaders() -> None:
    world = FollowerWorld()
    log = open_log(world.leader_disk, "/data/leader", config_of())
    old = world.open()
    for number in range(10):
        append_to(log, b"common %d" % number, leader_epoch=1)
        append_to(old, b"common %d" % number, leader_epoch=1)
    for number in range(7):
        append_to(old, b"lost %d" % number, leader_epoch=2, producer=4, sequence=number)
    other = world.lead(leader_epoch=6, log=log)
    for number in range(3):
        append(other, b"new %d" % number)
    follower = world.follow(leader_epoch=6, log=old)
    await world.caught_up()
    assert contents(follower.log) == contents(other.log)
    assert follower.log.epochs.entries == other.log.epochs.entries
    assert follower.log.producers.entry(4) is None
    await world.close()


@simulated
async def test_fast_elections_with_unequal_logs_take_several_rounds() -> None:
    """KIP-279."""
    world = FollowerWorld()
    old = world.open()
    log = open_log(world.leader_disk, "/data/leader", config_of())
    for epoch, ours, theirs in ((1, 5, 5), (2, 3, 0), (3, 0, 4), (4, 4, 0), (5, 0, 2), (6, 1, 0)):
        for _ in range(ours):
            append_to(old, b"ours", leader_epoch=epoch)
        for _ in range(theirs):
            append_to(log, b"theirs" if epoch > 1 else b"ours", leader_epoch=epoch)
    partition = world.lead(leader_epoch=7, log=log)
    append(partition, b"newest")
    follower = world.follow(leader_epoch=7, log=old)
    await world.caught_up()
    assert contents(follower.log) == contents(log)
    assert follower.log.epochs.entries == log.epochs.entries == [(1, 0), (3, 5), (5, 9), (7, 11)]
    await world.close()


@simulated
async def test_a_follower_that_is_behind_the_leaders_start_begins_there() -> None:
    world = FollowerWorld()
    partition = world.lead(segment_bytes=300)
    for number in range(20):
        append(partition, b"value %d" % number)
    partition.log.high_watermark = 20
    partition.log.advance_start(13)
    follower = world.follow()
    await world.caught_up()
    assert follower.log.start_offset == 13
    assert len(world.leader.look_ups) == 2
    assert {(r.replica_id, r.topics[0].partitions[0].timestamp) for r in world.leader.look_ups} == {(B, -1), (B, -2)}
    await world.close()


@simulated
async def test_a_follower_without_epochs_that_is_ahead_of_its_leader_is_cut_to_its_end() -> None:
    world = FollowerWorld()
    log = open_log(world.leader_disk, "/data/leader", config_of())
    ours = world.open()
    for _ in range(5):
        append_to(log, b"x", leader_epoch=1)
    for _ in range(9):
        append_to(ours, b"x", leader_epoch=1)
    ours.epochs.entries.clear()
    world.lead(leader_epoch=3, log=log).appended()
    follower = world.follow(leader_epoch=3, log=ours)
    await world.caught_up()
    assert follower.log.end_offset == 5
    await world.close()


@simulated
async def test_a_new_term_is_asked_for_while_a_request_is_held() -> None:
    """The held request does not know of it, and may be held for half a second."""
    world = FollowerWorld()
    world.lead(0)
    world.follow(0)
    await asyncio.sleep(3.2)
    assert world.leader.in_flight == 1
    partition = world.lead(1)
    append(partition, b"x")
    began = now_s()
    world.follow(1)
    await world.caught_up(1)
    assert now_s() - began < 0.05
    append(partition, b"y")
    began = now_s()
    await world.caught_up(1)
    assert now_s() - began < 0.05
    await asyncio.sleep(2)
    assert world.leader.requests[-1].session_epoch > 0
    before = len(world.leader.requests)
    await asyncio.sleep(5)
    assert len(world.leader.requests) - before <= 11
    await world.close()


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_that_is_lost_is_begun_anew(code: ErrorCode) -> None:
    @simulated
    async def work() -> None:
        world = FollowerWorld()
        partitions = [world.lead(number) for number in range(3)]
        for number in range(3):
            world.follow(number)
        await asyncio.sleep(2)
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            world.leader.sessions.clear()
        else:
            for session in world.leader.sessions.values():
                session.epoch += 5
        await asyncio.sleep(2)
        before = len(world.leader.requests)
        for number in range(3):
            append(partitions[number], b"x")
            await world.caught_up(number)
        assert any(request.session_epoch > 0 for request in world.leader.requests[before:])
        await world.close()

    work()


@simulated
async def test_a_leader_that_keeps_no_session_is_told_all_each_time() -> None:
    world = FollowerWorld()
    world.leader.gives_sessions = False
    partitions = [world.lead(number) for number in range(3)]
    for number in range(3):
        world.follow(number)
    for number in range(3):
        append(partitions[number], b"x")
        await world.caught_up(number)
    await asyncio.sleep(1)
    assert all(request.session_id == 0 for request in world.leader.requests)
    assert [len(topic.partitions) for topic in world.leader.requests[-1].topics] == [1, 1, 1]
    await world.close()


@simulated
async def test_a_leader_that_is_out_of_reach_is_tried_again_with_pauses_that_grow() -> None:
    world = FollowerWorld(**{"replica.fetch.backoff.ms": "400"})
    partition = world.lead()
    world.follow()
    await world.caught_up()
    world.leader.failure = Unreachable("cut off")
    append(partition, b"x")
    await asyncio.sleep(20)
    tries = 0
    call = world.leader.call

    async def counting(*args: object, **more: object) -> object:
        nonlocal tries
        tries += 1
        return await call(*args, **more)  # type: ignore[arg-type]

    world.fetchers.caller = world.fetchers.caller_aside = type("Caller", (), {"call": staticmethod(counting)})()
    await asyncio.sleep(20)
    assert 40 <= tries <= 65
    world.leader.failure = None
    began = now_s()
    await world.caught_up()
    assert now_s() - began < 0.6
    await world.close()


@simulated
async def test_a_partition_that_is_refused_pauses_and_the_others_go_on() -> None:
    world = FollowerWorld()
    partitions = [world.lead(number) for number in range(2)]
    key = (topic_id(0), 0)
    world.leader.refuses[key] = ErrorCode.UNKNOWN_LEADER_EPOCH
    for number in range(2):
        world.follow(number)
    await asyncio.sleep(0.3)
    for _ in range(10):
        append(partitions[1], b"x")
        began = now_s()
        await world.caught_up(1)
        assert now_s() - began < 0.02
    assert world.followers[0].phase is Phase.PAUSED
    await asyncio.sleep(20)
    before = len(world.leader.requests)
    await asyncio.sleep(20)
    assert len(world.leader.requests) - before < 90
    del world.leader.refuses[key]
    append(partitions[0], b"x")
    began = now_s()
    await world.caught_up(0)
    assert now_s() - began < 1.5
    await world.close()


@simulated
async def test_a_fenced_partition_is_asked_for_no_more_until_its_next_term() -> None:
    world = FollowerWorld()
    partition = world.lead(leader_epoch=4)
    world.lead(1)
    world.follow(1)
    world.follow(leader_epoch=3)
    await asyncio.sleep(2)
    assert world.followers[0].phase is Phase.FENCED
    asked = [topic.topic_id for request in world.leader.requests for topic in request.topics]
    assert asked.count(topic_id(0)) == 1
    append(partition, b"x")
    world.follow(leader_epoch=4)
    await world.caught_up()
    await world.close()


@simulated
async def test_a_term_that_resigns_is_forgotten() -> None:
    world = FollowerWorld()
    for number in range(2):
        world.lead(number)
        world.follow(number)
    await asyncio.sleep(2)
    world.followers[0].resign()
    await asyncio.sleep(1)
    assert list(next(iter(world.leader.sessions.values())).wanted) == [(topic_id(1), 0)]
    world.followers[1].resign()
    await asyncio.sleep(2)
    before = len(world.leader.requests)
    await asyncio.sleep(5)
    assert len(world.leader.requests) == before
    assert not world.fetchers._leaders
    world.follow(1)
    append(world.leader.partitions[topic_id(1), 0], b"x")
    await world.caught_up(1)
    await world.close()


@simulated
async def test_settings_and_who_asks_are_in_the_request() -> None:
    world = FollowerWorld(
        **{
            "replica.fetch.max.bytes": "1000",
            "replica.fetch.response.max.bytes": "2000",
            "replica.fetch.min.bytes": "1",
            "replica.fetch.wait.max.ms": "300",
        }
    )
    world.lead()
    world.follow()
    await asyncio.sleep(2)
    request = world.leader.requests[0]
    assert (request.max_bytes, request.min_bytes, request.max_wait_ms) == (2000, 1, 300)
    assert request.topics[0].partitions[0].partition_max_bytes == 1000
    state = request.replica_state
    assert state is not None
    assert (state.replica_id, state.replica_epoch) == (B, BROKER_EPOCH)
    await world.close()


@simulated
async def test_before_level_10_a_request_carries_the_replica_id_alone() -> None:
    world = FollowerWorld(metadata_version=7)
    partition = world.lead()
    append(partition, b"x")
    world.follow()
    await world.caught_up()
    assert world.leader.requests[0].replica_id == B
    assert world.leader.requests[0].replica_state is None
    await world.close()


@pytest.mark.parametrize(
    ("level", "fetch", "list_offsets"),
    [(7, 13, 7), (9, 14, 7), (10, 15, 7), (19, 16, 7), (21, 17, 9), (25, 17, 10), (27, 18, 10), (33, 18, 11)],
)
def test_the_level_of_the_cluster_says_which_versions_are_used(level: int, fetch: int, list_offsets: int) -> None:
    assert (fetch_version(level), list_offsets_version(level)) == (fetch, list_offsets)


@simulated
async def test_a_stop_in_the_middle_of_everything_ends_all_tasks() -> None:
    world = FollowerWorld(flush_ms=50)
    for number in range(4):
        partition = world.lead(number)
        append(partition, b"x" * 1000)
        world.follow(number)
    await asyncio.sleep(0.004)
    await world.close()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize("seed", range(12))
def test_a_story_of_terms_ends_with_equal_logs(seed: int) -> None:
    """Two nodes lead in turns; cuts, transactions, rolls, losses of the connection, slow flushes."""

    @simulated
    async def work() -> None:
        chance = random.Random(seed)
        world = FollowerWorld(flush_ms=chance.choice([0.5, 5, 40]), **{"replica.fetch.max.bytes": "700"})
        sizes = {"segment_bytes": 600}
        logs = [open_log(world.leader_disk, "/data/one", config_of(**sizes)), world.open(**sizes)]
        sequences = [0] * 4
        for epoch in range(1, 12):
            if chance.random() < 0.5:
                # An unclean election: the other one leads with what it has.
                logs.reverse()
            partition = world.lead(leader_epoch=epoch, log=logs[0])
            known = {n: logs[0].producers.entry(n) for n in range(4)}
            sequences = [0 if (e := known[n]) is None else e.last_sequence + 1 for n in range(4)]
            follower = world.follow(leader_epoch=epoch, log=logs[1])
            for _ in range(chance.randrange(0, 25)):
                number = chance.randrange(4)
                append(
                    partition,
                    bytes(chance.randrange(1, 200)),
                    producer=number,
                    sequence=sequences[number],
                    transactional=number > 1,
                )
                sequences[number] += 1
                if number > 1 and chance.random() < 0.4:
                    mark(partition, chance.choice([ControlType.ABORT, ControlType.COMMIT]), number)
                if chance.random() < 0.3:
                    await asyncio.sleep(chance.random() * 0.01)
            if chance.random() < 0.3:
                world.leader.failure = Unreachable("cut off")
                await asyncio.sleep(0.05)
                world.leader.failure = None
            if chance.random() < 0.4:
                await world.caught_up()
        await world.caught_up()
        await asyncio.sleep(1)
        assert contents(follower.log)[-500:] == contents(partition.log)[-500:]
        one, other = logs
        assert {p: row[:26] + row[34:] for p, row in one.producers.live_rows.items()} == {
            p: row[:26] + row[34:] for p, row in other.producers.live_rows.items()
        }
        assert one.epochs.entries == other.epochs.entries
        assert [e for s in one.segments for e in s.aborted_index.entries()] == [
            e for s in other.segments for e in s.aborted_index.entries()
        ]
        assert contents(one) == contents(other)
        assert one.last_stable_offset == other.last_stable_offset
        await world.close()

    work()
