"""`semel sim`: runs of the simulated world. One seed is replayed and told, many are explored until one breaks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from semel.cli.failures import Exit, WrongCall
from semel.cli.output import Output, add_output_arguments

if TYPE_CHECKING:
    from semel.sim.world.schedule import Schedule

_NONE = "none"
_EXAMPLES = """examples:
  semel sim --seed 17
  semel sim --seeds 1..10000 --jobs 2
  semel sim --seeds 1..1000 --nodes 3
  semel sim --seed 17 --strikes 2,5 --seconds 0.8 --without transactors

A node and its clients run in one process, in virtual time, on a simulated disk and network, while faults happen that
the seed has drawn. The same seed gives the same run. Exit code 1: a promise was broken.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, metavar="N", help="run this seed, and tell what happens")
    which.add_argument("--seeds", metavar="N..M", help="run these, and stop at the first that finds something")
    command.add_argument(
        "--nodes", type=int, choices=(1, 3, 5), default=1, help="how many nodes there are; clients speak to the first"
    )
    command.add_argument(
        "--voters", type=int, choices=(1, 3, 5), default=1, help="how many of the nodes are controllers (default 1)"
    )
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="how many processes explore (default 1)")
    command.add_argument("--strikes", metavar="LIST", help=f"of the seed's strikes only these numbers, or {_NONE}")
    command.add_argument("--seconds", type=float, metavar="N", help="let the clients work for so long only")
    command.add_argument("--without", metavar="LIST", help="leave out these kinds of clients")
    command.add_argument("--brief", action="store_true", help="tell of faults and findings, not of every record")
    command.add_argument("--no-shrink", action="store_true", help="do not look for a shorter schedule")
    command.add_argument("--history", metavar="FILE", help="write the history of --seed here, for semel check --judge")
    # `module:function` is imported and called before the first run: for tests, which plant mistakes with it.
    command.add_argument("--patch", help=argparse.SUPPRESS)
    add_output_arguments(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import logging

    # What nodes and clients have to say of faults is in the timeline.
    logging.getLogger("semel").addHandler(logging.NullHandler())
    output = Output.of(options)
    if options.voters > options.nodes:
        raise WrongCall(f"--voters {options.voters} is not allowed; allowed: at most as many as --nodes")
    return _replay(options, output) if options.seed is not None else _explore(options, output)


# -- one seed


def _replay(options: argparse.Namespace, output: Output) -> int:
    from semel.cli.sim_output import run_document, show_run
    from semel.sim.world.exploring import apply_patch
    from semel.sim.world.simulation import simulate

    schedule = _schedule(options)
    apply_patch(options.patch)
    done = simulate(schedule)
    if options.history is not None:
        with open(options.history, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in done.history.lines())
    if output.is_json:
        output.json(run_document(done))
    else:
        show_run(done, output, is_brief=options.brief)
    return Exit.FAILED if done.violations else Exit.OK


def _schedule(options: argparse.Namespace) -> Schedule:
    from semel.sim.world.schedule import CLIENTS, SIDE_TOPICS, drawn

    schedule = drawn(options.seed, options.nodes, options.voters)
    if options.seconds is not None:
        if options.seconds <= 0:
            raise WrongCall(f"--seconds {options.seconds:g} is not allowed; allowed: more than 0")
        schedule = schedule.shortened(options.seconds)
    if options.strikes is not None:
        schedule = schedule.only(_numbers(options.strikes))
    allowed = [name.replace("_", "-") for name in (*CLIENTS, SIDE_TOPICS)]
    for name in filter(None, (options.without or "").split(",")):
        if name not in allowed:
            raise WrongCall(f"--without {name!r} is not allowed; allowed: {', '.join(allowed)}")
        schedule = schedule.without(name.replace("-", "_"))
    return schedule


def _numbers(given: str) -> frozenset[int]:
    if given == _NONE:
        return frozenset()
    try:
        return frozenset(int(number) for number in given.split(","))
    except ValueError:
        raise WrongCall(f"--strikes {given!r} is not allowed; allowed: numbers as 1,4 or {_NONE}") from None


# -- many seeds


def _explore(options: argparse.Namespace, output: Output) -> int:
    from semel.cli.sim_output import exploration_document, progress_note, show_exploration
    from semel.sim.world.exploring import Progress, explore

    seeds = _range(options.seeds)
    if options.jobs < 1:
        raise WrongCall(f"--jobs {options.jobs} is not allowed; allowed: 1 and more")
    with output.progress("exploring", len(seeds), "seeds") as bar:

        def tell(progress: Progress) -> None:
            bar.show(progress.runs, progress_note(progress))

        progress = explore(
            seeds, nodes=options.nodes, voters=options.voters, jobs=options.jobs, patch=options.patch, tell=tell
        )
    shortest = None
    if progress.found is not None and not options.no_shrink:
        shortest = _shrunk(progress.found.seed, options, output)
    if output.is_json:
        output.json(exploration_document(seeds, progress, shortest))
    else:
        show_exploration(seeds, progress, shortest, output)
    return Exit.OK if progress.found is None else Exit.FAILED


def _shrunk(seed: int, options: argparse.Namespace, output: Output) -> Schedule:
    from semel.cli.output import count_text
    from semel.sim.world.exploring import apply_patch
    from semel.sim.world.schedule import drawn
    from semel.sim.world.shrinking import MAX_RUNS, Shrinking
    from semel.sim.world.simulation import simulate

    if options.jobs > 1:
        apply_patch(options.patch)
    with output.progress("shrinking", MAX_RUNS, "runs") as bar:

        def tell(runs: int, schedule: Schedule) -> None:
            bar.show(runs, f"{count_text(len(schedule.strikes), 'strike')} in {schedule.seconds:g} s")

        return Shrinking(simulate(drawn(seed, options.nodes, options.voters)), tell=tell).shrink().schedule


def _range(given: str) -> range:
    first, dots, last = given.partition("..")
    try:
        seeds = range(int(first), int(last if dots else first) + 1)
    except ValueError:
        raise WrongCall(f"--seeds {given!r} is not allowed; allowed: N..M, as in 1..10000") from None
    if not seeds:
        raise WrongCall(f"--seeds {given!r} is not allowed: there is no seed between {first} and {last}")
    return seeds
