"""What the files of a partition are: `semel-inventory`, beside them, because Kafka's formats do not say it.

Of each sealed segment the length of its `.log` and, with their checksums, its indexes; of snapshots and epochs as well.
Written when a segment is settled and at a clean stop; before files are removed, they are taken out of it. So whatever
is in it has to be there, and as it says, at the next start. A token ties it to what the node notes at the root of the
data directory (`node_file`): after another program has been there, it counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from crc32c import crc32c

from semel.host.api import Buffer
from semel.log.types import Epoch, Offset

FILE_NAME = "semel-inventory"
_HEAD = "semel-inventory 1"
_NONE = "-"


class SmallFiles(Protocol):
    """What is needed of a disk here."""

    def read_file(self, path: str) -> bytes: ...


class FileState(NamedTuple):
    size_bytes: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.size_bytes}:{self.checksum:08x}"


class SegmentFiles(NamedTuple):
    """None: there is no such file."""

    next_offset: Offset
    log_bytes: int
    offset_index: FileState | None
    time_index: FileState | None
    aborted_index: FileState | None


def state_of(data: Buffer) -> FileState:
    return FileState(len(data), crc32c(bytes(data)))


@dataclass
class Inventory:
    """As it is on disk, or will be when it is written next."""

    token: str = ""
    identity: bytes = b""
    end_offset: Offset = 0
    """Everything below was durable."""
    active: Offset | None = None
    """The segment that was active at a clean stop, when all was listed: it may have grown since."""
    segments: dict[Offset, SegmentFiles] = field(default_factory=dict)
    epochs: list[tuple[Epoch, Offset]] = field(default_factory=list)
    files: dict[str, FileState] = field(default_factory=dict)

    def encode(self) -> bytes:
        lines = [_HEAD, f"token {self.token}", f"identity {self.identity.hex()}", f"end {self.end_offset}"]
        if self.active is not None:
            lines.append(f"active {self.active}")
        lines += [f"epoch {epoch} {offset}" for epoch, offset in self.epochs]
        lines += [f"file {name} {state}" for name, state in self.files.items()]
        lines += [
            f"segment {base} {one.next_offset} {one.log_bytes} "
            f"{one.offset_index or _NONE} {one.time_index or _NONE} {one.aborted_index or _NONE}"
            for base, one in sorted(self.segments.items())
        ]
        return with_checksum(lines)


def with_checksum(lines: Iterable[str]) -> bytes:
    """A text of ours: lines, and a last one that vouches for them."""
    body = ("\n".join(lines) + "\n").encode()
    return body + f"crc {crc32c(body):08x}\n".encode()


def checked_lines(data: bytes, head: str) -> list[str] | None:
    """The lines of such a text without the first and the last; None if it is not whole."""
    body, found, last = data.rstrip(b"\n").rpartition(b"\n")
    body += found
    if last != f"crc {crc32c(body):08x}".encode() or not body.startswith(head.encode() + b"\n"):
        return None
    return body.decode().split("\n")[1:-1]


def decode_inventory(data: bytes) -> Inventory | None:
    """None: it is damaged."""
    lines = checked_lines(data, _HEAD)
    if lines is None:
        return None
    inventory = Inventory()
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "segment":
            base, next_offset, log_bytes, *states = rest.split(" ")
            inventory.segments[int(base)] = SegmentFiles(int(next_offset), int(log_bytes), *map(_state, states))
        elif kind == "file":
            name, state = rest.rsplit(" ", 1)
            inventory.files[name] = FileState(*_numbers(state))
        elif kind == "epoch":
            epoch, offset = rest.split(" ")
            inventory.epochs.append((int(epoch), int(offset)))
        elif kind == "token":
            inventory.token = rest
        elif kind == "identity":
            inventory.identity = bytes.fromhex(rest)
        elif kind == "end":
            inventory.end_offset = int(rest)
        elif kind == "active":
            inventory.active = int(rest)
    return inventory


def _numbers(text: str) -> tuple[int, int]:
    size_bytes, _, checksum = text.partition(":")
    return int(size_bytes), int(checksum, 16)


def _state(text: str) -> FileState | None:
    return None if text == _NONE else FileState(*_numbers(text))


def read_inventory(disk: SmallFiles, directory: str) -> tuple[Inventory | None, bool]:
    """What a partition's directory says of its files, and whether there is such a file at all."""
    try:
        return decode_inventory(disk.read_file(f"{directory}/{FILE_NAME}")), True
    except FileNotFoundError:
        return None, False
