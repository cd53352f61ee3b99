"""The data directory of a node: lock, clean stops, checkpoints, upkeep, and logs that come and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from log_samples import batch, batches_from, mark, offsets_from, settings, write

from semel.config import BrokerConfig
from semel.host.api import AlreadyLocked, Host
from semel.log.checkpoints import LOG_STARTS, read_checkpoint
from semel.log.errors import BrokenLog, DataMissing
from semel.log.log import Log
from semel.log.store import LogStore
from semel.records.control import ControlType
from semel.records.read import read_records
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import SimLoop, run

ROOT = "/srv/data"
TOPIC_ID, OTHER_TOPIC = "A" * 22, "B" * 22
BROKER = BrokerConfig()


class InlineJobs:
    async def run(self, function: Any, *args: Any) -> Any:
        return function(*args)

    def close(self) -> None:
        pass


class Stand:
    """A store on a disk, on the running loop's time."""

    def __init__(self, disk: SimDisk, config: BrokerConfig = BROKER) -> None:
        self.disk = disk
        self.broken: list[BaseException] = []
        self.clock = SimClock(asyncio.get_running_loop())
        host = Host(self.clock, disk, None, random.Random(disk.process_id), InlineJobs())  # type: ignore[arg-type]
        self.store = LogStore(host, ROOT, config, self.broken.append)

    def open(self) -> LogStore:
        self.store.open()
        return self.store

    def load(self, topic: str = "events", topic_id: str = TOPIC_ID, **overrides: Any) -> Log:
        return self.store.load(topic, 0, topic_id, settings(**overrides))

    def fill(self, log: Log, count: int = 10, first: int = 0, producer: int = 1) -> None:
        for number in range(first, first + count):
            data = batch(b"x" * 50, producer=producer, sequence=number, timestamp_ms=self.clock.wall_ms())
            write(log, data, now_ms=self.clock.wall_ms())

    async def commit(self, log: Log) -> None:
        await log.flush()
        log.high_watermark = log.flushed_offset


def simulated(work: Coroutine[Any, Any, Any]) -> Any:
    return run(work, loop=SimLoop(end_s=1e7))


def test_a_directory_has_one_holder() -> None:
    async def work() -> None:
        disk = SimDisk()
        first, second = Stand(disk), Stand(disk)
        first.open()
        with pytest.raises(AlreadyLocked):
            second.open()
        await first.store.close()
        second.open()

    simulated(work())


def test_the_name_of_a_directory_is_durable_also_if_an_earlier_start_failed_before_that() -> None:
    async def work() -> None:
        disk = SimDisk()
        disk.fail_at("sync_dir")
        with pytest.raises(OSError, match="Input/output error"):
            Stand(disk).open()
        second = Stand(disk.after_kill())
        second.open()
        log = second.load()
        second.fill(log, 3)
        await second.commit(log)
        third = Stand(second.disk.after_power_loss(1))
        third.open()
        assert offsets_from(third.load(), 0) == [0, 1, 2]

    simulated(work())


def test_a_clean_stop_needs_no_scan_and_the_mark_is_used_up_by_the_start() -> None:
    async def work() -> None:
        disk = SimDisk()
        first = Stand(disk)
        assert not first.open().was_clean
        first.fill(first.load())
        await first.store.close()
        second = Stand(disk.after_power_loss(1))
        assert second.open().was_clean
        log = second.load()
        assert (log.end_offset, log.flushed_offset) == (10, 10)
        third = Stand(second.disk.after_kill())
        assert not third.open().was_clean
        assert third.load().end_offset == 10

    simulated(work())


def test_a_stop_is_not_clean_before_every_log_was_recovered() -> None:
    async def work() -> None:
        disk = SimDisk()
        first = Stand(disk)
        first.open()
        for topic in ("one", "two"):
            first.fill(first.load(topic))
        path = first.store.logs["two", 0].segments[0].path
        second = Stand(disk.after_kill())
        second.open()
        second.load("one")
        await second.store.close()
        second.disk.open(path).truncate(second.disk.open(path).size() - 5)
        third = Stand(second.disk)
        assert not third.open().was_clean, "nobody has looked at the other log yet"
        assert third.load("two").end_offset == 9
        third.load("one")
        await third.store.close()
        assert Stand(third.disk).open().was_clean

    simulated(work())


def test_a_rolled_segment_is_settled_in_the_background() -> None:
    async def work() -> None:
        stand = Stand(SimDisk(flush_latency_ms=(1.0, 5.0)))
        stand.open()
        log = stand.load(segment_bytes=300)
        stand.fill(log, 10)
        assert log.needs_settling
        await asyncio.sleep(1)
        assert not log.needs_settling
        assert log.flushed_offset == log.segments[-1].base_offset > 0
        assert not stand.broken

    simulated(work())


def test_a_stop_in_the_middle_of_settling_is_clean_all_the_same() -> None:
    async def work() -> None:
        for steps in range(0, 40, 3):
            disk = SimDisk(flush_latency_ms=(1.0, 5.0))
            stand = Stand(disk)
            stand.open()
            log = stand.load(segment_bytes=300)
            stand.fill(log, 10)
            for _ in range(steps):
                await asyncio.sleep(0.001)
            await stand.store.close()
            assert not stand.broken
            for seed in range(4):
                again = Stand(disk.after_power_loss(seed))
                assert again.open().was_clean
                assert offsets_from(again.load(segment_bytes=300), 0) == list(range(10))

    simulated(work())


def test_checkpoints_say_what_is_durable_and_where_logs_begin() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        stand.load("empty")
        stand.fill(log, 10)
        await stand.commit(log)
        stand.fill(log, 5, first=10)
        log.advance_start(4)
        await stand.store.checkpoint()
        disk = stand.disk
        assert read_checkpoint(disk, f"{ROOT}/recovery-point-offset-checkpoint") == {("events", 0): 10}
        assert read_checkpoint(disk, f"{ROOT}/log-start-offset-checkpoint") == {("events", 0): 4}
        again = Stand(disk.after_power_loss(3))
        again.open()
        assert again.load().start_offset == 4

    simulated(work())


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_damaged_checkpoint_loses_nothing(name: str) -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load(segment_bytes=300, retention_bytes=600)
        stand.fill(log, 20)
        await stand.commit(log)
        await stand.store.apply_retention()
        await stand.store.checkpoint()
        start, kept = log.start_offset, offsets_from(log, log.start_offset)
        assert start > 0
        stand.disk.replace_file_now(f"{ROOT}/{name}", b"\xffgarbage")
        again = Stand(stand.disk.after_kill())
        again.open()
        log = again.load(segment_bytes=300)
        assert log.start_offset == start
        assert offsets_from(log, start) == kept
        assert write(log, batch(b"x", producer=1, sequence=20)).base_offset == 20

    simulated(work())


def test_without_any_checkpoint_a_log_still_begins_where_its_first_segment_does() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load(retention_ms=1000)
        stand.fill(log, 10)
        await stand.commit(log)
        await asyncio.sleep(2)
        await stand.store.apply_retention()
        stand.fill(log, 3, first=10)
        await stand.commit(log)
        assert len(log.segments) == 1
        disk = stand.disk.after_kill()
        disk.remove(f"{ROOT}/log-start-offset-checkpoint")
        again = Stand(disk)
        again.open()
        log = again.load()
        assert (log.start_offset, log.end_offset) == (10, 13)

    simulated(work())


def test_a_log_never_begins_earlier_after_a_kill_than_it_was_seen_to_begin() -> None:
    async def killed_after(turns: int) -> bool:
        """Whether retention was over by then."""
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load(segment_bytes=300, retention_bytes=600)
        stand.fill(log, 20)
        await stand.commit(log)
        upkeep = asyncio.gather(stand.store.apply_retention(), stand.store.checkpoint())
        for _ in range(turns):
            await asyncio.sleep(0)
        seen, is_over = log.start_offset, upkeep.done()
        again = Stand(stand.disk.after_kill())
        noted = read_checkpoint(again.disk, f"{ROOT}/{LOG_STARTS}").get(("events", 0), 0)
        assert noted >= seen, "the names of segments that are gone may come back, and so a name proves nothing"
        again.open()
        assert again.load(segment_bytes=300).start_offset >= seen
        await asyncio.gather(upkeep, return_exceptions=True)
        return is_over and seen > 0

    async def work() -> None:
        turns = 0
        while not await killed_after(turns):
            turns += 1
        assert turns > 5

    simulated(work())


def test_segments_that_fill_faster_than_the_disk_flushes_are_settled_by_one_task() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load(segment_bytes=100)
        for round_ in range(3):
            for number in range(20):
                stand.fill(log, 1, first=20 * round_ + number)
                await asyncio.sleep(0)
                assert len(stand.store._tasks) == log.needs_settling
            assert log.needs_settling
            await asyncio.sleep(60)
            assert not log.needs_settling
            assert not stand.store._tasks

    simulated(work())


def test_retention_has_its_turn_while_segments_fill_faster_than_the_disk_flushes() -> None:
    async def work() -> None:
        stand = Stand(SimDisk(flush_latency_ms=(0.5, 1.0)))
        stand.open()
        log = stand.load(segment_bytes=100, retention_bytes=1000)

        async def fill() -> None:
            for number in range(1000):
                stand.fill(log, 1, first=number)
                log.high_watermark = log.end_offset
                await asyncio.sleep(0.003)

        filling = asyncio.ensure_future(fill())
        await asyncio.sleep(0.05)
        assert log.needs_settling
        await asyncio.wait_for(stand.store.apply_retention(), 1)
        assert log.start_offset > 0
        filling.cancel()
        await asyncio.gather(filling, return_exceptions=True)

    simulated(work())


def test_retention_removes_expired_segments_also_the_active_one_and_keeps_producers() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load(segment_bytes=300, retention_ms=1000)
        stand.fill(log, 10)
        await stand.commit(log)
        await asyncio.sleep(1.1)
        await stand.store.apply_retention()
        assert (log.start_offset, log.end_offset, log.size_bytes) == (10, 10, 0)
        assert [name for name in stand.disk.list_dir(log.directory) if name.endswith(".log")] == [f"{10:020d}.log"]
        assert write(log, batch(b"x", producer=1, sequence=9)).is_duplicate
        again = Stand(stand.disk.after_power_loss(5))
        again.open()
        log = again.load(segment_bytes=300, retention_ms=1000)
        assert (log.start_offset, log.end_offset) == (10, 10)
        assert write(log, batch(b"x", producer=1, sequence=9)).is_duplicate
        assert write(log, batch(b"x", producer=1, sequence=10)).base_offset == 10

    simulated(work())


def test_the_upkeep_runs_by_itself_at_its_intervals() -> None:
    async def work() -> None:
        config = BrokerConfig(
            {
                "log.retention.check.interval.ms": "1000",
                "log.cleaner.backoff.ms": "1000",
                "log.flush.offset.checkpoint.interval.ms": "1000",
                "producer.id.expiration.check.interval.ms": "1000",
                "producer.id.expiration.ms": "5000",
            }
        )
        stand = Stand(SimDisk(), config)
        stand.open()
        log = stand.load(segment_bytes=300, retention_ms=2000)
        table = stand.load(
            "table", segment_bytes=300, cleanup_policy="compact", min_cleanable_dirty_ratio=0.1, index_interval_bytes=0
        )
        stand.fill(log, 10)
        for number in range(20):
            write(table, batch(b"%d" % number, keys=[b"k"]))
        await stand.commit(log)
        await stand.commit(table)
        stand.store.start_upkeep()
        await asyncio.sleep(1.5)
        assert read_checkpoint(stand.disk, f"{ROOT}/recovery-point-offset-checkpoint")["events", 0] == 10
        values = [r.value for header, data in batches_from(table, 0) for r in read_records(data, header)]
        assert len(values) < 20
        assert values[-1] == b"19"
        assert read_checkpoint(stand.disk, f"{ROOT}/cleaner-offset-checkpoint")["table", 0] > 0
        assert len(log.producers) == 1
        await asyncio.sleep(10)
        assert log.start_offset == 10
        assert len(log.producers) == 0
        await stand.store.close()
        assert not stand.broken

    simulated(work())


def test_a_disk_that_fails_in_the_background_is_reported() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load(segment_bytes=300)
        stand.disk.fail_at("flush")
        stand.fill(log, 10)
        await asyncio.sleep(1)
        assert {type(error) for error in stand.broken} == {OSError}
        assert log.flushed_offset == 0

    simulated(work())


def test_a_damaged_log_is_not_compacted_and_the_others_are() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        tables = {
            name: stand.load(name, segment_bytes=300, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
            for name in ("hurt", "whole")
        }
        for table in tables.values():
            for number in range(20):
                write(table, batch(b"%d" % number, keys=[b"k"]))
            await stand.commit(table)
        await asyncio.sleep(1)
        before = tables["hurt"].size_bytes
        stand.disk.flip_bit(tables["hurt"].segments[0].path, 66, 1)
        await stand.store.compact_one()
        await stand.store.compact_one()
        assert tables["hurt"].size_bytes == before
        assert tables["whole"].size_bytes < before
        assert not stand.broken

    simulated(work())


def test_gaps_that_compaction_left_are_not_taken_for_lost_records() -> None:
    async def work() -> None:
        for seed in range(10):
            stand = Stand(SimDisk(seed))
            stand.open()
            overrides = {"segment_bytes": 300, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
            log = stand.load(**overrides)
            log.on_roll = lambda _: None  # the background has not come to it yet
            for number in range(20):
                write(log, batch(b"%d" % number, keys=[b"k"]))
            await stand.commit(log)
            await stand.store.compact_one()
            again = Stand(stand.disk.after_power_loss(seed))
            again.open()
            log = again.load(**overrides)
            assert log.end_offset == 20
            header, data = batches_from(log, 0)[-1]
            assert [record.value for record in read_records(data, header)] == [b"19"]

    simulated(work())


def test_a_removed_log_is_gone_for_good_and_its_name_is_free() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        stand.fill(log, 10)
        await stand.commit(log)
        log.advance_start(5)
        await stand.store.checkpoint()
        stand.store.remove("events", 0)
        new = stand.load(topic_id=OTHER_TOPIC)
        assert (new.start_offset, new.end_offset) == (0, 0)
        stand.fill(new, 3)
        await stand.commit(new)
        await asyncio.sleep(1)
        assert [name for name in stand.disk.list_dir(ROOT) if "events" in name] == ["events-0"]
        assert not stand.broken

    simulated(work())


@pytest.mark.parametrize("torn", [False, True])
def test_a_new_log_does_not_inherit_the_checkpoints_of_a_deleted_one_of_its_name(torn: bool) -> None:
    async def work() -> None:
        for seed in range(12):
            stand = Stand(SimDisk(seed))
            stand.open()
            log = stand.load()
            stand.fill(log, 30)
            await stand.commit(log)
            log.advance_start(20)
            await stand.store.checkpoint()
            stand.store.remove("events", 0)
            new = stand.load(topic_id=OTHER_TOPIC)
            stand.fill(new, 10)
            await stand.commit(new)
            disk = stand.disk.after_power_loss(seed)
            if torn:
                path = f"{new.directory}/{0:020d}.log"
                file = disk.open(path)
                file.write_at(file.size(), b"torn")
            again = Stand(disk)
            again.open()
            log = again.load(topic_id=OTHER_TOPIC)
            assert offsets_from(log, 0) == list(range(10))

    simulated(work())


def test_a_directory_of_a_deleted_topic_that_came_back_is_not_taken_for_the_new_one() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        stand.fill(log, 10)
        await stand.commit(log)
        await stand.store.checkpoint()
        again = Stand(stand.disk.after_kill())
        again.open()
        new = again.load(topic_id=OTHER_TOPIC)
        assert (new.start_offset, new.end_offset) == (0, 0)
        strays = [name for name in again.disk.list_dir(ROOT) if name.endswith("-stray")]
        assert len(strays) == 1, "it may be ours, with a damaged name: so it is kept"
        assert "00000000000000000000.log" in again.disk.list_dir(f"{ROOT}/{strays[0]}")

    simulated(work())


@pytest.mark.parametrize("has_file", [True, False])
def test_a_directory_in_which_power_was_lost_before_its_topic_was_noted_gets_the_note(has_file: bool) -> None:
    """Or it would stay without one, and be taken for that of every later topic of its name."""

    async def scenario() -> None:
        disk = SimDisk()
        path = f"{ROOT}/events-0/partition.metadata"
        disk.make_dirs(f"{ROOT}/events-0")
        disk.open(path if has_file else f"{ROOT}/events-0/00000000000000000000.log", create=True).close()
        stand = Stand(disk)
        stand.open()
        log = stand.load()
        stand.fill(log, 1)
        await stand.commit(log)
        await stand.store.close()
        assert disk.read_file(path) == f"version: 0\ntopic_id: {TOPIC_ID}".encode()

    simulated(scenario())


@pytest.mark.parametrize(("is_known", "taken"), [(False, []), (True, [0, 1, 2])])
def test_records_of_which_nobody_says_whose_they_are_are_taken_only_if_some_were_durable(
    is_known: bool, taken: list[int]
) -> None:
    """What is durable has a name: without one they are perhaps those of a deleted topic, that a power cut brought
    back."""

    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        stand.fill(log, 3)
        await stand.commit(log)
        if is_known:
            await stand.store.checkpoint()
        disk = stand.disk.after_power_loss(1)
        disk.remove(f"{log.directory}/partition.metadata")
        again = Stand(disk)
        again.open()
        assert offsets_from(again.load(), 0) == taken
        strays = [name for name in disk.list_dir(ROOT) if name.endswith("-stray")]
        assert len(strays) == (not is_known)

    simulated(work())


def test_a_directory_whose_name_of_the_topic_is_damaged_is_neither_taken_nor_removed() -> None:
    """Without our own notes, which know whose it is."""

    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        stand.fill(log, 10)
        await stand.commit(log)
        await stand.store.checkpoint()
        disk = stand.disk.after_kill()
        disk.replace_file_now(f"{log.directory}/partition.metadata", b"version: 0\ntopic_id: \x81AAAA")
        disk.remove(f"{ROOT}/semel-node")
        disk.remove(f"{ROOT}/semel-marks")
        again = Stand(disk)
        again.open()
        with pytest.raises(BrokenLog, match=r"partition\.metadata is damaged"):
            again.load()
        assert disk.exists(log.directory)

    simulated(work())


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_ends_before_what_was_durable_is_not_taken(is_clean: bool) -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        stand.fill(log, 10)
        await stand.commit(log)
        found = log.segments[0].locate(7)
        assert found is not None
        await stand.store.checkpoint()
        if is_clean:
            await stand.store.close()
        disk = stand.disk.after_kill()
        disk.open(f"{log.directory}/00000000000000000000.log").truncate(found.position)
        again = Stand(disk)
        again.open()
        what = "has 826 bytes, but it had 1180" if is_clean else "ends at offset 7, and all below 10 was durable"
        with pytest.raises(DataMissing, match=f"{what}.* semel log accept-loss {log.directory}"):
            again.load()

    simulated(work())


def test_a_last_batch_whose_offset_has_changed_is_not_taken() -> None:
    """No CRC covers it; the checkpoint of a clean stop says where the log ended."""

    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        stand.fill(log, 10)
        await stand.commit(log)
        found = log.segments[0].locate(9)
        assert found is not None
        await stand.store.close()
        disk = stand.disk.after_kill()
        disk.flip_bit(f"{log.directory}/00000000000000000000.log", found.position + 6, 5)
        again = Stand(disk)
        again.open()
        with pytest.raises(BrokenLog, match="at the clean stop it ended at 10"):
            again.load()

    simulated(work())


def test_checkpoints_of_a_directory_that_is_gone_are_forgotten() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        stand.fill(log, 30)
        await stand.commit(log)
        log.advance_start(20)
        await stand.store.checkpoint()
        disk = stand.disk.after_kill()
        disk.remove_tree(log.directory)
        again = Stand(disk)
        again.open()
        new = again.load(topic_id=OTHER_TOPIC)
        again.fill(new, 3)
        await again.commit(new)
        third = Stand(again.disk.after_power_loss(2))
        third.open()
        assert offsets_from(third.load(topic_id=OTHER_TOPIC), 0) == [0, 1, 2]

    simulated(work())


def test_a_removal_in_the_middle_of_upkeep_breaks_nothing() -> None:
    async def work() -> None:
        for steps in range(0, 30, 2):
            stand = Stand(SimDisk(flush_latency_ms=(1.0, 3.0)))
            stand.open()
            log = stand.load(
                segment_bytes=300, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0, retention_bytes=600
            )
            for number in range(20):
                write(log, batch(b"%d" % number, keys=[b"k"]))
            await stand.commit(log)
            upkeep = asyncio.gather(stand.store.apply_retention(), stand.store.compact_one(), return_exceptions=True)
            for _ in range(steps):
                await asyncio.sleep(0.001)
            stand.store.remove("events", 0)
            results = await upkeep
            await asyncio.sleep(1)
            assert results == [None, None], (steps, results)
            assert not stand.broken, (steps, stand.broken)
            await stand.store.close()

    simulated(work())


def test_a_clean_stop_at_any_moment_of_a_compaction_is_followed_by_a_start_with_the_whole_log() -> None:
    """The stop lists the files as they are: a swap that was decided and not carried out would contradict it."""

    async def work() -> None:
        overrides = {"segment_bytes": 300, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
        swapped = set()
        for steps in range(40):
            stand = Stand(SimDisk(flush_latency_ms=(1.0, 3.0)))
            stand.open()
            log = stand.load(**overrides)
            for number in range(20):
                write(log, batch(b"%d" % number, keys=[b"k"]))
            await stand.commit(log)
            await asyncio.sleep(1)
            stand.store._start(stand.store.compact_one())
            for _ in range(steps):
                await asyncio.sleep(0.0005)
            await stand.store.close()
            again = Stand(stand.disk.after_kill())
            again.open()
            log = again.load(**overrides)
            assert log.end_offset == 20
            swapped.add(log.size_bytes)
            await again.store.close()
        assert len(swapped) > 1, "stops came before the swap and after it"

    simulated(work())


def test_a_transaction_that_is_open_at_the_stop_is_open_at_the_start() -> None:
    async def work() -> None:
        disk = SimDisk()
        stand = Stand(disk)
        stand.open()
        log = stand.load()
        write(log, batch(b"x", producer=3, sequence=0, transactional=True))
        await stand.store.close()
        again = Stand(disk)
        again.open()
        log = again.load()
        assert log.last_stable_offset == 0
        mark(log, ControlType.ABORT, 3)
        log.high_watermark = log.end_offset
        assert log.last_stable_offset == 2
        assert len(log.segments[0].aborted_index.entries()) == 1

    simulated(work())
