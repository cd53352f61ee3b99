"""`semel topic replicas`: gives topics more or fewer replicas, and waits until they are in sync."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from semel.cli.connection import admin_for, shown_options
from semel.cli.failures import CommandFailed, Exit, WrongCall
from semel.cli.output import Output, count_text
from semel.views.topics import described

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.client.admin.admin import Admin
    from semel.client.metadata import TopicPartition

_LOOK_S = 0.5
_AT_ONCE = 200
"""So many partitions are copied at the same time: the controller writes one batch of records for a request."""


async def run(options: argparse.Namespace, output: Output) -> int:
    if bool(options.topics) == options.all:
        raise WrongCall("name the topics, or say --all for all of them, internal ones too")
    async with admin_for(options) as admin:
        plan, before = await _planned(admin, options)
        if not options.dry_run:
            await _carry_out(admin, plan, output, options)
    if output.is_json:
        output.json(
            [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "before": list(before[place]),
                    "replicas": replicas,
                    "done": not options.dry_run and options.wait,
                }
                for place, replicas in plan.items()
            ]
        )
        return Exit.OK
    if not plan:
        output.line(f"nothing to do: all partitions have {count_text(options.factor, 'replica')}")
        return Exit.OK
    if options.dry_run:
        rows = [(str(place), _joined(before[place]), _joined(replicas)) for place, replicas in plan.items()]
        output.table(("PARTITION", "REPLICAS", "WOULD BE"), rows)
        return Exit.OK
    what = f"{count_text(len(plan), 'partition')} of {count_text(len({place.topic for place in plan}), 'topic')}"
    verb = "has" if len(plan) == 1 else "have"
    replicas = count_text(options.factor, "replica")
    if options.wait:
        output.line(f"{what} {verb} {replicas} now")
    else:
        output.line(f"{what} will have {replicas}; semel cluster status{shown_options(options)} shows how far that is")
    return Exit.OK


def _joined(node_ids: Any) -> str:
    return ",".join(str(node_id) for node_id in node_ids)


async def _planned(
    admin: Admin, options: argparse.Namespace
) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, tuple[int, ...]]]:
    """The new replicas of each partition, and those that it has."""
    from semel.client.admin.replica_plans import plan_replicas
    from semel.client.errors import UnsupportedByBroker
    from semel.client.metadata import TopicPartition

    try:
        cluster = await admin.describe_cluster(include_fenced=True)
    except UnsupportedByBroker:
        cluster = await admin.describe_cluster()
    everything = await admin.list_topics(include_internal=True)
    topics = everything if options.all else await described(admin, options.topics)
    ready = {node_id: node for node_id, node in cluster.nodes.items() if node_id not in cluster.fenced}
    try:
        plan = plan_replicas(topics.values(), everything.values(), ready, options.factor)
    except ValueError as error:
        raise CommandFailed(f"{error}; semel cluster status{shown_options(options)} shows the nodes") from error
    before = {
        TopicPartition(topic.name, number): partition.replicas
        for topic in topics.values()
        for number, partition in topic.partitions.items()
    }
    return plan, before


async def _carry_out(
    admin: Admin, plan: Mapping[TopicPartition, list[int]], output: Output, options: argparse.Namespace
) -> None:
    """Some at a time, each lot when the one before it is done."""
    places = list(plan)
    with output.progress("copying", len(places), "partitions") as bar:
        for first in range(0, len(places), _AT_ONCE):
            lot = places[first : first + _AT_ONCE]
            await admin.alter_partition_reassignments({place: plan[place] for place in lot})
            while options.wait:
                moving = await admin.list_partition_reassignments(lot)
                bar.show(first + len(lot) - len(moving))
                if not moving:
                    break
                await asyncio.sleep(_LOOK_S)
