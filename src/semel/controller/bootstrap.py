"""`bootstrap.checkpoint`: the levels that the log of a new cluster begins with, as `storage format` left them.

Kafka's name and form: batches of records, such as a snapshot. The first controller writes them into the log; the file
is not read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from semel.controller.image import MetadataImage
from semel.controller.levels import LEVEL_OF_A_CLUSTER, features_at
from semel.controller.snapshot import decode_snapshot, encode_snapshot
from semel.host.api import Disk
from semel.log.errors import BrokenLog
from semel.records.errors import RecordError
from semel.wire.errors import WireError
from semel.wire.spec.metadata_records import FeatureLevelRecord, MetadataRecord, UserScramCredentialRecord

FILE = "bootstrap.checkpoint"


def write_bootstrap(disk: Disk, root: str, level: int, now_ms: int, more: Iterable[MetadataRecord] = ()) -> None:
    """`more`: what else the log begins with, such as credentials."""
    image = MetadataImage()
    for record in more:
        image.replay(record)
    for name, finalized in features_at(level).items():
        image.replay(FeatureLevelRecord(name=name, feature_level=finalized))
    disk.replace_file_now(f"{root}/{FILE}", encode_snapshot(image, 0, now_ms))


def first_features(disk: Disk, root: str) -> Mapping[str, int]:
    """The features of a new cluster. A directory that somebody else has formatted need not say."""
    found = {one.name: one.feature_level for one in _records(disk, root) if isinstance(one, FeatureLevelRecord)}
    return found or features_at(LEVEL_OF_A_CLUSTER)


def first_credentials(disk: Disk, root: str) -> list[MetadataRecord]:
    """The users that can log in to a new cluster."""
    return [one for one in _records(disk, root) if isinstance(one, UserScramCredentialRecord)]


def _records(disk: Disk, root: str) -> list[MetadataRecord]:
    path = f"{root}/{FILE}"
    if not disk.exists(path):
        return []
    try:
        return list(decode_snapshot(disk.read_file(path)))
    except (RecordError, WireError) as error:
        raise BrokenLog(f"{path} is damaged: format the directory again") from error
