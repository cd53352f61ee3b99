"""Every setting, declared once: Kafka's names, types, defaults and bounds; and the values a node runs with.

Files, `SEMEL_*` variables and flags become a BrokerConfig (load.py); a topic's own settings and the node's become a
TopicConfig (topic_config.py), a group's a GroupConfig (group_config.py); DescribeConfigs and the AlterConfigs family
are answered by describe.py and alter.py; docs/settings.md is written by document.py.
"""

from semel.config.alter import Operation, altered, checked_overrides
from semel.config.broker_config import BrokerConfig, parse_setting
from semel.config.broker_settings import BROKER_SETTINGS
from semel.config.describe import DescribedSetting, DescribedSynonym, describe_broker, describe_group, describe_topic
from semel.config.errors import ConfigError, UnknownSetting
from semel.config.group_config import GroupConfig, group_config
from semel.config.group_settings import GROUP_SETTINGS
from semel.config.listeners import Listener, parse_listener
from semel.config.load import load_config
from semel.config.node_layout import ListenerKind, NodeLayout, NodeListener, Role
from semel.config.settings import ConfigSource, Kind, Scope, Setting, Synonym, Value
from semel.config.topic_config import TopicConfig, topic_config
from semel.config.topic_settings import TOPIC_SETTINGS

__all__ = [
    "BROKER_SETTINGS",
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "DescribedSetting",
    "DescribedSynonym",
    "GROUP_SETTINGS",
    "GroupConfig",
    "Kind",
    "Listener",
    "ListenerKind",
    "NodeLayout",
    "NodeListener",
    "Operation",
    "Role",
    "Scope",
    "Setting",
    "Synonym",
    "TOPIC_SETTINGS",
    "TopicConfig",
    "UnknownSetting",
    "Value",
    "altered",
    "checked_overrides",
    "describe_broker",
    "describe_group",
    "describe_topic",
    "group_config",
    "load_config",
    "parse_listener",
    "parse_setting",
    "topic_config",
]
