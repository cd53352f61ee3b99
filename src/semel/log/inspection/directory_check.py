"""Checks a data directory: its checkpoints and identity, and each partition in it, with what the one says of the other.

Works beside a running node too: then the end of each active segment, and what a node writes only when it stops, cannot
be judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from semel.host.boot import boot_id
from semel.log.checkpoints import CLEANER_OFFSETS, LOG_STARTS, RECOVERY_POINTS, TopicPartition
from semel.log.flushed_marks import Marks, read_marks
from semel.log.inspection.files import Files, PartitionFiles, open_partition, partition_of
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.inventory_check import check_inventory
from semel.log.inspection.metadata import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    Topics,
    check_metadata_snapshots,
    read_topics,
)
from semel.log.inspection.partition_check import check_partition
from semel.log.inspection.surroundings import ALONE, Surroundings
from semel.log.log import IDENTITY_FILE
from semel.log.node_file import NodeFile, read_node_file
from semel.log.segment import LOG_SUFFIX
from semel.log.snapshots import SNAPSHOT_SUFFIX, WINDOW_SUFFIX
from semel.log.types import Offset

CLEAN_STOP = ".kafka_cleanshutdown"
LOCK = ".lock"
PROPERTIES = "meta.properties"
_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)
_IDENTITY = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?\Z")
_MORE_LOOKS = 3
_DOOMED = re.compile(r".*-(delete|stray|future)\Z")


def is_root(files: Files, directory: str) -> bool:
    """Whether this is the root of a data directory."""
    return any(files.exists(f"{directory}/{name}") for name in (PROPERTIES, *_CHECKPOINTS))


def partition_directories(files: Files, root: str) -> list[str]:
    """The directories of the partitions in a data directory, those without a file left out."""
    found: list[str] = []
    for name in files.list_dir(root):
        path = f"{root}/{name}"
        if partition_of(path) is None or _DOOMED.match(name) or not files.is_dir(path):
            continue
        if any(inner.endswith(LOG_SUFFIX) or inner == IDENTITY_FILE for inner in files.list_dir(path)):
            found.append(path)
    return found


def log_bytes(files: Files, directory: str) -> int:
    """How much a check of this partition reads."""
    total = 0
    partition = open_partition(files, directory)
    for base in partition.bases:
        try:
            file = files.open(partition.path(base, LOG_SUFFIX))
        except FileNotFoundError:
            continue
        total += file.size()
        file.close()
    return total


@dataclass
class DirectoryCheck:
    """`partitions` one by one, so that whoever calls can tell how far it is; the root's own files with `root_files`."""

    files: Files
    root: str | None
    findings: Findings
    is_running: bool = False
    opens_records: bool = False
    progress: Callable[[int], None] = lambda _: None

    def __post_init__(self) -> None:
        self._checkpoints: dict[str, dict[TopicPartition, Offset] | None] = {}
        self._topics: Topics | None = None
        self._read_root()

    def _read_root(self) -> None:
        self._node: NodeFile | None = None
        self._marks = Marks("", "", {}, set())
        if self.root is not None:
            found = read_node_file(self.files, self.root)
            mark_path = f"{self.root}/{CLEAN_STOP}"
            mark = self.files.read_file(mark_path) if self.files.exists(mark_path) else None
            if found is not None and (self.is_running or found.is_last_to_have_been_here(mark)):
                self._node = found
                marks = read_marks(self.files, self.root)
                self._marks = marks if marks.token == found.token else self._marks
            self._checkpoints = {name: self._read_checkpoint(name) for name in _CHECKPOINTS}
            try:
                self._topics = read_topics(self.files, self.root)
            except FileNotFoundError:
                self._topics = None  # a running node has removed what it has a snapshot of

    def root_files(self) -> None:
        """Reports what is wrong with the files at the root."""
        if self.root is None:
            return
        for name in _CHECKPOINTS:
            self._read_checkpoint(name, reports=True)
            path, is_always_there = f"{self.root}/{name}", name != CLEANER_OFFSETS
            is_there = self.files.exists(path) and self.files.read_file(path)
            if is_always_there and not is_there and self.files.exists(f"{self.root}/{CLEAN_STOP}"):
                self.findings.add(Kind.BAD_CHECKPOINT, path, "a clean stop writes it, and it is missing or empty")
        self._check_strangers()
        self._check_lost_partitions()
        path = f"{self.root}/{PROPERTIES}"
        try:
            lines = self.files.read_file(path).decode().splitlines()
        except FileNotFoundError:
            self.findings.add(Kind.BAD_PROPERTIES, path, "the file is missing")
            return
        except UnicodeDecodeError:
            self.findings.add(Kind.BAD_PROPERTIES, path, "it is not a text")
            return
        properties = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        for key in ("version", "cluster.id", "node.id"):
            if not properties.get(key):
                self.findings.add(Kind.BAD_PROPERTIES, path, f"it has no {key}")
        if not properties.get("node.id", "0").isdigit():
            self.findings.add(Kind.BAD_PROPERTIES, path, f"node.id is {properties['node.id'][:40]!r}")

    def _check_strangers(self) -> None:
        """A node that stops cleanly writes down the logs that it has, and where each of them ends."""
        if not self.files.exists(f"{self.root}/{CLEAN_STOP}"):
            return
        for name, offsets in self._checkpoints.items():
            for topic, number in offsets or ():
                if not self.files.is_dir(f"{self.root}/{topic}-{number}"):
                    what = f"{topic} {number} is in it, but there is no such log"
                    self.findings.add(Kind.WRONG_CHECKPOINT, f"{self.root}/{name}", what)

    def _check_lost_partitions(self) -> None:
        noted = {} if self._node is None else dict(self._node.partitions)
        for (topic, number), one in noted.items():
            path = f"{self.root}/{topic}-{number}"
            known = None if self._topics is None else self._topics.ids.get(topic)
            is_known = topic == METADATA_TOPIC or known == one.topic_id
            if is_known and one.recovery_point > one.start_offset and not self.files.is_dir(path):
                what = f"it is missing, with offsets {one.start_offset} to {one.recovery_point - 1}"
                self.findings.add(Kind.LOST_PARTITION, path, what)

    def partition(self, directory: str) -> None:
        found = self._partition(directory)
        for _ in range(_MORE_LOOKS if self.is_running else 0):
            if not found.is_wrong:
                break
            # Files come and go while a node is at work. What is really wrong stays so.
            self._read_root()
            found = found.confirmed_by(self._partition(directory))
        self.findings.absorb(found)

    def _partition(self, directory: str) -> Findings:
        findings = Findings()
        try:
            self._check_partition(directory, findings)
        except FileNotFoundError as error:
            if not self.is_running:
                raise
            findings.add(Kind.VANISHED, str(error.filename), "it was removed meanwhile")
        return findings

    def _check_partition(self, directory: str, findings: Findings) -> None:
        partition = open_partition(self.files, directory)
        key = partition_of(directory)
        around = ALONE if key is None else self._surroundings(key)
        self._check_identity(partition, around, findings)
        end = check_partition(partition, findings, around, opens_records=self.opens_records, progress=self.progress)
        check_inventory(partition, around, findings)
        if key is None:
            return
        if key[0] == METADATA_TOPIC:
            check_metadata_snapshots(partition, findings)
        for name in (LOG_STARTS, CLEANER_OFFSETS):
            offset = (self._checkpoints.get(name) or {}).get(key)
            if offset is not None and end is not None and offset > end and not self.is_running:
                what = f"{key[0]} {key[1]}: offset {offset} is beyond the end of the log, {end}"
                findings.add(Kind.WRONG_CHECKPOINT, f"{self.root}/{name}", what, offset=offset)
        point = around.recovery_point
        if around.was_clean and end is not None and point != end and partition.offsets(WINDOW_SUFFIX):
            is_short = point is not None and point > end and end not in partition.offsets(SNAPSHOT_SUFFIX)
            if self._checkpoints.get(RECOVERY_POINTS) is None or is_short:
                return  # told already: the file cannot be read, or the log is too short
            what = f"{key[0]} {key[1]}: everything up to offset {end} was durable at the stop, not {point}"
            findings.add(Kind.WRONG_CHECKPOINT, f"{self.root}/{RECOVERY_POINTS}", what, offset=end)

    def _surroundings(self, key: TopicPartition) -> Surroundings:
        if self.root is None:
            return Surroundings(is_running=self.is_running)
        starts, topic = self._checkpoints[LOG_STARTS], key[0]
        is_metadata = topic == METADATA_TOPIC
        topics = self._topics
        is_known = topics is not None and topic in topics.ids
        topic_id = METADATA_TOPIC_ID if is_metadata else topics.ids.get(topic) if topics is not None else None
        owner = (*key, topic_id or "")
        point, marked = (self._checkpoints[RECOVERY_POINTS] or {}).get(key), self._marks.offsets.get(owner)
        return Surroundings(
            recovery_point=point if marked is None else max(point or 0, marked),
            # The metadata log goes by its snapshots.
            start_offset=None if starts is None or is_metadata else starts.get(key, 0),
            cleaned_to=(self._checkpoints[CLEANER_OFFSETS] or {}).get(key),
            was_clean=self.files.exists(f"{self.root}/{CLEAN_STOP}"),
            is_running=self.is_running,
            topic_id=topic_id,
            compacts=topics.compacts(topic) if topics is not None and is_known else None,
            is_stranger=topics is not None and topics.is_whole and not is_known and not is_metadata,
            token="" if self._node is None else self._node.token,
            is_same_boot=owner in self._marks.of_boot(boot_id()),
        )

    def _read_checkpoint(self, name: str, *, reports: bool = False) -> dict[TopicPartition, Offset] | None:
        """What it says; None when it is missing or damaged."""
        path = f"{self.root}/{name}"
        try:
            text = self.files.read_file(path).decode()
            if not text:
                return None  # Kafka makes the files when it starts, and writes to them later
            lines = text.split("\n")
            found: dict[TopicPartition, Offset] = {}
            problem = None if lines[0] == "0" else f"version {lines[0][:20]!r}"
            for line in lines[2:-1]:
                topic, partition, offset = line.split(" ")
                found[topic, int(partition)] = int(offset)
            rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in found.items()]
            if problem is None and text != "\n".join(["0", str(len(rows)), *rows, ""]):
                problem = (
                    f"it says {lines[1][:20]} partitions, {len(found)} are there, or it is not written as it should"
                )
        except FileNotFoundError:
            return None
        except (ValueError, IndexError) as error:
            problem = f"it cannot be read: {error}"
        if problem is not None:
            if reports:
                self.findings.add(Kind.BAD_CHECKPOINT, path, problem)
            return None
        return found

    def _check_identity(self, partition: PartitionFiles, around: Surroundings, findings: Findings) -> None:
        path = f"{partition.directory}/{IDENTITY_FILE}"
        data = partition.read_name(IDENTITY_FILE)
        if around.is_stranger:
            findings.add(Kind.STRANGER, partition.directory, "no topic of this name is in the metadata")
        if data is None:
            if around.topic_id is not None and partition.bases:
                findings.add(Kind.MISSING_IDENTITY, path, f"it is missing; the topic's id is {around.topic_id}")
            return
        found = _IDENTITY.match(data)
        is_clean = bool(around.was_clean)
        if not data and not is_clean:
            return  # a node takes it for its own
        said = f"it says {data.decode(errors='replace')[:80]!r}"
        if around.topic_id is None:
            if found is None:
                findings.add(Kind.BAD_IDENTITY, path, said)
        elif found is None or found[1].decode() != around.topic_id:
            right = f"version: 0\ntopic_id: {around.topic_id}".encode()
            is_torn = right.startswith(data.rstrip(b"\0")) and not is_clean
            was_durable = around.recovery_point or partition.offsets(SNAPSHOT_SUFFIX)
            kind = Kind.TORN_IDENTITY if is_torn and not was_durable else Kind.WRONG_IDENTITY
            findings.add(kind, path, f"{said}, but the topic's id is {around.topic_id}")
