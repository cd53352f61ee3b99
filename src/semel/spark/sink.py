"""The writers that Spark sees: rows are encoded and staged in tasks, and published by `commit` on the driver.

Spark makes a writer on the driver for every batch, sends it to the tasks pickled, and for a stream makes another one
for `commit` or `abort`, in another process. So a writer keeps nothing that is open.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from semel.client.errors import BadSetting
from semel.host.api import Host
from semel.host.real import RealClock
from semel.spark import steps
from semel.spark.at_least_once import DirectWriter
from semel.spark.blocking import run_with_host
from semel.spark.checkpoint import Checkpoint, checkpoint_below
from semel.spark.committer import Committer, Publication
from semel.spark.encoding import RowEncoder, Taker
from semel.spark.marker import MarkerTopic
from semel.spark.places import absolute_uri, child_uri, is_local
from semel.spark.session_facts import SessionFacts, facts_of
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
    """What a task tells the commit: what it has staged and where, for which query, and what it knows of the session."""

    staged: Staged
    query_id: str = ""
    run_id: str = ""
    area_uri: str | None = None
    session: SessionFacts = field(default_factory=SessionFacts)


@dataclass(frozen=True)
class WrittenMessage(WriterCommitMessage):
    """Of a task that has written by itself, at least once."""

    record_count: int


class SemelStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = stream_options(options)
        check_columns(schema, self._options)
        self._is_exactly_once = self._options.delivery is Delivery.EXACTLY_ONCE
        self._checkpoint_uri: str | None = None
        """None: it is below the session's directory for checkpoints, which only tasks are told."""
        if self._is_exactly_once and self._options.checkpoint_location is not None:
            self._checkpoint_uri = absolute_uri(self._options.checkpoint_location)
            if is_local(self._checkpoint_uri):
                Checkpoint(self._checkpoint_uri).query_id()  # what is wrong with it is told before any task runs
        location = self._options.staging_location
        self._staging_uri = None if location is None else absolute_uri(location)
        if self._is_exactly_once:
            _ensure_marker_topic(tuple(sorted(self._options.connection.items())), self._options.marker_topic)
        settle("plan")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _this_task()
        batch_id = int(task.getLocalProperty(_BATCH_ID) or 0)
        first_turn = batch_id + task.partitionId()
        if not self._is_exactly_once:
            return _write_directly(self._options, iterator, first_turn)
        run_id = task.getLocalProperty(_RUN_ID) or uuid.uuid4().hex
        query_id = task.getLocalProperty(_QUERY_ID) or ""
        session = facts_of(task)
        area_uri = self._area_of(query_id, session)
        name = file_name(run_id, batch_id, task.taskAttemptId())
        staged = _stage(self._options, iterator, area_uri, name, task.partitionId(), first_turn, session)
        steps.act_on(steps.Step.STAGED, batch_id)
        return StagedMessage(staged, query_id, run_id, area_uri, session)

    def _area_of(self, query_id: str, session: SessionFacts) -> str | None:
        if self._staging_uri is not None:
            return child_uri(self._staging_uri, query_id)
        if self._checkpoint_uri is not None:
            return child_uri(self._checkpoint_uri, FOLDER)
        if session.checkpoint_root is None:
            return None
        return child_uri(child_uri(absolute_uri(session.checkpoint_root), FOLDER), query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if not self._is_exactly_once:
            steps.act_on(steps.Step.CLEANED, batchId)
            return
        received = _staged_messages(messages)
        session = received[0].session if received else SessionFacts()
        checkpoint = self._checkpoint_of(received[0].query_id if received else "", session)
        _check_query(received, "checkpointLocation", checkpoint)
        area = StagingArea(self._area_of(checkpoint.query_id(), session), session.hadoop)
        _commit(self._options, area, self._publication(received, checkpoint, batchId))
        area.clean(batchId)
        settle("commit")
        steps.act_on(steps.Step.CLEANED, batchId)

    def _checkpoint_of(self, query_id: str, session: SessionFacts) -> Checkpoint:
        if self._checkpoint_uri is not None:
            return Checkpoint(self._checkpoint_uri, session.hadoop)
        if session.checkpoint_root is None:
            raise BadSetting(
                "checkpointLocation is missing: give it as an option of this write, or set "
                "spark.sql.streaming.checkpointLocation for the whole session"
            )
        name = self._options.query_name
        return Checkpoint(checkpoint_below(session.checkpoint_root, query_id, name, session.hadoop), session.hadoop)

    def _publication(self, received: Sequence[StagedMessage], checkpoint: Checkpoint, batch_id: int) -> Publication:
        query_id = checkpoint.query_id()
        transactional_id = f"{self._options.transactional_id_prefix}sink-{query_id}"
        return Publication(
            staged=[message.staged for message in received],
            transactional_id=transactional_id,
            succession=_next_batch(checkpoint, query_id, batch_id, transactional_id),
            run_id=next((message.run_id for message in received), ""),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Touches no transaction: this run does not know whether a commit of it, or of another one, has an effect yet.
        What its tasks have staged will be staged again by another run."""
        for message in messages:
            if isinstance(message, StagedMessage):
                StagingArea(message.area_uri, message.session.hadoop).remove([message.staged])


class SemelBatchWriter(DataSourceArrowWriter):
    """The whole write is one transaction. The writer that Spark makes on the driver serves tasks and `commit`."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = batch_options(options)
        check_columns(schema, self._options)
        self._write_id = uuid.uuid4().hex
        location = self._options.staging_location
        self._staging_uri = None if location is None else absolute_uri(location)
        self._drivers_directory = absolute_uri(gettempdir())
        location = self._options.txn_checkpoint
        self._checkpoint_uri = None if location is None else absolute_uri(location)
        if self._checkpoint_uri is not None and is_local(self._checkpoint_uri):
            Checkpoint(self._checkpoint_uri).query_id()  # what is wrong with it is told before any task runs
        if self._options.txn_app_id is not None:
            _ensure_marker_topic(tuple(sorted(self._options.connection.items())), self._options.marker_topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _this_task()
        first_turn = (self._options.txn_version or 0) + task.partitionId()
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return _write_directly(self._options, iterator, first_turn)
        session = facts_of(task)
        area_uri = self._area_of(session)
        name = file_name(self._write_id, 0, task.taskAttemptId())
        staged = _stage(self._options, iterator, area_uri, name, task.partitionId(), first_turn, session)
        steps.act_on(steps.Step.STAGED, self._options.txn_version or 0)
        query_id = (task.getLocalProperty(_QUERY_ID) or "") if self._checkpoint_uri is not None else ""
        return StagedMessage(staged, query_id, "", area_uri, session)

    def _area_of(self, session: SessionFacts) -> str | None:
        """A directory that driver and executors share, if one is known; without one messages hold what is staged."""
        if self._staging_uri is not None:
            return self._area_below(self._staging_uri)
        if session.is_one_machine:
            return self._area_below(self._drivers_directory)
        places = (self._checkpoint_uri, session.checkpoint_root, session.warehouse)
        uris = [absolute_uri(place) for place in places if place is not None]
        shared = next((uri for uri in uris if not is_local(uri)), None)
        return None if shared is None else self._area_below(shared)

    def _area_below(self, uri: str) -> str:
        return child_uri(uri, f"semel-{FOLDER}-{self._write_id}")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return
        received = _staged_messages(messages)
        session = received[0].session if received else SessionFacts()
        checkpoint = None if self._checkpoint_uri is None else Checkpoint(self._checkpoint_uri, session.hadoop)
        if checkpoint is not None:
            _check_query(received, "txnCheckpoint", checkpoint)
        transactional_id = f"{self._options.transactional_id_prefix}batch-{self._options.txn_app_id or self._write_id}"
        area = StagingArea(received[0].area_uri if received else None, session.hadoop)
        publication = Publication(
            staged=[message.staged for message in received],
            transactional_id=transactional_id,
            succession=self._succession(transactional_id, checkpoint),
            run_id=self._write_id,
        )
        _commit(self._options, area, publication)
        area.remove_all()
        steps.act_on(steps.Step.CLEANED, publication.number)

    def _succession(self, transactional_id: str, checkpoint: Checkpoint | None) -> Succession | None:
        app_id, version = self._options.txn_app_id, self._options.txn_version
        if app_id is None or version is None:
            return None
        if checkpoint is None:
            return NextVersion(app_id, version)
        return _next_batch(checkpoint, checkpoint.query_id(), version, transactional_id, app_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for message in messages:
            if isinstance(message, StagedMessage):
                StagingArea(message.area_uri, message.session.hadoop).remove_all()
                return
        # No task has told where: what failed has removed its own file, and what was killed left it in here.
        for uri in (self._staging_uri, self._drivers_directory):
            if uri is not None and is_local(uri):
                StagingArea(self._area_below(uri)).remove_all()


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
    session: SessionFacts,
) -> Staged:
    writer = StagingWriter(area_uri, name, inline_limit(task_number, has_area=area_uri is not None), session.hadoop)
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


def _check_query(received: Sequence[StagedMessage], option: str, checkpoint: Checkpoint) -> None:
    query_id = checkpoint.query_id()
    for other in {message.query_id for message in received} - {query_id, ""}:
        raise CheckpointRefused(
            f"the query {other} does not use the checkpoint {checkpoint.uri}, which belongs to {query_id}: {option} of "
            "the write is not where Spark keeps its checkpoint"
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
