"""Options of the commands that are given the settings of a node, and the settings that come of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.config import BrokerConfig


def add_settings_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", metavar="DIR", help="data directory (log.dir), made if it is not there")
    command.add_argument("--config", metavar="FILE", help="settings in a TOML file (default DIR/node.toml, if there)")
    command.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="one setting; may be repeated"
    )


def given_settings(options: argparse.Namespace) -> dict[str, str]:
    """What --set says. Raises ConfigError."""
    from semel.config import ConfigError

    given: dict[str, str] = {}
    for setting in options.set:
        name, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError(setting, None, "NAME=VALUE")
        given[name.strip()] = value.strip()
    return given


def node_config(options: argparse.Namespace, more: Mapping[str, str] | None = None) -> BrokerConfig:
    """`more` are settings that other flags stand for. Raises ConfigError, also for a file that cannot be read."""
    from semel.cli.contexts import FILE_VARIABLE
    from semel.config import ConfigError, load_config
    from semel.config.settings_file import NODE_FILE

    flags, path = given_settings(options), options.config
    if options.data is not None:
        flags["log.dir"] = os.path.abspath(options.data)
        own = os.path.join(options.data, NODE_FILE)
        if path is None and os.path.exists(own):
            path = own
    # Where the contexts are is for the other commands, and no setting of a node.
    environ = {name: value for name, value in os.environ.items() if name != FILE_VARIABLE}
    try:
        return load_config(path, environ, flags | dict(more or {}))
    except OSError as error:
        raise ConfigError("--config", str(path), f"a file that can be read ({error.strerror})") from error
