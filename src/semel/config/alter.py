"""What IncrementalAlterConfigs, AlterConfigs and CreateTopics make of the settings they are given.

Overrides are kept as texts, as cluster metadata stores them. Nothing here changes its arguments, so a refused request
leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from semel.config.broker_config import BrokerConfig, changeable
from semel.config.errors import ConfigError
from semel.config.group_values import check_group
from semel.config.settings import Kind, Scope, Setting
from semel.config.topic_values import inherited_value, topic_config


class Operation(IntEnum):
    """What IncrementalAlterConfigs does with a value; the numbers are the protocol's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def altered(
    overrides: Mapping[str, str],
    operation: int,
    name: str,
    value: str | None,
    scope: Scope,
    *,
    broker: BrokerConfig | None = None,
) -> dict[str, str]:
    """New overrides with one operation done; raises ConfigError.

    APPEND and SUBTRACT start from the value in force: the override if there is one, else what `broker` gives, else
    the declared default.
    """
    changed = dict(overrides)
    if operation == Operation.DELETE:
        # Also of a name that nobody knows: what is not set is gone, and Kafka's tools count on it.
        changed.pop(name, None)
        return changed
    setting = changeable(name, value, scope)
    if value is None:
        raise setting.refuse(None)
    if operation == Operation.SET:
        changed[name] = _normal(setting, value)
    elif operation in (Operation.APPEND, Operation.SUBTRACT):
        changed[name] = _edited_list(setting, overrides.get(name), operation, value, scope, broker)
    else:
        raise ConfigError(name, value, f"the operations 0 to 3, not {operation}")
    return changed


def _edited_list(
    setting: Setting, override: str | None, operation: int, text: str, scope: Scope, broker: BrokerConfig | None
) -> str:
    if setting.kind is not Kind.LIST:
        raise ConfigError(setting.name, text, "SET and DELETE only: the setting is not a list")
    if override is not None:
        current = setting.parse(override)
    elif broker is None:
        current = setting.default
    else:
        current = broker[setting.name] if scope is Scope.BROKER else inherited_value(setting, broker)
    entries = list(current) if isinstance(current, tuple) else []
    # Entries that are there already are not added twice, and those that are not there are not missed, as in Kafka.
    edits = [entry.strip() for entry in text.split(",")]
    if operation == Operation.APPEND:
        entries += [entry for entry in dict.fromkeys(edits) if entry not in entries]
    else:
        entries = [entry for entry in entries if entry not in edits]
    return _normal(setting, ",".join(entries))


def checked_overrides(
    texts: Mapping[str, str | None], scope: Scope, *, broker: BrokerConfig | None = None
) -> dict[str, str]:
    """A whole new set of overrides, for CreateTopics and AlterConfigs, or to check one that `altered` made.

    Raises ConfigError; with `broker`, also for values that are right one by one and wrong together.
    """
    overrides = {}
    for name, text in texts.items():
        setting = changeable(name, text, scope)
        if text is None:
            raise setting.refuse(None)
        overrides[name] = _normal(setting, text)
    if broker is not None:
        _check_together(overrides, scope, broker)
    return overrides


def _check_together(overrides: Mapping[str, str], scope: Scope, broker: BrokerConfig) -> None:
    if scope is Scope.BROKER:
        broker.with_changes(overrides)
        return
    if scope is Scope.GROUP:
        check_group(overrides, broker)
        return
    config = topic_config(overrides, broker)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        name = "min.compaction.lag.ms"
        allowed = f"at most max.compaction.lag.ms, which is {config.max_compaction_lag_ms}"
        raise ConfigError(name, str(config.min_compaction_lag_ms), allowed)


def _normal(setting: Setting, text: str) -> str:
    """The text as it is stored: without blanks, booleans in lower case."""
    stored = setting.text(setting.parse(text))
    return text if stored is None else stored
