"""`quorum-state` and the names of snapshots, as Kafka writes them."""

from __future__ import annotations

import pytest

from semel.log.errors import BrokenLog
from semel.quorum.snapshot_files import SnapshotId, remove_unfinished, snapshot_ids
from semel.quorum.state_file import QuorumState, read_state, write_state_now
from semel.sim.disk import SimDisk

DIRECTORY = "/data/__cluster_metadata-0"
KAFKAS = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],'
    b'"data_version":0}'
)
OF_A_DYNAMIC_QUORUM = (
    b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)


def a_disk() -> SimDisk:
    disk = SimDisk(1)
    disk.make_dirs(DIRECTORY)
    return disk


def test_the_state_is_written_as_kafka_writes_it() -> None:
    assert QuorumState(2, 1, voters=(1,)).encode() == KAFKAS


def test_the_state_is_read_back_and_survives_a_loss_of_power() -> None:
    disk = a_disk()
    disk.sync_parents_now(DIRECTORY)
    assert read_state(disk, DIRECTORY) is None
    write_state_now(disk, DIRECTORY, QuorumState(7, 3, 3, (3,)))
    assert read_state(disk.after_power_loss(), DIRECTORY) == QuorumState(7, 3, 3, (3,))


@pytest.mark.parametrize(("data", "epoch"), [(KAFKAS, 2), (OF_A_DYNAMIC_QUORUM, 2)])
def test_kafkas_own_files_are_read(data: bytes, epoch: int) -> None:
    disk = a_disk()
    disk.replace_file_now(f"{DIRECTORY}/quorum-state", data)
    state = read_state(disk, DIRECTORY)
    assert state is not None
    assert state.epoch == epoch


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"leaderEpoch":"x","leaderId":1,"votedId":1}', b"\xff"])
def test_a_damaged_state_is_refused_and_not_taken_for_none(data: bytes) -> None:
    disk = a_disk()
    disk.replace_file_now(f"{DIRECTORY}/quorum-state", data)
    with pytest.raises(BrokenLog, match="quorum-state is damaged"):
        read_state(disk, DIRECTORY)


def test_snapshots_are_found_in_order_and_what_is_not_whole_is_removed() -> None:
    disk = a_disk()
    for name in (SnapshotId(20, 1).name, SnapshotId(3, 9).name, f"{1:020d}-{1:010d}.checkpoint.part", "x.checkpoint"):
        disk.replace_file_now(f"{DIRECTORY}/{name}", b"")
    assert snapshot_ids(disk, DIRECTORY) == [(3, 9), (20, 1)]
    assert SnapshotId(20, 1).name == "00000000000000000020-0000000001.checkpoint"
    remove_unfinished(disk, DIRECTORY)
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".part")]
    assert snapshot_ids(disk, "/nowhere") == []
