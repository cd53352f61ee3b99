"""The marker of a query: which batch was committed last. A record that is written in the same transaction as the batch.

All markers are in one topic of one partition, compacted, keyed by query. It is read to its end with read_uncommitted,
and each record is judged by the control batch that follows it from the same producer id: an open transaction of another
query would hold the last stable offset back, and a reader of committed data would miss our own marker.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

from semel.client.admin.admin import Admin
from semel.client.admin.settings import AdminSettings
from semel.client.admin.values import ConfigResource, NewTopic
from semel.client.cluster import Cluster
from semel.client.errors import (
    FatalError,
    NotAuthorised,
    RetriableError,
    SemelError,
    TimedOut,
    TopicExists,
    UnknownTopic,
    error_for,
)
from semel.client.metadata import NO_NODE, Topic
from semel.client.settings import load
from semel.host.api import Host
from semel.records.batch import BatchHeader, check_crc, whole_batches
from semel.records.control import ControlType, read_control
from semel.records.read import read_records
from semel.spark.sink_errors import CheckpointRefused, MarkerTopicUnfit
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

logger = logging.getLogger("semel.spark")

T = TypeVar("T")

_VERSION = 1
_MOST_REPLICAS = 3
_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": 1 << 20,
    "segment.ms": 24 * 3600_000,
    "min.cleanable.dirty.ratio": 0.1,
    "unclean.leader.election.enable": False,
}
_LATEST, _EARLIEST = -1, -2
_OFFSET_NOT_AVAILABLE_SINCE = 5
_LAST_VERSION_BY_NAME = 12
_FIRST_LOOK = 500
"""So many records from the end are looked at first: usually our own last marker is among them."""
_LOOK_FURTHER = 16
_FETCH_BYTES = 1 << 20
_FETCH_WAIT_MS = 500
_TIMEOUT_S = 60.0
_PEEK_TIMEOUT_S = 5.0
_OPEN_PAUSE_S = 0.1


@dataclass(frozen=True)
class Marker:
    """What was committed last under a key."""

    number: int
    """The batch of a query, the version of a batch write."""
    digest: str
    """Of the batch's offsets in the sources; empty for a batch write."""
    transactional_id: str
    run_id: str = ""
    record_count: int = 0
    query_id: str = ""
    """Of a key that is an app id: whose batch it is. Empty for a batch write, and in markers of earlier versions."""

    def encode(self) -> bytes:
        return json.dumps({"format": _VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes, key: str) -> Marker:
        try:
            told = json.loads(value)
            if told["format"] != _VERSION:
                raise ValueError(f"its format is {told['format']}")
            given = {"query_id": "", **told}
            return cls(**{name: given[name] for name in cls.__dataclass_fields__})
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointRefused(
                f"the marker {key!r} cannot be read: {error}; was it written by a newer semel?"
            ) from (error)


def stream_key(query_id: str) -> str:
    return f"stream/{query_id}"


def batch_key(app_id: str) -> str:
    return f"batch/{app_id}"


def query_key(query_id: str, app_id: str) -> str:
    """Of a query's sink; or, with an app id, of one of the writes that it does in `foreachBatch`."""
    return batch_key(app_id) if app_id else stream_key(query_id)


class _Found(NamedTuple):
    """Of one key in a part of the log: the newest committed record, if any, and the producers of undecided ones."""

    offset: int
    value: bytes | None
    open_producer_ids: frozenset[int]


class _Candidate(NamedTuple):
    offset: int
    value: bytes | None


_NOTHING = -1


class MarkerTopic:
    """Use with `async with`. `settings` are those of a connection."""

    def __init__(self, host: Host, settings: Mapping[str, Any], topic: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._host = host
        self._given = dict(settings)
        self._settings = load(AdminSettings, self._given)
        self._cluster = Cluster(host, self._settings)
        self._topic = topic
        self._timeout_s = timeout_s
        self._verified: set[bytes] = set()

    async def __aenter__(self) -> MarkerTopic:
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.close()

    # -- making it

    async def ensure(self) -> None:
        """Makes the topic if it is missing, and refuses one that could lose markers or mix up their order."""
        async with Admin(host=self._host, **self._given) as admin:
            try:
                found = (await admin.describe_topics(self._topic))[self._topic]
            except UnknownTopic:
                await self._create(admin)
                found = (await admin.describe_topics(self._topic))[self._topic]
            if found.topic_id in self._verified:
                return
            if len(found.partitions) != 1:
                raise MarkerTopicUnfit(
                    f"topic {self._topic!r} has {len(found.partitions)} partitions; markers need a topic of one: "
                    "set markerTopic to another name, and it is made as it should be"
                )
            await self._check_policy(admin)
            self._warn_of_few_replicas(found)
            self._verified.add(found.topic_id)

    async def _create(self, admin: Admin) -> None:
        nodes = (await admin.describe_cluster()).nodes
        replicas = min(_MOST_REPLICAS, max(len(nodes), 1))
        configs = {**_CONFIGS, "min.insync.replicas": max(replicas - 1, 1)}
        wanted = NewTopic(self._topic, partitions=1, replication_factor=replicas, configs=configs)
        try:
            await admin.create_topics(wanted)
        except TopicExists:
            logger.info("topic %r was made by somebody else at the same time", self._topic)

    async def _check_policy(self, admin: Admin) -> None:
        resource = ConfigResource.topic(self._topic)
        try:
            configs = (await admin.describe_configs(resource, names=["cleanup.policy"]))[resource]
        except NotAuthorised as error:
            logger.warning("whether topic %r keeps markers for ever may not be seen: %s", self._topic, error)
            return
        policy = configs["cleanup.policy"].value if "cleanup.policy" in configs else None
        if policy is not None and policy.strip() != "compact":
            raise MarkerTopicUnfit(
                f"topic {self._topic!r} has cleanup.policy={policy}, by which markers get lost: set it to compact, or "
                "set markerTopic to another name, and it is made as it should be"
            )

    def _warn_of_few_replicas(self, topic: Topic) -> None:
        replicas = len(topic.partitions[0].replicas)
        if replicas < min(_MOST_REPLICAS, len(self._cluster.view.nodes)):
            logger.warning("topic %r has %d replicas; the cluster could hold more", self._topic, replicas)

    # -- reading it

    async def last(self, key: str) -> Marker | None:
        """The marker that was committed last, None if there is none. Call it after InitProducerId: what an earlier
        committer has left open has ended then, and its control batch lies before the end that is asked for here.

        A record of this key that is still undecided is of another transactional id, which we have not fenced. It is
        waited for, since it may become the newest marker, and in the end it is refused to go on without knowing.
        """
        await self._verify()
        deadline_s = self._now_s() + self._timeout_s
        while True:
            found = await self._newest(key, deadline_s)
            if not found.open_producer_ids:
                return None if found.value is None else Marker.decode(found.value, key)
            if self._now_s() >= deadline_s:
                raise CheckpointRefused(
                    f"a transaction of producer {min(found.open_producer_ids)} that wrote a marker of {key!r} has not "
                    "ended: does another run use this checkpoint with another transactionalIdPrefix?"
                )
            await asyncio.sleep(_OPEN_PAUSE_S)

    async def peek(self, key: str) -> Marker | None:
        """As it looks from outside, without making the topic: for showing, not for deciding."""
        try:
            await self._cluster.topic(self._topic, _PEEK_TIMEOUT_S)
        except UnknownTopic:
            return None
        found = await self._newest(key, self._now_s() + self._timeout_s)
        return None if found.value is None else Marker.decode(found.value, key)

    async def _verify(self) -> None:
        """Nobody has put another topic in the place of the one that was found fit."""
        if self._verified:
            topic = await self._cluster.topic(self._topic, self._timeout_s)
            if topic.topic_id in self._verified:
                return
        await self.ensure()

    async def _newest(self, key: str, deadline_s: float) -> _Found:
        """Looks at the end of the log first, and at more of it only if the key is not there."""
        start, end = await self._bounds(deadline_s)
        length = _FIRST_LOOK
        while True:
            first = max(end - length, start)
            found = await self._look(key, first, end, deadline_s)
            if found.offset != _NOTHING or found.open_producer_ids or first <= start:
                return found
            length *= _LOOK_FURTHER

    async def _bounds(self, deadline_s: float) -> tuple[int, int]:
        return await self._offset(_EARLIEST, deadline_s), await self._offset(_LATEST, deadline_s)

    async def _offset(self, which: int, deadline_s: float) -> int:
        """A new leader may not know yet how far its log is committed: since version 5 it says so and is asked again."""
        asked = ListOffsetsPartition(partition_index=0, timestamp=which)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=self._topic, partitions=[asked])]
        )

        async def ask(node_id: int) -> int:
            answer = await self._cluster.call(
                node_id, request, ListOffsetsResponse, at_least=_OFFSET_NOT_AVAILABLE_SINCE
            )
            partition = answer.topics[0].partitions[0]
            if partition.error_code != ErrorCode.NONE:
                raise error_for(partition.error_code, f"asking for the ends of topic {self._topic!r}")
            return partition.offset

        return await self._of_leader(ask, deadline_s)

    async def _look(self, key: str, first: int, end: int, deadline_s: float) -> _Found:
        """What the log says of the key from `first` on. The newest record is the one with the highest offset, as it is
        for compaction."""
        undecided: dict[int, _Candidate] = {}
        newest = _Candidate(_NOTHING, None)
        position = first
        while position < end:
            data, is_end = await self._fetch(position, end, deadline_s)
            if is_end:
                break
            for at, header in whole_batches(data):
                if header.next_offset <= position:
                    continue
                position = header.next_offset
                if not check_crc(data, at, header):
                    raise MarkerTopicUnfit(f"topic {self._topic!r}: the batch at {header.base_offset} is damaged")
                batch = data[at : at + header.size_bytes]
                if header.is_control:
                    ended = undecided.pop(header.producer_id, None)
                    marker = read_control(batch, header)
                    if ended is not None and marker is not None and marker.kind == ControlType.COMMIT:
                        newest = max(newest, ended, key=_offset_of)
                    continue
                wrote = _last_with_key(batch, header, key.encode())
                if wrote is None:
                    continue
                if header.is_transactional:
                    undecided[header.producer_id] = wrote
                else:
                    newest = max(newest, wrote, key=_offset_of)
        return _Found(newest.offset, newest.value, frozenset(undecided))

    async def _fetch(self, offset: int, end: int, deadline_s: float) -> tuple[bytes, bool]:
        """The log from an offset on; or that there is nothing up to the end, because compaction has left nothing."""
        asked = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[FetchRequestTopic(topic=self._topic, partitions=[asked])],
        )

        async def ask(node_id: int) -> tuple[bytes, bool]:
            answer = await self._cluster.call(node_id, request, FetchResponse, at_most=_LAST_VERSION_BY_NAME)
            if answer.error_code != ErrorCode.NONE:
                raise error_for(answer.error_code, f"reading topic {self._topic!r}")
            partition = answer.responses[0].partitions[0]
            if partition.error_code != ErrorCode.NONE:
                raise error_for(partition.error_code, f"reading topic {self._topic!r} from offset {offset}")
            data = bytes(partition.records or b"")
            if data:
                return data, False
            if partition.high_watermark < end or answer.throttle_time_ms > 0:
                raise RetriableError(f"topic {self._topic!r} did not give what lies between {offset} and {end}")
            return b"", True

        return await self._of_leader(ask, deadline_s)

    async def _of_leader(self, ask: Callable[[int], Awaitable[T]], deadline_s: float) -> T:
        """Asks the partition's leader, whoever that is, until it answers."""
        attempts = self._cluster.attempts(deadline_s)
        while True:
            try:
                await self._cluster.topic(self._topic, max(deadline_s - self._now_s(), 0.001))
                leader_id = self._cluster.leader_of(self._topic, 0)
                if leader_id == NO_NODE:
                    raise RetriableError(f"topic {self._topic!r} has no leader now")
                return await ask(leader_id)
            except FatalError:
                raise
            except SemelError as error:
                pause_s = attempts.pause_s()
                if isinstance(error, UnknownTopic) or pause_s is None:
                    raise TimedOut(f"the markers could not be read: {error}") from error
                self._cluster.stale()
                await asyncio.sleep(pause_s)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _offset_of(candidate: _Candidate) -> int:
    return candidate.offset


def _last_with_key(batch: bytes, header: BatchHeader, key: bytes) -> _Candidate | None:
    wrote = [_Candidate(record.offset, record.value) for record in read_records(batch, header) if record.key == key]
    return wrote[-1] if wrote else None
