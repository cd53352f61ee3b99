"""Shards come with a term of leadership and go with it; what ends an older term leaves a newer one alone."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

from group_world import MemoryPartition
from semel.coordinator import shards as shards_module
from semel.coordinator.shard import Entry, Shard
from semel.coordinator.shards import Shards, partition_of
from semel.coordinator.work import Steps, WorkQueue
from semel.log.errors import Refused
from semel.log.log import Cold
from semel.records.build import build_batch
from semel.records.read import Record
from semel.sim.clock import SimClock
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode

TOPIC = "__state"


class Values:
    """The newest value of each key."""

    def __init__(self) -> None:
        self.of: dict[bytes, bytes | None] = {}

    def replay(self, record: Record, producer_id: int) -> None:
        if record.value == b"nobody can read this":
            raise ValueError("a mistake of ours")
        self.of[record.key or b""] = record.value

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None: ...

    def dropped(self) -> Iterator[None]:
        while self.of:
            self.of.popitem()
            yield


class World:
    """One topic on this node, and a coordinator that notes what it is told."""

    def __init__(self, loop: SimLoop, partitions: int) -> None:
        self.clock = SimClock(loop)
        self.work = WorkQueue(self.clock)
        self.partitions = {index: MemoryPartition(index, self.clock) for index in range(partitions)}
        self.led = dict(self.partitions)
        self.newest_connection = 0
        self.told: list[tuple[str, int, int]] = []
        self.held: asyncio.Event | None = None
        self.shards: Shards[Values] = Shards(
            TOPIC,
            self._partition,
            lambda topic: len(self.partitions),
            Values,
            self.clock,
            self,
            work=self.work,
            newest_connection=lambda: self.newest_connection,
        )

    def _partition(self, topic: str, index: int) -> Any:
        if index not in self.led:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led elsewhere")
        return self.led[index]

    # -- the coordinator

    def prepare(self, shard: Shard[Values]) -> Steps:
        if self.held is not None:
            yield Cold(cast(Any, self), 0, 1)
        self._tell("prepared", shard)

    path = "a file that is read ahead"

    async def warm(self, position: int, length: int) -> None:
        assert self.held is not None
        await self.held.wait()

    def begin(self, shard: Shard[Values]) -> Steps:
        assert self.shards._loaded[shard.partition.index] is shard
        self._tell("begun", shard)
        return iter(())

    def let_go(self, shard: Shard[Values]) -> Steps:
        assert self.shards._loaded.get(shard.partition.index) is not shard, "nobody finds it any more"
        self._tell("let go", shard)
        return iter(())

    def _tell(self, what: str, shard: Shard[Values]) -> None:
        self.told.append((what, shard.partition.index, shard.epoch))

    # -- the cluster

    def fill(self, index: int, *values: bytes) -> None:
        for number, value in enumerate(values):
            self.partitions[index].append_prepared(build_batch([value], keys=[b"%d" % number], base_timestamp_ms=0))

    def next_term(self, index: int, epoch: int) -> MemoryPartition:
        """Another object with the same log, as `Topics` has it."""
        before = self.partitions[index]
        before.is_closed = True
        partition = MemoryPartition(index, self.clock)
        partition.log, partition.leader_epoch = before.log, epoch
        self.partitions[index] = self.led[index] = partition
        return partition

    def lose(self, index: int) -> None:
        self.led.pop(index).is_closed = True

    def follow(self) -> None:
        self.shards.follow(lambda index: index in self.led)

    async def turns(self, number: int = 20) -> None:
        for _ in range(number):
            await asyncio.sleep(0)


Test = Callable[[World], Coroutine[Any, Any, None]]


def in_world(partitions: int = 1) -> Callable[[Test], Callable[[], None]]:
    def decorate(test: Test) -> Callable[[], None]:
        @functools.wraps(test)
        def runs() -> None:
            loop = SimLoop(end_s=3600)

            async def scenario() -> None:
                world = World(loop, partitions)
                await test(world)
                await world.shards.close()
                await world.work.close()
                assert world.work._task is None

            run(scenario(), loop=loop)

        del cast(Any, runs).__wrapped__
        return runs

    return decorate


@in_world()
async def test_a_term_that_begins_is_loaded_without_being_asked_for(world: World) -> None:
    world.fill(0, b"a", b"b")
    world.shards.began(cast(Any, world.led[0]))
    assert world.shards.is_loading
    await world.turns()
    assert world.told == [("prepared", 0, 0), ("begun", 0, 0)]
    assert world.shards.at(0).state.of == {b"0": b"a", b"1": b"b"}


@in_world()
async def test_of_an_empty_log_nothing_is_begun_before_somebody_asks(world: World) -> None:
    world.shards.began(cast(Any, world.led[0]))
    await world.turns()
    assert world.told == []
    assert world.shards.at(0).state.of == {}


@in_world()
async def test_who_asks_for_a_small_shard_gets_it_at_once(world: World) -> None:
    world.fill(0, b"a")
    world.shards.began(cast(Any, world.led[0]))
    assert world.shards.at(0).state.of == {b"0": b"a"}
    await world.turns()
    assert world.told == [("prepared", 0, 0), ("begun", 0, 0)], "once"


@in_world()
async def test_a_term_that_is_over_is_found_by_nobody_and_freed(world: World) -> None:
    world.fill(0, b"a", b"b")
    shard = world.shards.at(0)
    world.lose(0)
    with pytest.raises(Refused) as error:
        world.shards.at(0)
    assert error.value.code == ErrorCode.NOT_COORDINATOR
    world.follow()
    assert world.told[-1] == ("let go", 0, 0)
    assert world.shards.loaded() == []
    await world.turns()
    assert shard.state.of == {}
    with pytest.raises(Refused) as error:
        shard.append([Entry(b"k", b"too late")])
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(Refused) as error:
        await shard.committed()
    assert error.value.code == ErrorCode.NOT_COORDINATOR, "nothing of a term that is over is answered"


@in_world()
async def test_the_end_of_an_older_term_does_not_cancel_a_newer_load(world: World) -> None:
    """KAFKA-18137: whatever comes late of epoch 1 leaves epoch 2 alone."""
    world.fill(0, b"a")
    world.held = asyncio.Event()
    world.shards.began(cast(Any, world.next_term(0, 1)))
    await world.turns()
    world.shards.began(cast(Any, world.next_term(0, 2)))
    await world.turns()
    world.follow()
    assert world.shards.is_loading
    world.held.set()
    await world.turns()
    world.follow()
    await world.turns()
    assert world.told == [("prepared", 0, 2), ("begun", 0, 2)], "epoch 1 has never begun"
    shard = world.shards.at(0)
    assert (shard.epoch, shard.state.of) == (2, {b"0": b"a"})


@in_world()
async def test_what_is_let_go_of_an_older_term_leaves_the_newer_state_alone(world: World) -> None:
    world.fill(0, *[b"%d" % number for number in range(100)])
    old = world.shards.at(0)
    world.shards.began(cast(Any, world.next_term(0, 1)))
    new = world.shards.at(0)
    assert world.told == [("prepared", 0, 0), ("begun", 0, 0), ("let go", 0, 0), ("prepared", 0, 1), ("begun", 0, 1)]
    await world.turns(200)
    assert (len(old.state.of), len(new.state.of)) == (0, 100)


@in_world()
async def test_a_load_whose_term_ends_stops_and_is_not_served(world: World) -> None:
    world.fill(0, b"a")
    world.held = asyncio.Event()
    world.shards.began(cast(Any, world.led[0]))
    await world.turns()
    world.lose(0)
    world.follow()
    assert not world.shards.is_loading
    world.held.set()
    await world.turns()
    assert world.told == []


@in_world(partitions=50)
async def test_fifty_loads_take_the_loop_no_more_often_than_one(world: World) -> None:
    """One slice of all of them in each turn: other work has every second one."""
    for index in range(50):
        world.fill(index, *[b"x"] * 300)
        world.shards.began(cast(Any, world.led[index]))
    turns = 0
    while world.shards.is_loading:
        await asyncio.sleep(0)
        turns += 1
    assert 50 <= turns <= 150


@in_world(partitions=2)
async def test_a_record_that_cannot_be_replayed_takes_its_shard_out_and_no_other(world: World) -> None:
    world.fill(0, b"nobody can read this")
    world.fill(1, b"a")
    for index in range(2):
        world.shards.began(cast(Any, world.led[index]))
    await world.turns()
    for _ in range(2):
        with pytest.raises(Refused) as error:
            world.shards.at(0)
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.shards.at(1).state.of == {b"0": b"a"}
    assert not world.shards.is_loading


@in_world()
async def test_a_large_shard_is_not_loaded_at_once(world: World) -> None:
    world.fill(0, b"x" * shards_module._AT_ONCE_BYTES)
    with pytest.raises(Refused) as error:
        world.shards.at(0)
    assert error.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await world.turns()
    assert world.shards.at(0)


@in_world()
async def test_connections_are_older_than_a_leadership_unless_nobody_led_in_between(world: World) -> None:
    world.newest_connection = 5
    assert world.shards.at(0).connections.since == 0, "in an empty log nobody has begun anything"
    world.fill(0, b"a")
    world.next_term(0, 1)
    world.newest_connection = 7
    assert world.shards.at(0).connections.since == 0, "this node has led all the time"
    world.next_term(0, 3)
    assert world.shards.at(0).connections.since == 7, "who has led in epoch 2?"
    world.lose(0)
    world.follow()
    world.newest_connection = 9
    world.partitions[0].leader_epoch = 3
    world.next_term(0, 4)
    assert world.shards.at(0).connections.since == 9, "it was another node for a while, whatever the epoch"


@in_world()
async def test_a_refused_append_changes_nothing(world: World) -> None:
    shard = world.shards.at(0)
    shard.append([Entry(b"k", b"v")])
    world.led[0].refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(Refused):
        shard.append([Entry(b"k", b"w"), Entry(b"l", b"x")])
    assert shard.state.of == {b"k": b"v"}
    world.led[0].refuses = None


@pytest.mark.parametrize(
    ("of_the_log", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_commit_that_does_not_come_is_told_in_the_words_of_a_coordinator(
    of_the_log: ErrorCode, told: ErrorCode
) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        shard = world.shards.at(0)
        shard.append([Entry(b"k", b"v")])
        world.led[0].is_held = True
        answer = asyncio.ensure_future(shard.committed())
        await world.turns()
        assert not answer.done()
        world.led[0]._waiting[0].set_exception(Refused(of_the_log, "it does not come"))
        with pytest.raises(Refused) as error:
            await answer
        assert error.value.code == told

    scenario()


@in_world(partitions=4)
async def test_a_key_is_found_where_the_committed_metadata_say_now(world: World) -> None:
    """What was found for a key is remembered: not beyond the term, and not beyond the number of partitions."""
    keys = [f"key {number}" for number in range(20)]
    before = {key: world.shards.for_key(key) for key in keys}
    assert all(world.shards.for_key(key) is before[key] for key in keys)
    world.next_term(0, 1)
    for key in keys:
        assert (world.shards.for_key(key) is before[key]) == (before[key].partition.index != 0)
    for index in range(4, 7):
        world.partitions[index] = world.led[index] = MemoryPartition(index, world.clock)
    world.follow()
    found = {key: world.shards.for_key(key).partition.index for key in keys}
    assert found == {key: partition_of(key, 7) for key in keys}
    assert max(found.values()) > 3
