"""Which leader epoch began at which offset: Kafka's `leader-epoch-checkpoint`.

Followers and consumers ask it where an epoch ended, to find out where two logs part.
"""

from semel.host.api import Disk
from semel.log.types import Epoch, Offset

FILE_NAME = "leader-epoch-checkpoint"
_VERSION = "0"
UNDEFINED = (-1, -1)


class LeaderEpochs:
    """The epochs of one log, oldest first. `is_dirty` until written; recovery finds unwritten ones in the batches."""

    def __init__(self, entries: list[tuple[Epoch, Offset]] | None = None) -> None:
        self.entries = entries or []
        self.is_dirty = False

    @property
    def latest(self) -> Epoch:
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Batches from `start_offset` on carry `epoch`. An epoch that wrote nothing leaves no trace."""
        if epoch <= self.latest:
            return
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        self.is_dirty = True

    def end_offset_for(self, epoch: Epoch, log_end_offset: Offset) -> tuple[Epoch, Offset]:
        """The largest epoch that is not above `epoch`, and where it ended (KIP-320)."""
        if epoch == self.latest:
            return epoch, log_end_offset
        if epoch < 0 or not self.entries or epoch > self.latest:
            return UNDEFINED
        for number, (known, _) in enumerate(self.entries):
            if known > epoch:
                if number == 0:
                    # The request is older than anything here: what it wrote is gone, the log begins with `known`.
                    return epoch, self.entries[0][1]
                return self.entries[number - 1][0], self.entries[number][1]
        return UNDEFINED

    def epoch_at(self, offset: Offset) -> Epoch:
        found = -1
        for epoch, start_offset in self.entries:
            if start_offset > offset:
                break
            found = epoch
        return found

    def truncate_end(self, end_offset: Offset) -> None:
        while self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()
            self.is_dirty = True

    def clear(self) -> None:
        """Of a log that holds nothing; its file is gone as well."""
        self.entries.clear()
        self.is_dirty = False

    def truncate_start(self, start_offset: Offset) -> None:
        """Forgets epochs that ended before `start_offset`; the one it lies in now begins there."""
        while len(self.entries) > 1 and self.entries[1][1] <= start_offset:
            self.entries.pop(0)
            self.is_dirty = True
        if self.entries and self.entries[0][1] < start_offset:
            self.entries[0] = (self.entries[0][0], start_offset)
            self.is_dirty = True

    def encode(self) -> bytes:
        lines = [_VERSION, str(len(self.entries)), *(f"{epoch} {offset}" for epoch, offset in self.entries)]
        return ("\n".join(lines) + "\n").encode()


def read_epochs(disk: Disk, directory: str) -> LeaderEpochs:
    """What the checkpoint says; nothing, when it is missing or damaged: recovery reads the epochs from the batches."""
    try:
        lines = disk.read_file(f"{directory}/{FILE_NAME}").decode().split("\n")
        if lines[0] != _VERSION:
            return LeaderEpochs()
        entries = [
            (int(epoch), int(offset)) for epoch, offset in (line.split() for line in lines[2 : 2 + int(lines[1])])
        ]
    except (FileNotFoundError, ValueError, IndexError, UnicodeDecodeError):
        return LeaderEpochs()
    return LeaderEpochs(entries)
