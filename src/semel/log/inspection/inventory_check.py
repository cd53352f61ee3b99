"""Holds the files of a partition against its inventory, as the next start will, and says what that start will do.

It comes last: what the other checks have found in a file is said better by them.
"""

from __future__ import annotations

from crc32c import crc32c

from semel.log.epochs import FILE_NAME as EPOCHS_FILE
from semel.log.inspection.epoch_check import read_epochs_file
from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.surroundings import Surroundings
from semel.log.inventory import FILE_NAME, FileState, Inventory, SegmentFiles, decode_inventory
from semel.log.kept_aside import is_kept_aside
from semel.log.segment import ABORTED_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from semel.log.snapshots import SNAPSHOT_SUFFIX
from semel.log.types import Offset

_PIECE_BYTES = 1 << 20


def check_inventory(partition: PartitionFiles, around: Surroundings, findings: Findings) -> None:
    for name, path in partition.paths.items():
        if is_kept_aside(name):
            findings.add(Kind.KEPT_ASIDE, path, "a start has taken it out of the log, or found it damaged")
    data = partition.read_name(FILE_NAME)
    if data is None:
        return
    inventory = decode_inventory(data)
    if inventory is None:
        findings.add(Kind.BAD_INVENTORY, partition.paths[FILE_NAME], "its checksum does not match")
    elif around.token and inventory.token == around.token and not (around.is_running or partition.is_swapping):
        _InventoryCheck(partition, inventory, around, findings).run()


class _InventoryCheck:
    def __init__(
        self, partition: PartitionFiles, inventory: Inventory, around: Surroundings, findings: Findings
    ) -> None:
        self.partition = partition
        self.inventory = inventory
        self.around = around
        self.findings = findings

        self.told = {finding.path for finding in findings if finding.is_wrong}

    def _add(self, kind: Kind, path: str, what: str, *, offset: Offset | None = None) -> None:
        """Unless it was told already, by those who know better what is wrong with the file."""
        if path not in self.told:
            self.findings.add(kind, path, what, offset=offset)

    def run(self) -> None:
        for base, noted in sorted(self.inventory.segments.items()):
            path = self.partition.path(base, LOG_SUFFIX)
            has_grown = base == self.inventory.active and not self.around.was_clean
            if not self.partition.has(base, LOG_SUFFIX):
                if noted.next_offset > max(self.around.start_offset or 0, base):
                    what = f"it is missing, with offsets {base} to {noted.next_offset - 1}"
                    self._add(Kind.MISSING_SEGMENT, path, what, offset=base)
                continue
            size_bytes = self._size(path)
            if size_bytes < noted.log_bytes or (size_bytes > noted.log_bytes and not has_grown):
                what = f"it has {size_bytes} bytes, but it had {noted.log_bytes}"
                self._add(Kind.WRONG_LENGTH, path, what, offset=base)
            if not has_grown:
                self._indexes(base, noted)
        for name, state in self.inventory.files.items():
            if name.endswith(SNAPSHOT_SUFFIX) or name in self.partition.paths:
                self._file(self.partition.paths.get(name, f"{self.partition.directory}/{name}"), name, state)
        self._epochs()

    def _indexes(self, base: int, noted: SegmentFiles) -> None:
        for suffix, state in (
            (INDEX_SUFFIX, noted.offset_index),
            (TIME_INDEX_SUFFIX, noted.time_index),
            (ABORTED_INDEX_SUFFIX, noted.aborted_index),
        ):
            self._file(self.partition.path(base, suffix), f"{base:020d}{suffix}", state)

    def _file(self, path: str, name: str, noted: FileState | None) -> None:
        found = self._state(path) if name in self.partition.paths else None
        if found != noted:
            what = "it is missing" if found is None else "it is not as it was when it was written"
            self._add(Kind.NOT_AS_WRITTEN, path, what)

    def _epochs(self) -> None:
        """After a crash the file may be newer than the inventory."""
        data = self.partition.read_name(EPOCHS_FILE)
        entries = [] if data is None else read_epochs_file(data)[0]
        if self.around.was_clean and entries != self.inventory.epochs:
            path = f"{self.partition.directory}/{EPOCHS_FILE}"
            self._add(Kind.NOT_AS_WRITTEN, path, "it is not as it was when it was written")

    def _size(self, path: str) -> int:
        file = self.partition.files.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _state(self, path: str) -> FileState:
        file = self.partition.files.open(path)
        try:
            checksum = size_bytes = 0
            while piece := file.read_at(size_bytes, _PIECE_BYTES):
                checksum, size_bytes = crc32c(piece, checksum), size_bytes + len(piece)
            return FileState(size_bytes, checksum)
        finally:
            file.close()
