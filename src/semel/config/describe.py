"""What DescribeConfigs tells of a topic's or a node's settings: value, source, and the chain of synonyms."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from semel.config.broker_config import BrokerConfig
from semel.config.broker_settings import BROKER_SETTINGS, SAME_THING
from semel.config.group_settings import GROUP_SETTINGS
from semel.config.settings import ConfigSource, Kind, Setting, Value
from semel.config.topic_settings import TOPIC_SETTINGS
from semel.config.topic_values import inherited_value


class DescribedSynonym(NamedTuple):
    """One place where a value is set, or the default; the first of a chain is in force."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedSetting(NamedTuple):
    """One setting as DescribeConfigs returns it. A sensitive value is None, here and in the synonyms."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    sensitive: bool
    synonyms: tuple[DescribedSynonym, ...]
    kind: Kind
    documentation: str


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, *, names: Container[str] | None = None
) -> list[DescribedSetting]:
    """Every topic setting (or those in `names`) of a topic that sets `overrides`."""
    return [
        _described_as_own(setting, overrides, broker, ConfigSource.TOPIC_CONFIG)
        for name, setting in TOPIC_SETTINGS.items()
        if names is None or name in names
    ]


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, *, names: Container[str] | None = None
) -> list[DescribedSetting]:
    """Every setting (or those in `names`) of a group that sets `overrides`; it need not be there."""
    return [
        _described_as_own(setting, overrides, broker, ConfigSource.GROUP_CONFIG)
        for name, setting in GROUP_SETTINGS.items()
        if names is None or name in names
    ]


def describe_broker(
    broker: BrokerConfig, *, names: Container[str] | None = None, cluster_wide: bool = False
) -> list[DescribedSetting]:
    """Every setting (or those in `names`) of a node; or only those changed for the whole cluster, as Kafka answers
    when asked for the broker without a name."""
    wanted = [setting for name, setting in BROKER_SETTINGS.items() if names is None or name in names]
    if not cluster_wide:
        return [_described(setting, broker[setting.name], _own_chain(setting.name, broker)) for setting in wanted]
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    cluster = dict(broker.layers())[source]
    return [
        _described(
            setting,
            cluster[setting.name],
            [DescribedSynonym(setting.name, setting.text(cluster[setting.name]), source)],
        )
        for setting in wanted
        if setting.name in cluster
    ]


def _own_chain(name: str, broker: BrokerConfig) -> list[DescribedSynonym]:
    """The chain of a broker setting begins with the setting itself, as its value stands beside it; what follows may
    carry other names, such as log.retention.hours after log.retention.ms."""
    chain = _chain(next((names for names in SAME_THING if name in names), (name,)), broker)
    while chain and chain[0].name != name:
        chain.pop(0)
    return chain


def _described_as_own(
    setting: Setting, overrides: Mapping[str, str], broker: BrokerConfig, source: ConfigSource
) -> DescribedSetting:
    """A setting of a topic or a group: its own value, then those of the node."""
    synonyms = _chain([synonym.name for synonym in setting.synonyms], broker)
    value = inherited_value(setting, broker)
    if setting.name in overrides:
        value = setting.parse(overrides[setting.name])
        synonyms.insert(0, DescribedSynonym(setting.name, setting.text(value), source))
    return _described(setting, value, synonyms)


def _chain(names: Sequence[str], broker: BrokerConfig) -> list[DescribedSynonym]:
    """Where these broker settings are set, strongest first. A layer counts before a name: only the first name can be
    changed at run time, so that the first of the chain is also the one that decides."""
    layers = [*broker.layers(), (ConfigSource.DEFAULT, {name: BROKER_SETTINGS[name].default for name in names})]
    return [
        DescribedSynonym(name, BROKER_SETTINGS[name].text(layer[name]), source)
        for source, layer in layers
        for name in names
        if layer.get(name) is not None
    ]


def _described(setting: Setting, value: Value, synonyms: list[DescribedSynonym]) -> DescribedSetting:
    if setting.sensitive:
        synonyms = [synonym._replace(value=None) for synonym in synonyms]
    return DescribedSetting(
        name=setting.name,
        value=None if setting.sensitive else setting.text(value),
        read_only=setting.needs_restart,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        sensitive=setting.sensitive,
        synonyms=tuple(synonyms),
        kind=setting.kind,
        documentation=setting.sentence,
    )
