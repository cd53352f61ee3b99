"""Markers for other nodes: one request under way to each, sent again until a leader has answered for them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from wire_to_brokers import Call, Wire, turns

from semel.broker.cluster_view import Leader
from semel.broker.remote_markers import ClusterMarkers
from semel.log.errors import Refused
from semel.peer.errors import TimedOut, Unreachable
from semel.records.control import ControlType
from semel.sim.loop import SimLoop, run
from semel.wire.codec import decode, encode
from semel.wire.errors import ErrorCode
from semel.wire.spec.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

HERE, A, B = 1, 2, 3
Place = tuple[str, int]
ON_A, ON_B, MINE, NOBODYS = ("t", 0), ("t", 1), ("t", 2), ("t", 3)


class Cluster:
    """Who leads what; and the markers that are written on this node."""

    node_id = HERE

    def __init__(self) -> None:
        self.leaders: dict[Place, int] = {ON_A: A, ON_B: B, MINE: HERE}
        self.topic_ids = {"t": b"first"}
        self.written: list[Place] = []

    def leader(self, topic: str, index: int) -> Leader | None:
        return Leader(self.leaders[topic, index], 0) if (topic, index) in self.leaders else None

    def topic_id(self, partition: Place) -> bytes | None:
        return self.topic_ids.get(partition[0])

    def write_marker(self, partition: Place, *rest: Any) -> None:
        self.written.append(partition)


class World:
    def __init__(self) -> None:
        self.cluster, self.wire = Cluster(), Wire()
        one: Any = self.cluster
        self.markers = ClusterMarkers(one, one, one, self.wire)

    def write(self, place: Place, *, producer: int = 7, epoch: int = 1, bumps: bool = False) -> asyncio.Future[None]:
        written = self.markers.write_marker(place, ControlType.COMMIT, producer, epoch, 5, bumps)
        assert written is not None
        return written


Test = Callable[[World], Coroutine[Any, Any, None]]


def in_world(test: Test) -> Callable[[], None]:
    @functools.wraps(test)
    def runs() -> None:
        async def scenario() -> None:
            world = World()
            await test(world)
            await world.markers.close()

        run(scenario(), loop=SimLoop(end_s=600))

    del cast(Any, runs).__wrapped__
    return runs


def places(call: Call) -> list[tuple[int, str, int]]:
    return [
        (marker.producer_id, topic.name, index)
        for marker in call.request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def answer(call: Call, code: int = 0, without: tuple[int, str, int] | None = None) -> None:
    call.answer.set_result(
        WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                                for index in topic.partition_indexes
                                if (marker.producer_id, topic.name, index) != without
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in call.request.markers
            ]
        )
    )


async def refusal(written: asyncio.Future[None]) -> ErrorCode:
    with pytest.raises(Refused) as error:
        await asyncio.wait_for(asyncio.shield(written), 0.01)
    return error.value.code


@in_world
async def test_what_is_led_here_is_written_here_and_what_nobody_leads_is_refused(world: World) -> None:
    assert world.markers.write_marker(MINE, ControlType.COMMIT, 7, 1, 5, False) is None
    assert world.cluster.written == [MINE]
    assert (world.markers.is_elsewhere(MINE), world.markers.is_elsewhere(ON_A)) == (False, True)
    with pytest.raises(Refused) as error:
        world.write(NOBODYS)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not world.wire.calls


@in_world
async def test_one_request_is_under_way_to_each_node_and_the_rest_goes_into_the_next(world: World) -> None:
    first = world.write(ON_A, producer=1)
    await turns()
    later = [world.write(ON_A, producer=producer) for producer in (2, 3)]
    other = world.write(ON_B, producer=1)
    await turns()
    assert places(world.wire.only(A)) == [(1, "t", 0)]
    answer(world.wire.only(B))
    await turns()
    assert other.done(), "a node that does not answer holds up nobody else"
    answer(world.wire.only(A))
    await turns()
    assert first.done()
    assert places(world.wire.only(A)) == [(2, "t", 0), (3, "t", 0)]
    answer(world.wire.only(A))
    await asyncio.gather(*later)


@in_world
async def test_a_marker_says_who_sends_it_and_which_generation_it_ends(world: World) -> None:
    world.write(ON_A, producer=1, epoch=3, bumps=True)
    world.write(ON_A, producer=2)
    await turns()
    call = world.wire.only(A)
    told = [
        (m.producer_epoch, m.transaction_result, m.coordinator_epoch, m.transaction_version)
        for m in call.request.markers
    ]
    assert told == [(3, True, 5, 2), (1, True, 5, 0)]
    assert world.wire.versions == (1, 2)
    for version, generation in ((2, 2), (1, 0)):  # KAFKA-20322: an older broker is not told, and that is no error
        sent = decode(WriteTxnMarkersRequest, version, memoryview(encode(call.request, version)))
        assert sent.markers[0].transaction_version == generation


@pytest.mark.parametrize("error", [Unreachable("gone"), TimedOut("slow")])
def test_a_node_that_is_away_is_asked_again_and_the_marker_waits(error: Any) -> None:
    @in_world
    async def scenario(world: World) -> None:
        written = world.write(ON_A)
        for _ in range(10):
            await turns()
            world.wire.only(A).fails(error)
            await asyncio.sleep(1.1)
        assert not written.done()
        assert len(world.wire.calls) == 11
        answer(world.wire.only(A))
        await written

    scenario()


@pytest.mark.parametrize("under_way", [True, False], ids=["while it does not answer", "while it is away"])
def test_a_marker_does_not_wait_for_a_node_that_leads_no_longer(under_way: bool) -> None:
    @in_world
    async def scenario(world: World) -> None:
        written = world.write(ON_A)
        await turns()
        if not under_way:
            world.wire.only(A).fails(Unreachable("gone"))
            await turns()
        world.cluster.leaders[ON_A] = B
        world.markers.follow()
        await turns()
        assert await refusal(written) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        anew = world.write(ON_A)
        await turns()
        answer(world.wire.only(B))
        await anew

    scenario()


@in_world
async def test_a_marker_is_not_sent_to_another_topic_of_the_same_name(world: World) -> None:
    first = world.write(ON_A, producer=1)
    await turns()
    waiting = world.write(ON_A, producer=2)
    world.cluster.topic_ids["t"] = b"second"
    answer(world.wire.only(A), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await turns()
    assert await refusal(first) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await refusal(waiting) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not world.wire.open(A)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TRANSACTION_COORDINATOR_FENCED, 9999])
def test_a_refusal_is_told_to_who_decides_what_it_means(code: int) -> None:
    @in_world
    async def scenario(world: World) -> None:
        written = world.write(ON_A)
        await turns()
        answer(world.wire.only(A), code)
        await turns()
        assert await refusal(written) == (code if code != 9999 else ErrorCode.UNKNOWN_SERVER_ERROR)

    scenario()


@in_world
async def test_what_an_answer_leaves_out_is_not_written(world: World) -> None:
    one, two = world.write(ON_A, producer=1), world.write(ON_A, producer=2)
    await turns()
    answer(world.wire.only(A), without=(2, "t", 0))
    await one
    assert await refusal(two) == ErrorCode.UNKNOWN_SERVER_ERROR


@in_world
async def test_a_log_without_transactions_has_none_to_be_ended(world: World) -> None:
    written = world.write(ON_A)
    await turns()
    answer(world.wire.only(A), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    await written


@in_world
async def test_two_ends_of_one_producer_are_not_in_one_request(world: World) -> None:
    """Answers are by producer: they could not be told apart."""
    first, second = world.write(ON_A, epoch=1), world.write(ON_A, epoch=2)
    await turns()
    assert [marker.producer_epoch for marker in world.wire.only(A).request.markers] == [1]
    answer(world.wire.only(A))
    await turns()
    assert [marker.producer_epoch for marker in world.wire.only(A).request.markers] == [2]
    answer(world.wire.only(A))
    await asyncio.gather(first, second)


@in_world
async def test_what_its_coordinator_has_given_up_is_not_sent(world: World) -> None:
    first = world.write(ON_A, producer=1)
    await turns()
    world.write(ON_A, producer=2).cancel()
    answer(world.wire.only(A))
    await first
    await turns()
    assert not world.wire.open(A)


@in_world
async def test_whoever_waits_at_a_stop_is_told(world: World) -> None:
    one = world.write(ON_A)
    await turns()
    two, three = world.write(ON_A, producer=2), world.write(ON_B)
    await world.markers.close()
    for written in (one, two, three):
        assert await refusal(written) == ErrorCode.NOT_LEADER_OR_FOLLOWER
