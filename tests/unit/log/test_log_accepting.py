"""What is missing of a log is given up: what is left is served again, and takes records."""

from __future__ import annotations

import pytest
from damaged_log import DIRECTORY, SETTINGS, damageable, known_of, start
from log_samples import batch, offsets_from, settings, write
from test_log_missing_data import MISSING, both
from test_log_store import Stand, simulated

from semel.log.errors import DataMissing
from semel.sim.disk import SimDisk

TOPIC_ID = "A" * 22


async def accepted(disk: SimDisk) -> tuple[SimDisk, list[str] | None]:
    stand = Stand(disk)
    stand.open()
    losses = stand.store.accept_loss("events", 0, TOPIC_ID, settings(**SETTINGS))
    await stand.store.close()
    return disk.after_kill(), losses


@both("is_clean")
@pytest.mark.parametrize("harm", MISSING)
def test_what_is_left_is_served_again(harm: str, is_clean: bool) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        MISSING[harm][0](damaged)
        disk, losses = await accepted(damaged.disk)
        assert losses
        stand, log = start(disk)
        offsets = offsets_from(log, log.start_offset)
        assert set(offsets) < set(damaged.known.offsets)
        if harm not in ("directory", "all segments"):
            assert offsets
        if harm == "middle segment":
            first, end = damaged.bases[2:4]
            assert losses == [f"offsets {first} to {end - 1}"]
            assert offsets == [at for at in damaged.known.offsets if not first <= at < end]
        known = {(one[0], one[2]) for one in damaged.known.aborted}
        assert {(one[0], one[2]) for one in known_of(log).aborted} <= known
        written = write(log, batch(b"more"))
        assert written.base_offset == log.end_offset - 1
        await stand.commit(log)
        await stand.store.close()
        _, log = start(disk.after_kill())
        assert offsets_from(log, log.start_offset) == [*offsets, written.base_offset]

    simulated(work())


@both("is_clean")
def test_a_batch_that_cannot_be_read_is_taken_out_and_kept(is_clean: bool) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        disk, path = damaged.disk, damaged.path(-1, ".log")
        disk.flip_bit(path, 70, 1)
        if is_clean:
            disk.remove("/srv/data/.kafka_cleanshutdown")  # then nothing is believed but the checkpoints
        with pytest.raises(DataMissing):
            start(disk)
        disk, losses = await accepted(disk.after_kill())
        assert losses is not None
        assert "kept as" in losses[0]
        _, log = start(disk)
        hurt = damaged.bases[-1]
        assert offsets_from(log, 0) == [at for at in damaged.known.offsets if at != hurt]
        assert log.end_offset == damaged.known.end_offset
        assert [name for name in disk.list_dir(DIRECTORY) if ".damaged-at-0" in name]

    simulated(work())


@both("is_clean")
def test_of_a_log_that_is_whole_nothing_is_given_up(is_clean: bool) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        disk, losses = await accepted(damaged.disk)
        assert losses is None
        stand, log = start(disk)
        assert stand.store.was_clean
        assert known_of(log) == damaged.known

    simulated(work())


def test_a_stop_that_was_clean_stays_it_for_the_other_partitions() -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=True)
        damaged.disk.remove(damaged.path(1, ".log"))
        disk, _ = await accepted(damaged.disk)
        stand = Stand(disk)
        assert stand.open().was_clean
        stand.load()

    simulated(work())


def test_producers_that_a_snapshot_knows_are_known_afterwards() -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=True)
        for number in range(3, len(damaged.bases)):
            damaged.disk.remove(damaged.path(number, ".log"))
        disk, _ = await accepted(damaged.disk)
        _, log = start(disk)
        assert {entry.producer_id for entry in log.producers.entries()} == {1, 7}

    simulated(work())
