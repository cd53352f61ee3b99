"""Levels of `metadata.version` and of the other features: what belongs to each, and which this program supports.

The level says in which versions records are written and how brokers speak to each other, so that nodes of an older
program, ours or Kafka's, can read and answer. It is finalized in the metadata log and raised by UpdateFeatures alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from semel.controller.image import ELR_VERSION, LEAST_METADATA_VERSION, METADATA_VERSION
from semel.wire.spec.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"

# metadata.version from which on ...
SCRAM_CREDENTIALS = 11  # ... users have SCRAM credentials (KIP-900)
WITHOUT_EPOCH_AT_SHRINK = 12  # ... an ISR that shrinks begins no leader epoch
METADATA_TRANSACTIONS = 13  # ... there are metadata transactions
CONTROLLER_REGISTRATION = 15  # ... controllers register
DIRECTORIES = 17  # ... registrations and partitions name directories (KIP-858)
DYNAMIC_QUORUM = 21  # ... kraft.version can be 1 (KIP-853)
ELR = 23  # ... partitions have eligible leader replicas (KIP-966)
ELR_BY_DEFAULT = 26  # ... and new clusters keep them
CORDONED_DIRECTORIES = 30  # ... directories can be cordoned (KIP-1066)

# Levels that brought something into the metadata log: going back below one of them would lose it.
_CHANGES_METADATA = (8, 11, 13, 14, 15, 17, 23, 30)


class Range(NamedTuple):
    least: int
    most: int


# What a broker of this program offers. It takes part in clusters whose share and streams groups are on, and serves
# neither: a client that asks for them is told that the API is not served.
SUPPORTED_FEATURES: Mapping[str, Range] = {
    METADATA_VERSION: Range(LEAST_METADATA_VERSION, CORDONED_DIRECTORIES),
    KRAFT_VERSION: Range(0, 1),
    TRANSACTION_VERSION: Range(0, 2),
    GROUP_VERSION: Range(0, 1),
    ELR_VERSION: Range(0, 1),
    "share.version": Range(0, 1),
    "streams.version": Range(0, 1),
}

# A node alone begins at the level of Kafka 3.3: a directory can be used by an older program as long as nobody raises
# it, and nothing that later levels bring is needed where there is one replica.
LEVEL_OF_A_NODE_ALONE = LEAST_METADATA_VERSION
# A cluster begins at the level of Kafka 4.1: broker epochs in fetches, directories, eligible leader replicas. What
# later levels bring (share and streams groups, cordoned directories) is not served here, and brokers of Kafka 4.1 could
# not join.
LEVEL_OF_A_CLUSTER = 27

# What Kafka calls the levels, from the least on; a release alone stands for its last one.
_RELEASES = {"3.4": 1, "3.5": 3, "3.6": 3, "3.7": 5, "3.8": 1, "3.9": 1, "4.0": 4, "4.1": 2, "4.2": 2, "4.3": 1}
_NAMES = ("3.3-IV3", *(f"{release}-IV{number}" for release, count in _RELEASES.items() for number in range(count)))
RELEASES: Mapping[str, int] = {
    name: level
    for level, full_name in enumerate(_NAMES, LEAST_METADATA_VERSION)
    for name in (full_name, full_name.partition("-")[0])
}


def features_at(level: int) -> dict[str, int]:
    """What a new log finalizes with this metadata.version: the features that Kafka turns on by itself at it, and those
    that need no level, as all nodes of this program know them."""
    features = {METADATA_VERSION: level, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    if level >= ELR_BY_DEFAULT:
        features[ELR_VERSION] = 1
    return features


def is_lossless(lower: int, upper: int) -> bool:
    """Whether a log at `upper` holds nothing that `lower` cannot say."""
    return not any(lower < level <= upper for level in _CHANGES_METADATA)


def _registration(level: int) -> int:
    return 4 if level >= CORDONED_DIRECTORIES else 3 if level >= DIRECTORIES else 2 if level >= 8 else 1


def _registration_change(level: int) -> int:
    return 3 if level >= CORDONED_DIRECTORIES else 2 if level >= DIRECTORIES else 1


def _partition(level: int) -> int:
    return 2 if level >= ELR else 1 if level >= DIRECTORIES else 0


_VERSIONS: dict[type[MetadataRecord], Callable[[int], int]] = {
    RegisterBrokerRecord: _registration,
    BrokerRegistrationChangeRecord: _registration_change,
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition,
}


def record_version(record: MetadataRecord, level: int) -> int:
    """The version in which a record is written; all others have one."""
    version_at = _VERSIONS.get(type(record))
    return 0 if version_at is None else version_at(level)


def versioned(records: Iterable[MetadataRecord], level: int) -> Iterator[tuple[MetadataRecord, int]]:
    """Records and the versions in which they are written, from this level on; one of them may change it. What a version
    does not carry is left out of its record, so that a record means what will be read."""
    for record in records:
        version = record_version(record, level)
        yield _carried(record, version), version
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            level = record.feature_level


def _carried(record: MetadataRecord, version: int) -> MetadataRecord:
    changed = record
    for name, default in _left_out(type(record), version):
        value = getattr(record, name)
        if value or (value is not None and default is None):
            if changed is record:
                changed = copy.copy(record)
            setattr(changed, name, default)
    return changed


@cache
def _left_out(cls: type[MetadataRecord], version: int) -> list[tuple[str, object]]:
    """The fields that this version does not have; an empty value and its default mean the same."""
    return [(name, described.default) for name, described in cls._fields.items() if described.since > version]
