"""Small print of the sink, without Spark and without a broker: what is refused, what is lost, and when a retry ends."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from semel.client.admin.values import NewTopic
from semel.client.errors import Disconnected, NotAuthorised, ProducerFenced
from semel.records.columns import largest_record
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.spark import committer as committer_module
from semel.spark.committer import Committer, Publication, _Unsure
from semel.spark.marker import Marker, MarkerTopic
from semel.spark.refusals import find_refused
from semel.spark.sink_errors import OutcomeUnknown, StagedDataLost
from semel.spark.staging import Placement, Staged, StagedTopic, StagingArea, StagingWriter
from semel.spark.succession import NextBatch, NextVersion
from semel.spark.topic_facts import TopicFacts
from semel.wire.spec.fetch import FetchRequest

PRODUCER = {"bootstrap_servers": "broker:9092"}


def test_a_row_that_fits_uncompressed_is_not_refused_for_what_its_codec_makes_of_it() -> None:
    """Beside one that is too large, it is measured by itself. Noise grows when it is compressed."""
    noise = random.Random(1).randbytes(5000)
    fits = largest_record(pa.table({"value": pa.array([noise], pa.binary())}))
    assert fits is not None
    rows = pa.table({"value": pa.array([b"x" + random.Random(2).randbytes(9000), noise], pa.binary())})
    found = find_refused(rows, TopicFacts("t", 1, max_batch_bytes=fits.batch_bytes), 0, 1, None)
    assert [refused.row for refused in found] == [0]


def test_a_place_that_cannot_be_asked_has_lost_what_was_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(paths: Any) -> Any:
        raise OSError("the bucket does not answer")

    place = SimpleNamespace(system=SimpleNamespace(get_file_info=fails), child=lambda name: name)
    area = StagingArea(tmp_path.as_uri())
    monkeypatch.setattr(area, "_place", lambda: place)
    staged = SimpleNamespace(file="run-7-1", size_bytes=3, inline=b"", place="there")
    with pytest.raises(StagedDataLost, match="the bucket does not answer"):
        area.check([staged])  # type: ignore[list-item]


class NeverConnected(Committer):
    """Every attempt fails, and might not the next time."""

    attempts = 0

    async def _once(self, publication: Publication) -> bool:
        self.attempts += 1
        raise Disconnected("nobody is there")


class NeverSure(NeverConnected):
    """As above, but of no attempt it is known how it ended."""

    async def _once(self, publication: Publication) -> bool:
        try:
            return await super()._once(publication)
        except Disconnected as error:
            raise _Unsure from error


@pytest.mark.parametrize("kind", [NeverConnected, NeverSure])
@pytest.mark.parametrize("retry_for_s", [1.0, 3.0, 20.0])
def test_a_commit_is_not_tried_again_when_the_pause_before_it_would_last_too_long(
    kind: type[NeverConnected], retry_for_s: float
) -> None:
    loop = SimLoop(end_s=3600)
    host = SimWorld(loop, 1).host("driver")
    committer = kind(host, PRODUCER, PRODUCER, "markers", StagingArea(None), retry_for_s=retry_for_s)
    none_staged: list[Staged] = []
    ended_s = 0.0

    async def commits() -> None:
        nonlocal ended_s
        began_s = loop.time()
        with pytest.raises(Disconnected):
            await committer.commit(Publication(none_staged, "sink-q", None))
        ended_s = loop.time() - began_s

    run(commits(), loop=loop)
    assert committer.attempts > 2
    assert retry_for_s / 3 < ended_s < retry_for_s


# -- staged data that is gone


class LostArea(StagingArea):
    def check(self, staged: Sequence[Staged]) -> None:
        raise StagedDataLost("somebody has cleaned up")


class KnownMarkers:
    """In place of the marker topic: what it says of the query."""

    found: Marker | None = None

    def __init__(self, *_: Any) -> None: ...

    async def __aenter__(self) -> KnownMarkers:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def ensure(self) -> None: ...

    async def last(self, key: str) -> Marker | None:
        return self.found


@pytest.mark.parametrize(("committed_batch", "is_done"), [(None, False), (6, False), (7, True)])
def test_staged_data_that_is_gone_is_no_loss_if_its_batch_is_committed_and_only_then(
    monkeypatch: pytest.MonkeyPatch, committed_batch: int | None, is_done: bool
) -> None:
    """Another run has committed the batch meanwhile, and cleaned up."""
    if committed_batch is not None:
        digest = f"digest {committed_batch}"
        earlier = NextBatch("q", committed_batch, digest, None, transactional_id="sink-q", digest_of=lambda _: digest)
        monkeypatch.setattr(KnownMarkers, "found", earlier.marker("sink-q", "run", 3))
    monkeypatch.setattr(committer_module, "MarkerTopic", KnownMarkers)
    succession = NextBatch(
        "q", 7, "digest 7", "digest 6", transactional_id="sink-q", digest_of=lambda batch_id: f"digest {batch_id}"
    )
    loop = SimLoop(end_s=3600)
    committer = Committer(SimWorld(loop, 1).host("driver"), PRODUCER, PRODUCER, "markers", LostArea(None))
    none_staged: list[Staged] = []
    publication = Publication(none_staged, "sink-q", succession)

    async def commits() -> None:
        if is_done:
            assert await committer.commit(publication) is False
        else:
            with pytest.raises(StagedDataLost):
                await committer.commit(publication)

    run(commits(), loop=loop)


# -- an end without a marker


class Answers:
    """A producer whose commits fail with these, one after the other; the last one again and again."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.commits = 0

    async def commit(self) -> None:
        self.commits += 1
        await asyncio.sleep(1)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


FENCED = ProducerFenced("a newer instance")
LOST = Disconnected("the answer was lost")


@pytest.mark.parametrize(
    ("answers", "raised", "commits"),
    [
        ([None], None, 1),
        ([LOST, LOST, None], None, 3),
        ([FENCED], ProducerFenced, 1),
        ([LOST, FENCED], OutcomeUnknown, 2),
        ([LOST], OutcomeUnknown, 10),
    ],
)
def test_an_end_without_a_marker_is_asked_for_until_it_is_known_or_can_not_be_known(
    answers: list[Exception | None], raised: type[Exception] | None, commits: int
) -> None:
    """A refusal of the first try is certain. After a lost answer nothing is: that try may have been carried out."""
    loop = SimLoop(end_s=3600)
    settings = {**PRODUCER, "transaction_timeout_ms": 10_000}
    committer = Committer(SimWorld(loop, 1).host("driver"), PRODUCER, settings, "markers", StagingArea(None))
    producer: Any = Answers(*answers)

    async def ends() -> None:
        if raised is None:
            await committer._end(producer, is_marked=False)
            return
        with pytest.raises(raised):
            await committer._end(producer, is_marked=False)

    run(ends(), loop=loop)
    assert producer.commits == commits


def test_a_marker_topic_that_finds_no_cluster_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = SimLoop(end_s=3600)
    markers = MarkerTopic(SimWorld(loop, 1).host("driver"), PRODUCER, "markers")
    calls: list[str] = []

    async def fails() -> None:
        calls.append("start")
        raise Disconnected("nobody is there")

    async def closes() -> None:
        calls.append("close")

    monkeypatch.setattr(markers._cluster, "start", fails)
    monkeypatch.setattr(markers._cluster, "close", closes)

    async def enters() -> None:
        with pytest.raises(Disconnected):
            await markers.__aenter__()

    run(enters(), loop=loop)
    assert calls == ["start", "close"]


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_markers_survive_the_loss_of_a_node_and_can_be_written_meanwhile(
    nodes: int, replicas: int, in_sync: int
) -> None:
    made: list[NewTopic] = []

    class FakeAdmin:
        async def describe_cluster(self) -> Any:
            return SimpleNamespace(nodes=[object()] * nodes)

        async def create_topics(self, topic: NewTopic) -> None:
            made.append(topic)

    admin: Any = FakeAdmin()
    loop = SimLoop(end_s=3600)
    markers = MarkerTopic(SimWorld(loop, 1).host("driver"), PRODUCER, "markers")
    run(markers._create(admin), loop=loop)
    (topic,) = made
    assert (topic.partitions, topic.replication_factor) == (1, replicas)
    assert topic.configs is not None
    assert topic.configs["min.insync.replicas"] == in_sync
    assert topic.configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize(("found", "is_done"), [(None, False), (6, False), (7, True), (8, True)])
def test_a_version_is_done_when_it_or_a_later_one_was_written(found: int | None, is_done: bool) -> None:
    marker = None if found is None else Marker(found, "", "batch-app")
    assert NextVersion("app", 7).is_done(marker) is is_done


def test_who_may_not_see_the_policy_of_the_marker_topic_goes_on_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FakeAdmin:
        async def describe_configs(self, *_: Any, **__: Any) -> Any:
            raise NotAuthorised("not for you")

    admin: Any = FakeAdmin()
    loop = SimLoop(end_s=3600)
    markers = MarkerTopic(SimWorld(loop, 1).host("driver"), PRODUCER, "markers")
    run(markers._check_policy(admin), loop=loop)
    assert "not for you" in caplog.text


def test_markers_are_read_as_a_consumer_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker takes whoever names a replica for a follower."""
    loop = SimLoop(end_s=3600)
    markers = MarkerTopic(SimWorld(loop, 1).host("driver"), PRODUCER, "markers")
    asked: list[FetchRequest] = []

    async def call(node_id: int, request: FetchRequest, *_: Any, **__: Any) -> Any:
        asked.append(request)
        partition = SimpleNamespace(error_code=0, records=b"batches", high_watermark=9)
        return SimpleNamespace(error_code=0, throttle_time_ms=0, responses=[SimpleNamespace(partitions=[partition])])

    async def of_leader(ask: Any, deadline_s: float) -> Any:
        return await ask(1)

    monkeypatch.setattr(markers._cluster, "call", call)
    monkeypatch.setattr(markers, "_of_leader", of_leader)
    assert run(markers._fetch(5, 9, 10.0), loop=loop) == (b"batches", False)
    (request,) = asked
    assert request.replica_id == -1
    assert request.topics[0].partitions[0].fetch_offset == 5


def test_a_frame_without_a_batch_is_damage_and_is_given_to_nobody() -> None:
    """Only at the end the CRC would tell."""
    content = struct.pack(">HBii", 0, 0, 0, 0) * 2
    staged = Staged((StagedTopic("out", 1, 1000, 0),), 1, len(content), 0, content)
    with pytest.raises(StagedDataLost, match="not what was staged"):
        next(StagingArea(None).read(staged))


@pytest.mark.parametrize(("name", "number"), [("PINNED", 0), ("HASHED", 1), ("FREE", 2), ("MIXED", 3)])
def test_placements_are_told_apart_by_numbers_that_stay(name: str, number: int) -> None:
    """A frame holds the number, and the commit that reads it may be of a later version than the task that wrote it."""
    writer = StagingWriter(None, "", 1000)
    writer.add(StagedTopic("out", 1, 1000, 0), Placement[name], 0, bytearray(b"batch"), 1)
    staged = writer.finish()
    assert staged.inline[2] == number
    assert [frame.placement.name for frame in StagingArea(None).read(staged)] == [name]
