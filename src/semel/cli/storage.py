"""`semel storage`: gives data directories to the nodes of a cluster, and shows whose a directory is."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from semel.cli.failures import CommandFailed, Exit, WrongCall
from semel.cli.node_options import add_settings_arguments, node_config
from semel.cli.output import Output, add_output_arguments
from semel.cli.scram_argument import FORM, credential_record

if TYPE_CHECKING:
    from semel.broker.identity import Identity
    from semel.config import BrokerConfig

_MOST_ID_CHARACTERS = 100
_EXAMPLES = """A node alone needs none of this: `semel serve` formats its directory by itself. The nodes of a cluster
are given the same id before their first start.

examples:
  semel storage random-uuid
  semel storage format --cluster-id MkU3OEVBNTcwNTJENDM2Qk --config node-1.toml
  semel storage info --data ./data
"""
_FORMAT = """Controllers are named by controller.quorum.voters, in the settings of every node.

examples:
  semel storage format --cluster-id "$(semel storage random-uuid)" --config node-1.toml
  semel storage format --cluster-id MkU3OEVBNTcwNTJENDM2Qk --config node-2.toml --ignore-formatted
"""
_INFO = """examples:
  semel storage info --data ./data
  semel storage info --config node-1.toml --json

exit codes: 0 the directory is that of the node, 1 it is not.
"""
_RANDOM_UUID = """example:
  semel storage random-uuid
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    formatting = actions.add_parser(
        "format",
        help="make a data directory that of a node",
        description="Make a data directory that of a node: it is empty or not there, and the node is not running.",
        epilog=_FORMAT,
    )
    formatting.add_argument("--cluster-id", required=True, metavar="ID", help="of the cluster, the same for all nodes")
    add_settings_arguments(formatting)
    formatting.add_argument(
        "--standalone", action="store_true", help="this node is the first controller of a quorum that can grow"
    )
    formatting.add_argument(
        "--release-version", metavar="RELEASE", help="the release of Kafka whose metadata.version the cluster begins at"
    )
    formatting.add_argument(
        "--add-scram", action="append", default=[], metavar="USER", help=f"a user of a new cluster: {FORM}"
    )
    formatting.add_argument(
        "--ignore-formatted", action="store_true", help="a directory that is this node's already is left as it is"
    )
    add_output_arguments(formatting)
    formatting.set_defaults(run=_format)

    uuid = actions.add_parser(
        "random-uuid", help="make an id for a cluster", description="Make an id for a cluster.", epilog=_RANDOM_UUID
    )
    add_output_arguments(uuid)
    uuid.set_defaults(run=_random_uuid)

    info = actions.add_parser(
        "info",
        help="show whose a data directory is",
        description="Show whose a data directory is, and whether a node with these settings can use it.",
        epilog=_INFO,
    )
    add_settings_arguments(info)
    add_output_arguments(info)
    info.set_defaults(run=_info)


def _config(options: argparse.Namespace) -> BrokerConfig:
    from semel.config import ConfigError

    try:
        return node_config(options)
    except ConfigError as error:
        raise WrongCall(str(error)) from error


def _format(options: argparse.Namespace) -> int:
    from semel.broker.identity import WrongDirectory, format_directory
    from semel.config import Role
    from semel.controller.bootstrap import write_bootstrap
    from semel.host.real import real_host

    output, cluster_id = Output.of(options), options.cluster_id
    config = _config(options)
    _check_cluster_id(cluster_id)
    level = _level(options.release_version)
    credentials = [credential_record(text) for text in options.add_scram]
    if options.standalone:
        raise WrongCall(
            "--standalone is not allowed: a quorum cannot grow yet; name the controllers in controller.quorum.voters"
        )
    root, node_id = config.log_dir(), config.layout.node_id
    host = real_host()
    try:
        identity, is_new = format_directory(host.disk, root, cluster_id, node_id, host.random)
        if not is_new:
            _check_formatted(identity, root, cluster_id, node_id, is_allowed=options.ignore_formatted)
        elif Role.CONTROLLER in config.layout.roles and not config.layout.is_alone:
            write_bootstrap(host.disk, root, level, host.clock.wall_ms(), credentials)
    except WrongDirectory as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"cannot format {root}: {error.filename or root}: {error.strerror}") from error
    finally:
        host.close()
    if output.is_json:
        output.json({**_document(root, identity), "formatted": is_new})
    else:
        output.line(f"{root} {'is now' if is_new else 'was already'} that of node {node_id}, cluster {cluster_id}.")
    return Exit.OK


def _check_cluster_id(cluster_id: str) -> None:
    if not cluster_id or len(cluster_id) > _MOST_ID_CHARACTERS or not cluster_id.isprintable() or " " in cluster_id:
        raise WrongCall(
            f"--cluster-id {cluster_id!r} is not allowed; allowed: 1 to {_MOST_ID_CHARACTERS} characters without "
            "blanks, such as semel storage random-uuid makes"
        )


def _level(release: str | None) -> int:
    """The metadata.version of a release, as Kafka names it: 4.1, or 4.1-IV1."""
    from semel.controller.levels import LEVEL_OF_A_CLUSTER, RELEASES

    if release is None:
        return LEVEL_OF_A_CLUSTER
    if release not in RELEASES:
        known = ", ".join(name for name in RELEASES if "-" not in name)
        raise WrongCall(
            f"--release-version {release!r} is not allowed; allowed: {known}, or a level of theirs: 3.7-IV2"
        )
    return RELEASES[release]


def _check_formatted(identity: Identity, root: str, cluster_id: str, node_id: int, *, is_allowed: bool) -> None:
    if not is_allowed:
        raise CommandFailed(
            f"{root} is formatted already, for node {identity.node_id} of cluster {identity.cluster_id}: choose "
            "another directory, or say --ignore-formatted if that is the one"
        )
    if (identity.cluster_id, identity.node_id) != (cluster_id, node_id):
        raise CommandFailed(
            f"{root} is that of node {identity.node_id} of cluster {identity.cluster_id}, not of node {node_id} of "
            f"cluster {cluster_id}: choose another directory"
        )


def _random_uuid(options: argparse.Namespace) -> int:
    import random

    from semel.broker.identity import new_id

    output, made = Output.of(options), new_id(random.SystemRandom())
    if output.is_json:
        output.json({"id": made})
    else:
        output.line(made)
    return Exit.OK


def _info(options: argparse.Namespace) -> int:
    from semel.broker.identity import WrongDirectory, check_place, read_identity
    from semel.host.real import real_host

    output, config, problem = Output.of(options), _config(options), None
    root, identity = config.log_dir(), None
    host = real_host()
    try:
        check_place(host.disk, root)
        identity = read_identity(host.disk, root)
    except WrongDirectory as error:
        problem = str(error)
    finally:
        host.close()
    if problem is None and identity is None:
        problem = f"{root} is not formatted"
    elif identity is not None and identity.node_id != config.layout.node_id:
        problem = f"{root} belongs to node {identity.node_id}, but node.id is {config.layout.node_id}"
    document = {"data": root} if identity is None else _document(root, identity)
    if output.is_json:
        output.json({**document, "problem": problem})
    else:
        output.facts([(name.replace("_", " "), value) for name, value in document.items()])
        if problem is not None:
            output.line(output.paint(f"{problem}.", "red"))
    return Exit.OK if problem is None else Exit.FAILED


def _document(root: str, identity: Identity) -> dict[str, object]:
    return {"data": root, **identity._asdict()}
