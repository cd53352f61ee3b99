"""All logs of one node in one data directory: opening, removing, checkpoints, and the upkeep that goes on meanwhile.

Upkeep (settling rolled segments, retention, compaction, expiry of producers, checkpoints) runs in tasks that this
store owns; it touches one log at a time, and `close` waits for it. A disk that fails is reported to `on_broken`: the
node stops.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from semel.config import BrokerConfig, TopicConfig
from semel.host.aging import AgingClock
from semel.host.api import Host, Lock
from semel.host.complaints import Complaints
from semel.host.descriptors import is_short
from semel.log.accepting import give_up_what_is_missing
from semel.log.checkpoints import TopicPartition
from semel.log.cleaner import compaction_task, run_compaction
from semel.log.disk_trouble import NO_SPACE, DiskTrouble
from semel.log.errors import BrokenLog, CorruptSegment, DataMissing, NoRoom
from semel.log.inventory import FILE_NAME as INVENTORY_FILE
from semel.log.inventory import Inventory, read_inventory
from semel.log.listing import is_complete, list_settled, unlist
from semel.log.log import IDENTITY_FILE, AnnounceCut, Log
from semel.log.notes import Notes
from semel.log.recovery import Recovered, load_log
from semel.log.retention import expired_segments, wants_roll
from semel.log.segment import LOG_SUFFIX
from semel.log.snapshots import SNAPSHOT_SUFFIX, WINDOW_SUFFIX
from semel.log.types import Offset
from semel.metrics.node_counts import FlushCounts

logger = logging.getLogger("semel.log")

_LOCK = ".lock"
_DELETED_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"
# Between two attempts to settle a log for which there was no room.
_AGAIN_S = 30.0
# Between two marks of what is flushed: they are read after a kill.
_MARK_S = 0.5
_MARKED_AT_ONCE = 1000
_IDENTITY = re.compile(rb"version: 0\s+topic_id: [A-Za-z0-9_-]{22}")


class LogStore:
    """The data directory of a node, held by a lock file for as long as the node lives."""

    def __init__(
        self,
        host: Host,
        root: str,
        config: BrokerConfig,
        on_broken: Callable[[BaseException], None],
        flushes: FlushCounts | None = None,
    ) -> None:
        self.host = host
        self.root = root
        self.config = config
        self._on_broken = on_broken
        self._trouble = DiskTrouble()
        self._flushes = flushes
        self.logs: dict[TopicPartition, Log] = {}
        self._lock: Lock | None = None
        self._aging = AgingClock(host.clock)
        self._tasks: set[asyncio.Task[None]] = set()
        # Compaction, retention and settling of one log never overlap.
        self._upkeep: dict[TopicPartition, asyncio.Lock] = {}
        self.notes = Notes(host.disk, root, host.random)
        self._settling: set[Log] = set()
        # How many cuts of logs were announced, and of how many that is durable: one write serves all that have come
        # before it.
        self._cuts_announced = self._cuts_written = 0
        self._writes_cuts = asyncio.Lock()
        self._uncleanable: set[TopicPartition] = set()
        self._has_upkeep = False
        # Directories that were not left cleanly and have not been loaded since: no stop is clean before they were.
        self._unrecovered: set[str] = set()
        self._complaints = Complaints(logger)

    def open(self) -> None:
        """Takes the directory; raises AlreadyLocked when another node holds it."""
        disk = self.host.disk
        disk.make_dirs(self.root)
        disk.sync_parents_now(self.root)  # it may have been made by a start that did not get to this point
        self._lock = disk.lock(f"{self.root}/{_LOCK}")
        self.notes.open()
        for name in disk.list_dir(self.root):
            if name.endswith(_DELETED_SUFFIX):
                disk.remove_tree(f"{self.root}/{name}")
            elif not self.was_clean and not name.endswith(_STRAY_SUFFIX) and self._holds_log(name):
                self._unrecovered.add(name)

    @property
    def was_clean(self) -> bool:
        return self.notes.was_clean

    @property
    def previous_broker_epoch(self) -> int:
        """What the last clean stop left: the epoch of the registration that it ended. -1: the stop was not clean."""
        return self.notes.previous_broker_epoch

    @property
    def broker_epoch(self) -> int:
        """To be left by the next clean stop."""
        return self.notes.broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, broker_epoch: int) -> None:
        self.notes.broker_epoch = broker_epoch

    def _holds_log(self, name: str) -> bool:
        path, disk = f"{self.root}/{name}", self.host.disk
        return disk.is_dir(path) and any(inner.endswith(LOG_SUFFIX) for inner in disk.list_dir(path))

    def _holds_records(self, directory: str) -> bool:
        disk = self.host.disk
        for name in disk.list_dir(directory) if disk.is_dir(directory) else []:
            if name.endswith(LOG_SUFFIX):
                file = disk.open(f"{directory}/{name}")
                size_bytes = file.size()
                file.close()
                if size_bytes:
                    return True
        return False

    def directory(self, topic: str, partition: int) -> str:
        return f"{self.root}/{topic}-{partition}"

    def load(
        self, topic: str, partition: int, topic_id: str, config: TopicConfig, *, is_replicated: bool = False
    ) -> Log:
        """Opens a partition's log, recovering it if the last stop was not clean. With other replicas it is committed as
        far as the last run has noted; without, all that it holds is."""
        key = (topic, partition)
        identity = f"version: 0\ntopic_id: {topic_id}".encode()
        try:
            log, recovered = self._opened(key, topic_id, identity, config)
        except DataMissing as missing:
            if missing.durable_end is not None:
                self.notes.recovery_points[key] = missing.durable_end
                self.notes.write_now()
            raise DataMissing(missing.what, advice=self.advice(topic, partition)) from missing
        self._report(key, recovered)
        self._unrecovered.discard(f"{topic}-{partition}")
        log.identity = identity
        log.inventory.token = self.notes.token
        log.trouble = self._trouble
        log.flushes = self._flushes
        log.on_roll = lambda log: self._settle_soon(key, log)
        log.cutting = partial(self._cutting, key)
        self.notes.loaded(key, topic_id, log)
        self.logs[key] = log
        if is_replicated:
            log.restore_high_watermark(self.notes.high_watermarks.get(key, 0))
            if not self.notes.has_replicated:
                self.notes.has_replicated = True
                self._keep_high_watermarks()
        return log

    def _opened(
        self, key: TopicPartition, topic_id: str, identity: bytes, config: TopicConfig
    ) -> tuple[Log, Recovered]:
        directory, notes = self.directory(*key), self.notes
        if not self.host.disk.exists(directory):
            if notes.must_be_there(key, topic_id):
                start, end = notes.log_starts.get(key, 0), notes.durable_offset(key, topic_id)
                raise DataMissing(f"{directory} is missing, with offsets {start} to {end - 1}")
            if not notes.is_noted_as(key, topic_id):
                self._forget(key)  # another topic's
        inventory = self._inventory(directory, identity)
        self._move_away_stranger(key, topic_id, identity, is_known=inventory is not None)
        if key in notes.stale:
            notes.write_now()
        return load_log(
            self.host.disk,
            directory,
            config,
            recovery_point=notes.durable_offset(key, topic_id),
            start_offset=notes.log_starts.get(key, 0),
            now_ms=self.host.clock.wall_ms(),
            was_clean=self.was_clean,
            is_same_boot=notes.is_of_this_boot(key, topic_id),
            is_start_sure=notes.is_ours,
            inventory=inventory,
        )

    def _inventory(self, directory: str, identity: bytes) -> Inventory | None:
        """What the files of a partition are, if that still counts."""
        found, is_there = read_inventory(self.host.disk, directory)
        if found is None and is_there:
            logger.error("%s/%s is damaged: files are taken as they are", directory, INVENTORY_FILE)
        if found is None or (found.token, found.identity) != (self.notes.token, identity):
            return None
        if not self.was_clean:
            names = set(self.host.disk.list_dir(directory))
            for name in names:
                if name.endswith(SNAPSHOT_SUFFIX) and name.replace(SNAPSHOT_SUFFIX, WINDOW_SUFFIX) not in names:
                    # Kafka writes one whenever it opens a log after a crash. We write the window first.
                    logger.warning("%s/%s is not ours: files are taken as they are", directory, name)
                    return None
        return found

    def advice(self, topic: str, partition: int) -> str:
        """What to do about a partition of which something is missing."""
        return (
            f"restore it from a copy, or see semel log check {self.root}, and give up what is lost with "
            f"semel log accept-loss {self.directory(topic, partition)}"
        )

    def _move_away_stranger(self, key: TopicPartition, topic_id: str, identity: bytes, *, is_known: bool) -> None:
        """A directory of this name may have belonged to a deleted topic and been brought back by a power cut, perhaps
        without what it had to say of its topic. It is kept beside: it may be ours and damaged."""
        directory = self.directory(*key)
        path = f"{directory}/{IDENTITY_FILE}"
        try:
            found = self.host.disk.read_file(path).strip()
        except FileNotFoundError:
            found = b""
        if found == identity or not self.host.disk.is_dir(directory):
            return
        holds_records = self._holds_records(directory)
        is_known = is_known or self.notes.knows(key, topic_id)
        is_durable = self.was_clean or bool(self.notes.recovery_points.get(key))
        is_torn = _IDENTITY.fullmatch(found) is None
        if is_known or (not found and is_durable) or (is_torn and not holds_records):
            # Power was lost before it, or its name, was durable, or somebody has removed it. Nobody else would write
            # it: the log is there already.
            if found or holds_records:
                logger.error("%s is %s: made anew", path, "damaged" if found else "missing")
            self.host.disk.replace_file_now(path, identity)
            return
        if found and self.notes.recovery_points.get(key) and not _IDENTITY.fullmatch(found):
            raise BrokenLog(
                f"{directory}/{IDENTITY_FILE} is damaged; if the directory belongs to this topic, remove the file, if "
                "not, move the directory away"
            )
        stray = self._renamed(directory, _STRAY_SUFFIX)
        logger.error("%s is of another topic: kept as %s, remove it when you are sure", directory, stray)
        if not self.notes.is_noted_as(key, topic_id):
            self._forget(key)
        self.host.disk.sync_dir_now(self.root)

    def _report(self, key: TopicPartition, recovered: Recovered) -> None:
        if recovered.scanned_bytes or recovered.cut_bytes:
            topic, partition = key
            logger.info(
                "recovered %s-%d: %d bytes read, %d torn bytes cut",
                topic,
                partition,
                recovered.scanned_bytes,
                recovered.cut_bytes,
            )

    def remove(self, topic: str, partition: int) -> None:
        """Takes a partition away: its name at once, its files in the background."""
        key = (topic, partition)
        self._close_log(key)
        self._forget(key)
        directory = self.directory(topic, partition)
        if self.host.disk.exists(directory):
            self._start(self._remove_tree(self._renamed(directory, _DELETED_SUFFIX)))

    def _close_log(self, key: TopicPartition) -> None:
        """If it is open: nobody reads or writes these files any more."""
        log = self.logs.pop(key, None)
        if log is not None:
            log.is_closed = True
            for segment in log.segments:
                segment.is_removed = True
                segment.close()

    def accept_loss(self, topic: str, partition: int, topic_id: str, config: TopicConfig) -> list[str] | None:
        """Loads a partition without what is missing of it; None: nothing is. Says what is given up. For who works on a
        directory that no node has."""
        try:
            self.load(topic, partition, topic_id, config)
        except (BrokenLog, CorruptSegment) as damage:
            key, directory, disk = (topic, partition), self.directory(topic, partition), self.host.disk
            start = self.notes.log_starts.get(key, 0)
            durable = self.notes.durable_offset(key, topic_id)
            logger.info("%s", damage)
        else:
            return None
        self.notes.forget(key)
        if not disk.exists(directory):
            self.notes.write_now()
            return [f"offsets {start} to {durable - 1}"]
        given_up = give_up_what_is_missing(disk, directory)
        disk.replace_file_now(f"{directory}/{IDENTITY_FILE}", f"version: 0\ntopic_id: {topic_id}".encode())
        begin, end = given_up.start_offset, given_up.end_offset
        losses = list(given_up.losses)
        if durable > end:
            losses.append(f"offsets {end} to {durable - 1}")
        if start > end:
            losses.append(f"that the log begins at offset {start}")
        self.notes.log_starts[key] = start if begin <= start <= end else begin
        # What is there is durable, and its gaps are known.
        self.notes.recovery_points[key] = end
        self.notes.was_clean, was_clean = False, self.notes.was_clean
        try:
            log = self.load(topic, partition, topic_id, config)
        finally:
            self.notes.was_clean = was_clean
        log.producers.load(given_up.rows | log.producers.rows())
        self.notes.write_now()
        return losses or ["nothing but what can be made anew"]

    def set_aside(self, topic: str, partition: int) -> None:
        """Begins a partition anew that is damaged, because others have it too. What is there is kept under another
        name."""
        self._close_log((topic, partition))
        directory = self.directory(topic, partition)
        if self.host.disk.exists(directory):
            aside = self._renamed(directory, _STRAY_SUFFIX)
            logger.error("%s is kept as %s, remove it when you are sure", directory, aside)
        self._forget((topic, partition))
        self.notes.write_now()

    def _forget(self, key: TopicPartition) -> None:
        self.notes.forget(key)
        self._upkeep.pop(key, None)
        self._uncleanable.discard(key)

    def _renamed(self, directory: str, suffix: str) -> str:
        # Not a longer form of its own name: that may be as long as a name can be.
        path = f"{self.root}/{self.host.random.getrandbits(64):016x}{suffix}"
        self.host.disk.rename(directory, path)
        self._unrecovered.discard(directory.rpartition("/")[2])
        return path

    async def _remove_tree(self, path: str) -> None:
        await self.host.disk.sync_dir(self.root)
        for name in self.host.disk.list_dir(path):
            if not self.host.disk.is_dir(f"{path}/{name}"):
                self.host.disk.remove(f"{path}/{name}")
            await asyncio.sleep(0)
        self.host.disk.remove_tree(path)

    # -- upkeep

    def start_upkeep(self) -> None:
        for interval, work in (
            ("log.flush.offset.checkpoint.interval.ms", self.checkpoint),
            ("log.flush.offset.checkpoint.interval.ms", self.list_files),
            ("log.retention.check.interval.ms", self.apply_retention),
            ("log.cleaner.backoff.ms", self.compact_one),
            ("producer.id.expiration.check.interval.ms", self.expire_producers),
        ):
            self._start(self._every(self.config.int(interval) / 1000, work))
        self._start(self._every(_MARK_S, self.mark_flushed))
        self._start(self._list_files_at_once())
        self._has_upkeep = True
        self._keep_high_watermarks()

    def _keep_high_watermarks(self) -> None:
        if self._has_upkeep and self.notes.has_replicated:
            interval_ms = self.config.int("replica.high.watermark.checkpoint.interval.ms")
            self._start(self._every(interval_ms / 1000, self.checkpoint_high_watermarks))

    async def _every(self, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            with self._unless_it_passes():
                await work()

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it never began, if the task was cancelled at once

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, OSError) and is_short(error):
                self._tell(error)
            else:
                self._on_broken(error)

    def _tell(self, error: OSError) -> None:
        """Upkeep that has found no room on the disk, or no descriptor, has its turn again."""
        if is_short(error):
            text = "upkeep has to wait until this process may open more files, see ulimit -n: %s"
            self._complaints.say("short", logging.ERROR, text, error)
        else:
            self._trouble.refused(self.root, error, asyncio.get_running_loop())

    def _upkeep_lock(self, key: TopicPartition) -> asyncio.Lock:
        return self._upkeep.setdefault(key, asyncio.Lock())

    def _settle_soon(self, key: TopicPartition, log: Log) -> None:
        """One task for a log, however quickly its segments fill."""
        if log not in self._settling:
            self._settling.add(log)
            self._start(self._settle(key, log))

    async def _settle(self, key: TopicPartition, log: Log) -> None:
        try:
            while not log.is_closed and log.needs_settling:
                try:
                    async with self._upkeep_lock(key):  # others have their turn in between
                        with self._unless_removed(key, log):
                            if not log.is_closed and log.needs_settling:
                                await log.settle()
                except OSError as error:
                    if not isinstance(error, NoRoom) and not is_short(error):
                        raise
                    self._tell(error)
                    await asyncio.sleep(_AGAIN_S)
        finally:
            self._settling.discard(log)

    @asynccontextmanager
    async def _cutting(self, key: TopicPartition) -> AsyncIterator[AnnounceCut]:
        """No other upkeep of this log meanwhile, and no checkpoint says more of it than what the cut leaves."""
        async with self._upkeep_lock(key):
            try:
                yield partial(self._announce_cut, key)
            finally:
                self.notes.cuts.pop(key, None)

    async def _announce_cut(self, key: TopicPartition, end_offset: Offset, start_offset: Offset) -> None:
        """Written before anything is cut: recovery takes a log that ends below its recovery point for damaged."""
        log = self.logs[key]
        is_all = start_offset == end_offset
        await unlist(
            log, [one.base_offset for one in log.segments if is_all or one.next_offset > end_offset], end_offset
        )
        self.notes.cuts[key] = end_offset, start_offset
        self._cuts_announced += 1
        announced = self._cuts_announced
        async with self._writes_cuts:
            if self._cuts_written >= announced:
                return
            announced = self._cuts_announced
            await self.notes.write_cuts(self.logs)
            self._cuts_written = announced

    @contextmanager
    def _unless_removed(self, key: TopicPartition, log: Log) -> Iterator[None]:
        """Upkeep of a log that is removed meanwhile stumbles over closed files: that is no failure of the disk."""
        try:
            yield
        except (OSError, ValueError):
            if self.logs.get(key) is log:
                raise

    @contextmanager
    def _unless_it_passes(self) -> Iterator[None]:
        """A full disk is no reason to stop, nor is want of descriptors: whatever upkeep needed is tried again in its
        next turn."""
        try:
            yield
        except OSError as error:
            if error.errno not in NO_SPACE and not is_short(error):
                raise
            self._tell(error)

    async def checkpoint(self) -> None:
        """What is durable, and where each log begins, for the next start."""
        self.notes.take(self.logs)
        await self.notes.write()
        self._trouble.taken(asyncio.get_running_loop())

    async def checkpoint_starts(self) -> None:
        """Where each log begins: written before DeleteRecords is answered, so that what is gone stays gone."""
        self.notes.take_starts(self.logs)
        await self.notes.write_starts()

    async def mark_flushed(self) -> None:
        """What is durable, for a start after a kill: written often, because it costs no flush."""
        logs = list(self.logs.items())
        for first in range(0, len(logs), _MARKED_AT_ONCE):
            self.notes.flushed({key: log for key, log in logs[first : first + _MARKED_AT_ONCE] if not log.is_closed})
            await asyncio.sleep(0)

    async def _list_files_at_once(self) -> None:
        with self._unless_it_passes():
            await self.list_files()

    async def list_files(self) -> None:
        """What files there are in segments of which that was not noted yet: of an earlier version, perhaps."""
        for key, log in list(self.logs.items()):
            if not is_complete(log):
                async with self._upkeep_lock(key):
                    with self._unless_it_passes(), self._unless_removed(key, log):
                        await list_settled(log)
            await asyncio.sleep(0)

    async def checkpoint_high_watermarks(self) -> None:
        """How far each log is committed: a smaller number than the true one does no harm."""
        await self.notes.write_high_watermarks(self.logs)

    async def apply_retention(self) -> None:
        now_ms = self.host.clock.wall_ms()
        for key, log in list(self.logs.items()):
            async with self._upkeep_lock(key):
                with self._unless_it_passes(), self._unless_removed(key, log):
                    await self._retain(key, log, now_ms)
            await asyncio.sleep(0)

    async def _retain(self, key: TopicPartition, log: Log, now_ms: int) -> None:
        if log.is_closed:
            return
        if wants_roll(log, now_ms):
            log.roll()
        if log.needs_settling:
            # Producers outlive their data: their snapshot is on disk before the data goes.
            await log.settle()
        expired = [] if log.is_closed else expired_segments(log, now_ms)
        if expired:
            start_offset = log.segments[len(expired)].base_offset
            logger.info("%s: removing %d segments up to offset %d", log.directory, len(expired), start_offset)
            # Durable first: whoever was told where the log begins is not told less after a crash. And a power loss may
            # undo the removal of one file and not of the next, and the data of an aborted transaction without its
            # marker would read as committed.
            self.notes.coming_starts[key] = start_offset
            try:
                await self.checkpoint_starts()
                if not log.is_closed:
                    await log.retire_segments(expired)
            except OSError:
                self.notes.coming_starts.pop(key, None)  # nothing goes this time
                raise
            self.notes.coming_starts.pop(key, None)

    async def compact_one(self) -> None:
        """Compacts the dirtiest log, if one is dirty enough."""
        if not self.config.bool("log.cleaner.enable"):
            return
        now_ms = self.host.clock.wall_ms()
        for key, log in list(self.logs.items()):
            if key in self._uncleanable or not log.config.compacts:
                continue
            async with self._upkeep_lock(key):
                with self._unless_removed(key, log):
                    await self._compact(key, log, now_ms)

    async def _compact(self, key: TopicPartition, log: Log, now_ms: int) -> None:
        if log.needs_settling and not log.is_closed:
            # Compaction leaves gaps; after a crash they are known as such below a snapshot, and only there.
            await log.settle()
        if log.is_closed:
            return
        task = compaction_task(log, self.notes.cleaner_offsets.get(key, 0), now_ms, self.config)
        if task is None:
            return
        logger.debug("%s: compacting what lies before offset %d", log.directory, task.end_offset)
        try:
            result = await run_compaction(self.host.disk, self.host.jobs, log, task, self._complaints)
        except CorruptSegment as damage:
            logger.error("%s: the log is not compacted any more until this is mended", damage)
            self._uncleanable.add(key)
            return
        if result is not None and self.logs.get(key) is log:
            self.notes.cleaner_offsets[key] = result.end_offset
            await self.notes.write_cleaner_offsets()

    async def expire_producers(self) -> None:
        expiration_ms = self.config.int("producer.id.expiration.ms")
        now_ms = self._aging.now_ms(expiration_ms)
        for log in list(self.logs.values()):
            log.producers.expire(now_ms, expiration_ms)
            await asyncio.sleep(0)

    async def close(self) -> None:
        """A clean stop: everything on disk, and a mark that says so."""
        self._trouble.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for log in self.logs.values():
            log.close()
        await self.checkpoint()
        await self.checkpoint_high_watermarks()
        self.notes.end(is_clean=not self._unrecovered)
        self._unlock()

    async def abandon(self) -> None:
        """The node does not begin: what is open is closed, as at a crash, and others may have the directory."""
        self._trouble.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for log in self.logs.values():
            for segment in log.segments:
                segment.close()
        self.notes.end(is_clean=False)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
