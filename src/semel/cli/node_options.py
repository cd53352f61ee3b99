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
    command.add_argument("--config", metavar="FILE", help="settings in a TOML file")
    command.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="one setting; may be repeated"
    )


def node_config(options: argparse.Namespace, more: Mapping[str, str] | None = None) -> BrokerConfig:
    """`more` are settings that other flags stand for. Raises ConfigError, also for a file that cannot be read."""
    from semel.cli.contexts import FILE_VARIABLE
    from semel.config import ConfigError, load_config

    flags: dict[str, str] = {}
    for setting in options.set:
        name, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError(setting, None, "NAME=VALUE")
        flags[name.strip()] = value.strip()
    if options.data is not None:
        flags["log.dir"] = os.path.abspath(options.data)
    # Where the contexts are is for the other commands, and no setting of a node.
    environ = {name: value for name, value in os.environ.items() if name != FILE_VARIABLE}
    try:
        return load_config(options.config, environ, flags | dict(more or {}))
    except OSError as error:
        raise ConfigError("--config", str(options.config), f"a file that can be read ({error.strerror})") from error
