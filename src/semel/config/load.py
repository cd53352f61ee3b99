"""From a file, variables and flags to the settings a node starts with; flags win, then variables, then the file.

A TOML file holds Kafka's names as quoted keys ("log.segment.bytes" = 1000), as dotted keys or as tables; the variable
of log.segment.bytes is SEMEL_LOG_SEGMENT_BYTES. An unknown name in any of them is refused, so that a slip of the
finger does not pass for a default; but a variable that is like no setting is somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

from semel.config.broker_config import BrokerConfig, declared, parse_setting
from semel.config.broker_settings import BROKER_SETTINGS, SAME_THING
from semel.config.errors import ConfigError, UnknownSetting
from semel.config.security_settings import JAAS, LISTENER_PREFIX, OF_LISTENERS, SASL_MECHANISMS
from semel.config.settings import Scope

PREFIX = "SEMEL_"
# Variables of ours that are not settings of a node.
RESERVED_VARIABLES = ("SEMEL_LOG_LEVEL", "SEMEL_CONFIG", "SEMEL_SPARK_STEP")
# What Kubernetes puts into the environment of every neighbour of a service called "semel".
NEIGHBOUR_VARIABLES = re.compile(r"SEMEL_SERVICE_.*|SEMEL_PORT_.*|SEMEL_PORT")
# How alike a variable and that of a setting are, without the prefix that all of them have, to be taken for a slip.
_LIKENESS = 0.8


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper().replace(".", "_")


def load_config(
    toml_path: str | PathLike[str] | None, environ: Mapping[str, str], flags: Mapping[str, str]
) -> BrokerConfig:
    """The settings of a node about to start; raises ConfigError, which says where a refused value came from."""
    texts: dict[str, str] = {}
    origins: dict[str, str] = {}
    layers = [] if toml_path is None else [_from_file(toml_path)]
    for layer in (*layers, _from_variables(environ), _from_flags(flags)):
        given = {}
        for name, text, origin in layer:
            # Parsed here and not only at the end, so that a wrong value is refused even where a stronger one hides it.
            try:
                parse_setting(name, text, Scope.BROKER)
            except ConfigError as error:
                raise error.found_in(origin) from None
            given[name] = text
            origins[name] = origin
        for names in SAME_THING:
            # A flag log.retention.hours must not lose to a log.retention.ms in the file.
            if not given.keys().isdisjoint(names):
                texts = {name: text for name, text in texts.items() if name not in names}
        texts |= given
    try:
        return BrokerConfig(texts)
    except ConfigError as error:
        if error.name not in origins:  # what is wrong is that it was not set
            raise
        raise error.found_in(origins[error.name]) from None


def _from_flags(flags: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, text in flags.items():
        yield name, text, "a flag"


def _from_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    names = {variable_of(name): name for name in BROKER_SETTINGS}
    for variable, text in environ.items():
        name = names.get(variable) or _of_listener(variable)
        if name is not None:
            yield name, text, f"variable {variable}"
        elif variable.startswith(PREFIX) and not _is_reserved(variable):
            _refuse_slip(variable, names)
            _warn(f"the variable {variable} is no setting of a node, and has no effect")
    if environ.get("SEMEL_PORT", "").isdecimal():
        _warn("the variable SEMEL_PORT is no setting of a node, and has no effect: say --port, or SEMEL_LISTENERS")


def _of_listener(variable: str) -> str | None:
    """SEMEL_LISTENER_NAME_CLIENTS_SSL_KEYSTORE_LOCATION. A mechanism has `-` in its name, and `_` in a variable's."""
    prefix = variable_of(LISTENER_PREFIX)
    if not variable.startswith(prefix):
        return None
    name = variable.removeprefix(prefix).lower()
    for setting in OF_LISTENERS:
        listener = name.removesuffix("_" + setting.replace(".", "_"))
        if listener == name:
            continue
        if setting == JAAS:
            for mechanism in SASL_MECHANISMS:
                own = listener.removesuffix("_" + mechanism.replace("-", "_").lower())
                if own != listener:
                    return f"{LISTENER_PREFIX}{own}.{mechanism.lower()}.{setting}"
        return f"{LISTENER_PREFIX}{listener}.{setting}"
    return None


def _warn(text: str) -> None:
    import logging  # 5 ms to import, needed for a warning only

    logging.getLogger("semel.config").warning(text)


def _refuse_slip(variable: str, names: Mapping[str, str]) -> None:
    """A name that is nearly a setting's was meant to be it: to pass over it would run another node than was wanted.
    What is like none of them belongs to somebody else, and is no reason not to start."""
    from difflib import get_close_matches

    endings = {name.removeprefix(PREFIX) for name in names}
    if get_close_matches(variable.removeprefix(PREFIX), endings, n=1, cutoff=_LIKENESS):
        raise UnknownSetting(variable, names, kind_of_name="variable").found_in("the environment")


def _is_reserved(variable: str) -> bool:
    return variable in RESERVED_VARIABLES or NEIGHBOUR_VARIABLES.fullmatch(variable) is not None


def _from_file(path: str | PathLike[str]) -> Iterator[tuple[str, str, str]]:
    import tomllib  # 8 ms to import, needed with a file only

    origin = f"file {path}"
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("the settings file", str(path), f"a TOML file ({error})") from error
    seen = set()
    for name, value in _flattened(document, ""):
        if name in seen:
            raise ConfigError(name, _shown(name, value), "one value, and the file has two", origin=origin)
        seen.add(name)
        yield name, _toml_text(name, value, origin), origin


def _flattened(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _toml_text(name: str, value: Any, origin: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(entry, str) and "," not in entry for entry in value):
        return ",".join(value)
    raise ConfigError(name, _shown(name, value), "a text, a number, true or false, or a list of texts", origin=origin)


def _shown(name: str, value: Any) -> str:
    try:
        return "(hidden)" if declared(name, Scope.BROKER).sensitive else str(value)
    except UnknownSetting:
        return str(value)
