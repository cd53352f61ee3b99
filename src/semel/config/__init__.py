"""Every setting, declared once: Kafka's names, types, defaults and bounds; and the values a node runs with.

Files, `SEMEL_*` variables and flags become a BrokerConfig (load.py); a topic's own settings and the node's become a
TopicConfig (topic_values.py), a group's a GroupConfig (group_values.py); DescribeConfigs and the AlterConfigs family
are answered by describe.py and alter.py; docs/settings.md is written by document.py.


Each is loaded when it is first used: a client needs little of this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.config.alter import Operation as Operation
    from semel.config.alter import altered as altered
    from semel.config.alter import checked_overrides as checked_overrides
    from semel.config.broker_config import BrokerConfig as BrokerConfig
    from semel.config.broker_config import parse_setting as parse_setting
    from semel.config.broker_settings import BROKER_SETTINGS as BROKER_SETTINGS
    from semel.config.describe import DescribedSetting as DescribedSetting
    from semel.config.describe import DescribedSynonym as DescribedSynonym
    from semel.config.describe import describe_broker as describe_broker
    from semel.config.describe import describe_group as describe_group
    from semel.config.describe import describe_topic as describe_topic
    from semel.config.errors import ConfigError as ConfigError
    from semel.config.errors import UnknownSetting as UnknownSetting
    from semel.config.group_settings import GROUP_SETTINGS as GROUP_SETTINGS
    from semel.config.group_values import GroupConfig as GroupConfig
    from semel.config.group_values import group_config as group_config
    from semel.config.listeners import Listener as Listener
    from semel.config.listeners import parse_listener as parse_listener
    from semel.config.load import load_config as load_config
    from semel.config.node_layout import ListenerKind as ListenerKind
    from semel.config.node_layout import NodeLayout as NodeLayout
    from semel.config.node_layout import NodeListener as NodeListener
    from semel.config.node_layout import Role as Role
    from semel.config.settings import ConfigSource as ConfigSource
    from semel.config.settings import Kind as Kind
    from semel.config.settings import Scope as Scope
    from semel.config.settings import Setting as Setting
    from semel.config.settings import Synonym as Synonym
    from semel.config.settings import Value as Value
    from semel.config.topic_settings import TOPIC_SETTINGS as TOPIC_SETTINGS
    from semel.config.topic_values import TopicConfig as TopicConfig
    from semel.config.topic_values import topic_config as topic_config

_HOMES = {
    "BROKER_SETTINGS": "broker_settings",
    "BrokerConfig": "broker_config",
    "ConfigError": "errors",
    "ConfigSource": "settings",
    "DescribedSetting": "describe",
    "DescribedSynonym": "describe",
    "GROUP_SETTINGS": "group_settings",
    "GroupConfig": "group_values",
    "Kind": "settings",
    "Listener": "listeners",
    "ListenerKind": "node_layout",
    "NodeLayout": "node_layout",
    "NodeListener": "node_layout",
    "Operation": "alter",
    "Role": "node_layout",
    "Scope": "settings",
    "Setting": "settings",
    "Synonym": "settings",
    "TOPIC_SETTINGS": "topic_settings",
    "TopicConfig": "topic_values",
    "UnknownSetting": "errors",
    "Value": "settings",
    "altered": "alter",
    "checked_overrides": "alter",
    "describe_broker": "describe",
    "describe_group": "describe",
    "describe_topic": "describe",
    "group_config": "group_values",
    "load_config": "load",
    "parse_listener": "listeners",
    "parse_setting": "broker_config",
    "topic_config": "topic_values",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'semel.config' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"semel.config.{_HOMES[name]}"), name)
        return found
