"""Compares the leader epochs that a checkpoint file names with those that the batches carry.

Kafka also writes epochs in which nothing was written, and a node may stop before it has written the newest ones down:
so the question is only whether each batch carries the epoch that the file has for its place.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from semel.log.epochs import FILE_NAME, LeaderEpochs
from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.findings import Findings, Kind
from semel.log.types import Epoch, Offset
from semel.records.batch import BatchHeader

_NO_EPOCH = -1


def read_epochs_file(data: bytes) -> tuple[list[tuple[Epoch, Offset]], str | None]:
    """The entries, and what is wrong with the file."""
    try:
        lines = data.decode().split("\n")
        if lines[0] != "0":
            return [], f"version {lines[0][:20]!r}"
        count = int(lines[1])
        entries = [(int(epoch), int(offset)) for epoch, offset in (line.split() for line in lines[2 : 2 + count])]
    except (ValueError, IndexError) as error:
        return [], f"it cannot be read: {error}"
    if len(entries) != count:
        return [], f"it says {count} epochs, {len(entries)} are there"
    if LeaderEpochs(entries).encode() != data:
        return [], "it is not written as such a file is written"
    for (epoch, offset), (next_epoch, next_offset) in pairwise(entries):
        if next_epoch <= epoch or next_offset < offset:
            return [], f"epoch {next_epoch} from offset {next_offset} on comes after epoch {epoch} from {offset} on"
    return entries, None


class EpochCheck:
    """Give it every batch with the one after it; then `finish`."""

    def __init__(self, partition: PartitionFiles, start_offset: Offset | None, findings: Findings) -> None:
        self._findings = findings
        self._path = f"{partition.directory}/{FILE_NAME}"
        data = partition.read_name(FILE_NAME)
        self._is_there = data is not None
        self._entries, self._problem = ([], None) if data is None else read_epochs_file(data)
        if self._problem is not None:
            findings.add(Kind.BAD_EPOCHS, self._path, self._problem)
        # Where records were deleted, the file forgets what came before. Not known where: then it is believed.
        first = self._entries[0][1] if self._entries else 0
        self._from = first if start_offset is None else min(first, start_offset)
        self._before: Epoch = _NO_EPOCH
        self._agreed_before = bool(self._entries)
        self._is_reported = False
        self._known: tuple[Epoch, Offset, Offset] = (_NO_EPOCH, 0, 0)

    def batch(
        self, path: str, position: int, header: BatchHeader, following: BatchHeader | None, *, is_trusted: bool
    ) -> None:
        epoch, offset = header.partition_leader_epoch, header.base_offset
        known, start, end = self._known
        if not start <= offset < end:
            known = self._epoch_at(offset)
        agrees = epoch in (known, _NO_EPOCH)
        if not agrees and offset >= self._from:
            if self._is_to_blame(header, following):
                what = f"the batch says leader epoch {epoch}, but {known} is that of its place"
                self._findings.add(Kind.WRONG_LEADER_EPOCH, path, what, position=position, offset=offset)
            else:
                self._blame_file(epoch, known, offset, is_trusted)
        self._before, self._agreed_before = epoch, agrees

    def _is_to_blame(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        """Whether the batch alone differs from the file, and its neighbours do not."""
        if not self._entries:
            return header.partition_leader_epoch < self._before
        if following is None:
            return self._agreed_before and header.partition_leader_epoch < self._entries[-1][0]
        after = following.partition_leader_epoch
        return self._agreed_before and after in (_NO_EPOCH, self._epoch_at(following.base_offset))

    def _blame_file(self, epoch: Epoch, known: Epoch, offset: Offset, is_trusted: bool) -> None:
        if self._is_reported or self._problem is not None:
            return
        newest = self._entries[-1][0] if self._entries else _NO_EPOCH
        if epoch > newest and not is_trusted:
            return  # not written down yet: the next start reads it from the batch
        self._is_reported = True
        what = f"it has epoch {known} for offset {offset}, the batch there says {epoch}"
        if not self._entries:
            what = "it is empty" if self._is_there else "the file is missing"
        self._findings.add(Kind.STALE_EPOCHS, self._path, what, offset=offset)

    def _epoch_at(self, offset: Offset) -> Epoch:
        number = bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        epoch, start = self._entries[number] if number >= 0 else (_NO_EPOCH, -1)
        end = self._entries[number + 1][1] if number + 1 < len(self._entries) else 1 << 63
        self._known = (epoch, start, end)
        return epoch

    def finish(self, end_offset: Offset, *, was_clean: bool) -> None:
        """After an unclean stop the next start forgets epochs of what was cut."""
        for epoch, start in self._entries if was_clean else ():
            if start > end_offset:
                what = f"it has epoch {epoch} from offset {start} on, but the log ends at {end_offset}"
                self._findings.add(Kind.STALE_EPOCHS, self._path, what, offset=start)
