"""Each start of a controller is an epoch of its own, whatever of the last one is left on its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from semel.config import BrokerConfig, topic_config
from semel.controller.metadata_log import MetadataLog
from semel.log.recovery import load_log
from semel.quorum.state_file import FILE_NAME, QuorumState, read_state
from semel.records.batch import read_header
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.spec.metadata_records import TopicRecord

DIRECTORY = "/data/__cluster_metadata-0"


def begun(disk: SimDisk, leads_as: int | None) -> MetadataLog:
    disk.make_dirs("/data")
    disk.sync_dir_now("/")
    config = topic_config({"flush.messages": "1"}, BrokerConfig())
    clock = SimClock(asyncio.get_running_loop())  # type: ignore[arg-type]
    log, _ = load_log(
        disk, DIRECTORY, config, recovery_point=0, start_offset=0, now_ms=clock.wall_ms(), was_clean=False
    )
    return MetadataLog(disk, clock, log, lambda error: None, lambda records: None, leads_as=leads_as)


async def committed(metadata: MetadataLog) -> None:
    future = metadata.when_committed()
    if future is not None:
        await future


def test_a_leader_of_a_cluster_begins_with_a_record_of_its_epoch() -> None:
    async def scenario() -> None:
        disk = SimDisk(1)
        metadata = begun(disk, 5)
        await committed(metadata)
        assert metadata.epoch == 1
        header = read_header(disk.read_file(f"{DIRECTORY}/{0:020d}.log"))
        assert (header.is_control, header.partition_leader_epoch, header.record_count) == (True, 1, 1)
        assert read_state(disk, DIRECTORY) == QuorumState(1, 5, 5, (5,))

    run(scenario())


def test_a_node_alone_leaves_neither_so_that_older_programs_can_open_its_directory() -> None:
    async def scenario() -> None:
        disk = SimDisk(1)
        metadata = begun(disk, None)
        await metadata.write([TopicRecord(name="t", topic_id=b"\x05" * 16)])
        assert metadata.epoch == 0
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
            epochs.append(begun(disk, 5).epoch)
            await asyncio.sleep(0.01)
            disk = after(disk)
        assert epochs == [1, 2, 3, 4]

    run(scenario())


def test_a_cluster_that_becomes_one_node_goes_on_from_its_epoch() -> None:
    async def scenario() -> None:
        disk = SimDisk(1)
        await committed(begun(disk, 5))
        await committed(begun(disk, 5))
        alone = begun(disk, None)
        assert alone.epoch == 3
        await alone.write([TopicRecord(name="t", topic_id=b"\x05" * 16)])
        assert begun(disk, 5).epoch == 4

    run(scenario())
