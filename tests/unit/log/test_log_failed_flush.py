"""A flush has failed, the node has ended itself, the machine goes on: what the next node reads was perhaps never
written to the disk, although the next flush says that it was."""

from __future__ import annotations

import pytest
from log_samples import batch, load, new_log, offsets_from, write

from semel.log.log import IDENTITY_FILE
from semel.sim.disk import SimDisk
from semel.sim.loop import run


@pytest.mark.parametrize("seed", range(20))
def test_what_a_start_has_found_outlives_a_power_cut_after_a_flush_had_failed(seed: int) -> None:
    disk = SimDisk(seed)
    log = new_log(disk)
    write(log, batch(b"flushed" * 50))
    run(log.flush())
    for _ in range(5):
        write(log, batch(b"in the page cache only" * 20))
    disk.fail_at("flush")
    with pytest.raises(OSError, match="Input/output"):
        run(log.flush())
    killed = disk.after_kill()
    found, _ = load(killed, recovery_point=1)
    assert offsets_from(found, 0) == [0, 1, 2, 3, 4, 5], "it is served, so it must not go away any more"
    again, _ = load(killed.after_power_loss(seed))
    assert offsets_from(again, 0) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(20))
def test_the_identity_that_a_killed_node_had_not_flushed_outlives_a_power_cut(seed: int) -> None:
    disk = SimDisk(seed)
    log = new_log(disk)
    log.identity = b"version: 0\ntopic_id: somebody"
    write(log, batch(b"x"))
    killed = disk.after_kill()
    found, _ = load(killed)
    run(found.flush())
    assert killed.after_power_loss(seed).read_file(f"{log.directory}/{IDENTITY_FILE}") == log.identity


def test_what_was_durable_is_not_written_again() -> None:
    disk = SimDisk(1)
    log = new_log(disk)
    for _ in range(3):
        write(log, batch(b"x" * 100))
    run(log.flush())
    killed = disk.after_kill()
    load(killed, recovery_point=3)
    assert not [call for call in killed.log if call.kind == "write" and call.path.endswith(".log")]
