"""From files to a log: clean stops, kills, power losses, torn tails, and files that are missing or damaged."""

from __future__ import annotations

from typing import Any

import pytest
from log_samples import NOW_MS, batch, batches_from, load, mark, new_log, offsets_from, write

from semel.log.epochs import read_epochs
from semel.log.errors import BrokenLog
from semel.log.log import Log
from semel.log.snapshots import snapshot_offsets
from semel.records.control import ControlType
from semel.sim.disk import SimDisk

SMALL = {"segment_bytes": 900}


def fill(log: Log, count: int = 40, *, first: int = 0, producer: int = 1) -> None:
    """Batches of one record each, so that number, sequence and offset agree."""
    for number in range(first, first + count):
        write(log, batch(b"%05d" % number * 10, producer=producer, sequence=number), leader_epoch=number // 15)


def producer_state(log: Log) -> dict[int, tuple[Any, ...]]:
    return {
        entry.producer_id: (entry._replace(timestamp_ms=0), log.producers.window(entry.producer_id))
        for entry in log.producers.entries()
    }


def contents(log: Log) -> list[bytes]:
    return [data for _, data in batches_from(log, log.start_offset)]


async def settled_log(disk: SimDisk, count: int = 40, **overrides: Any) -> Log:
    """A log whose sealed segments are durable with their indexes and snapshots, and whose end is flushed."""
    log = new_log(disk, **{**SMALL, **overrides})
    for number in range(count):
        fill(log, 1, first=number)
        if log.needs_settling:
            await log.settle()
    await log.flush()
    return log


def test_a_clean_stop_starts_again_without_a_scan_and_knows_its_duplicates() -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log)
    before, state, epochs = contents(log), producer_state(log), log.epochs.entries
    log.close()
    again, recovered = load(disk.after_power_loss(1), clean=True, recovery_point=40, **SMALL)
    assert (recovered.scanned_bytes, recovered.cut_bytes) == (0, 0)
    assert contents(again) == before
    assert producer_state(again) == state
    assert again.epochs.entries == epochs
    for number in range(35, 40):
        assert write(again, batch(b"x", producer=1, sequence=number))[::2] == (number, True)
    assert write(again, batch(b"next", producer=1, sequence=40)).base_offset == 40


def test_a_killed_log_has_everything_and_reads_only_what_was_not_settled() -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log)
    before, state = contents(log), producer_state(log)
    again, recovered = load(disk.after_kill(), **SMALL)
    assert recovered.scanned_bytes == sum(len(data) for data in before)
    assert contents(again) == before
    assert producer_state(again) == state
    assert again.epochs.entries == log.epochs.entries
    assert again.flushed_offset == 40


async def test_settled_segments_are_not_read_again_after_a_kill() -> None:
    disk = SimDisk()
    log = await settled_log(disk)
    assert len(log.segments) > 3
    again, recovered = load(disk.after_kill(), **SMALL)
    assert recovered.scanned_bytes == log.segments[-1].size_bytes
    assert offsets_from(again, 0) == list(range(40))
    assert producer_state(again)[1][0].last_sequence == 39


@pytest.mark.parametrize("seed", range(30))
async def test_what_was_flushed_survives_a_power_loss_whole(seed: int) -> None:
    disk = SimDisk(seed)
    log = new_log(disk, **SMALL)
    fill(log, 25)
    await log.flush()
    before = contents(log)
    fill(log, 15, first=25)
    again, _ = load(disk.after_power_loss(seed), recovery_point=25, **SMALL)
    assert 25 <= again.end_offset <= 40
    assert contents(again)[:25] == before
    assert offsets_from(again, 0) == list(range(again.end_offset))
    fill(again, 3, first=again.end_offset)


def test_a_torn_tail_is_cut_at_any_byte() -> None:
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 5)
    path = log.segments[0].path
    last = log.segments[0].locate(4)
    assert last is not None
    for size in range(last.position + 1, last.position + last.size_bytes, 7):
        copy = disk.after_power_loss(_everything())
        copy.open(path).truncate(size)
        again, recovered = load(copy)
        assert again.end_offset == 4
        assert recovered.cut_bytes == size - last.position
        assert copy.open(path).size() == last.position
        assert write(again, batch(b"again", producer=1, sequence=4)).base_offset == 4


class _Everything:
    """Chance that lets everything survive."""

    def choice(self, options: Any) -> Any:
        return options[-1]

    def random(self) -> float:
        return 0.0

    def randrange(self, _: int) -> int:
        return 0


def _everything() -> Any:
    return _Everything()


def test_segments_after_a_torn_one_are_removed() -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log)
    torn, later = log.segments[1], [segment.path for segment in log.segments[2:]]
    disk.open(torn.path).truncate(torn.size_bytes - 3)
    again, recovered = load(disk.after_kill(), **SMALL)
    assert again.end_offset == torn.next_offset - 1
    assert recovered.removed_segments == len(later)
    assert not any(again.disk.exists(path) for path in later)
    assert producer_state(again)[1][0].last_sequence == again.end_offset - 1


def test_a_hole_between_segments_ends_the_log_before_it() -> None:
    """The tail of a segment was lost at the border of two batches, what came after it was not."""
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log)
    cut = log.segments[1]
    last = cut.locate(cut.next_offset - 1)
    assert last is not None
    disk.open(cut.path).truncate(last.position)
    again, _ = load(disk.after_kill(), **SMALL)
    assert again.end_offset == last.base_offset
    assert len(again.segments) == 2
    # Its sequence was not acknowledged and comes again: it may not be taken for a duplicate.
    assert write(again, batch(b"retry", producer=1, sequence=last.base_offset)).base_offset == last.base_offset


def test_a_first_segment_that_vanished_takes_all_that_was_not_promised_with_it() -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log)
    disk.remove(log.segments[0].path)
    again, _ = load(disk.after_kill(), **SMALL)
    assert (again.start_offset, again.end_offset) == (0, 0)
    fill(again, 20)
    assert offsets_from(again, 0) == list(range(20))


def test_indexes_left_over_from_a_lost_segment_are_not_taken_for_the_new_ones() -> None:
    disk = SimDisk()
    log = new_log(disk, index_interval_bytes=0)
    write(log, batch(b"a", producer=5, sequence=0, transactional=True))
    mark(log, ControlType.ABORT, 5)
    fill(log, 10)
    log.roll()
    disk.remove(log.segments[0].path)
    again, _ = load(disk.after_kill(), index_interval_bytes=0)
    assert again.end_offset == 0
    for number in range(30):
        write(
            again, batch(b"another length " * (number % 3), producer=1, sequence=number, timestamp_ms=NOW_MS + number)
        )
    again.roll()
    assert [again.segments[0].locate(offset).base_offset for offset in range(30)] == list(range(30))  # type: ignore[union-attr]
    assert again.segments[0].aborted_index.entries() == []
    assert again.offset_for_timestamp(NOW_MS + 7).offset == 7  # type: ignore[union-attr]


def test_a_segment_longer_than_one_block_is_scanned_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.log.segment._SCAN_BYTES", 512)
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 60)
    write(log, batch(b"x" * 3000, producer=1, sequence=60))
    fill(log, 5, first=61)
    before = contents(log)
    again, recovered = load(disk.after_kill())
    assert contents(again) == before
    assert (recovered.scanned_bytes, recovered.cut_bytes) == (sum(map(len, before)), 0)


def test_a_real_segment_of_several_megabytes_is_scanned_to_its_end() -> None:
    disk = SimDisk()
    log = new_log(disk, index_interval_bytes=4096)
    for number in range(50):
        write(log, batch(b"x" * 100_000, producer=1, sequence=number))
    again, recovered = load(disk.after_kill(), index_interval_bytes=4096)
    assert again.end_offset == 50
    assert recovered.scanned_bytes == log.size_bytes > 4 << 20
    assert offsets_from(again, 0) == list(range(50))


async def _clean(disk: SimDisk) -> tuple[Log, list[bytes], dict[int, Any]]:
    log = await settled_log(disk)
    before, state = contents(log), producer_state(log)
    log.close()
    return log, before, state


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "cut", "garbage", "empty"])
@pytest.mark.parametrize("clean", [True, False])
async def test_a_missing_or_damaged_index_is_made_anew(suffix: str, harm: str, clean: bool) -> None:
    disk = SimDisk()
    log, before, state = await _clean(disk)
    for segment in log.segments:
        path = segment.path.removesuffix(".log") + suffix
        if harm == "missing":
            disk.remove(path)
        elif harm == "cut":
            disk.open(path).truncate(disk.open(path).size() - 1)
        elif harm == "empty":
            disk.open(path).truncate(0)
        else:
            disk.open(path).write_at(0, b"\x7f\x01\x02\x03" * (disk.open(path).size() // 4))
    again, _ = load(disk.after_kill(), clean=clean, recovery_point=40, **SMALL)
    assert contents(again) == before
    assert producer_state(again) == state
    for offset in range(40):
        segment = again.segments[again.segment_number(offset)]
        assert segment.locate(offset).base_offset == offset  # type: ignore[union-attr]
    assert [segment.max_timestamp_ms for segment in again.segments] == [NOW_MS] * len(again.segments)


@pytest.mark.parametrize("entry", range(3))
async def test_a_damaged_entry_inside_an_offset_index_hides_nothing(entry: int) -> None:
    disk = SimDisk()
    log, before, _ = await _clean(disk)
    path = log.segments[0].path.removesuffix(".log") + ".index"
    assert disk.open(path).size() // 8 > entry + 1
    for position in (8 * entry + 2, 8 * entry + 3, 8 * entry + 6, 8 * entry + 7):
        for bit in range(8):
            disk.flip_bit(path, position, bit)
            again, _ = load(disk.after_kill(), clean=True, recovery_point=40, **SMALL)
            assert contents(again) == before
            for offset in range(again.segments[1].base_offset):
                assert again.segments[0].locate(offset).base_offset == offset  # type: ignore[union-attr]
            disk = again.disk  # type: ignore[assignment]
            disk.flip_bit(path, position, bit)


@pytest.mark.parametrize("clean", [True, False])
async def test_rebuilding_an_index_keeps_the_aborted_transactions(clean: bool) -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    write(log, batch(b"a", producer=9, sequence=0, transactional=True))
    mark(log, ControlType.ABORT, 9)
    fill(log)
    await log.settle()
    aborted = log.segments[0].aborted_index.entries()
    log.close()
    disk.remove(log.segments[0].path.removesuffix(".log") + ".timeindex")
    again, _ = load(disk.after_kill(), clean=clean, recovery_point=42, **SMALL)
    assert again.segments[0].aborted_index.entries() == aborted
    assert len(aborted) == 1


@pytest.mark.parametrize("clean", [True, False])
async def test_a_damaged_transaction_index_is_made_anew_from_the_transactions(clean: bool) -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    write(log, batch(b"a", producer=9, sequence=0, transactional=True))
    fill(log)
    mark(log, ControlType.ABORT, 9)
    log.roll()
    await log.settle()
    fill(log, 3, first=40)
    number = len(log.segments) - 2
    aborted = log.segments[number].aborted_index.entries()
    assert len(aborted) == 1
    log.close()
    disk.open(log.segments[number].aborted_index.path).truncate(20)
    again, _ = load(disk.after_kill(), clean=clean, recovery_point=45, **SMALL)
    assert again.segments[number].aborted_index.entries() == aborted
    assert again.end_offset == 45


async def test_aborted_transactions_of_a_segment_that_was_not_settled_are_found_again() -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        log = new_log(disk)
        write(log, batch(b"a", producer=9, sequence=0, transactional=True))
        mark(log, ControlType.ABORT, 9)
        log.roll()
        fill(log, 3)
        await log.flush()
        again, _ = load(disk.after_power_loss(seed), recovery_point=5)
        assert len(again.segments[0].aborted_index.entries()) == 1


async def test_a_settling_log_that_is_removed_writes_nothing_more() -> None:
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 3)
    log.roll()
    settling = log.settle()
    while not any(name.endswith(".window") for name in disk.list_dir(log.directory)):
        settling.send(None)
    log.is_closed = True
    with pytest.raises(StopIteration):
        settling.send(None)
    assert snapshot_offsets(disk.list_dir(log.directory)) == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", ["newest", "all"])
async def test_a_damaged_snapshot_is_replaced_by_replaying_the_log(clean: bool, harm: str) -> None:
    disk = SimDisk()
    log, before, state = await _clean(disk)
    offsets = snapshot_offsets(disk.list_dir(log.directory))
    assert len(offsets) == 3
    for offset in offsets if harm == "all" else offsets[-1:]:
        disk.flip_bit(f"{log.directory}/{offset:020d}.snapshot", 20, 1)
    again, _ = load(disk.after_kill(), clean=clean, recovery_point=40, **SMALL)
    assert contents(again) == before
    assert producer_state(again) == state


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", ["missing", "damaged"])
async def test_missing_epochs_are_read_from_the_batches(clean: bool, harm: str) -> None:
    disk = SimDisk()
    log, _, _ = await _clean(disk)
    assert log.epochs.entries == [(0, 0), (1, 15), (2, 30)]
    path = f"{log.directory}/leader-epoch-checkpoint"
    disk.remove(path)
    if harm == "damaged":
        disk.replace_file_now(path, b"0\n3\n0 0\n1")
    again, _ = load(disk.after_kill(), clean=clean, recovery_point=40, **SMALL)
    assert again.epochs.entries == [(0, 0), (1, 15), (2, 30)]


def test_epochs_that_a_start_has_written_are_noted_as_written() -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log)
    again, _ = load(disk.after_kill(), **SMALL)
    assert again.epochs.entries == [(0, 0), (1, 15), (2, 30)]
    assert not again.epochs.is_dirty
    assert again.inventory.epochs == read_epochs(again.disk, again.directory).entries == again.epochs.entries


def test_epochs_of_a_lost_tail_are_forgotten() -> None:
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 20)
    disk.open(log.segments[0].path).truncate(log.segments[0].locate(12).position + 9)  # type: ignore[union-attr]
    disk.replace_file_now(f"{log.directory}/leader-epoch-checkpoint", log.epochs.encode())
    again, _ = load(disk.after_kill())
    assert again.end_offset == 12
    assert again.epochs.entries == [(0, 0)]


def test_epochs_before_the_start_of_the_log_are_forgotten() -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log)
    log.close()
    again, _ = load(disk.after_kill(), clean=True, start_offset=20, **SMALL)
    assert again.epochs.entries == [(1, 20), (2, 30)]


@pytest.mark.parametrize("how", ["clean", "kill", "kill twice"])
async def test_producers_outlive_the_data_that_made_them(how: str) -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log, 3, producer=77)
    fill(log, 40)
    if how != "kill twice":
        await log.settle()
    else:
        # The first start settles what the dead node had not: only then may its data go.
        log, _ = load(disk.after_kill(), **SMALL)
        disk = log.disk  # type: ignore[assignment]
    log.remove_segments(log.removable_before(30))
    if how == "clean":
        log.close()
    again, _ = load(disk.after_kill(), clean=how == "clean", recovery_point=43, start_offset=log.start_offset, **SMALL)
    assert write(again, batch(b"x", producer=77, sequence=2)).is_duplicate
    assert write(again, batch(b"x", producer=77, sequence=3)).base_offset == 43


async def test_producers_outlive_their_data_though_the_stop_came_before_the_roll_was_settled() -> None:
    disk = SimDisk()
    log = new_log(disk, **SMALL)
    fill(log, 3, producer=77)
    fill(log, 40)
    log.close()
    log, _ = load(disk.after_kill(), clean=True, recovery_point=43, **SMALL)
    log.remove_segments(log.removable_before(30))
    again, _ = load(log.disk.after_kill(), recovery_point=43, start_offset=log.start_offset, **SMALL)  # type: ignore[attr-defined]
    assert write(again, batch(b"x", producer=77, sequence=2)).is_duplicate


async def test_a_settling_that_is_cut_off_is_made_up_for_by_the_clean_stop() -> None:
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 10)
    before = contents(log)
    log.roll()
    settling = log.settle()
    settling.send(None)
    settling.close()
    log.close()
    for seed in range(20):
        again, _ = load(disk.after_power_loss(seed), clean=True, recovery_point=10)
        assert contents(again) == before


async def test_a_flush_that_is_cut_off_is_made_up_for_by_the_clean_stop() -> None:
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 10)
    before = contents(log)
    log.roll()
    fill(log, 3, first=10)
    flushing = log.flush()
    flushing.send(None)
    flushing.close()
    log._unsettled.clear()
    log.close()
    for seed in range(20):
        again, _ = load(disk.after_power_loss(seed), clean=True, recovery_point=13)
        assert contents(again)[:10] == before


async def test_settling_alone_makes_the_directory_durable_too() -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        log = new_log(disk)
        log.identity = b"version: 0\ntopic_id: abc"
        fill(log, 10)
        log.roll()
        await log.settle()
        assert log.flushed_offset == 10
        survived = disk.after_power_loss(seed)
        again, _ = load(survived, recovery_point=10)
        assert again.end_offset == 10
        assert survived.read_file(f"{log.directory}/partition.metadata") == log.identity


def test_what_a_start_found_is_durable_before_it_is_served() -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        log = new_log(disk, **SMALL)
        fill(log)
        again, _ = load(disk.after_kill(), **SMALL)
        assert again.flushed_offset == 40
        third, _ = load(again.disk.after_power_loss(seed), **SMALL)  # type: ignore[attr-defined]
        assert third.end_offset == 40


def test_a_torn_batch_below_the_recovery_point_stops_the_log() -> None:
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 10)
    disk.open(log.segments[0].path).truncate(log.segments[0].size_bytes - 5)
    with pytest.raises(BrokenLog, match="durable"):
        load(disk.after_kill(), recovery_point=10)


async def test_only_the_snapshots_that_a_start_may_need_are_kept() -> None:
    disk = SimDisk()
    log = await settled_log(disk, 80)
    assert len(log.segments) > 6
    offsets = snapshot_offsets(disk.list_dir(log.directory))
    assert offsets == [segment.base_offset for segment in log.segments[-2:]]
