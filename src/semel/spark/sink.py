"""The writers that Spark sees: rows are encoded and staged in tasks, and published by `commit` on the driver.

Spark makes a writer on the driver for every batch, sends it to the tasks pickled, and for a stream makes another one
for `commit` or `abort`, in another process. So a writer keeps nothing that is open.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from semel.host.api import Host
from semel.host.real import RealClock
from semel.spark import steps
from semel.spark.at_least_once import DirectWriter
from semel.spark.blocking import run_with_host
from semel.spark.checkpoint import Checkpoint
from semel.spark.committer import Committer, Publication
from semel.spark.encoding import RowEncoder, Taker
from semel.spark.marker import MarkerTopic
from semel.spark.places import absolute_uri, child_uri
from semel.spark.sink_errors import CheckpointRefused, StagedDataLost
from semel.spark.sink_options import Delivery, SinkOptions, batch_options, check_columns, stream_options
from semel.spark.staging import FOLDER, Staged, StagingArea, StagingWriter, file_name, inline_limit
from semel.spark.succession import NextBatch, NextVersion, Succession
from semel.spark.topic_facts import shared_book
from semel.spark.worker_memory import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """What a task tells the commit: what it has staged, and for which query."""

    staged: Staged
    query_id: str = ""
    run_id: str = ""


@dataclass(frozen=True)
class WrittenMessage(WriterCommitMessage):
    """Of a task that has written by itself, at least once."""

    record_count: int


class SemelStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = stream_options(options)
        check_columns(schema, self._options)
        self._is_exactly_once = self._options.delivery is Delivery.EXACTLY_ONCE
        self._checkpoint_uri = self._query_id = ""
        self._area_uri: str | None = None
        if self._is_exactly_once and self._options.checkpoint_location is not None:
            self._checkpoint_uri = absolute_uri(self._options.checkpoint_location)
            self._query_id = Checkpoint(self._checkpoint_uri).query_id()
            self._area_uri = self._area()
            _ensure_marker_topic(tuple(sorted(self._options.connection.items())), self._options.marker_topic)
        settle("plan")

    def _area(self) -> str:
        location = self._options.staging_location
        if location is None:
            return child_uri(self._checkpoint_uri, FOLDER)
        return child_uri(absolute_uri(location), self._query_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _this_task()
        batch_id = int(task.getLocalProperty(_BATCH_ID) or 0)
        first_turn = batch_id + task.partitionId()
        if not self._is_exactly_once:
            return _write_directly(self._options, iterator, first_turn)
        run_id = task.getLocalProperty(_RUN_ID) or uuid.uuid4().hex
        name = file_name(run_id, batch_id, task.taskAttemptId())
        staged = _stage(self._options, iterator, self._area_uri, name, task.partitionId(), first_turn)
        steps.act_on(steps.Step.STAGED, batch_id)
        return StagedMessage(staged, task.getLocalProperty(_QUERY_ID) or "", run_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if not self._is_exactly_once:
            steps.act_on(steps.Step.CLEANED, batchId)
            return
        received = _staged_messages(messages)
        _check_query(received, "checkpointLocation", self._checkpoint_uri, self._query_id)
        area = StagingArea(self._area_uri)
        _commit(self._options, area, self._publication(received, batchId))
        area.clean(batchId)
        settle("commit")
        steps.act_on(steps.Step.CLEANED, batchId)

    def _publication(self, received: Sequence[StagedMessage], batch_id: int) -> Publication:
        transactional_id = f"{self._options.transactional_id_prefix}sink-{self._query_id}"
        return Publication(
            staged=[message.staged for message in received],
            transactional_id=transactional_id,
            succession=_next_batch(Checkpoint(self._checkpoint_uri), self._query_id, batch_id, transactional_id),
            run_id=next((message.run_id for message in received), ""),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Touches no transaction: this run does not know whether a commit of it, or of another one, has an effect yet.
        What its tasks have staged will be staged again by another run."""
        StagingArea(self._area_uri).remove(_staged_of(messages))


class SemelBatchWriter(DataSourceArrowWriter):
    """The whole write is one transaction. The writer that Spark makes on the driver serves tasks and `commit`."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = batch_options(options)
        check_columns(schema, self._options)
        self._write_id = uuid.uuid4().hex
        location = self._options.staging_location
        parent = gettempdir() if location is None else location
        self._area_uri = child_uri(absolute_uri(parent), f"semel-{FOLDER}-{self._write_id}")
        self._checkpoint_uri = self._query_id = ""
        if self._options.txn_checkpoint is not None:
            self._checkpoint_uri = absolute_uri(self._options.txn_checkpoint)
            self._query_id = Checkpoint(self._checkpoint_uri).query_id()
        if self._options.txn_app_id is not None:
            _ensure_marker_topic(tuple(sorted(self._options.connection.items())), self._options.marker_topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _this_task()
        first_turn = (self._options.txn_version or 0) + task.partitionId()
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return _write_directly(self._options, iterator, first_turn)
        # A temporary directory is the same for driver and tasks only if they are on one machine.
        is_shared = self._options.staging_location is not None or (
            (task.getLocalProperty("spark.master") or "").startswith("local")
        )
        name = file_name(self._write_id, 0, task.taskAttemptId())
        area_uri = self._area_uri if is_shared else None
        staged = _stage(self._options, iterator, area_uri, name, task.partitionId(), first_turn)
        return StagedMessage(staged, task.getLocalProperty(_QUERY_ID) or "")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return
        received = _staged_messages(messages)
        if self._query_id:
            _check_query(received, "txnCheckpoint", self._checkpoint_uri, self._query_id)
        transactional_id = f"{self._options.transactional_id_prefix}batch-{self._options.txn_app_id or self._write_id}"
        area = StagingArea(self._area_uri)
        publication = Publication(
            staged=[message.staged for message in received],
            transactional_id=transactional_id,
            succession=self._succession(transactional_id),
            run_id=self._write_id,
        )
        _commit(self._options, area, publication)
        area.remove_all()
        steps.act_on(steps.Step.CLEANED, publication.number)

    def _succession(self, transactional_id: str) -> Succession | None:
        app_id, version = self._options.txn_app_id, self._options.txn_version
        if app_id is None or version is None:
            return None
        if not self._query_id:
            return NextVersion(app_id, version)
        return _next_batch(Checkpoint(self._checkpoint_uri), self._query_id, version, transactional_id, app_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        StagingArea(self._area_uri).remove_all()


def _this_task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("rows are written in tasks of Spark only")
    return task


def _stage(
    options: SinkOptions,
    iterator: Iterator[pa.RecordBatch],
    area_uri: str | None,
    name: str,
    task_number: int,
    first_turn: int,
) -> Staged:
    writer = StagingWriter(area_uri, name, inline_limit(task_number))
    try:
        encode_all(options, iterator, writer.add, first_turn)
        staged = writer.finish()
    except BaseException:
        writer.discard()
        raise
    settle("write")
    return staged


def _write_directly(options: SinkOptions, iterator: Iterator[pa.RecordBatch], first_turn: int) -> WrittenMessage:
    with DirectWriter(options.producer) as writer:
        encode_all(options, iterator, writer.add, first_turn)
        return WrittenMessage(writer.finish())


def encode_all(options: SinkOptions, batches: Iterator[pa.RecordBatch], take: Taker, first_turn: int) -> None:
    encoder = RowEncoder(
        take,
        shared_book(options.connection).facts,
        RealClock(),
        topic=options.topic,
        dead_letter_topic=options.dead_letter_topic,
        partitioner=options.partitioner,
        codec=options.settings.codec,
        level=options.settings.compression_level,
        first_turn=first_turn,
    )
    for batch in batches:
        encoder.add(batch)
    encoder.flush()


def _staged_messages(messages: Sequence[WriterCommitMessage | None]) -> list[StagedMessage]:
    received = [message for message in messages if isinstance(message, StagedMessage)]
    if len(received) != len(messages):
        raise StagedDataLost(f"{len(messages) - len(received)} of {len(messages)} tasks have not told what they staged")
    return received


def _check_query(received: Sequence[StagedMessage], option: str, uri: str, query_id: str) -> None:
    for other in {message.query_id for message in received} - {query_id, ""}:
        raise CheckpointRefused(
            f"the query {other} does not use the checkpoint {uri}, which belongs to {query_id}: {option} of the write "
            "is not where Spark keeps its checkpoint"
        )


def _next_batch(
    checkpoint: Checkpoint, query_id: str, batch_id: int, transactional_id: str, app_id: str = ""
) -> NextBatch:
    digest = checkpoint.digest(batch_id)
    if digest is None:
        raise CheckpointRefused(
            f"the checkpoint {checkpoint.uri} has no offsets of batch {batch_id}, which is being committed"
        )
    previous = checkpoint.digest(batch_id - 1)
    return NextBatch(query_id, batch_id, digest, previous, transactional_id, checkpoint.digest, app_id)


def _staged_of(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message.staged for message in messages if isinstance(message, StagedMessage)]


def _commit(options: SinkOptions, area: StagingArea, publication: Publication) -> None:
    def commit(host: Host) -> Awaitable[bool]:
        return Committer(host, options.connection, options.producer, options.marker_topic, area).commit(publication)

    run_with_host(commit)


@lru_cache(maxsize=8)
def _ensure_marker_topic(connection: tuple[tuple[str, Any], ...], topic: str) -> None:
    """Once in each process that makes writers."""

    async def ensure(host: Host) -> None:
        async with MarkerTopic(host, dict(connection), topic) as markers:
            await markers.ensure()

    run_with_host(ensure)
