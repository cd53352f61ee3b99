"""What the metadata log of a data directory says of its topics: their ids and whether they are compacted."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from semel.log.inspection.files import Files, PartitionFiles, open_partition
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.scan import scan
from semel.log.segment import LOG_SUFFIX
from semel.records.batch import BatchHeader
from semel.records.errors import RecordError
from semel.records.read import record_values
from semel.wire.errors import WireError
from semel.wire.spec.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
)

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_SNAPSHOT_SUFFIX = ".checkpoint"
_TOPIC = 2
_CLEANUP_POLICY = "cleanup.policy"


@dataclass
class Topics:
    """Ids by name as Kafka writes them, and the settings of each topic that has some. `is_whole`: nothing was skipped
    that could have said otherwise."""

    ids: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    is_whole: bool = True

    def replay(self, record: MetadataRecord) -> None:
        if isinstance(record, TopicRecord):
            self.ids[record.name] = id_text(record.topic_id)
        elif isinstance(record, RemoveTopicRecord):
            gone = id_text(record.topic_id)
            for name in [name for name, topic_id in self.ids.items() if topic_id == gone]:
                del self.ids[name]
                self.settings.pop(name, None)
        elif isinstance(record, ConfigRecord) and record.resource_type == _TOPIC:
            settings = self.settings.setdefault(record.resource_name, {})
            if record.value is None:
                settings.pop(record.name, None)
            else:
                settings[record.name] = record.value

    def compacts(self, name: str) -> bool:
        return "compact" in self.settings.get(name, {}).get(_CLEANUP_POLICY, "delete")


def id_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def read_topics(files: Files, root: str) -> Topics | None:
    """From the newest whole snapshot and the log after it; None when the directory holds no metadata."""
    directory = f"{root}/{METADATA_TOPIC}-0"
    if not files.is_dir(directory):
        return None
    partition = open_partition(files, directory)
    topics, start = Topics(), 0
    for name in sorted((name for name in partition.paths if name.endswith(_SNAPSHOT_SUFFIX)), reverse=True):
        if wrong_with_snapshot(files, partition.paths[name]) is None:
            start = int(name[:20])
            _replay_file(files, partition.paths[name], topics, 0)
            break
    if not partition.bases and not start:
        return None
    topics.is_whole = topics.is_whole and (not partition.bases or partition.bases[0] <= start)
    for base in partition.bases:
        _replay_file(files, partition.path(base, LOG_SUFFIX), topics, start)
    return topics


def _replay_file(files: Files, path: str, topics: Topics, start: int) -> None:
    file = files.open(path)
    try:
        for scanned in scan(file, file.size()):
            if scanned.header is None or scanned.batch is None:
                topics.is_whole = False
            elif scanned.header.base_offset >= start and not scanned.header.is_control:
                _replay_batch(scanned.header, scanned.batch, topics)
    finally:
        file.close()


def _replay_batch(header: BatchHeader, batch: memoryview, topics: Topics) -> None:
    try:
        values = record_values(batch, header)
    except RecordError:
        topics.is_whole = False
        return
    for value in values:
        try:
            if value is not None:
                topics.replay(decode_metadata_record(value))
        except WireError:
            continue  # Kafka has records of kinds that nobody here needs


def check_metadata_snapshots(partition: PartitionFiles, findings: Findings) -> None:
    for name, path in partition.paths.items():
        if name.endswith(_SNAPSHOT_SUFFIX):
            problem = wrong_with_snapshot(partition.files, path)
            if problem is not None:
                findings.add(Kind.BAD_METADATA_SNAPSHOT, path, problem)


def wrong_with_snapshot(files: Files, path: str) -> str | None:
    """A snapshot is whole when every CRC fits and a control batch stands at its begin and at its end."""
    if not path.rpartition("/")[2][:20].isdigit():
        return "its name does not begin with an offset"
    file = files.open(path)
    try:
        is_first, is_control = True, False
        for scanned in scan(file, file.size()):
            if scanned.problem is not None or scanned.header is None:
                return f"at byte {scanned.position}: {scanned.problem}"
            is_control = scanned.header.is_control
            if is_first and not is_control:
                return "it does not begin with its header record"
            is_first = False
        return None if is_control and not is_first else "it does not end with its footer record"
    finally:
        file.close()
