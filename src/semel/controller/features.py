"""UpdateFeatures: which levels may be finalized. All or none of a request's updates count; the rules are Kafka's.

A level is finalized when every registered node knows it: brokers by what they registered with, this controller by its
own program, and other controllers from the level on at which they register. It is lowered only if nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from semel.config import BrokerConfig
from semel.controller.image import ELR_VERSION, METADATA_VERSION, MetadataImage
from semel.controller.levels import (
    CONTROLLER_REGISTRATION,
    ELR,
    KRAFT_VERSION,
    SUPPORTED_FEATURES,
    Range,
    is_lossless,
)
from semel.controller.settings import elr_safety
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import BrokerFeature, FeatureLevelRecord, MetadataRecord

_UNKNOWN = Range(0, 0)


class UpgradeType(IntEnum):
    """Kafka's codes."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Update(NamedTuple):
    """One feature and the level that it is to have; 0 turns it off."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def update_features(
    image: MetadataImage, config: BrokerConfig, updates: Sequence[Update], own_id: int
) -> list[MetadataRecord]:
    """The records of all updates. Raises Refused when one of them may not be."""
    if not updates:
        raise Refused(ErrorCode.INVALID_REQUEST, "no feature is named")
    if len({one.name for one in updates}) < len(updates):
        raise Refused(ErrorCode.INVALID_REQUEST, "a feature is named twice")
    after = {**image.features, METADATA_VERSION: image.metadata_version, **{one.name: one.level for one in updates}}
    records: list[MetadataRecord] = []
    for update in updates:
        wrong = _wrong(image, update, after, own_id)
        if wrong is not None:
            raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"{update.name} cannot be at level {update.level}: {wrong}")
        if update.level != image.features.get(update.name, 0):
            records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    if after.get(ELR_VERSION, 0) and not image.has_elr:
        records = [*elr_safety(image, config), *records]
    # The level says in which versions the records after it are written.
    return sorted(records, key=lambda one: isinstance(one, FeatureLevelRecord) and one.name != METADATA_VERSION)


def _wrong(image: MetadataImage, update: Update, after: Mapping[str, int], own_id: int) -> str | None:
    name, level = update.name, update.level
    current = image.metadata_version if name == METADATA_VERSION else image.features.get(name, 0)
    if update.upgrade_type not in list(UpgradeType):
        return f"upgrade type {update.upgrade_type} is none of 1 to 3"
    if level < 0:
        return "a level is at least 0"
    if not _within(level, SUPPORTED_FEATURES.get(name, _UNKNOWN)):
        return f"this controller knows {_text(SUPPORTED_FEATURES.get(name, _UNKNOWN))}"
    for who, known in _ranges(image, name, own_id):
        if not _within(level, known):
            return f"{who} knows {_text(known)}"
    if level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return f"it is at level {current}, and to lower it has to be asked for"
    if level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return f"it is at level {current}, which is lower already"
    check = _CHECKS.get(name)
    return None if check is None else check(image, level, current, after)


def _within(level: int, known: Range) -> bool:
    return level == 0 or known.least <= level <= known.most


def _text(known: Range) -> str:
    return "no level of it" if known == _UNKNOWN else f"levels {known.least} to {known.most}"


def _ranges(image: MetadataImage, name: str, own_id: int) -> Iterator[tuple[str, Range]]:
    """What the other nodes know of a feature."""
    for node_id, broker in image.brokers.items():
        yield f"broker {node_id}", _range(broker.features, name)
    if image.metadata_version >= CONTROLLER_REGISTRATION:
        for node_id, controller in image.controllers.items():
            if node_id != own_id:
                yield f"controller {node_id}", _range(controller.features, name)


def _range(features: Iterable[BrokerFeature], name: str) -> Range:
    for one in features:
        if one.name == name:
            return Range(one.min_supported_version, one.max_supported_version)
    return _UNKNOWN


# -- what holds for single features


def _check_metadata_version(image: MetadataImage, level: int, current: int, after: Mapping[str, int]) -> str | None:
    if level == 0:
        return "there is no cluster without it"
    if level < current and not is_lossless(level, current):
        return f"what levels {level + 1} to {current} brought into the metadata would be lost"
    if level < ELR and after.get(ELR_VERSION, 0):
        return f"{ELR_VERSION} needs level {ELR}"
    return None


def _check_elr(image: MetadataImage, level: int, current: int, after: Mapping[str, int]) -> str | None:
    if level and after[METADATA_VERSION] < ELR:
        return f"it needs {METADATA_VERSION} {ELR}"
    if not level and any(not state.isr for _, _, state in image.partitions()):
        # Without the ELR nobody could lead such a partition again without loss.
        return "there are partitions whose ISR is empty: wait until they have a leader"
    return None


def _check_kraft_version(image: MetadataImage, level: int, current: int, after: Mapping[str, int]) -> str | None:
    return None if level == current else "the controllers of this cluster are fixed by controller.quorum.voters"


_CHECKS: Mapping[str, Callable[[MetadataImage, int, int, Mapping[str, int]], str | None]] = {
    METADATA_VERSION: _check_metadata_version,
    ELR_VERSION: _check_elr,
    KRAFT_VERSION: _check_kraft_version,
}
