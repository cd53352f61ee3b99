"""The settings of one topic, as values: its own, and the node's for those that it does not set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semel.config.broker_config import BrokerConfig, parse_setting
from semel.config.settings import Scope, Setting, Value
from semel.config.topic_settings import TOPIC_SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One attribute for each topic setting: segment.bytes is segment_bytes."""

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def stamps_at_append(self) -> bool:
        """Whether records carry the time they were appended, not the producer's."""
        return self.message_timestamp_type == "LogAppendTime"


def topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """The values of a topic that sets `overrides`; raises ConfigError for an unknown name or a wrong value."""
    values: dict[str, Any] = {
        _ATTRIBUTES[name]: inherited_value(setting, broker)
        for name, setting in TOPIC_SETTINGS.items()
        if name not in overrides
    }
    for name, text in overrides.items():
        value = parse_setting(name, text, Scope.TOPIC)
        values[_ATTRIBUTES[name]] = value
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    return TopicConfig(**values)


def inherited_value(setting: Setting, broker: BrokerConfig) -> Value:
    """The value of a topic setting that the topic does not set: of its broker synonyms, the first that is set."""
    for synonym in setting.synonyms:
        value = broker[synonym.name]
        if value is not None:
            # -1 hours is no limit, not minus 3,600,000 ms.
            return value * synonym.unit_ms if type(value) is int and value > 0 else value
    return setting.default


_ATTRIBUTES = {name: name.replace(".", "_") for name in TOPIC_SETTINGS}
