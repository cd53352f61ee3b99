"""The settings of one KIP-848 group, as values: its own, within the node's bounds, or the node's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from semel.config.broker_config import BrokerConfig
from semel.config.errors import ConfigError
from semel.config.group_settings import HEARTBEAT_INTERVAL, SESSION_TIMEOUT


class _Bounded(NamedTuple):
    """The settings of the node that give a setting of a group its default and its bounds."""

    default: str
    least: str
    most: str


_BOUNDED = {
    SESSION_TIMEOUT: _Bounded(
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    HEARTBEAT_INTERVAL: _Bounded(
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
}


class GroupConfig(NamedTuple):
    """The values that count for one KIP-848 group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


def group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """The node's values where the group sets none. The node's bounds may have moved since it did: they win."""
    return GroupConfig(_value(SESSION_TIMEOUT, overrides, broker), _value(HEARTBEAT_INTERVAL, overrides, broker))


def check_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises ConfigError for a value outside of the node's bounds, or values that do not go together."""
    for name, (_, lower, upper) in _BOUNDED.items():
        text = overrides.get(name)
        least, most = broker.int(lower), broker.int(upper)
        if text is not None and not least <= int(text) <= most:
            raise ConfigError(name, text, f"from {least} to {most}, which {lower} and {upper} say")
    if not _BOUNDED.keys() & overrides.keys():
        return
    session_ms, heartbeat_ms = group_config(overrides, broker)
    if heartbeat_ms >= session_ms:
        allowed = f"more than {HEARTBEAT_INTERVAL}, which is {heartbeat_ms}"
        raise ConfigError(SESSION_TIMEOUT, str(session_ms), allowed)


def _value(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> int:
    default, lower, upper = _BOUNDED[name]
    text = overrides.get(name)
    return broker.int(default) if text is None else min(max(int(text), broker.int(lower)), broker.int(upper))
