"""Reading the marker: judged by its own producer's control batches, up to the end that the leader vouches for.

Brokers are scripted, in virtual time; the last tests use our own broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import SemelError, TimedOut, UnsupportedByBroker
from semel.client.producer.producer import Producer
from semel.host.real import real_host
from semel.records.batch import whole_batches
from semel.records.build import build_batch
from semel.records.control import ControlType, control_batch
from semel.sim.loop import SimLoop, run
from semel.spark import marker as marker_module
from semel.spark.marker import Marker, MarkerTopic, stream_key
from semel.spark.sink_errors import CheckpointRefused, MarkerTopicUnfit
from semel.wire.errors import ErrorCode
from semel.wire.schema import Response
from semel.wire.spec.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from semel.wire.spec.fetch import FetchRequest, FetchResponse, FetchResponsePartition, FetchResponseTopic
from semel.wire.spec.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

TOPIC = "markers"
KEY = stream_key("mine")
OTHER = stream_key("other")
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def numbered(number: int) -> Marker:
    return Marker(number, f"digest {number}", "sink-mine")


class Log:
    """The log of the one partition, and the scripted answers about it."""

    def __init__(self, cluster: ScriptedCluster, *leaders: int) -> None:
        self.cluster = cluster
        self.data = bytearray()
        self.start = self.end = 0
        self.high_watermark: int | None = None
        self.codes: list[int] = []
        """Errors with which the next questions for offsets are answered."""
        self.policy = "compact"
        cluster.topic(TOPIC, list(leaders) or [1])
        cluster.rules[ListOffsetsRequest] = self._list_offsets
        cluster.rules[FetchRequest] = self._fetch
        cluster.rules[DescribeConfigsRequest] = self._describe

    def write(self, producer_id: int, key: str, value: bytes | None, *, transactional: bool = True) -> None:
        batch = build_batch(
            [value],
            keys=[key.encode()],
            base_timestamp_ms=0,
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=transactional,
        )
        self._append(batch, 1)

    def mark(self, number: int, producer_id: int = 1, key: str = KEY) -> None:
        self.write(producer_id, key, numbered(number).encode())

    def finish(self, kind: ControlType, producer_id: int = 1) -> None:
        self._append(
            control_batch(
                kind,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=0,
                base_offset=self.end,
            ),
            1,
        )

    def hole(self, length: int) -> None:
        """Offsets whose records compaction has taken."""
        self.end += length

    def _append(self, batch: bytearray, count: int) -> None:
        self.data += batch
        self.end += count

    def _list_offsets(self, asked: Asked) -> Response:
        wanted = asked.body.topics[0].partitions[0]
        assert asked.version >= 5, "older versions do not say that an offset is not available"
        assert asked.body.isolation_level == 0
        code = self.codes.pop(0) if self.codes else 0
        offset = self.end if wanted.timestamp == -1 else self.start
        answer = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=-1 if code else offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[answer])])

    def _fetch(self, asked: Asked) -> Response:
        wanted = asked.body.topics[0].partitions[0]
        assert asked.body.isolation_level == 0, "a reader of committed data would miss markers behind open transactions"
        is_leader = asked.broker.node_id == self.cluster.topics[TOPIC].leaders[0]
        code = 0 if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = bytes(self.data)
        at = next((at for at, header in whole_batches(data) if header.next_offset > wanted.fetch_offset), len(data))
        answer = FetchResponsePartition(
            partition_index=0,
            error_code=code,
            high_watermark=self.end if self.high_watermark is None else self.high_watermark,
            records=b"" if code else data[at : at + 700],  # several answers, with a batch cut in the middle
        )
        return FetchResponse(responses=[FetchResponseTopic(topic=TOPIC, partitions=[answer])])

    def _describe(self, asked: Asked) -> Response:
        config = DescribedConfig(name="cleanup.policy", value=self.policy)
        result = DescribeConfigsResult(resource_type=2, resource_name=TOPIC, configs=[config])
        return DescribeConfigsResponse(results=[result])

    async def last(self, key: str = KEY, **options: Any) -> Marker | None:
        settings = {"bootstrap_servers": self.cluster.address}
        async with MarkerTopic(self.cluster.host(), settings, TOPIC, **options) as markers:
            return await markers.last(key)


# -- which one is the newest


@scripted()
async def test_without_a_marker_there_is_none(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    assert await log.last() is None
    log.mark(1, key=OTHER)
    log.finish(COMMIT)
    assert await log.last() is None


@scripted()
async def test_the_newest_committed_marker_counts_and_aborted_ones_do_not(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    for number, kind in ((0, COMMIT), (1, COMMIT), (2, ABORT)):
        log.mark(number)
        log.finish(kind)
    assert await log.last() == numbered(1)


@scripted()
async def test_an_open_transaction_of_another_query_hides_nothing(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(7, producer_id=9, key=OTHER)  # and no end: the last stable offset is 0
    for number in range(3):
        log.mark(number)
        log.finish(COMMIT)
    assert await log.last() == numbered(2)


@scripted()
async def test_a_marker_is_judged_by_the_end_of_its_own_producer(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(0)
    log.finish(COMMIT)
    log.mark(1, producer_id=1)
    log.mark(5, producer_id=2, key=OTHER)
    log.finish(COMMIT, producer_id=2)
    log.finish(ABORT, producer_id=1)
    assert await log.last() == numbered(0)


@scripted()
async def test_a_tombstone_and_a_marker_without_a_transaction_count_too(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(0)
    log.finish(COMMIT)
    log.write(1, KEY, None)
    log.finish(COMMIT)
    assert await log.last() is None
    log.write(-1, KEY, numbered(8).encode(), transactional=False)
    assert await log.last() == numbered(8)


@scripted()
async def test_a_marker_far_from_the_end_is_found(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(3)
    log.finish(COMMIT)
    for number in range(1500):
        log.mark(number, producer_id=2, key=OTHER)
        log.finish(COMMIT, producer_id=2)
    assert await log.last() == numbered(3)


@scripted()
async def test_a_busy_topic_is_not_read_as_a_whole(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    for number in range(1000):
        log.mark(number)
        log.finish(COMMIT)
    assert await log.last() == numbered(999)
    assert min(asked.body.topics[0].partitions[0].fetch_offset for asked in cluster.all(FetchRequest)) == 1500


EVENTS = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from(["mine", "other", "commit", "abort", "hole"])), max_size=40
)


@given(events=EVENTS)
@settings(max_examples=150, deadline=None)
def test_the_reading_agrees_with_a_naive_one(events: list[tuple[int, str]]) -> None:
    loop = SimLoop(end_s=3600.0)

    async def scenario() -> None:
        cluster = ScriptedCluster(loop)
        await cluster.start(1)
        log = Log(cluster)
        open_marks: dict[int, int] = {}
        open_producers: set[int] = set()
        committed = None
        for number, (producer_id, event) in enumerate(events):
            if event == "hole":
                log.hole(producer_id)
            elif event in ("mine", "other"):
                if event == "mine" and len(open_marks.keys() - {producer_id}) > 0:
                    continue  # two committers are never open at once: one is fenced by the other
                log.mark(number, producer_id, KEY if event == "mine" else OTHER)
                open_producers.add(producer_id)
                if event == "mine":
                    open_marks[producer_id] = number
            elif producer_id in open_producers:
                open_producers.discard(producer_id)
                log.finish(COMMIT if event == "commit" else ABORT, producer_id)
                mark = open_marks.pop(producer_id, None)
                committed = mark if mark is not None and event == "commit" else committed
        if open_marks:
            with pytest.raises(CheckpointRefused):
                await log.last(timeout_s=0.5)
        else:
            assert await log.last() == (None if committed is None else numbered(committed))

    first_look, marker_module._FIRST_LOOK = marker_module._FIRST_LOOK, 2
    try:
        run(scenario(), loop=loop)
    finally:
        marker_module._FIRST_LOOK = first_look


# -- what is not decided yet


@scripted()
async def test_an_undecided_marker_of_the_same_query_is_waited_for(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(0)
    log.finish(COMMIT)
    log.mark(1, producer_id=2)
    reading = asyncio.create_task(log.last())
    await asyncio.sleep(3.0)
    assert not reading.done()
    log.finish(COMMIT, producer_id=2)
    assert await reading == numbered(1)


@scripted()
async def test_a_marker_that_is_never_decided_is_refused(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(1, producer_id=2)
    with pytest.raises(CheckpointRefused, match="another transactionalIdPrefix"):
        await log.last()
    assert cluster.loop.time() > 50.0


# -- brokers in trouble


@scripted()
async def test_an_offset_that_is_not_available_yet_is_asked_for_again(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(0)
    log.finish(COMMIT)
    log.codes = [0, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert await log.last() == numbered(0)
    assert len(cluster.all(ListOffsetsRequest)) == 5


@scripted()
async def test_a_broker_that_cannot_say_that_it_does_not_know_is_refused(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    cluster.limits[ListOffsetsRequest.api_key] = (0, 4)
    with pytest.raises(UnsupportedByBroker, match="ListOffsets"):
        await log.last()


@scripted(nodes=2)
async def test_a_new_leader_is_looked_for(cluster: ScriptedCluster) -> None:
    log = Log(cluster, 1)
    log.mark(0)
    log.finish(COMMIT)
    reading = asyncio.create_task(log.last())
    await cluster.next(ListOffsetsRequest)
    cluster.topics[TOPIC].move(0, 2)
    assert await reading == numbered(0)
    assert cluster.all(FetchRequest)[-1].broker.node_id == 2


@scripted()
async def test_a_leader_that_does_not_give_what_it_vouched_for_is_asked_again(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(0)
    log.finish(COMMIT)
    log.hole(10)
    log.high_watermark = 2
    with pytest.raises(TimedOut, match="did not give"):
        await log.last(timeout_s=5.0)
    log.high_watermark = None
    assert await log.last() == numbered(0)


@scripted()
async def test_a_damaged_batch_is_refused(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.mark(0)
    log.finish(COMMIT)
    log.data[80] ^= 1
    with pytest.raises(MarkerTopicUnfit, match="damaged"):
        await log.last()


@scripted()
async def test_a_marker_of_a_later_format_is_refused(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    for value in (b'{"format":2}', b"not json", b'{"format":1}'):
        log.write(1, KEY, value)
        log.finish(COMMIT)
        with pytest.raises(CheckpointRefused, match="cannot be read"):
            await log.last()


@scripted()
async def test_a_topic_that_forgets_is_refused(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    log.policy = "compact,delete"
    with pytest.raises(MarkerTopicUnfit, match="compact,delete"):
        await log.last()


@scripted(nodes=1)
async def test_a_topic_of_several_partitions_is_refused(cluster: ScriptedCluster) -> None:
    log = Log(cluster, 1, 1)
    with pytest.raises(MarkerTopicUnfit, match="2 partitions"):
        await log.last()


@scripted()
async def test_looking_from_outside_makes_no_topic(cluster: ScriptedCluster) -> None:
    settings = {"bootstrap_servers": cluster.address}
    async with MarkerTopic(cluster.host(), settings, "nowhere") as markers:
        assert await markers.peek(KEY) is None
    assert all(not asked.body.allow_auto_topic_creation for asked in cluster.asked if "Metadata" in str(asked.kind))


def test_a_marker_survives_its_encoding() -> None:
    marker = Marker(3, "digest", "sink-q", "run", 17)
    assert Marker.decode(marker.encode(), KEY) == marker


# -- on our own broker


async def test_markers_of_other_open_transactions_do_not_hide_ours(address: str, unique: Callable[[str], str]) -> None:
    topic, mine = unique("markers"), unique("mine")
    async with MarkerTopic(real_host(), {"bootstrap_servers": address}, topic) as markers:
        await markers.ensure()
        async with (
            Producer(bootstrap_servers=address, transactional_id=unique("other")) as other,
            Producer(bootstrap_servers=address, transactional_id=mine) as producer,
        ):
            await other.begin()
            await other.send_and_wait(topic, b"open", OTHER.encode(), partition=0)
            for number in range(3):
                async with producer.transaction():
                    await producer.send_and_wait(topic, numbered(number).encode(), KEY.encode(), partition=0)
            async with Producer(bootstrap_servers=address, transactional_id=mine) as successor:
                await successor.init_transactions()
                assert await markers.last(KEY) == numbered(2)
            await producer.begin()
            with pytest.raises(SemelError):
                await producer.send_and_wait(topic, b"fenced", KEY.encode(), partition=0)
            await other.abort()
