"""Each start of a controller is an epoch of its own, whatever of the last one is left on its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from led_metadata import DIRECTORY, LedMetadata

from semel.quorum.state_file import FILE_NAME, QuorumState, read_state
from semel.records.batch import read_header
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.spec.metadata_records import TopicRecord


async def begun(disk: SimDisk, leads_as: int | None) -> LedMetadata:
    metadata = LedMetadata(disk, node_id=leads_as or 0, is_alone=leads_as is None)
    await metadata.open()
    return metadata


def test_a_leader_of_a_cluster_begins_with_a_record_of_its_epoch() -> None:
    async def scenario() -> None:
        disk = SimDisk(1)
        metadata = await begun(disk, 5)
        assert metadata.term.epoch == 1
        header = read_header(disk.read_file(f"{DIRECTORY}/{0:020d}.log"))
        assert (header.is_control, header.partition_leader_epoch, header.record_count) == (True, 1, 1)
        assert read_state(disk, DIRECTORY) == QuorumState(1, 5, 5, (5,))

    run(scenario())


def test_a_node_alone_leaves_neither_so_that_older_programs_can_open_its_directory() -> None:
    async def scenario() -> None:
        disk = SimDisk(1)
        metadata = await begun(disk, None)
        await metadata.write([TopicRecord(name="t", topic_id=b"\x05" * 16)])
        assert metadata.term.epoch == 0
        assert not disk.exists(f"{DIRECTORY}/{FILE_NAME}")
        header = read_header(disk.read_file(f"{DIRECTORY}/{0:020d}.log"))
        assert not header.is_control

    run(scenario())


@pytest.mark.parametrize("after", [SimDisk.after_kill, SimDisk.after_power_loss])
def test_an_epoch_is_not_led_twice_even_if_nothing_of_it_is_left(after: Callable[[SimDisk], SimDisk]) -> None:
    async def scenario() -> None:
        disk = SimDisk(1, flush_latency_ms=(60_000, 60_000))
        epochs = []
        for _ in range(4):
            metadata = LedMetadata(disk, node_id=5, is_alone=False)
            opening = asyncio.ensure_future(metadata.open())
            await asyncio.sleep(0.01)
            epochs.append(metadata.replica.epoch)
            opening.cancel()
            disk = after(disk)
        assert epochs == [1, 2, 3, 4]

    run(scenario())


def test_a_cluster_that_becomes_one_node_goes_on_from_its_epoch() -> None:
    async def scenario() -> None:
        disk = SimDisk(1)
        await begun(disk, 5)
        await begun(disk, 5)
        alone = await begun(disk, None)
        assert alone.term.epoch == 3
        await alone.write([TopicRecord(name="t", topic_id=b"\x05" * 16)])
        assert (await begun(disk, 5)).term.epoch == 4

    run(scenario())
