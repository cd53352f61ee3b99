"""`semel group`: see what groups have read and how far they are behind, set them back or forward, and delete them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from semel.cli.asking import says_yes
from semel.cli.connection import add_connection_arguments, admin_for, run
from semel.cli.failures import CommandFailed, Exit
from semel.cli.live import add_live_arguments, draw_again, title
from semel.cli.output import Cell, Output, add_output_arguments
from semel.cli.positions import WHERE, place, position

if TYPE_CHECKING:
    pass

_EXAMPLES = """examples:
  semel group list
  semel group describe books
  semel group reset books --to earliest
  semel group delete books
"""
_LIST = """examples:
  semel group list
  semel group list --state Stable --json
"""
_DESCRIBE = """examples:
  semel group describe books
  semel group describe books --json
  semel group describe books --watch
"""
_RESET = """Without --topic, the partitions for which the group has committed something are set. An offset that the log
does not have becomes the nearest one that it has.

examples:
  semel group reset books --to earliest
  semel group reset books --to 2026-11-15T10:00 --topic payments --execute
  semel group reset books --shift -100 --topic payments/0 --execute
  semel group reset books --to 17 --topic payments/0 --execute
"""


_DELETE = """A group with members is not deleted: stop them first. Its offsets go with it.

examples:
  semel group delete books
  semel group delete books shelves --yes
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="list groups", description="List groups.", epilog=_LIST)
    listing.add_argument("--state", action="append", default=[], metavar="STATE", help="only in it: Stable, Empty, ...")
    listing.add_argument("--names", action="store_true", help="names alone, one in a line")
    listing.set_defaults(run=lambda options: run(_list(options, Output.of(options))))

    describe = actions.add_parser(
        "describe",
        help="members, offsets and lag of groups",
        description="Members, offsets and lag of groups.",
        epilog=_DESCRIBE,
    )
    describe.add_argument("groups", nargs="+", metavar="GROUP")
    describe.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    add_live_arguments(describe)
    describe.set_defaults(run=lambda options: run(_describe(options, Output.of(options))))

    reset = actions.add_parser(
        "reset",
        help="set a group to other offsets",
        description="Set a group to other offsets. Shows what it would do, unless it is told to --execute.\n"
        "The group must have no active members then.",
        epilog=_RESET,
    )
    reset.add_argument("group", metavar="GROUP")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", type=position, metavar="WHERE", help=WHERE)
    where.add_argument("--shift", type=int, metavar="N", help="so many offsets forward, or back if it is below 0")
    reset.add_argument(
        "--topic",
        dest="places",
        action="append",
        type=place,
        default=[],
        metavar="TOPIC[/PARTITION]",
        help="only this; may be repeated",
    )
    reset.add_argument("--execute", action="store_true", help="do it")
    reset.set_defaults(run=_reset)

    delete = actions.add_parser(
        "delete",
        help="delete groups and their offsets",
        description="Delete groups and their offsets. Asks first.",
        epilog=_DELETE,
    )
    delete.add_argument("groups", nargs="+", metavar="GROUP")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    delete.set_defaults(run=lambda options: run(_delete(options, Output.of(options))))

    for action in (listing, describe, reset, delete):
        add_output_arguments(action)
        add_connection_arguments(action)


def _reset(options: argparse.Namespace) -> int:
    from semel.cli.group_reset import reset

    return run(reset(options, Output.of(options)))


# -- delete


async def _delete(options: argparse.Namespace, output: Output) -> int:
    names = list(dict.fromkeys(options.groups))
    if not options.yes and not says_yes(f"Delete {', '.join(names)} and all offsets?"):
        raise CommandFailed("nothing was deleted")
    async with admin_for(options) as admin:
        await admin.delete_groups(names)
    if output.is_json:
        output.json([{"group": name, "deleted": True} for name in names])
    for name in () if output.is_json else names:
        output.line(f"deleted group {name}")
    return Exit.OK


# -- list


async def _list(options: argparse.Namespace, output: Output) -> int:
    from semel.views.groups import listed_document

    async with admin_for(options) as admin:
        groups = await admin.list_groups(states=options.state)
    if output.is_json:
        output.json(list(groups) if options.names else [listed_document(group) for group in groups.values()])
    elif options.names:
        for name in groups:
            output.line(name)
    elif groups:
        rows = [(group.group_id, group.state, group.kind) for group in groups.values()]
        output.table(("GROUP", "STATE", "PROTOCOL"), rows)
    else:
        output.note("there is no such group" if options.state else "there is no group yet")
    return Exit.OK


# -- describe


async def _describe(options: argparse.Namespace, output: Output) -> int:
    from semel.views.groups import described, group_document

    async with admin_for(options) as admin:

        async def draw(picture: Output) -> None:
            documents = [
                group_document(group, lag) for group, lag in [await described(admin, name) for name in options.groups]
            ]
            if picture.is_json:
                (picture.json_line if options.watch else picture.json)(documents)
                return
            if options.watch:
                title(picture, "groups")
                picture.line()
            for number, document in enumerate(documents):
                if number:
                    picture.line()
                _show(picture, document)

        if options.watch:
            return await draw_again(options, output, draw)
        await draw(output)
    return Exit.OK


def _show(output: Output, document: dict[str, Any]) -> None:
    output.facts(
        [
            ("group", document["group"]),
            ("state", document["state"]),
            ("protocol", " ".join(part for part in (document["kind"], document["assignor"]) if part)),
            ("coordinator", document["coordinator"]),
        ]
    )
    output.line()
    if document["members"]:
        rows = [
            (one["client_id"], one["host"], one["instance_id"] or one["member_id"], " ".join(one["partitions"]))
            for one in document["members"]
        ]
        output.table(("CLIENT", "HOST", "MEMBER", "READS"), rows)
        output.line()
    else:
        output.line("no active members")
        output.line()
    if not document["partitions"]:
        output.line("nothing committed")
        return
    partitions = [
        (
            one["topic"],
            one["partition"],
            one["committed"],
            one["end_offset"],
            Cell(one["lag"], "yellow" if one["lag"] else ""),
        )
        for one in document["partitions"]
    ]
    output.table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG"), partitions)
