"""Adopting a checkpoint: a person says up to which batch it has been published, and the marker is set to that.

For a checkpoint that was restored, copied, or written by another sink before. It fences every committer of the query,
also those under another transactionalIdPrefix, so that none of them can publish by the marker that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from semel.client.errors import BadSetting
from semel.host.api import Host
from semel.spark.blocking import run_with_host
from semel.spark.checkpoint import Checkpoint
from semel.spark.marker import Marker, MarkerTopic, query_key
from semel.spark.places import absolute_uri
from semel.spark.sink_options import SinkOptions, stream_options

_NONE_YET = -1


@dataclass(frozen=True)
class Adoption:
    """`batch_id` counts as published from now on, and the next one follows it; -1: nothing was published."""

    query_id: str
    batch_id: int
    before: Marker | None
    after: Marker | None


def adopt_checkpoint(options: Mapping[str, str], batch_id: int | None = None, app_id: str = "") -> Adoption:
    """`options` are those of the write. Without a batch id it is the last one that Spark knows to be done. With an app
    id it is the marker of that `publish_each`."""
    return run_with_host(lambda host: adopt(host, stream_options(options), batch_id, app_id))


def marker_of(options: Mapping[str, str], app_id: str = "") -> tuple[str, Marker | None]:
    """The query of a checkpoint, and its marker, or that of an app id; for showing."""

    async def peek(host: Host) -> tuple[str, Marker | None]:
        read = stream_options(options)
        query_id = _checkpoint(read).query_id()
        async with MarkerTopic(host, read.connection, read.marker_topic) as markers:
            return query_id, await markers.peek(query_key(query_id, app_id))

    return run_with_host(peek)


async def adopt(host: Host, options: SinkOptions, batch_id: int | None, app_id: str = "") -> Adoption:
    from semel.client.producer.producer import Producer

    checkpoint = _checkpoint(options)
    query_id = checkpoint.query_id()
    number = _number(checkpoint, batch_id)
    digest = "" if number == _NONE_YET else checkpoint.digest(number)
    if digest is None:
        planned = checkpoint.last_planned()
        known = "has no batches" if planned is None else f"has batches up to {planned}"
        raise BadSetting(f"batch {number}: the checkpoint {checkpoint.uri} {known}, and no offsets of this one")
    name = f"batch-{app_id}" if app_id else f"sink-{query_id}"
    transactional_id = f"{options.transactional_id_prefix}{name}"
    of_query = query_id if app_id else ""
    after = None if number == _NONE_YET else Marker(number, digest, transactional_id, query_id=of_query)
    key = query_key(query_id, app_id)
    async with (
        MarkerTopic(host, options.connection, options.marker_topic) as markers,
        Producer(host=host, **options.producer, transactional_id=transactional_id) as producer,
    ):
        await producer.init_transactions()
        fenced = {transactional_id}
        before = await markers.last(key)
        while before is not None and before.transactional_id not in fenced:
            fenced.add(before.transactional_id)
            async with Producer(host=host, **options.producer, transactional_id=before.transactional_id) as other:
                await other.init_transactions()
            before = await markers.last(key)
        async with producer.transaction():
            value = None if after is None else after.encode()
            await producer.send_and_wait(options.marker_topic, value, key.encode(), partition=0)
    return Adoption(query_id, number, before, after)


def _checkpoint(options: SinkOptions) -> Checkpoint:
    if options.checkpoint_location is None:
        raise BadSetting("checkpointLocation is missing")
    return Checkpoint(absolute_uri(options.checkpoint_location))


def _number(checkpoint: Checkpoint, batch_id: int | None) -> int:
    if batch_id is None:
        completed = checkpoint.last_completed()
        return _NONE_YET if completed is None else completed
    if batch_id < _NONE_YET:
        raise BadSetting(f"batch {batch_id}: allowed are the numbers of batches, and -1 for none")
    return batch_id
