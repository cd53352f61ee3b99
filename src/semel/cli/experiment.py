"""`semel experiment`: what the guarantees rest on, tried out on a cluster while you watch."""

from __future__ import annotations

import argparse
import uuid
from functools import partial
from typing import Any

from semel.cli.connection import add_connection_arguments, run
from semel.cli.failures import Exit
from semel.cli.output import Cell, Output, add_output_arguments

_EXAMPLES = """examples:
  semel experiment in-flight --local
  semel experiment assignors --local
"""
_IN_FLIGHT = """A proxy makes one request of a real producer fail while others are under way: it is refused, or its
answer is lost. Then the partition is read. The last experiment writes one batch more than brokers remember, and the
first one again.

examples:
  semel experiment in-flight --local
  semel experiment in-flight --bootstrap kafka:9092
"""
_ASSIGNORS = """Asks the assignors who reads what, in four examples, and has the members of a real group vote for one.

examples:
  semel experiment assignors --local
  semel experiment assignors --json
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    in_flight = actions.add_parser(
        "in-flight",
        help="order and copies of records when a request fails, with idempotence and without",
        description="Order and copies of records when a request fails, with idempotence and without.",
        epilog=_IN_FLIGHT,
    )
    in_flight.set_defaults(run=lambda options: run(_in_flight(options, Output.of(options))))
    assignors = actions.add_parser(
        "assignors",
        help="who of a group reads what, and how a group chooses",
        description="Who of a group reads what, and how a group chooses.",
        epilog=_ASSIGNORS,
    )
    assignors.set_defaults(run=lambda options: run(_assignors(options, Output.of(options))))
    for action in (in_flight, assignors):
        action.add_argument("--local", action="store_true", help="on a node of its own, which is removed afterwards")
        add_output_arguments(action)
        add_connection_arguments(action)


async def _in_flight(options: argparse.Namespace, output: Output) -> int:
    from semel.cli.own_node import admin_of
    from semel.client.admin.settings import AdminSettings
    from semel.client.cluster import Cluster
    from semel.client.settings import load
    from semel.live.in_flight import CASES, in_topic, outcome_of, window_outcome

    async with admin_of(options) as (admin, host, settings):
        cluster = Cluster(host, load(AdminSettings, settings))
        await cluster.start()
        try:
            outcomes = []
            with output.progress("experiments", len(CASES) + 1) as progress:
                for case in CASES:
                    run_case = partial(outcome_of, case, cluster, settings)
                    outcomes.append(await in_topic(admin, _name(), run_case))
                    progress.advance()
                window = await in_topic(admin, _name(), partial(window_outcome, cluster))
        finally:
            await cluster.close()
    if output.is_json:
        output.json({"failures": [one.as_json() for one in outcomes], "window": window.as_json()})
        return Exit.OK
    rows = [
        (
            "on" if one.case.is_idempotent else "off",
            one.case.in_flight,
            one.case.failure,
            " ".join(map(str, one.log)),
            one.requests,
            Cell(one.verdict, "green" if one.verdict == "in order" else "red"),
        )
        for one in outcomes
    ]
    output.line(f"Records {' '.join(map(str, outcomes[0].sent))} are sent; the request with record 1 fails.")
    output.line()
    output.table(("IDEMPOTENCE", "IN FLIGHT", "IT IS", "THE LOG THEN", "REQUESTS", "RECORDS ARE"), rows)
    output.line()
    output.line(f"{window.batches} batches of an idempotent producer, then the first again: {window.answer}")
    output.line(f"the log then: {' '.join(map(str, window.log))}")
    return Exit.OK


async def _assignors(options: argparse.Namespace, output: Output) -> int:
    from semel.cli.own_node import admin_of
    from semel.live.assignments import BALLOTS, EXAMPLES, chosen_by_vote
    from semel.live.in_flight import in_topic

    async with admin_of(options) as (admin, _, settings):
        name = _name()
        chosen = await in_topic(admin, name, lambda topic: chosen_by_vote(admin, settings, topic, topic))
        await admin.delete_groups([name])
    if output.is_json:
        examples: list[dict[str, Any]] = [{"title": one.title, "given": one.given()} for one in EXAMPLES]
        output.json({"examples": examples, "ballots": BALLOTS, "chosen": chosen})
        return Exit.OK
    for one in EXAMPLES:
        output.line(output.paint(one.title, "bold"))
        output.facts(((member, " ".join(owned)) for member, owned in one.given().items()), indent="  ")
        output.line()
    output.line(output.paint("a vote: each member votes for the first of its own that all members support", "bold"))
    output.facts(((member, ", ".join(ballot)) for member, ballot in BALLOTS.items()), indent="  ")
    output.line(f"  the group has chosen {output.paint(chosen, 'green')}")
    return Exit.OK


def _name() -> str:
    return f"experiment-{uuid.uuid4().hex[:6]}"
