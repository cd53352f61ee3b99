"""`semel context`: names for clusters, in a file, and the one that commands speak to."""

from __future__ import annotations

import argparse
import os
from typing import Any

from semel.cli.connection import keyworded, pairs
from semel.cli.contexts import FILE_VARIABLE, Contexts, check_name
from semel.cli.failures import CommandFailed, Exit
from semel.cli.output import Cell, Output, add_output_arguments

_SERVERS = "bootstrap_servers"
_HIDDEN = "***"
_FILES = frozenset({"ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_truststore_location", "ssl_keystore_location"})
"""Kept as whole paths: a context is used anywhere."""
_EXAMPLES = f"""The file is ~/.config/semel/contexts.toml, or where {FILE_VARIABLE} says; only its owner can read it.

examples:
  semel context add local --bootstrap localhost:9092
  semel context add prod --bootstrap kafka-1:9093,kafka-2:9093 --set security.protocol=SSL --set ssl.cafile=ca.pem
  semel context list
  semel context use prod
  semel topic list --context local
"""
_ADD = """A value may hold ${NAME}, which is taken from the environment when the context is used: write it in single
quotes. docs/client-settings.md has all settings.

examples:
  semel context add local --bootstrap localhost:9092
  semel context add prod --bootstrap kafka:9094 --use --set security.protocol=SASL_SSL \\
      --set sasl.mechanism=SCRAM-SHA-512 --set sasl.username=alice --set 'sasl.password=${KAFKA_PASSWORD}'
"""
_LIST = """example:
  semel context list
"""
_USE = """example:
  semel context use prod
"""
_REMOVE = """example:
  semel context remove prod
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    add = actions.add_parser("add", help="name a cluster", description="Name a cluster.", epilog=_ADD)
    add.add_argument("name", metavar="NAME")
    add.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a node, or several with commas")
    add.add_argument(
        "--set",
        dest="client_settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the client, for its connections; may be repeated",
    )
    add.add_argument("--use", action="store_true", help="speak to it from now on; the first one is used anyway")
    add.add_argument("--replace", action="store_true", help="the name may be taken")
    add.set_defaults(run=_add)

    listing = actions.add_parser(
        "list", help="list contexts", description="List contexts. Passwords are not shown.", epilog=_LIST
    )
    listing.set_defaults(run=_list)

    use = actions.add_parser(
        "use",
        help="choose the cluster to speak to",
        description="Choose the cluster that commands speak to without --bootstrap and --context.",
        epilog=_USE,
    )
    use.add_argument("name", metavar="NAME")
    use.set_defaults(run=_use)

    remove = actions.add_parser("remove", help="forget a name", description="Forget a name.", epilog=_REMOVE)
    remove.add_argument("name", metavar="NAME")
    remove.set_defaults(run=_remove)

    for action in (add, listing, use, remove):
        add_output_arguments(action)


def _add(options: argparse.Namespace) -> int:
    contexts = Contexts.read()
    name = check_name(options.name)
    if name in contexts.named and not options.replace:
        raise CommandFailed(f"there is a context {name!r} already: --replace takes its place")
    settings = {_SERVERS: options.bootstrap, **keyworded(pairs(options.client_settings, "--set"))}
    for key in [key for key in settings if key in _FILES and "${" not in settings[key]]:
        settings[key] = os.path.abspath(os.path.expanduser(settings[key]))
    _check(settings)
    contexts.named[name] = settings
    was_current = contexts.current == name
    if options.use or contexts.current is None:
        contexts.current = name
    contexts.write()
    used = "; commands speak to it from now on" if contexts.current == name and not was_current else ""
    return _done(options, contexts, f"context {name} is {options.bootstrap}{used}")


def _check(settings: dict[str, str]) -> None:
    """Raises BadSetting. Of what the environment fills in later only the name can be judged now."""
    from semel.client.settings import ConnectionSettings, declared, load

    table = declared(ConnectionSettings)
    known = {*table, *(alias for entry in table.values() for alias in entry.option.aliases)}
    load(ConnectionSettings, {key: value for key, value in settings.items() if "${" not in value or key not in known})


def _list(options: argparse.Namespace) -> int:
    output = Output.of(options)
    contexts = Contexts.read()
    if output.is_json:
        output.json(_document(contexts))
    elif contexts.named:
        rows = [
            (
                Cell("*" if name == contexts.current else " ", "green"),
                name,
                settings.get(_SERVERS),
                " ".join(f"{key}={value}" for key, value in _shown(settings).items() if key != _SERVERS),
            )
            for name, settings in sorted(contexts.named.items())
        ]
        output.table(("", "NAME", "BOOTSTRAP", "SETTINGS"), rows)
    else:
        output.note("there is no context yet; semel context add NAME --bootstrap HOST:PORT makes one")
    return Exit.OK


def _use(options: argparse.Namespace) -> int:
    contexts = Contexts.read()
    servers = contexts.get(options.name).get(_SERVERS)
    contexts.current = options.name
    contexts.write()
    return _done(options, contexts, f"commands speak to {options.name} ({servers}) now")


def _remove(options: argparse.Namespace) -> int:
    contexts = Contexts.read()
    contexts.get(options.name)
    del contexts.named[options.name]
    was_current = contexts.current == options.name
    if was_current:
        contexts.current = None
    contexts.write()
    rest = "; no context is in use now" if was_current else ""
    return _done(options, contexts, f"removed context {options.name}{rest}")


def _done(options: argparse.Namespace, contexts: Contexts, text: str) -> int:
    output = Output.of(options)
    if output.is_json:
        output.json(_document(contexts))
    else:
        output.line(text)
    return Exit.OK


def _document(contexts: Contexts) -> dict[str, Any]:
    return {
        "current": contexts.current,
        "contexts": {name: _shown(settings) for name, settings in sorted(contexts.named.items())},
    }


def _shown(settings: dict[str, str]) -> dict[str, str]:
    """With secrets hidden, but for those that stand in the environment."""
    from semel.client.settings import ConnectionSettings, declared

    table = declared(ConnectionSettings)
    secret = {entry.keyword for entry in table.values() if entry.option.sensitive}
    secret |= {alias for entry in table.values() if entry.option.sensitive for alias in entry.option.aliases}
    return {key: _HIDDEN if key in secret and "${" not in value else value for key, value in settings.items()}
