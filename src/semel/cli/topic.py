"""`semel topic`: create, list, describe, alter, trim and delete topics."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from semel.cli.asking import says_yes
from semel.cli.connection import add_connection_arguments, admin_for, pairs, run, shown_options
from semel.cli.failures import CommandFailed, Exit, NotFound, WrongCall
from semel.cli.live import add_live_arguments, draw_again, title
from semel.cli.output import Cell, Output, add_output_arguments, count_text
from semel.cli.positions import WHERE, at_least_one, place, position

if TYPE_CHECKING:
    pass

_MIN_IN_SYNC = "min.insync.replicas"
_EXAMPLES = """examples:
  semel topic create payments --partitions 3
  semel topic list
  semel topic describe payments
  semel topic alter payments --config retention.ms=86400000
  semel topic trim payments --before 7d
  semel topic delete payments
"""
_CREATE = """examples:
  semel topic create payments
  semel topic create payments receipts --partitions 3 --config cleanup.policy=compact --if-not-exists
"""
_LIST = """examples:
  semel topic list
  semel topic list --names | grep orders
  semel topic list --json --internal
"""
_DESCRIBE = """examples:
  semel topic describe payments
  semel topic describe payments --all-settings
"""
_ALTER = """examples:
  semel topic alter payments --partitions 6
  semel topic alter payments --config retention.ms=86400000 --reset cleanup.policy
"""
_DELETE = """examples:
  semel topic delete payments
  semel topic delete payments receipts --yes --if-exists
"""
_TRIM = """Readers who stand below the new start go on as auto.offset.reset says. With a time, younger records stay.

examples:
  semel topic trim payments --before 7d
  semel topic trim payments/0 --before 1000 --execute
  semel topic trim payments --before latest --execute
"""
_REPLICAS = """examples:
  semel topic replicas --all --factor 3
  semel topic replicas payments --factor 3 --dry-run
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create topics", description="Create topics.", epilog=_CREATE)
    create.add_argument("topics", nargs="+", metavar="TOPIC")
    create.add_argument("--partitions", type=at_least_one, default=-1, metavar="N", help="without it the broker's own")
    create.add_argument("--replication", type=at_least_one, default=-1, metavar="N", help="copies of each partition")
    _add_config(create, "a setting of the topic; may be repeated")
    create.add_argument("--if-not-exists", action="store_true", help="a topic that is there already is left as it is")
    create.set_defaults(run=lambda options: run(_create(options, Output.of(options))))

    listing = actions.add_parser("list", help="list topics", description="List topics.", epilog=_LIST)
    listing.add_argument("--internal", action="store_true", help="the broker's own topics too")
    listing.add_argument("--names", action="store_true", help="names alone, one in a line")
    listing.set_defaults(run=lambda options: run(_list(options, Output.of(options))))

    describe = actions.add_parser(
        "describe",
        help="partitions, offsets and settings of topics",
        description="Partitions, offsets and settings of topics.",
        epilog=_DESCRIBE,
    )
    describe.add_argument("topics", nargs="+", metavar="TOPIC")
    describe.add_argument("--all-settings", action="store_true", help="those at their defaults too")
    describe.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    add_live_arguments(describe)
    describe.set_defaults(run=lambda options: run(_describe(options, Output.of(options))))

    alter = actions.add_parser(
        "alter",
        help="change settings, or add partitions",
        description="Change settings of a topic, or add partitions. Keys that are written after partitions were added\n"
        "may go to other partitions than before.",
        epilog=_ALTER,
    )
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("--partitions", type=at_least_one, metavar="N", help="how many there are to be, all together")
    _add_config(alter, "set it; may be repeated")
    alter.add_argument("--reset", action="append", default=[], metavar="NAME", help="back to its default; repeatable")
    alter.set_defaults(run=lambda options: run(_alter(options, Output.of(options))))

    replicas = actions.add_parser(
        "replicas",
        help="give topics more or fewer replicas",
        description="Give topics more or fewer replicas, and wait until they are in sync. New ones go to the racks\n"
        "and nodes that have the fewest; leaders stay where they are.",
        epilog=_REPLICAS,
    )
    replicas.add_argument("topics", nargs="*", metavar="TOPIC")
    replicas.add_argument("--all", action="store_true", help="all topics, the cluster's own ones too")
    replicas.add_argument("--factor", type=at_least_one, required=True, metavar="N", help="replicas of each partition")
    replicas.add_argument("--dry-run", action="store_true", help="only show what would be done")
    replicas.add_argument("--no-wait", dest="wait", action="store_false", help="do not wait until they are in sync")
    replicas.set_defaults(run=_replicas)

    trim = actions.add_parser(
        "trim",
        help="delete the oldest records of topics",
        description="Delete the oldest records of topics. Shows what it would do, unless it is told to --execute.",
        epilog=_TRIM,
    )
    trim.add_argument("places", nargs="+", type=place, metavar="TOPIC[/PARTITION]")
    trim.add_argument("--before", type=position, required=True, metavar="WHERE", help=WHERE)
    trim.add_argument("--execute", action="store_true", help="do it")
    trim.set_defaults(run=_trim)

    delete = actions.add_parser(
        "delete",
        help="delete topics and all their records",
        description="Delete topics and all their records. Asks first.",
        epilog=_DELETE,
    )
    delete.add_argument("topics", nargs="+", metavar="TOPIC")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    delete.add_argument("--if-exists", action="store_true", help="a topic that is not there is no error")
    delete.set_defaults(run=lambda options: run(_delete(options, Output.of(options))))

    for action in (create, listing, describe, alter, replicas, trim, delete):
        add_output_arguments(action)
        add_connection_arguments(action)


def _add_config(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help=text)


# -- create


async def _create(options: argparse.Namespace, output: Output) -> int:
    from semel.client.admin.outcome import AdminErrors
    from semel.client.admin.values import CreatedTopic, NewTopic
    from semel.client.errors import SemelError, TopicExists

    names = list(dict.fromkeys(options.topics))
    configs = pairs(options.config, "--config")
    wanted = [NewTopic(name, options.partitions, options.replication, configs) for name in names]
    made: Mapping[str, CreatedTopic]
    failed: dict[str, SemelError] = {}
    async with admin_for(options) as admin:
        try:
            made = await admin.create_topics(wanted)
        except AdminErrors as errors:
            made, failed = errors.results, dict(errors.errors)
        except SemelError as error:
            if len(names) > 1:
                raise
            made, failed = {}, {names[0]: error}
    there = [name for name, error in failed.items() if isinstance(error, TopicExists)] if options.if_not_exists else []
    documents = [_created(name, made.get(name)) for name in names if name in made or name in there]
    if output.is_json:
        output.json(documents)
    else:
        for document in documents:
            count = document.get("partitions")
            numbers = f" with {count_text(count, 'partition')}" if count else ""
            output.line(
                f"created topic {document['name']}{numbers}"
                if document["created"]
                else f"topic {document['name']} was there already"
            )
    _raise_first(error for name, error in failed.items() if name not in there)
    return Exit.OK


def _created(name: str, topic: Any) -> dict[str, Any]:
    from semel.views.topics import topic_id_text

    if topic is None:
        return {"name": name, "created": False}
    document: dict[str, Any] = {"name": name, "created": True, "id": topic_id_text(topic.topic_id)}
    if topic.partitions >= 0:
        document |= {"partitions": topic.partitions, "replication": topic.replication_factor}
    return document


def _raise_first(errors: Any) -> None:
    """What was done is told by now; then what was not."""
    from semel.cli.failures import sentence_of

    failed = list(errors)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise CommandFailed("; ".join(sentence_of(error) for error in failed))


# -- list


async def _list(options: argparse.Namespace, output: Output) -> int:
    from semel.views.topics import topic_document

    async with admin_for(options) as admin:
        topics = await admin.list_topics(include_internal=options.internal)
    if output.is_json:
        output.json(list(topics) if options.names else [topic_document(topic) for topic in topics.values()])
    elif options.names:
        for name in topics:
            output.line(name)
    elif topics:
        rows = [(topic.name, len(topic.partitions), topic_document(topic)["replication"]) for topic in topics.values()]
        output.table(("TOPIC", "PARTITIONS", "REPLICAS"), rows)
    else:
        output.note(f"there is no topic yet; semel topic create NAME{shown_options(options)} makes one")
    return Exit.OK


# -- describe


async def _describe(options: argparse.Namespace, output: Output) -> int:
    from semel.views.topics import described, description

    async with admin_for(options) as admin:

        async def draw(picture: Output) -> None:
            topics = await described(admin, options.topics)
            documents = [await description(admin, topic) for topic in topics.values()]
            if picture.is_json:
                (picture.json_line if options.watch else picture.json)(documents)
                return
            if options.watch:
                title(picture, "topics")
                picture.line()
            for number, document in enumerate(documents):
                if number:
                    picture.line()
                _show(picture, document, options)

        if options.watch:
            return await draw_again(options, output, draw)
        await draw(output)
    return Exit.OK


def _show(output: Output, document: dict[str, Any], options: argparse.Namespace) -> None:
    settings = {
        name: setting["value"]
        for name, setting in document["settings"].items()
        if options.all_settings or setting["source"] == "topic"
    }
    output.facts([("topic", document["name"]), ("id", document["id"])])
    output.facts(settings.items(), indent="  ")
    output.line()
    rows = [
        (
            one["partition"],
            one["leader"],
            _joined(one["replicas"]),
            Cell(_joined(one["in_sync"]), "" if len(one["in_sync"]) == len(one["replicas"]) else "red"),
            one["start_offset"],
            Cell(one["last_stable_offset"], "yellow" if one["last_stable_offset"] < one["end_offset"] else ""),
            one["end_offset"],
        )
        for one in document["partitions"]
    ]
    output.table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "STABLE", "END"), rows)
    least = int(document["settings"].get(_MIN_IN_SYNC, {"value": 1})["value"])
    fewest = min((len(one["replicas"]) for one in document["partitions"]), default=least)
    if fewest < least:
        output.note(f"{_MIN_IN_SYNC} is {least}, but counts as {fewest} where there are no more replicas")
    held = [one["partition"] for one in document["partitions"] if one["last_stable_offset"] < one["end_offset"]]
    for number in held:
        output.note(
            f"an open transaction holds back partition {number}: "
            f"semel txn why-stuck {document['name']}/{number}{shown_options(options)}"
        )


def _joined(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)


# -- alter


async def _alter(options: argparse.Namespace, output: Output) -> int:
    from semel.client.admin.values import ConfigResource
    from semel.views.topics import described

    changes = pairs(options.config, "--config")
    if options.partitions is None and not changes and not options.reset:
        raise WrongCall("nothing to change: give --partitions, --config or --reset")
    done: dict[str, Any] = {"name": options.topic}
    async with admin_for(options) as admin:
        topic = (await described(admin, [options.topic]))[options.topic]
        if options.partitions is not None and options.partitions < len(topic.partitions):
            raise WrongCall(
                f"topic {options.topic!r} has {count_text(len(topic.partitions), 'partition')}, and none can be taken "
                f"away: --partitions must be more than that"
            )
        if changes or options.reset:
            await admin.alter_configs(ConfigResource.topic(options.topic), set=changes, delete=options.reset)
            done |= {"set": changes, "reset": options.reset}
        if options.partitions is not None:
            if options.partitions > len(topic.partitions):
                await admin.create_partitions({options.topic: options.partitions})
            done["partitions"] = options.partitions
    if output.is_json:
        output.json(done)
        return Exit.OK
    for name, value in changes.items():
        output.line(f"{options.topic}: {name} is {value} now")
    for name in options.reset:
        output.line(f"{options.topic}: {name} is at its default now")
    if options.partitions is not None:
        output.line(f"{options.topic}: {count_text(options.partitions, 'partition')} now")
    return Exit.OK


# -- replicas


def _replicas(options: argparse.Namespace) -> int:
    from semel.cli.topic_replicas import run as give_replicas

    return run(give_replicas(options, Output.of(options)))


# -- trim


def _trim(options: argparse.Namespace) -> int:
    from semel.cli.topic_trim import trim

    return run(trim(options, Output.of(options)))


# -- delete


async def _delete(options: argparse.Namespace, output: Output) -> int:
    from semel.views.refusals import no_such_topic

    names = list(dict.fromkeys(options.topics))
    async with admin_for(options) as admin:
        there = await admin.list_topics(include_internal=True)
        missing = [name for name in names if name not in there]
        if missing and not options.if_exists:
            raise NotFound(no_such_topic(*missing))
        names = [name for name in names if name in there]
        if names and not options.yes and not says_yes(f"Delete {', '.join(names)} and all records?"):
            raise CommandFailed("nothing was deleted")
        if names:
            await admin.delete_topics(names)
    if output.is_json:
        output.json([{"name": name, "deleted": name in names} for name in dict.fromkeys(options.topics)])
        return Exit.OK
    for name in names:
        output.line(f"deleted topic {name}")
    for name in missing:
        output.line(f"topic {name} was not there")
    return Exit.OK
