"""Producer snapshots: Kafka's bytes, the window beside them, and what damage is taken for."""

from __future__ import annotations

from struct import pack

import pytest
from crc32c import crc32c
from log_samples import NOW_MS, header_of

from semel.log.producers import Producers
from semel.log.snapshots import encode_snapshot, read_snapshot, remove_snapshot, snapshot_offsets, write_snapshot_now
from semel.sim.disk import SimDisk

DIRECTORY = "/log"


def filled() -> Producers:
    producers = Producers()
    for number in range(7):
        producers.apply(producers.check(header_of(40, number * 3, 3), number * 3, NOW_MS + number))
    producers.apply(producers.check(header_of(41, 0, 2, epoch=6, transactional=True), 21, NOW_MS))
    producers.apply_marker(producers.check_marker(42, 3, 9, NOW_MS), 23, False)
    return producers


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk()
    made.make_dirs(DIRECTORY)
    return made


def test_a_snapshot_gives_the_whole_window_back(disk: SimDisk) -> None:
    rows = filled().rows()
    write_snapshot_now(disk, DIRECTORY, 24, rows)
    assert read_snapshot(disk, DIRECTORY, 24) == rows
    loaded = Producers()
    loaded.load(rows)
    assert len(loaded.window(40)) == 5


def test_a_snapshot_has_the_bytes_that_kafka_writes(disk: SimDisk) -> None:
    # By hand, from Kafka's layout: producer 40 with epoch 0, last sequence 20 at offset 20, two records before it in
    # the batch; producer 41 with epoch 6, in a transaction since 21; producer 42, known by a marker of coordinator 9.
    entries = (
        pack(">qhiqiqiq", 40, 0, 20, 20, 2, NOW_MS + 6, -1, -1)
        + pack(">qhiqiqiq", 41, 6, 1, 22, 1, NOW_MS, -1, 21)
        + pack(">qhiqiqiq", 42, 3, -1, -1, 0, NOW_MS, 9, -1)
    )
    body = pack(">i", 3) + entries
    assert encode_snapshot(filled().rows()) == pack(">hI", 1, crc32c(body)) + body


def test_the_first_bytes_of_a_snapshot_are_these(disk: SimDisk) -> None:
    producers = Producers()
    producers.apply(producers.check(header_of(1, 0), 0, 0))
    assert encode_snapshot(producers.rows()).hex() == (
        "0001"  # version
        "e07d38af"  # CRC-32C of the rest
        "00000001"  # one entry
        "0000000000000001"  # producer id
        "0000"  # epoch
        "00000000"  # last sequence
        "0000000000000000"  # last offset
        "00000000"  # offset delta
        "0000000000000000"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # first offset of the open transaction
    )


def test_a_snapshot_with_any_flipped_bit_is_not_used(disk: SimDisk) -> None:
    write_snapshot_now(disk, DIRECTORY, 24, filled().rows())
    path = f"{DIRECTORY}/{24:020d}.snapshot"
    for position in range(len(disk.read_file(path))):
        disk.flip_bit(path, position, position % 8)
        assert read_snapshot(disk, DIRECTORY, 24) is None
        disk.flip_bit(path, position, position % 8)
    assert read_snapshot(disk, DIRECTORY, 24) is not None


def test_a_cut_or_missing_snapshot_is_not_used(disk: SimDisk) -> None:
    write_snapshot_now(disk, DIRECTORY, 24, filled().rows())
    whole = disk.read_file(f"{DIRECTORY}/{24:020d}.snapshot")
    for length in range(len(whole)):
        disk.replace_file_now(f"{DIRECTORY}/{24:020d}.snapshot", whole[:length])
        assert read_snapshot(disk, DIRECTORY, 24) is None
    assert read_snapshot(disk, DIRECTORY, 25) is None


def test_without_its_window_a_snapshot_still_knows_the_newest_batches(disk: SimDisk) -> None:
    producers = filled()
    write_snapshot_now(disk, DIRECTORY, 24, producers.rows())
    disk.flip_bit(f"{DIRECTORY}/{24:020d}.window", 20, 0)
    rows = read_snapshot(disk, DIRECTORY, 24)
    assert rows is not None
    loaded = Producers()
    loaded.load(rows)
    assert loaded.window(40) == producers.window(40)[:1]
    assert list(loaded.entries()) == list(producers.entries())


def test_removing_a_snapshot_takes_its_window_too(disk: SimDisk) -> None:
    write_snapshot_now(disk, DIRECTORY, 24, filled().rows())
    write_snapshot_now(disk, DIRECTORY, 5, {})
    assert snapshot_offsets(disk.list_dir(DIRECTORY)) == [5, 24]
    remove_snapshot(disk, DIRECTORY, 24)
    assert disk.list_dir(DIRECTORY) == [f"{5:020d}.snapshot", f"{5:020d}.window"]
