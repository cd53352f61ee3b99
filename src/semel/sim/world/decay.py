"""Bits flip on the disk of a node that has stopped. What is served afterwards is what was there, or nothing."""

from __future__ import annotations

import os
import random as random_module

from semel.broker.broker import Broker
from semel.broker.identity import WrongDirectory
from semel.host.api import FileRange
from semel.log.errors import BrokenLog, CorruptSegment, Refused
from semel.records.batch import check_crc, whole_batches
from semel.records.errors import CorruptBatch, RecordError
from semel.records.read import read_records
from semel.replication.partition import Partition
from semel.sim.disk import SimDisk
from semel.sim.world.afterwards import Logged, Truth, value_of
from semel.sim.world.findings import Findings
from semel.sim.world.node import ROOT

FLIPS = (1, 1, 3, 10)
FETCH_BYTES = 1 << 20
UNCHECKED = ".txnindex"
"""Kafka's index of aborted transactions has no checksum: what flips there is not noticed."""
CLEAN_REFUSALS = (BrokenLog, CorruptSegment, Refused, WrongDirectory, OSError)
"""How a node may refuse to start when its own metadata are damaged: in words, not by falling over."""


def flip_bits(disk: SimDisk, random: random_module.Random, findings: Findings) -> None:
    """In any files but one kind: logs, indexes, snapshots, checkpoints."""
    paths = [path for path in _files(disk, ROOT) if disk.read_file(path) and not path.endswith(UNCHECKED)]
    for _ in range(random.choice(FLIPS)):
        path = random.choice(paths)
        position, bit = random.randrange(len(disk.read_file(path))), random.randrange(8)
        disk.flip_bit(path, position, bit)
        findings.note("disk", f"bit {bit} of byte {position} of {path} flips")
    findings.saw("fault: bit flips")


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
