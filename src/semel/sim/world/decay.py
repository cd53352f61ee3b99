"""Bits flip on the disk of a node that runs, until they are mended, or of one that has stopped. What is served is what
was there, or nothing."""

from __future__ import annotations

import os
import random as random_module
from typing import NamedTuple

from semel.broker.broker import Broker
from semel.host.api import FileRange
from semel.log.errors import CorruptSegment, Refused
from semel.records.batch import check_crc, whole_batches
from semel.records.errors import CorruptBatch, RecordError
from semel.records.read import read_records
from semel.replication.partition import Partition
from semel.sim.disk import SimDisk
from semel.sim.world.afterwards import Logged, Truth, value_of
from semel.sim.world.findings import Findings
from semel.sim.world.node import ROOT, SimulatedNode
from semel.sim.world.schedule import StrikeKind

FLIPS = (1, 1, 3, 10)
FETCH_BYTES = 1 << 20
UNCOVERED_BYTES = 16
"""The first of a batch: its offset, its length and the epoch of the leader."""
UNCHECKED = ".txnindex"
"""Kafka's index of aborted transactions has no checksum, and what vouches for it beside it may have flipped as well."""


class Flipped(NamedTuple):
    """`content` is that of the whole file since."""

    path: str
    position: int
    bit: int
    content: bytes


class Rot:
    """Bits that have flipped and will be mended. Only in segments that are sealed and settled: of what a power cut may
    take, a start cannot tell which it was."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._flipped: list[Flipped] = []

    def flip(self, pick: int, share: float) -> str:
        """Returns the path of the file, or nothing if there is none to be damaged."""
        disk = self._node.disk
        sealed = [
            (topic, segment)
            for (topic, _), log in self._node.broker.store.logs.items()
            for segment in log.segments[:-1]
            if log.is_settled(segment) and segment.size_bytes
        ]
        if not sealed:
            return ""
        read = [(topic, segment) for topic, segment in sealed if not topic.startswith("__")]
        among = read if read and pick // 512 % 4 else sealed
        _, segment = among[pick % len(among)]
        paths = [segment.path, segment.path, segment.offset_index.path, segment.time_index.path]
        path = paths[pick // 8 % len(paths)]
        content = disk.content_of(path)
        if not content:
            path, content = segment.path, disk.content_of(segment.path)
        assert content
        position, bit = int(share * len(content)), pick // 64 % 8
        if path == segment.path:
            position = _covered(self._mended(path, content), position)
        disk.flip_bit(path, position, bit)
        self._flipped.append(Flipped(path, position, bit, disk.content_of(path) or b""))
        self._node.is_rotten = True
        return path

    def _mended(self, path: str, content: bytes) -> bytes:
        """What the file would be without what has flipped in it so far: damage may hide where its batches begin."""
        for flipped in reversed(self._flipped):
            if flipped.path == path and flipped.content == content:
                content = _with_bit_flipped(content, flipped.position, flipped.bit)
        return content

    def mend(self) -> bool:
        """Files that are still as they were then are mended; the others were removed or made anew. Whether there was
        something to mend."""
        disk, were_flipped = self._node.disk, bool(self._flipped)
        for path, position, bit, content in reversed(self._flipped):
            if disk.content_of(path) == content:
                disk.flip_bit(path, position, bit)
        self._flipped.clear()
        self._node.is_rotten = False
        return were_flipped


def _with_bit_flipped(content: bytes, position: int, bit: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :]


def _covered(content: bytes, position: int) -> int:
    """No checksum covers the offset and the epoch in front of a batch. A node holds them against the batches around
    when it reads a segment for the first time, but not in what it has written itself."""
    for start, header in whole_batches(content):
        if start <= position < start + header.size_bytes:
            within = position - start
            return position + UNCOVERED_BYTES if within < 8 or 12 <= within < UNCOVERED_BYTES else position
    return position


def flip_bits(disk: SimDisk, random: random_module.Random, findings: Findings) -> None:
    """In any files but one kind: logs, indexes, snapshots, checkpoints."""
    paths = [path for path in _files(disk, ROOT) if disk.read_file(path) and not path.endswith(UNCHECKED)]
    for _ in range(random.choice(FLIPS)):
        path = random.choice(paths)
        position, bit = random.randrange(len(disk.read_file(path))), random.randrange(8)
        disk.flip_bit(path, position, bit)
        findings.note("disk", f"bit {bit} of byte {position} of {path} flips")
    findings.saw(f"fault: {StrikeKind.BIT_FLIP.value}")


def _files(disk: SimDisk, directory: str) -> list[str]:
    found: list[str] = []
    for name in disk.list_dir(directory):
        path = os.path.join(directory, name)
        found += _files(disk, path) if disk.is_dir(path) else [path]
    return found


def check_served(broker: Broker, truth: Truth, findings: Findings) -> None:
    for (topic, index), logged in truth.items():
        try:
            partition = broker.topics.partition(topic, index)
        except Refused:
            continue  # it is damaged, and so it is not there
        for is_committed in (True, False):
            _check_partition(partition, logged, is_committed, findings)


def _check_partition(partition: Partition, logged: list[Logged], is_committed: bool, findings: Findings) -> None:
    known = {one.offset: one for one in logged}
    offset = partition.log.start_offset
    while offset < partition.log.high_watermark:
        try:
            fetched = partition.fetch(offset, FETCH_BYTES, read_committed=is_committed, at_least_one=True, warmed=True)
        except (Refused, CorruptSegment):
            offset += 1
            continue
        if not isinstance(fetched.records, FileRange):
            return
        data = fetched.records.read()
        fetched.records.release()
        aborted = {(one.producer_id, one.first_offset, one.last_offset) for one in fetched.aborted or ()}
        offset = max(offset + 1, _check_bytes(partition, data, known, aborted, is_committed, findings))


def _check_bytes(
    partition: Partition,
    data: bytes,
    known: dict[int, Logged],
    aborted: set[tuple[int, int, int]],
    is_committed: bool,
    findings: Findings,
) -> int:
    name, end = f"{partition.topic}-{partition.index}", 0
    for position, header in whole_batches(data):
        batch = data[position : position + header.size_bytes]
        end = header.next_offset
        try:
            if not check_crc(batch, 0, header):
                raise CorruptBatch("its checksum is wrong")
            records = [] if header.is_control else list(read_records(batch, header))
        except RecordError as error:
            findings.wrong("damage served", f"{name} at {header.base_offset}: {error}")
            continue
        is_dropped = is_committed and any(
            producer_id == header.producer_id and first <= header.base_offset <= last
            for producer_id, first, last in aborted
        )
        for record in records:
            was = known.get(record.offset)
            if was is None or was.value != value_of(record.value):
                text = f"{name} at {record.offset}: {value_of(record.value)}, but {was} was there"
                findings.wrong("damage served", text)
            elif is_committed and is_dropped == bool(was.is_committed):
                text = f"{name} at {record.offset} counts as {'aborted' if is_dropped else 'committed'}: {was}"
                findings.wrong("damage served", text)
    return end
