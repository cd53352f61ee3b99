"""Decisions on settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from semel.config import BrokerConfig, ConfigError, Operation, Scope, altered, checked_overrides
from semel.controller.defaults import MIN_INSYNC
from semel.controller.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import ClearElrRecord, ConfigRecord, MetadataRecord


@dataclass(frozen=True)
class Alteration:
    """Operations on the settings of one resource, each a code, a name and a value. With `replaces`, settings that are
    not named go back to their defaults. `check` may refuse what the resource would be set to."""

    resource_type: int
    resource_name: str
    operations: Sequence[tuple[int, str, str | None]]
    replaces: bool = False
    check: Callable[[Mapping[str, str]], None] | None = None


def alter(image: MetadataImage, config: BrokerConfig, alteration: Alteration) -> list[MetadataRecord]:
    """Empty when there is nothing to change."""
    resource_type, resource_name = alteration.resource_type, alteration.resource_name
    scope = _scope(image, config, resource_type, resource_name)
    _check_operations(alteration.operations)
    before = image.config(resource_type, resource_name)
    after = {} if alteration.replaces else dict(before)
    try:
        for code, name, value in alteration.operations:
            after = altered(after, Operation(code), name, value, scope, broker=config)
        checked = checked_overrides(after, scope, broker=config)
        if scope is Scope.BROKER:
            _check_layers(image, config, resource_name, checked)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    if alteration.check is not None:
        alteration.check(checked)
    names = [name for name in sorted({*before, *checked}) if before.get(name) != checked.get(name)]
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=checked.get(name))
        for name in names
    ]
    if image.has_elr and MIN_INSYNC in names:
        records.append(_min_insync_changed(resource_type, resource_name, checked))
    return records


def _min_insync_changed(resource_type: int, resource_name: str, after: Mapping[str, str]) -> MetadataRecord:
    """Who may lead without loss was found by the number as it was. It is the same on all nodes: for the cluster or for
    a topic, not for a broker."""
    if resource_type == BROKER_RESOURCE and resource_name:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC} is set for the cluster or a topic, not for a node, while the ELR is kept",
        )
    if resource_type == BROKER_RESOURCE and MIN_INSYNC not in after:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC} of the cluster can be changed, not removed, while the ELR is kept"
        )
    return ClearElrRecord(topic_name=resource_name if resource_type == TOPIC_RESOURCE else "")


def elr_safety(image: MetadataImage, config: BrokerConfig) -> Iterable[MetadataRecord]:
    """What is set before eligible leader replicas are kept: one min.insync.replicas for all, none for a single one."""
    if MIN_INSYNC not in image.config(BROKER_RESOURCE, ""):
        value = config.text(MIN_INSYNC)
        yield ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_INSYNC, value=value)
    for (resource_type, name), settings in image.configs.items():
        if resource_type == BROKER_RESOURCE and name and MIN_INSYNC in settings:
            yield ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_INSYNC, value=None)


def _check_layers(image: MetadataImage, config: BrokerConfig, resource_name: str, checked: Mapping[str, str]) -> None:
    """The settings of the cluster and of the node, laid over each other, must be right as well: a change that is taken
    back can uncover a value of the other layer that does not fit any more. What other nodes were started with is not
    known here: they have checked it."""
    own = str(config.layout.node_id)
    if resource_name not in ("", own):
        return
    layers = {name: image.config(BROKER_RESOURCE, name) for name in ("", own)}
    layers[resource_name] = dict(checked)
    config.with_overrides(cluster=layers[""], node=layers[own])


def _scope(image: MetadataImage, config: BrokerConfig, resource_type: int, resource_name: str) -> Scope:
    if resource_type == TOPIC_RESOURCE:
        if resource_name not in image.topics:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource_name!r}")
        return Scope.TOPIC
    if resource_type == BROKER_RESOURCE:
        nodes = {*map(str, image.brokers), str(config.layout.node_id)}
        if resource_name and resource_name not in nodes:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"settings of nodes {', '.join(sorted(nodes))} are kept here, not of {resource_name}",
            )
        return Scope.BROKER
    if resource_type == GROUP_RESOURCE:
        if not resource_name:
            raise Refused(ErrorCode.INVALID_REQUEST, "a group has a name: there are no settings for all groups here")
        return Scope.GROUP
    raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")


def _check_operations(operations: Sequence[tuple[int, str, str | None]]) -> None:
    """What is wrong with a request before any setting is looked at."""
    names = [name for _, name, _ in operations]
    if len(set(names)) < len(names):
        raise Refused(ErrorCode.INVALID_REQUEST, "a setting is named more than once")
    for code, name, value in operations:
        if code not in list(Operation):
            raise Refused(ErrorCode.INVALID_REQUEST, f"operation {code} on {name} is none of 0 to 3")
        if value is None and code != Operation.DELETE:
            raise Refused(ErrorCode.INVALID_REQUEST, f"there is no value for {name}")
