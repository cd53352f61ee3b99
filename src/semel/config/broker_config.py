"""The settings of one node, as values: what it was started with, and what was changed since.

Later layers win: declared defaults, what the node was started with (file, variables, flags), changes for the whole
cluster, changes for this node. A BrokerConfig never changes; a change makes a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from semel.config.broker_settings import BROKER_SETTINGS, ORDERED
from semel.config.errors import ConfigError, UnknownSetting
from semel.config.group_settings import GROUP_SETTINGS
from semel.config.node_layout import NodeLayout, layout_of
from semel.config.security_settings import LISTENER_PREFIX, setting_of_listener
from semel.config.settings import ConfigSource, Scope, Setting, Value
from semel.config.topic_settings import TOPIC_SETTINGS

# BrokerConfig.int and its like would hide the types inside the class.
_Int: TypeAlias = int
_Str: TypeAlias = str
_Bool: TypeAlias = bool

_NO_LIMIT = -1
_DECLARED = {Scope.BROKER: BROKER_SETTINGS, Scope.TOPIC: TOPIC_SETTINGS, Scope.GROUP: GROUP_SETTINGS}


def declared(name: str, scope: Scope) -> Setting:
    """The declaration of a setting; raises UnknownSetting."""
    table = _DECLARED[scope]
    setting = table.get(name)
    if setting is None and scope is Scope.BROKER:
        of_listener = setting_of_listener(name)
        setting = None if of_listener is None else table[of_listener]
    if setting is None:
        raise UnknownSetting(name, table)
    return setting


def changeable(name: str, text: str | None, scope: Scope) -> Setting:
    """The declaration of a setting that can be changed while the node runs; raises ConfigError."""
    setting = declared(name, scope)
    if setting.needs_restart:
        raise ConfigError(name, text, "a new value in the file, a variable or a flag, and a restart")
    return setting


def parse_setting(name: str, text: str, scope: Scope) -> Value:
    """The value that `text` stands for in the setting `name`; raises ConfigError."""
    return declared(name, scope).parse(text)


class BrokerConfig(Mapping[str, Value]):
    """Every declared broker setting and its value, by Kafka's name."""

    __slots__ = ("_cluster", "_node", "_started_with", "_values", "layout")
    layout: NodeLayout

    def __init__(self, started_with: Mapping[_Str, _Str] | None = None) -> None:
        """`started_with` maps names to texts; raises ConfigError for an unknown name or a wrong value."""
        self._set(_parsed(started_with or {}), {}, {})
        # No setting of these changes while the node runs.
        self.layout = layout_of(self._values, self.text, self._started_with.__contains__)

    def _set(self, started_with: dict[_Str, Value], cluster: dict[_Str, Value], node: dict[_Str, Value]) -> None:
        self._started_with, self._cluster, self._node = started_with, cluster, node
        defaults = {name: setting.default for name, setting in BROKER_SETTINGS.items()}
        self._values: dict[_Str, Value] = {**defaults, **started_with, **cluster, **node}
        for lower, upper in ORDERED:
            if self.int(upper) != _NO_LIMIT and self.int(lower) > self.int(upper):
                # Blame the one that was set: complaining about a default would send the reader the wrong way.
                if self.source(lower) is ConfigSource.DEFAULT:
                    raise ConfigError(upper, self.text(upper), f"at least {lower}, which is {self.text(lower)}")
                raise ConfigError(lower, self.text(lower), f"at most {upper}, which is {self.text(upper)}")

    def __getitem__(self, name: _Str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[_Str]:
        return iter(self._values)

    def __len__(self) -> _Int:
        return len(self._values)

    def int(self, name: _Str) -> _Int:
        value = self._values[name]
        if type(value) is not int:
            raise TypeError(f"{name} is not a whole number: {value!r}")
        return value

    def double(self, name: _Str) -> float:
        value = self._values[name]
        if type(value) is not float:
            raise TypeError(f"{name} is not a number: {value!r}")
        return value

    def str(self, name: _Str) -> _Str:
        value = self._values[name]
        if type(value) is not str:
            raise TypeError(f"{name} is not a text: {value!r}")
        return value

    def bool(self, name: _Str) -> _Bool:
        value = self._values[name]
        if type(value) is not bool:
            raise TypeError(f"{name} is not true or false: {value!r}")
        return value

    def list(self, name: _Str) -> tuple[_Str, ...]:
        value = self._values[name]
        if type(value) is not tuple:
            raise TypeError(f"{name} is not a list: {value!r}")
        return value

    def text(self, name: _Str) -> _Str | None:
        """The value as DescribeConfigs shows it; None if it is not set."""
        return declared(name, Scope.BROKER).text(self._values[name])

    def source(self, name: _Str) -> ConfigSource:
        """Where the value comes from."""
        for source, layer in self.layers():
            if name in layer:
                return source
        return ConfigSource.DEFAULT

    def layers(self) -> Iterator[tuple[ConfigSource, Mapping[_Str, Value]]]:
        """What was set on purpose, strongest first."""
        yield ConfigSource.DYNAMIC_BROKER, self._node
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER, self._cluster
        yield ConfigSource.STATIC_BROKER, self._started_with

    def with_changes(self, changes: Mapping[_Str, _Str | None], *, cluster_wide: _Bool = False) -> BrokerConfig:
        """This config with settings of this node (or of all) changed while it runs; None takes a change back.

        Raises ConfigError for an unknown name, a wrong value, or a setting that needs a restart.
        """
        if cluster_wide:
            return self._with_layers(_changed(self._cluster, changes), self._node)
        return self._with_layers(self._cluster, _changed(self._node, changes))

    def with_overrides(self, *, cluster: Mapping[_Str, _Str], node: Mapping[_Str, _Str]) -> BrokerConfig:
        """This config with exactly these run-time changes, as cluster metadata holds them, in place of any other."""
        return self._with_layers(_changed({}, cluster), _changed({}, node))

    def _with_layers(self, cluster: dict[_Str, Value], node: dict[_Str, Value]) -> BrokerConfig:
        changed = object.__new__(BrokerConfig)
        changed._set(self._started_with, cluster, node)
        changed.layout = self.layout
        return changed

    def of_listener(self, listener: _Str, name: _Str) -> Value:
        """The value of a setting for one listener: its own if it has one, else that of all."""
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return self._values.get(own, self._values.get(name))

    def log_dir(self) -> _Str:
        """The data directory: log.dirs if set, else log.dir."""
        return self.str("log.dir") if self["log.dirs"] is None else self.list("log.dirs")[0]

    def __repr__(self) -> _Str:
        changed = {
            name: "(hidden)" if declared(name, Scope.BROKER).sensitive else self.text(name)
            for name in self
            if self.source(name) is not ConfigSource.DEFAULT
        }
        return f"BrokerConfig({changed!r})"


def _changed(layer: Mapping[str, Value], changes: Mapping[str, str | None]) -> dict[str, Value]:
    changed = dict(layer)
    for name, text in changes.items():
        setting = changeable(name, text, Scope.BROKER)
        if text is None:
            changed.pop(name, None)
        else:
            changed[name] = setting.parse(text)
    return changed


def _parsed(texts: Mapping[str, str]) -> dict[str, Value]:
    return {name: parse_setting(name, text, Scope.BROKER) for name, text in texts.items()}
