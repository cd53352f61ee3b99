"""The sink without Spark: a checkpoint made by hand, rows that are encoded and staged as a task would, and a commit.

Also the judge: what a reader of committed data finds in a topic.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from semel.client.admin.group_values import PREPARE_ABORT, PREPARE_COMMIT
from semel.client.metadata import TopicPartition
from semel.host.real import RealClock, real_host
from semel.spark import steps
from semel.spark.checkpoint import Checkpoint
from semel.spark.committer import Committer, Publication
from semel.spark.encoding import RowEncoder
from semel.spark.sink_options import Partitioner
from semel.spark.staging import Staged, StagingArea, StagingWriter, file_name
from semel.spark.succession import NextBatch
from semel.spark.topic_facts import TopicBook
from semel.sync import Admin, Consumer

MARKER_TOPIC = "__semel_pipelines"
MARKERS_TIMEOUT_S = 30.0
Row = tuple[bytes | None, bytes]


class FakeCheckpoint:
    """The files of a checkpoint that the sink reads."""

    def __init__(self, path: Path, query_id: str | None = None) -> None:
        self.path = path
        self.query_id = query_id or str(uuid.uuid4())
        (path / "offsets").mkdir(parents=True, exist_ok=True)
        (path / "commits").mkdir(exist_ok=True)
        (path / "metadata").write_text(json.dumps({"id": self.query_id}))

    @property
    def uri(self) -> str:
        return self.path.as_uri()

    def plan(self, batch_id: int, end: str | None = None) -> None:
        """What Spark writes before it runs a batch."""
        source = json.dumps({"in": {"0": 10 * (batch_id + 1)}}) if end is None else end
        data = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + batch_id, "conf": {}}
        (self.path / "offsets" / str(batch_id)).write_text("\n".join(["v1", json.dumps(data), source]))

    def complete(self, batch_id: int) -> None:
        (self.path / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def rows_of(batch_id: int, task: int = 0, count: int = 10) -> list[Row]:
    return [(b"key-%d" % (row % 3), b"%d/%d/%d" % (batch_id, task, row)) for row in range(count)]


def arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    keys = pa.array([key for key, _ in rows], pa.binary())
    return pa.record_batch({"key": keys, "value": pa.array([value for _, value in rows], pa.binary())})


class SinkWorld:
    """One query: its checkpoint, its target topic, and as many runs of it as a test wants."""

    def __init__(self, address: str, checkpoint: FakeCheckpoint, topic: str, **settings: Any) -> None:
        self.address = address
        self.checkpoint = checkpoint
        self.topic = topic
        self.connection: dict[str, Any] = {"bootstrap_servers": address}
        self.producer: dict[str, Any] = {**self.connection, "transaction_timeout_ms": 60_000, **settings}
        self.area = StagingArea(f"{checkpoint.uri}/sink-staging")
        self.transactional_id = f"sink-{checkpoint.query_id}"
        self._attempts = 0

    def stage(
        self, rows: Iterable[Row], batch_id: int, *, run_id: str = "run", inline_bytes: int = 0, **options: Any
    ) -> Staged:
        """As a task does; by default into a file."""
        self._attempts += 1
        writer = StagingWriter(
            f"{self.checkpoint.uri}/sink-staging", file_name(run_id, batch_id, self._attempts), inline_bytes
        )
        book = TopicBook(self.connection, RealClock())
        chosen: dict[str, Any] = {
            "topic": self.topic,
            "dead_letter_topic": None,
            "partitioner": Partitioner.MURMUR2,
            "codec": 0,
            "level": None,
            "first_turn": 0,
            **options,
        }
        encoder = RowEncoder(writer.add, book.facts, RealClock(), **chosen)
        try:
            given = list(rows)
            if given:
                encoder.add(arrow(given))
            encoder.flush()
        finally:
            book.close()
        return writer.finish()

    def publication(self, batch_id: int, staged: Sequence[Staged], run_id: str = "run") -> Publication:
        read = Checkpoint(self.checkpoint.uri)
        digest = read.digest(batch_id)
        assert digest is not None
        succession = NextBatch(
            self.checkpoint.query_id, batch_id, digest, read.digest(batch_id - 1), self.transactional_id, read.digest
        )
        return Publication(staged, self.transactional_id, succession, run_id)

    def committer(self, reached: steps.Hook = steps.reached, **options: Any) -> Committer:
        return Committer(
            real_host(), self.connection, self.producer, MARKER_TOPIC, self.area, reached=reached, **options
        )

    async def commit(
        self, batch_id: int, staged: Sequence[Staged], reached: steps.Hook = steps.reached, **options: Any
    ) -> bool:
        return await self.committer(reached, **options).commit(self.publication(batch_id, staged))

    async def run_batch(self, batch_id: int, rows: Sequence[Row], **options: Any) -> bool:
        """A batch from plan to commit."""
        self.checkpoint.plan(batch_id)
        return await self.commit(batch_id, [self.stage(rows, batch_id)], **options)

    def committed(self, topic: str | None = None) -> list[Row]:
        return committed_rows(self.address, topic or self.topic)


def wait_for_markers(address: str) -> None:
    """A commit is answered when it is decided. Readers see it when its markers are written, which is a moment later."""
    deadline_s = time.monotonic() + MARKERS_TIMEOUT_S
    with Admin(bootstrap_servers=address) as admin:
        while ending := admin.list_transactions(states=(PREPARE_COMMIT, PREPARE_ABORT)):
            assert time.monotonic() < deadline_s, f"no end after {MARKERS_TIMEOUT_S} s: {ending}"
            time.sleep(0.02)


def committed_rows(address: str, topic: str, isolation_level: str = "read_committed") -> list[Row]:
    """What a reader of committed data finds, partition after partition, each in order."""
    wait_for_markers(address)
    with Consumer(bootstrap_servers=address, isolation_level=isolation_level, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found: dict[TopicPartition, list[Row]] = {partition: [] for partition in partitions}
        consumer.seek_to_beginning(*partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for partition, messages in consumer.poll(timeout_ms=1000).items():
                found[partition] += [(message.key, message.value) for message in messages]
    return [row for partition in partitions for row in found[partition]]
