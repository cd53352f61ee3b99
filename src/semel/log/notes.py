"""What a node knows of its data directory beyond the logs: checkpoints, the node file, marks of what was flushed.

Read when the directory is opened, kept while the node runs, written at checkpoints. Our own notes come first; Kafka's
checkpoints are written after them, for Kafka and its tools, and are believed only where ours do not count.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from random import Random

from semel.host.api import Disk
from semel.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    TopicPartition,
    encode_checkpoint,
    read_checkpoint,
)
from semel.log.flushed_marks import FlushedMarks
from semel.log.log import Log
from semel.log.node_file import (
    CLEAN_STOP,
    FILE_NAME,
    NO_BROKER_EPOCH,
    STOPPED,
    NodeFile,
    Noted,
    broker_epoch_of,
    clean_stop_mark,
    read_node_file,
)
from semel.log.types import Offset

logger = logging.getLogger("semel.log")

_NO_TOPIC_ID = "-"


class Notes:
    """Of one data directory. `open` comes first, and takes the mark of a clean stop away."""

    def __init__(self, disk: Disk, root: str, random: Random) -> None:
        self._disk = disk
        self._root = root
        self._random = random
        self._marks = FlushedMarks(disk, root)
        self._node = NodeFile("", "")
        self._topic_ids: dict[TopicPartition, str] = {}
        self.recovery_points: dict[TopicPartition, Offset] = {}
        self.log_starts: dict[TopicPartition, Offset] = {}
        # Where logs will begin as soon as that is durable.
        self.coming_starts: dict[TopicPartition, Offset] = {}
        self.cleaner_offsets: dict[TopicPartition, Offset] = {}
        # Noted once there is a log with other replicas; the end of any other is committed.
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.has_replicated = False
        # Of logs that are being cut: where they are to end and to begin.
        self.cuts: dict[TopicPartition, tuple[Offset, Offset]] = {}
        # Forgotten, but the checkpoints on disk still name them: another log of that name must not inherit.
        self.stale: set[TopicPartition] = set()
        self.was_clean = False
        self.is_ours = False
        """Nobody else has opened the directory since this program last did."""
        # What a broker tells its controller of its last clean stop, and of the next.
        self.previous_broker_epoch = NO_BROKER_EPOCH
        self.broker_epoch = NO_BROKER_EPOCH

    @property
    def token(self) -> str:
        return self._node.token

    def open(self) -> None:
        disk, root = self._disk, self._root
        mark = disk.read_file(f"{root}/{CLEAN_STOP}") if disk.exists(f"{root}/{CLEAN_STOP}") else None
        last = read_node_file(disk, root)
        self.was_clean = mark is not None
        self.is_ours = last is not None and last.is_last_to_have_been_here(mark)
        self.previous_broker_epoch = NO_BROKER_EPOCH if mark is None else broker_epoch_of(mark)
        self.recovery_points = read_checkpoint(disk, f"{root}/{RECOVERY_POINTS}")
        self.log_starts = read_checkpoint(disk, f"{root}/{LOG_STARTS}")
        self.cleaner_offsets = read_checkpoint(disk, f"{root}/{CLEANER_OFFSETS}")
        self.high_watermarks = read_checkpoint(disk, f"{root}/{HIGH_WATERMARKS}")
        run = f"{self._random.getrandbits(64):016x}"
        if last is not None and self.is_ours:
            self._node = NodeFile(last.token, run, previous_run=last.run if mark is not None else "")
            self._believe(last.partitions)
        else:
            self._node = NodeFile(run, run)
            if last is not None or disk.exists(f"{root}/{FILE_NAME}"):
                logger.warning(
                    "%s was opened by another program, or its %s is damaged: what is noted of its files is not used",
                    root,
                    FILE_NAME,
                )
        self._write_node_now()
        if self.was_clean:
            disk.remove(f"{root}/{CLEAN_STOP}")
            disk.sync_dir_now(root)
        self._marks.open(self.token)

    def _believe(self, noted: Mapping[TopicPartition, Noted]) -> None:
        """Our notes are written before the checkpoints: those can be older, but not ahead."""
        self._topic_ids = {key: one.topic_id for key, one in noted.items() if one.topic_id != _NO_TOPIC_ID}
        points = {key: one.recovery_point for key, one in noted.items()}
        starts = {key: one.start_offset for key, one in noted.items() if one.start_offset}
        for name, found, right in (
            (RECOVERY_POINTS, self.recovery_points, points),
            (LOG_STARTS, self.log_starts, starts),
        ):
            ahead = [key for key, offset in found.items() if offset > right.get(key, 0)]
            if ahead or (self.was_clean and {key: at for key, at in found.items() if at} != _positive(right)):
                told = ", ".join(f"{topic}-{index}" for topic, index in ahead[:3])
                what = f"wrong for {told}" if ahead else "not as it was written"
                logger.error("%s/%s is %s: %s is used", self._root, name, what, FILE_NAME)
        self.recovery_points, self.log_starts = points, starts

    # -- what is known of one partition

    def durable_offset(self, key: TopicPartition, topic_id: str) -> Offset:
        """Everything below it was durable."""
        return max(self.recovery_points.get(key, 0), self._marks.durable_offset((*key, topic_id)))

    def is_of_this_boot(self, key: TopicPartition, topic_id: str) -> bool:
        """Whether all that was written to it is in its files, whatever became of the process."""
        return self._marks.was_here_in_this_boot((*key, topic_id))

    def knows(self, key: TopicPartition, topic_id: str) -> bool:
        """Whether a directory of this name has durably been that of this topic."""
        is_noted = self.is_noted_as(key, topic_id) and self.recovery_points.get(key, 0) > 0
        owner = (*key, topic_id)
        return is_noted or self._marks.durable_offset(owner) > 0 or self._marks.was_here_in_this_boot(owner)

    def is_noted_as(self, key: TopicPartition, topic_id: str) -> bool:
        return self._topic_ids.get(key) == topic_id

    def must_be_there(self, key: TopicPartition, topic_id: str) -> bool:
        """Whether a partition has records that cannot be gone without damage."""
        begin = self.log_starts.get(key, 0)
        if self._marks.durable_offset((*key, topic_id)) > begin:
            return True
        if self._topic_ids.get(key, topic_id) != topic_id:
            return False  # of an earlier topic of that name
        return (self.is_ours or self.was_clean) and self.recovery_points.get(key, 0) > begin

    def loaded(self, key: TopicPartition, topic_id: str, log: Log) -> None:
        self._topic_ids[key] = topic_id
        self._marks.note({(*key, topic_id): log.flushed_offset})

    def flushed(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Marks how far logs that are loaded are flushed."""
        self._marks.note({(*key, self._topic_ids[key]): self._durable(key, log) for key, log in logs.items()})

    def _durable(self, key: TopicPartition, log: Log) -> Offset:
        if key not in self.cuts:
            return log.flushed_offset
        end_offset, start_offset = self.cuts[key]
        return 0 if start_offset == end_offset else min(log.flushed_offset, end_offset)

    def forget(self, key: TopicPartition) -> None:
        for offsets in (
            self.recovery_points,
            self.log_starts,
            self.coming_starts,
            self.cleaner_offsets,
            self.high_watermarks,
        ):
            if offsets.pop(key, None) is not None:
                self.stale.add(key)
        self._topic_ids.pop(key, None)
        self._marks.forget(key)

    # -- writing it down

    def take(self, logs: Mapping[TopicPartition, Log]) -> None:
        for key, log in logs.items():
            if log.segments:
                self.recovery_points[key] = self._durable(key, log)
        for key, (end_offset, start_offset) in self.cuts.items():
            if start_offset == end_offset:  # nothing is left
                self.recovery_points.pop(key, None)
            if key in self.cleaner_offsets:
                self.cleaner_offsets[key] = min(self.cleaner_offsets[key], end_offset)
        self.take_starts(logs)

    def take_starts(self, logs: Mapping[TopicPartition, Log]) -> None:
        for key, log in logs.items():
            start_offset = max(log.start_offset, self.coming_starts.get(key, 0))
            if key in self.cuts:
                _, start_offset = self.cuts[key]
            if start_offset:
                self.log_starts[key] = start_offset
            else:
                self.log_starts.pop(key, None)

    async def write(self) -> None:
        await self._write_node()
        await self._disk.replace_file(f"{self._root}/{RECOVERY_POINTS}", encode_checkpoint(self.recovery_points))
        await self._disk.replace_file(f"{self._root}/{LOG_STARTS}", encode_checkpoint(self.log_starts))
        self._marks.begin_anew()

    async def write_starts(self) -> None:
        await self._write_node()
        await self._disk.replace_file(f"{self._root}/{LOG_STARTS}", encode_checkpoint(self.log_starts))

    async def write_cleaner_offsets(self) -> None:
        await self._disk.replace_file(f"{self._root}/{CLEANER_OFFSETS}", encode_checkpoint(self.cleaner_offsets))

    async def write_high_watermarks(self, logs: Mapping[TopicPartition, Log]) -> None:
        before = dict(self.high_watermarks)
        for key, log in logs.items():
            self.high_watermarks[key] = log.high_watermark
        if self.has_replicated and self.high_watermarks != before:
            data = encode_checkpoint(self.high_watermarks)
            await self._disk.replace_file(f"{self._root}/{HIGH_WATERMARKS}", data)

    def write_now(self) -> None:
        self._write_node_now()
        for name, offsets in (
            (RECOVERY_POINTS, self.recovery_points),
            (LOG_STARTS, self.log_starts),
            (CLEANER_OFFSETS, self.cleaner_offsets),
            *([(HIGH_WATERMARKS, self.high_watermarks)] if self.has_replicated else []),
        ):
            self._disk.replace_file_now(f"{self._root}/{name}", encode_checkpoint(offsets))
        self._marks.begin_anew()
        self.stale.clear()

    async def write_cuts(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Before logs are cut: nothing may say any more that what comes behind the cuts is durable."""
        cut = {key: logs[key] for key in self.cuts if key in logs}
        await self._marks.lower({(*key, self._topic_ids[key]): self._durable(key, log) for key, log in cut.items()})
        self.take(logs)
        await self.write()
        await self.write_cleaner_offsets()

    def end(self, *, is_clean: bool) -> None:
        """The last thing that a node does with its directory."""
        if is_clean:
            mark = clean_stop_mark(self.broker_epoch, self._node.run)
            self._disk.replace_file_now(f"{self._root}/{CLEAN_STOP}", mark)
            self._node.state = STOPPED
            self._write_node_now()
        self._marks.close()

    def _node_data(self) -> bytes:
        self._node.partitions = {
            key: Noted(
                self._topic_ids.get(key, _NO_TOPIC_ID), self.recovery_points.get(key, 0), self.log_starts.get(key, 0)
            )
            for key in sorted(self.recovery_points.keys() | self.log_starts.keys())
        }
        return self._node.encode()

    async def _write_node(self) -> None:
        await self._disk.replace_file(f"{self._root}/{FILE_NAME}", self._node_data())

    def _write_node_now(self) -> None:
        self._disk.replace_file_now(f"{self._root}/{FILE_NAME}", self._node_data())


def _positive(offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
    return {key: offset for key, offset in offsets.items() if offset}
