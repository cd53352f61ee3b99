"""A disk that refuses writes is one ERROR at once, and one more line when it takes them again."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest
from broker_harness import ROOT, Node, batch_of, simulated

from semel.log.disk_trouble import DiskTrouble
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode

LARGE = b"x" * 1000


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.ERROR, "semel")
    return caplog


@pytest.mark.parametrize("flush", ["1", "9223372036854775807"])
def test_a_full_disk_is_told_once_and_again_when_it_is_over(errors: pytest.LogCaptureFixture, flush: str) -> None:
    @simulated(settings={"log.flush.interval.messages": flush})
    async def told(node: Node) -> None:
        client = await node.client()
        await client.create_topic("t", partitions=2)
        await client.produce("t", batch_of(b"kept"))
        node.disk.fill_after(10)
        for _ in range(5):
            for partition in range(2):
                result = await client.produce("t", batch_of(LARGE), partition=partition)
                assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [record.getMessage() for record in errors.records] == [
            f"{ROOT}/t-0: the disk refuses writes: no space left on device; make room on it: "
            "producers are answered KAFKA_STORAGE_ERROR until then"
        ]
        await asyncio.sleep(10)
        assert len(errors.records) == 1, "it is not over because nobody asks"
        node.disk.mend()
        for _ in range(3):
            assert (await client.produce("t", batch_of(LARGE))).error_code == 0
        await asyncio.sleep(2)
        assert [record.getMessage() for record in errors.records[1:]] == [
            "the disk takes writes again, after it has refused 10"
        ]
        node.disk.fill_after(10)
        await client.produce("t", batch_of(LARGE))
        assert len(errors.records) == 3, "the next time is told like the first"
        node.disk.mend()

    told()  # type: ignore[call-arg]


@simulated()
async def test_upkeep_that_finds_the_disk_full_is_tried_again_and_the_node_goes_on(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"kept"))
    node.disk.fill_after(0)
    await asyncio.sleep(700)  # checkpoints and retention come by
    assert not node.broken
    assert await client.values("t") == [b"kept"]
    node.disk.mend()
    await asyncio.sleep(70)
    assert (await client.produce("t", batch_of(b"later"))).error_code == 0
    await node.restart()
    assert await (await node.client()).values("t") == [b"kept", b"later"]


@pytest.mark.parametrize("room_bytes", range(0, 200, 20))
def test_a_disk_that_is_full_when_a_segment_was_sealed_does_not_stop_the_node(room_bytes: int) -> None:
    """The snapshot of its producers comes after the batch for which there was room."""

    @simulated(settings={"log.segment.bytes": "1500"})
    async def settled_later(node: Node) -> None:
        client = await node.client()
        await client.create_topic("t")
        producer_id = await client.producer_id()
        assert (await client.produce("t", batch_of(LARGE, producer_id=producer_id))).error_code == 0
        following = batch_of(LARGE, producer_id=producer_id, sequence=1)
        node.disk.fill_after(len(following) + room_bytes)
        await client.produce("t", following)
        await asyncio.sleep(100)
        assert not node.broken
        node.disk.mend()
        await asyncio.sleep(40)
        assert not node.broker.store.logs["t", 0].needs_settling
        assert (await client.produce("t", following)).error_code == 0, "or it is told that it is there"
        await node.killed_and_started()
        client = await node.client()
        assert [*await client.values("t"), *await client.values("t", 1)] == [LARGE, LARGE]

    settled_later()  # type: ignore[call-arg]


@simulated(settings={"log.segment.bytes": "1500"})
async def test_a_flush_of_a_sealed_segment_that_fails_for_want_of_room_stops_the_node(node: Node) -> None:
    """The disk has taken the bytes and lost them: nobody knows which."""
    client = await node.client()
    await client.create_topic("t", configs={"flush.messages": "9223372036854775807"})
    assert (await client.produce("t", batch_of(LARGE))).error_code == 0
    assert (await client.produce("t", batch_of(LARGE))).error_code == 0
    node.disk.fail_at("flush", error_number=errno.ENOSPC)
    await asyncio.sleep(1)
    assert node.broken


def test_trouble_that_goes_on_is_counted_once_a_minute_and_ends_a_second_after_the_last_refusal(
    errors: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        trouble, loop = DiskTrouble(), asyncio.get_running_loop()
        trouble.taken(loop)
        for _ in range(121):
            trouble.refused("/d", OSError(errno.EIO, "input/output error"), loop)
            trouble.taken(loop)  # small batches fit
            await asyncio.sleep(0.9)
        trouble.taken(loop)
        await asyncio.sleep(1.1)
        assert not trouble.is_on

    run(work(), loop=SimLoop(end_s=1e4))
    assert [record.getMessage() for record in errors.records] == [
        "/d: the disk refuses writes: input/output error; see what is wrong with it: "
        "producers are answered KAFKA_STORAGE_ERROR until then",
        "/d: the disk still refuses writes, 68 until now: input/output error",
        "the disk takes writes again, after it has refused 121",
    ]
