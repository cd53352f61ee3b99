"""How long coordinators take to load what an earlier leader has left, and how long they hold the loop meanwhile.

    .venv/bin/python bench/coordinator_loading.py [--ids 100000] [--groups 10000] [--members 2] [--partitions 1]

Logs are written to a temporary directory and read again on the real loop with the real disk, as when the leadership of
their partitions begins here. All in one partition is the worst case: nothing is served before all of it is loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, cast

from semel.config import BrokerConfig, topic_config
from semel.coordinator.group import consumer_records
from semel.coordinator.group.consumer_group import ConsumerMember
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.records import group_entry, offset_entry
from semel.coordinator.shard import Entry
from semel.coordinator.shards import Shards
from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import Transaction, entry
from semel.coordinator.work import WorkQueue
from semel.host.api import Host
from semel.host.real import real_host
from semel.log.store import LogStore
from semel.replication.partition import Partition
from semel.rpc.budget import MemoryBudget
from semel.wire.primitives import coordinator_partition
from semel.wire.spec.group_records import GroupMember, GroupMetadataValue, OffsetCommitValue

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAw"
SUBSCRIPTION = b"\0\0\0\0\0\x01\0\x06orders\xff\xff\xff\xff"
OPEN_EVERY, PREPARED_EVERY = 100, 1000


def broken(error: BaseException) -> None:
    raise error


class Leaders:
    """The partitions of one topic, all led here."""

    def __init__(self, host: Host, store: LogStore, config: BrokerConfig, topic: str, count: int) -> None:
        settings = topic_config({"flush.messages": "10000000", "cleanup.policy": "compact"}, config)
        logs = [store.load(topic, index, TOPIC_ID, settings) for index in range(count)]
        self.partitions = [
            Partition(topic, b"\0" * 16, index, log, 1, host.clock, broken) for index, log in enumerate(logs)
        ]

    def at(self, topic: str, index: int) -> Partition:
        return self.partitions[index]

    def count(self, topic: str) -> int:
        return len(self.partitions)

    def begin_terms(self) -> None:
        self.partitions = [one.next_term(one.leader_epoch + 1) for one in self.partitions]

    def write(self, key: str, entries: list[Entry]) -> None:
        partition = self.partitions[coordinator_partition(key, len(self.partitions))]
        for one in entries:
            partition.append_record(one.key, one.value)

    @property
    def size_mb(self) -> float:
        return sum(one.log.size_bytes for one in self.partitions) / 1e6


def transactions(ids: int) -> Iterator[tuple[str, list[Entry]]]:
    now_ms = round(time.time() * 1000)
    for number in range(ids):
        name = f"payments-{number:06d}"
        state, partitions = TransactionState.COMPLETE_COMMIT, frozenset[tuple[str, int]]()
        if number % OPEN_EVERY == 0:
            state, partitions = TransactionState.ONGOING, frozenset({("orders", 1), ("orders", 2)})
        yield name, [entry(Transaction(name, number, 3, 60_000, state, partitions, now_ms, now_ms))]


def classic_groups(groups: int, members: int) -> Iterator[tuple[str, list[Entry]]]:
    for number in range(groups):
        name = f"classic-{number:06d}"
        ids = [f"consumer-{number}-{member}-0123456789abcdef0123456789abcdef" for member in range(members)]
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=5,
            protocol="range",
            leader=ids[0],
            current_state_timestamp=0,
            members=[
                GroupMember(
                    member_id=one,
                    client_id="consumer",
                    client_host="/10.0.0.1",
                    rebalance_timeout=300_000,
                    session_timeout=45_000,
                    subscription=SUBSCRIPTION,
                    assignment=SUBSCRIPTION,
                )
                for one in ids
            ],
        )
        yield name, [group_entry(name, value), *offsets(name)]


def consumer_groups(groups: int, members: int) -> Iterator[tuple[str, list[Entry]]]:
    topic_id = b"\1" * 16
    for number in range(groups):
        name = f"consumer-{number:06d}"
        entries = [consumer_records.group_epoch(name, 7), consumer_records.target_epoch(name, 7)]
        for member in range(members):
            assigned = frozenset({(topic_id, member * 2), (topic_id, member * 2 + 1)})
            one = ConsumerMember(
                f"member-{member}", client_id="c", topics=frozenset({"orders"}), epoch=7, assigned=assigned
            )
            entries += [
                consumer_records.member_metadata(name, one),
                consumer_records.target(name, one.member_id, assigned),
                consumer_records.current(name, one),
            ]
        yield name, [*entries, *offsets(name)]


def offsets(group: str) -> list[Entry]:
    value = OffsetCommitValue(offset=1234567, leader_epoch=3, metadata="", commit_timestamp=0, expire_timestamp=-1)
    return [offset_entry(group, "orders", index, value) for index in range(4)]


class Turns:
    """Turns of the loop while something works: by the processor, so that others on the machine do not count."""

    def __init__(self) -> None:
        self.longest_s = self.longest_gc_s = self.took_s = 0.0
        self.over = 0
        self._began_s = 0.0

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        now_s = time.thread_time()
        if phase == "start":
            self._began_s = now_s
        else:
            self.longest_gc_s = max(self.longest_gc_s, now_s - self._began_s)

    async def of(self, work: Awaitable[None]) -> Turns:
        gc.callbacks.append(self._collecting)
        working = asyncio.ensure_future(work)
        last_s = began_s = time.thread_time()
        while not working.done():
            await asyncio.sleep(0)
            now_s = time.thread_time()
            self.longest_s, self.over = max(self.longest_s, now_s - last_s), self.over + (now_s - last_s > 0.005)
            last_s = now_s
        gc.callbacks.remove(self._collecting)
        self.took_s = last_s - began_s
        await working
        return self


async def loaded(leaders: Leaders, shards: Shards[Any]) -> None:
    for partition in leaders.partitions:
        shards.began(partition)
    while shards.is_loading:  # noqa: ASYNC110  every turn of the loop is looked at
        await asyncio.sleep(0)


async def gone(leaders: Leaders, shards: Shards[Any]) -> None:
    leaders.begin_terms()
    shards.follow(lambda index: False)
    while shards._work._next() is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def measure(
    what: str, leaders: Leaders, records: Iterator[tuple[str, list[Entry]]], make: Callable[[], Any]
) -> None:
    for name, entries in records:
        leaders.write(name, entries)
    coordinator = make()
    gc.collect()
    print(f"{what}, {leaders.size_mb:.0f} MB in {len(leaders.partitions)} partitions")
    for text, work in (("loaded", loaded), ("let go", gone)):
        began_s = time.perf_counter()
        turns = await Turns().of(work(leaders, coordinator.shards))
        wall_ms = (time.perf_counter() - began_s) * 1000
        print(
            f"  {text}: {turns.took_s * 1000:.0f} ms of processor ({wall_ms:.0f} ms), longest turn "
            f"{turns.longest_s * 1000:.1f} ms, {turns.over} over 5 ms, longest garbage collection "
            f"{turns.longest_gc_s * 1000:.1f} ms",
            flush=True,
        )
    await coordinator.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        host = real_host()
        config = BrokerConfig({"log.dir": directory})
        store = LogStore(host, directory, config, broken)
        store.open()

        def groups_of(leaders: Leaders) -> GroupCoordinator:
            image = cast(Any, type("Image", (), {"topics": {}, "names": {}, "group_settings": lambda self, name: {}})())
            return GroupCoordinator(
                leaders.at,
                leaders.count,
                lambda: image,
                lambda: config,
                host.clock,
                Random(1),
                MemoryBudget(-1),
                work=work,
            )

        work = WorkQueue(host.clock, host.keep_memory)

        async def no_id() -> int:
            raise NotImplementedError

        for what, topic, records in (
            (f"{options.ids} transactional ids", TRANSACTIONS_TOPIC, transactions(options.ids)),
            (f"{options.groups} classic groups", OFFSETS_TOPIC, classic_groups(options.groups, options.members)),
            (f"{options.groups} KIP-848 groups", OFFSETS_TOPIC + "2", consumer_groups(options.groups, options.members)),
        ):
            leaders = Leaders(host, store, config, topic, options.partitions)
            if topic == TRANSACTIONS_TOPIC:
                await measure(
                    what,
                    leaders,
                    records,
                    lambda leaders=leaders: TransactionCoordinator(  # type: ignore[misc]
                        leaders.at, leaders.count, cast(Any, None), no_id, host.clock, lambda: config, work=work
                    ),
                )
            else:
                await measure(what, leaders, records, lambda leaders=leaders: groups_of(leaders))  # type: ignore[misc]
        host.close()


if __name__ == "__main__":
    asyncio.run(main())
