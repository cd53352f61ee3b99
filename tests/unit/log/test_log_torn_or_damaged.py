"""A batch that cannot be read after a crash: a torn write, which is cut and kept aside, or damage, which is neither cut
nor served. After a kill the page cache is whole, so that only the last write can be torn; after a power loss any that
was not flushed."""

from __future__ import annotations

import pytest
from log_samples import batch, offsets_from, settings, write
from test_log_store import ROOT, Stand, simulated

from semel.log.errors import DataMissing
from semel.log.log import Log
from semel.sim.disk import SimDisk

DIRECTORY = f"{ROOT}/events-0"
PATH = f"{DIRECTORY}/00000000000000000000.log"
COUNT = 10


def start(disk: SimDisk) -> tuple[Stand, Log]:
    stand = Stand(disk)
    stand.open()
    return stand, stand.store.load("events", 0, "A" * 22, settings(segment_bytes=100_000))


async def written(flushed: int = 0) -> tuple[SimDisk, list[tuple[int, int]]]:
    """A disk on which a node runs that has written ten batches, and where they stand: position and size."""
    stand, log = start(SimDisk())
    for number in range(COUNT):
        write(log, batch(b"%d" % number * 30, producer=1, sequence=number))
        if number + 1 == flushed:
            await stand.commit(log)
    await stand.store.mark_flushed()
    places = [log.segments[0].locate(number) for number in range(COUNT)]
    return stand.disk, [(place.position, place.size_bytes) for place in places if place is not None]


def kept(disk: SimDisk, how: str) -> dict[str, bytes]:
    return {name: disk.read_file(f"{DIRECTORY}/{name}") for name in disk.list_dir(DIRECTORY) if how in name}


@pytest.mark.parametrize("bit", [0, 8 * 9 + 3, 8 * 17, 8 * 70 + 1])
@pytest.mark.parametrize("hurt", [0, 4, COUNT - 2])
def test_after_a_kill_a_bad_batch_that_valid_ones_follow_is_damage_and_stays_it(hurt: int, bit: int) -> None:
    async def work() -> None:
        disk, places = await written()
        position, size = places[hurt]
        disk.flip_bit(PATH, position + bit // 8, bit % 8)
        content = disk.read_file(PATH)
        disk = disk.after_kill()
        for follows in ("a kill", "a power loss", "a clean stop"):
            with pytest.raises(
                DataMissing, match=rf"is corrupt at byte {position} .* semel log accept-loss"
            ) as missing:
                start(disk)
            assert "\n" not in str(missing.value)
            assert disk.read_file(PATH) == content
            name = f"00000000000000000000.log.damaged-at-{position}"
            assert kept(disk, "damaged") == {name: content[position : position + size]}
            if follows == "a clean stop":
                stand = Stand(disk.after_kill())
                stand.open()
                await stand.store.close()
                disk = stand.disk.after_kill()
            else:
                disk = disk.after_kill() if follows == "a kill" else disk.after_power_loss(1)
        with pytest.raises(DataMissing):
            start(disk)
        disk.flip_bit(PATH, position + bit // 8, bit % 8)
        _, log = start(disk.after_kill())
        assert offsets_from(log, 0) == list(range(COUNT)), "it was mended"

    simulated(work())


@pytest.mark.parametrize("harm", ["flipped bit", "cut", "half a header", "zeros"])
def test_after_a_kill_a_bad_last_batch_is_cut_and_kept_aside(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        disk, places = await written(flushed=3)
        position, size = places[-1]
        if harm == "flipped bit":
            disk.flip_bit(PATH, position + 70, 1)
        elif harm == "zeros":
            disk.open(PATH).write_at(position, bytes(size))
        else:
            disk.open(PATH).truncate(position + (size - 5 if harm == "cut" else 30))
        torn = disk.read_file(PATH)[position:]
        for _ in range(2):
            disk = disk.after_kill()
            _, log = start(disk)
            assert offsets_from(log, 0) == list(range(COUNT - 1))
            expected = {} if harm == "zeros" else {f"00000000000000000000.log.cut-at-{position}": torn}
            assert kept(disk, "cut") == expected
        assert sum("torn write" in record.getMessage() for record in caplog.records) == 1

    simulated(work())


def test_two_torn_writes_at_the_same_place_are_both_kept() -> None:
    async def work() -> None:
        disk, places = await written(flushed=3)
        position, _ = places[-1]
        disk.open(PATH).truncate(position + 40)
        first = disk.read_file(PATH)[position:]
        stand, log = start(disk.after_kill())
        write(log, batch(b"another"))
        stand.disk.open(PATH).truncate(position + 50)
        second = stand.disk.read_file(PATH)[position:]
        disk = stand.disk.after_kill()
        start(disk)
        name = f"00000000000000000000.log.cut-at-{position}"
        assert kept(disk, "cut") == {name: first, f"{name}-2": second}

    simulated(work())


def test_after_a_kill_a_last_batch_that_was_marked_as_flushed_is_not_cut() -> None:
    """The mark is half a second old at most, and needs no flush; the recovery point may be a minute old."""

    async def work() -> None:
        for harm in ("flip", "cut"):
            disk, places = await written(flushed=COUNT)
            position, _ = places[-1]
            if harm == "flip":
                disk.flip_bit(PATH, position + 70, 1)
            else:
                disk.open(PATH).truncate(position)
            with pytest.raises(DataMissing, match=r"all below (offset )?10 was durable"):
                start(disk.after_kill())

    simulated(work())


@pytest.mark.parametrize("flushed", [0, 3])
def test_after_a_power_loss_what_was_not_flushed_may_be_torn_anywhere(flushed: int) -> None:
    async def work() -> None:
        disk, places = await written(flushed)
        position, _ = places[6]
        disk.flip_bit(PATH, position + 70, 1)
        content = disk.read_file(PATH)
        disk = disk.after_replacement(disk.medium)  # on which everything has survived
        _, log = start(disk)
        assert offsets_from(log, 0) == list(range(6))
        assert list(kept(disk, "cut").values()) == [content[position:]]

    simulated(work())


def test_after_a_power_loss_what_was_flushed_is_not_cut() -> None:
    async def work() -> None:
        disk, places = await written(flushed=8)
        disk.flip_bit(PATH, places[6][0] + 70, 1)
        disk = disk.after_replacement(disk.medium)
        with pytest.raises(DataMissing, match="all below offset 8 was durable"):
            start(disk)
        assert kept(disk, "cut") == {}

    simulated(work())


def test_a_partition_that_was_not_opened_since_the_power_loss_is_not_of_this_boot() -> None:
    """Between the power loss and its recovery a node was started and killed."""

    async def work() -> None:
        disk, places = await written()
        disk.flip_bit(PATH, places[6][0] + 70, 1)
        disk = disk.after_replacement(disk.medium)
        stand = Stand(disk)
        stand.open()
        stand.load("others")
        _, log = start(disk.after_kill())
        assert offsets_from(log, 0) == list(range(6)), "the tail was torn by the power loss"

    simulated(work())


def test_what_lies_behind_a_torn_batch_is_kept_whole_until_retention_gets_there() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load(segment_bytes=300)
        for number in range(COUNT):
            write(log, batch(b"%d" % number * 30))
        bases = [segment.base_offset for segment in log.segments]
        assert len(bases) > 3
        disk = stand.disk
        contents = {base: disk.read_file(f"{DIRECTORY}/{base:020d}.log") for base in bases}
        disk.flip_bit(log.segments[0].path, 70, 1)
        disk = disk.after_replacement(disk.medium)
        again = Stand(disk)
        again.open()
        log = again.load(segment_bytes=300, retention_bytes=1)
        assert (log.start_offset, log.end_offset) == (0, 0)
        aside = kept(disk, "cut-at-0")
        assert {int(name[:20]): data for name, data in aside.items() if int(name[:20])} == {
            base: contents[base] for base in bases[1:]
        }
        for _ in range(3):
            again.fill(log, 20, first=log.end_offset)
        await again.commit(log)
        await again.store.apply_retention()
        assert log.start_offset > bases[-1]
        assert kept(disk, "cut-at") == {}

    simulated(work())
