"""The checkpoint files at the root of the data directory."""

from __future__ import annotations

import pytest

from semel.log.checkpoints import encode_checkpoint, read_checkpoint
from semel.sim.disk import SimDisk


def test_a_checkpoint_is_kafkas_and_reads_back() -> None:
    disk = SimDisk()
    offsets = {("b.topic", 3): 7, ("a", 0): 2**40}
    data = encode_checkpoint(offsets)
    assert data == b"0\n2\na 0 1099511627776\nb.topic 3 7\n"
    disk.replace_file_now("/checkpoint", data)
    assert read_checkpoint(disk, "/checkpoint") == offsets


def test_a_missing_checkpoint_is_empty() -> None:
    assert read_checkpoint(SimDisk(), "/checkpoint") == {}


@pytest.mark.parametrize(
    "data", [b"", b"0", b"7\n0\n", b"0\nx\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na b c\n", b"0\n1\n\xff 0 1\n"]
)
def test_a_damaged_checkpoint_is_not_used(data: bytes) -> None:
    disk = SimDisk()
    disk.replace_file_now("/checkpoint", data)
    assert read_checkpoint(disk, "/checkpoint") == {}
