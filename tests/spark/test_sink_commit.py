"""The commit against a real broker: what it does when all goes well, and which checkpoints it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sink_world import MARKER_TOPIC, FakeCheckpoint, Row, SinkWorld, rows_of

from semel.client.admin.values import NewTopic
from semel.client.producer.producer import Producer
from semel.host.real import real_host
from semel.spark.adoption import adopt_checkpoint, marker_of
from semel.spark.committer import Committer, Publication
from semel.spark.marker import Marker
from semel.spark.sink_errors import CheckpointRefused, Overtaken, StagedDataLost
from semel.spark.staging import StagingArea
from semel.spark.steps import COMMIT_STEPS, Step
from semel.spark.succession import NextVersion
from semel.sync import Admin


@pytest.fixture
def world(address: str, tmp_path: Path, new_topic: Callable[..., str]) -> SinkWorld:
    return SinkWorld(address, FakeCheckpoint(tmp_path / "checkpoint"), new_topic(partitions=3))


def options_of(world: SinkWorld, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": world.address, "checkpointLocation": str(world.checkpoint.path), **more}


def marker_now(world: SinkWorld) -> Marker | None:
    return marker_of(options_of(world))[1]


async def batches(world: SinkWorld, *numbers: int) -> list[Row]:
    expected = []
    for number in numbers:
        assert await world.run_batch(number, rows_of(number))
        world.checkpoint.complete(number)
        expected += rows_of(number)
    return expected


async def test_batches_follow_each_other_and_each_is_there_once_in_order(world: SinkWorld) -> None:
    expected = await batches(world, 0, 1, 2)
    found = world.committed()
    assert sorted(found) == sorted(expected)
    for key in {key for key, _ in expected}:
        assert [row for row in found if row[0] == key] == [row for row in expected if row[0] == key]


async def test_a_batch_that_was_committed_is_not_published_again(world: SinkWorld) -> None:
    expected = await batches(world, 0, 1)
    assert await world.run_batch(1, rows_of(1)) is False
    assert sorted(world.committed()) == sorted(expected)


async def test_every_step_is_reached_in_order(world: SinkWorld) -> None:
    seen: list[tuple[Step, int]] = []

    async def reached(step: Step, batch_id: int) -> None:
        seen.append((step, batch_id))

    world.checkpoint.plan(0)
    await world.commit(0, [world.stage(rows_of(0), 0), world.stage(rows_of(0, task=1), 0)], reached)
    assert list(dict.fromkeys(seen)) == [(step, 0) for step in COMMIT_STEPS if step is not Step.CLEANED]


async def test_an_empty_batch_moves_the_marker(world: SinkWorld) -> None:
    await batches(world, 0)
    assert await world.run_batch(1, [])
    world.checkpoint.plan(2)
    assert await world.commit(2, [])  # not even a task
    marker = marker_now(world)
    assert marker is not None
    assert (marker.number, marker.record_count) == (2, 0)


async def test_the_marker_tells_batch_digest_run_and_records(world: SinkWorld) -> None:
    await batches(world, 0)
    publication = world.publication(0, [])
    assert publication.succession is not None
    marker = marker_now(world)
    assert marker == Marker(0, publication.succession.digest, world.transactional_id, "run", 10)  # type: ignore[attr-defined]


# -- checkpoints that do not fit


async def refusal_of(world: SinkWorld, batch_id: int, *, end: str | None = None) -> str:
    before = world.committed()
    world.checkpoint.plan(batch_id, end)
    with pytest.raises(CheckpointRefused, match="semel pipeline adopt") as refused:
        await world.commit(batch_id, [world.stage(rows_of(batch_id), batch_id)])
    assert world.committed() == before, "nothing was published"
    return str(refused.value)


async def test_a_restored_checkpoint_is_refused_where_skipping_would_lose_records(world: SinkWorld) -> None:
    await batches(world, 0, 1, 2, 3)
    for number in (2, 3):
        (world.checkpoint.path / "offsets" / str(number)).unlink()
    assert "batch 3 was committed last" in await refusal_of(world, 1, end="other offsets")


async def test_a_run_that_sleeps_while_others_go_on_is_told_so_and_not_to_adopt(world: SinkWorld) -> None:
    await batches(world, 0)
    world.checkpoint.plan(1)
    staged = [world.stage(rows_of(1), 1)]
    asleep, go_on = asyncio.Event(), asyncio.Event()

    async def reached(where: Step, batch_id: int) -> None:
        if where is Step.CHECKED:
            asleep.set()
            await go_on.wait()

    zombie = asyncio.create_task(world.commit(1, staged, reached))
    await asleep.wait()
    expected = rows_of(0) + await batches(world, 1, 2)
    go_on.set()
    with pytest.raises(Overtaken, match="another run of the query is at batch 2"):
        await zombie
    assert sorted(world.committed()) == sorted(expected)


async def test_a_batch_of_the_same_number_with_other_offsets_is_refused(world: SinkWorld) -> None:
    await batches(world, 0, 1)
    assert "with other offsets" in await refusal_of(world, 1, end="other offsets")


async def test_a_gap_is_refused(world: SinkWorld) -> None:
    await batches(world, 0, 1)
    assert "does not follow" in await refusal_of(world, 3)


async def test_a_later_batch_without_any_marker_is_refused(world: SinkWorld) -> None:
    assert "no marker" in await refusal_of(world, 4)


async def test_a_checkpoint_whose_last_batch_was_another_one_is_refused(world: SinkWorld) -> None:
    await batches(world, 0, 1)
    world.checkpoint.plan(1, "other offsets")
    assert "other offsets" in await refusal_of(world, 2)


async def test_another_prefix_is_refused_since_the_old_run_could_not_be_fenced(world: SinkWorld) -> None:
    await batches(world, 0)
    world.transactional_id = f"mine-{world.transactional_id}"
    assert "transactionalIdPrefix" in await refusal_of(world, 1)


# -- adopting


async def test_adopting_lets_a_restored_checkpoint_go_on(world: SinkWorld) -> None:
    expected = await batches(world, 0, 1, 2, 3)
    for number in (2, 3):
        (world.checkpoint.path / "commits" / str(number)).unlink()
    adoption = adopt_checkpoint(options_of(world))
    assert (adoption.query_id, adoption.batch_id) == (world.checkpoint.query_id, 1)
    assert adoption.before is not None
    assert adoption.before.number == 3
    assert await world.run_batch(2, rows_of(20))
    assert sorted(world.committed()) == sorted(expected + rows_of(20))


async def test_adopting_names_a_batch_or_none_at_all(world: SinkWorld) -> None:
    await batches(world, 0, 1)
    adopt_checkpoint(options_of(world), 0)
    assert await world.run_batch(1, rows_of(11))
    adoption = adopt_checkpoint(options_of(world), -1)
    assert adoption.after is None
    assert marker_now(world) is None
    assert await world.run_batch(0, rows_of(10))
    with pytest.raises(Exception, match="no offsets of this one"):
        adopt_checkpoint(options_of(world), 7)


async def test_adopting_a_checkpoint_of_another_sink_lets_it_go_on(world: SinkWorld) -> None:
    for number in range(5):
        world.checkpoint.plan(number)
        world.checkpoint.complete(number)
    assert "no marker" in await refusal_of(world, 5)
    adoption = adopt_checkpoint(options_of(world))
    assert (adoption.before, adoption.batch_id) == (None, 4)
    await batches(world, 5)


@pytest.mark.parametrize("step", [Step.INITIALISED, Step.MARKER_READ, Step.MARKED])
async def test_adopting_under_another_prefix_fences_the_old_one(world: SinkWorld, step: Step) -> None:
    await batches(world, 0)
    world.checkpoint.plan(1)
    staged = [world.stage(rows_of(1), 1)]
    paused, go_on = asyncio.Event(), asyncio.Event()

    async def reached(where: Step, batch_id: int) -> None:
        if where is step:
            paused.set()
            await go_on.wait()

    zombie = asyncio.create_task(world.commit(1, staged, reached))
    await paused.wait()
    adopting = asyncio.to_thread(adopt_checkpoint, options_of(world, transactionalIdPrefix="new-"))
    if step is Step.MARKED:
        # Its marker is written and not decided: that is waited for, since the new prefix does not fence it.
        adopted = asyncio.create_task(adopting)
        await asyncio.sleep(0.5)
        assert not adopted.done()
        go_on.set()
        assert await zombie
        assert (await adopted).before is not None
        assert sorted(world.committed()) == sorted(rows_of(0) + rows_of(1))
        return
    await adopting
    go_on.set()
    with pytest.raises(CheckpointRefused if step is Step.INITIALISED else Overtaken):
        await zombie
    world.transactional_id = f"new-{world.transactional_id}"
    assert await world.run_batch(1, rows_of(1))
    assert sorted(world.committed()) == sorted(rows_of(0) + rows_of(1))


# -- what was staged


async def test_staged_data_that_is_missing_cut_or_damaged_is_never_published(world: SinkWorld) -> None:
    await batches(world, 0)
    folder = world.checkpoint.path / "sink-staging"
    world.checkpoint.plan(1)

    def damage(change: Callable[[Path], Any]) -> Any:
        staged = world.stage(rows_of(1), 1)
        assert staged.file is not None
        change(folder / staged.file)
        return staged

    for change in (
        Path.unlink,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.write_bytes(b"".join([path.read_bytes()[:100], b"?", path.read_bytes()[101:]])),
    ):
        good = world.stage(rows_of(1, task=1), 1)
        with pytest.raises(StagedDataLost):
            await world.commit(1, [good, damage(change)])
    assert sorted(world.committed()) == sorted(rows_of(0))
    assert await world.run_batch(1, rows_of(1))


async def test_staged_data_that_a_faster_run_has_cleaned_away_is_not_missed(world: SinkWorld) -> None:
    await batches(world, 0)
    staged = [world.stage(rows_of(0), 0, run_id="slow")]
    world.area.clean(0)
    assert await world.commit(0, staged) is False


async def test_cleaning_leaves_later_batches_and_other_files(world: SinkWorld) -> None:
    folder = world.checkpoint.path / "sink-staging"
    for run_id, batch_id in (("dead", 0), ("dead", 3), ("here", 2), ("here", 4)):
        world.stage(rows_of(batch_id), batch_id, run_id=run_id)
    (folder / "README").write_text("mine")
    world.area.clean(3)
    assert sorted(path.name.rsplit("-", 1)[0] for path in folder.iterdir()) == ["README", "here-4"]


async def test_more_partitions_between_staging_and_commit_keep_keys_together(world: SinkWorld) -> None:
    await batches(world, 0)
    world.checkpoint.plan(1)
    rows = [(b"key-%d" % number, b"%d" % number) for number in range(100)]
    staged = [world.stage(rows, 1), world.stage(rows_of(1, task=1), 1, inline_bytes=1 << 20)]
    with Admin(bootstrap_servers=world.address) as admin:
        admin.create_partitions({world.topic: 7})
    assert await world.commit(1, staged)
    assert sorted(world.committed()) == sorted(rows_of(0) + rows + rows_of(1, task=1))
    later = [(key, b"later") for key, _ in rows]
    async with Producer(bootstrap_servers=world.address) as producer:
        for key, value in later:
            await producer.send(world.topic, value, key)
    found = world.committed()
    for key, value in rows:  # in one partition, so side by side but for others of the same partition
        assert found.index((key, value)) < found.index((key, b"later"))


# -- batch writes


def version_of(world: SinkWorld, app_id: str, version: int, row: bytes) -> Publication:
    staged = [world.stage([(None, row)], version, inline_bytes=1 << 20)]
    return Publication(staged, f"batch-{app_id}", NextVersion(app_id, version))


async def test_a_version_is_published_once_and_lower_ones_never(world: SinkWorld, unique: Callable[[str], str]) -> None:
    app_id = unique("app")
    for version, is_new in ((3, True), (3, False), (1, False), (4, True), (9, True), (8, False)):
        publication = version_of(world, app_id, version, b"%d" % version)
        assert await world.committer().commit(publication) is is_new
    assert sorted(value for _, value in world.committed()) == [b"3", b"4", b"9"]


async def test_a_write_without_a_name_is_published_each_time(world: SinkWorld, unique: Callable[[str], str]) -> None:
    for number in range(2):
        staged = [world.stage([(None, b"row")], 0, inline_bytes=1 << 20)]
        assert await world.committer().commit(Publication(staged, unique(f"batch-{number}"), None))
    assert [value for _, value in world.committed()] == [b"row", b"row"]


# -- the topic of markers


async def test_an_unfit_topic_for_markers_is_refused(world: SinkWorld, new_topic: Callable[..., str]) -> None:
    world.checkpoint.plan(0)
    staged = [world.stage(rows_of(0), 0)]
    for topic, why in (
        (new_topic("markers", partitions=2, **{"cleanup.policy": "compact"}), "2 partitions"),
        (new_topic("markers", partitions=1), r"cleanup\.policy"),
    ):
        committer = Committer(real_host(), world.connection, world.producer, topic, StagingArea(None))
        with pytest.raises(Exception, match=why):
            await committer.commit(world.publication(0, staged))
    assert world.committed() == []


def test_the_topic_of_markers_is_made_as_it_has_to_be(address: str, unique: Callable[[str], str]) -> None:
    from semel.client.admin.values import ConfigResource
    from semel.spark.marker import MarkerTopic

    topic = unique("markers")

    async def ensure() -> None:
        async with MarkerTopic(real_host(), {"bootstrap_servers": address}, topic) as markers:
            await markers.ensure()
            await markers.ensure()

    asyncio.run(ensure())
    with Admin(bootstrap_servers=address) as admin:
        found = admin.describe_topics(topic)[topic]
        resource = ConfigResource.topic(topic)
        configs = {name: entry.value for name, entry in admin.describe_configs(resource)[resource].items()}
    assert len(found.partitions) == 1
    assert len(found.partitions[0].replicas) == 1
    assert configs["cleanup.policy"] == "compact"
    assert int(configs["segment.bytes"] or 0) == 1 << 20


async def test_a_topic_of_markers_that_was_replaced_is_noticed(world: SinkWorld, unique: Callable[[str], str]) -> None:
    from semel.spark.marker import MarkerTopic

    topic = unique("markers")
    async with MarkerTopic(real_host(), world.connection, topic) as markers:
        assert await markers.last("stream/any") is None
        with Admin(bootstrap_servers=world.address) as admin:
            admin.delete_topics(topic)
            admin.create_topics(NewTopic(topic, partitions=1, replication_factor=1))
        await markers._cluster.refresh()
        with pytest.raises(Exception, match=r"cleanup\.policy"):
            await markers.last("stream/any")


def test_the_default_name_is_the_one_that_is_documented() -> None:
    from semel.spark.sink_options import DEFAULT_MARKER_TOPIC

    assert DEFAULT_MARKER_TOPIC == MARKER_TOPIC
