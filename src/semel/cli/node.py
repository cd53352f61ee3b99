"""`semel node`: the settings of a node, or of all nodes together."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from semel.cli.connection import add_connection_arguments, admin_for, pairs, run
from semel.cli.failures import Exit
from semel.cli.output import Output, add_output_arguments
from semel.cli.positions import at_least_zero

if TYPE_CHECKING:
    from semel.client.admin.values import ConfigEntry

_EXAMPLES = """examples:
  semel node config 1
  semel node config --config log.retention.ms=86400000
"""
_CONFIG = """Without a number it is about the settings of all nodes; those of a node itself win. A setting that needs a
restart is refused: docs/settings.md says which do.

examples:
  semel node config 1
  semel node config 1 --all-settings --json
  semel node config --config log.retention.ms=86400000
  semel node config 1 --reset log.retention.ms
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    config = actions.add_parser(
        "config",
        help="show and change settings",
        description="Show the settings of a node, or change them while it runs.",
        epilog=_CONFIG,
    )
    config.add_argument("node", nargs="?", type=at_least_zero, metavar="NODE", help="its number; without, all nodes")
    config.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="set it; may be repeated")
    config.add_argument("--reset", action="append", default=[], metavar="NAME", help="back to its default; repeatable")
    config.add_argument("--all-settings", action="store_true", help="those at their defaults too")
    config.set_defaults(run=lambda options: run(_config(options, Output.of(options))))
    add_output_arguments(config)
    add_connection_arguments(config)


async def _config(options: argparse.Namespace, output: Output) -> int:
    from semel.client.admin.values import ConfigResource, ConfigSource

    resource = ConfigResource.all_brokers() if options.node is None else ConfigResource.broker(options.node)
    changes = pairs(options.config, "--config")
    async with admin_for(options) as admin:
        if changes or options.reset:
            await admin.alter_configs(resource, set=changes, delete=options.reset)
        entries = (await admin.describe_configs(resource))[resource]
    shown = {
        name: entry
        for name, entry in sorted(entries.items())
        if options.all_settings or entry.source is not ConfigSource.DEFAULT
    }
    if output.is_json:
        output.json({"node": options.node, "settings": {name: _document(entry) for name, entry in shown.items()}})
    elif shown:
        rows = [(name, entry.value, _document(entry)["source"]) for name, entry in shown.items()]
        output.table(("SETTING", "VALUE", "FROM"), rows)
    else:
        output.note("all settings are at their defaults; --all-settings shows them")
    return Exit.OK


def _document(entry: ConfigEntry) -> dict[str, Any]:
    """A secret has no value here: brokers tell none."""
    return {"value": entry.value, "source": entry.source.name.lower().replace("_", " ")}
