"""`semel check`: a workload, perhaps an attack, and a judgement of all that clients saw."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from semel.cli.connection import add_connection_arguments, client_settings
from semel.cli.failures import CommandFailed, Exit, WrongCall
from semel.cli.output import Output, add_output_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from semel.cli.check_output import ComparedNodes
    from semel.host.api import Host
    from semel.sim.attack.checking import Check, Plan
    from semel.sim.judging.anomalies import Kind
    from semel.sim.workload.access import Load

FAULTS = ("kill", "pause", "cut", "delay")
SEMANTICS = ("at-most-once", "at-least-once", "exactly-once")
ALL = "all"
MIN_CLUSTER, MAX_CLUSTER = 3, 9
_TICK_S = 0.2
_OWN_SETTINGS = ("bootstrap_servers", "bootstrap_timeout_ms", "client_id")
"""Those that the workload sets for its clients itself."""
_EXAMPLES = """examples:
  semel check --bootstrap localhost:9092 --seconds 30
  semel check --cluster local --faults kill,pause,cut,delay --seconds 60
  semel check --cluster local --faults kill,cut --seconds 30 --semantics all
  semel check --cluster local --nodes 3 --faults kill,pause,cut --seconds 60
  semel check --judge history.jsonl

The workload uses topics of its own, which it deletes if nothing was found. It sends unique values, with and without
transactions, reads them with and without groups, and looks for what must not be: lost or doubled records, reads of
what was aborted or not committed yet, torn transactions, readers that skip or go back. Exit code 1: it found one.

With --nodes 3 three nodes are started, with three replicas of everything and sessions of 3 s. Faults
come one after the other: brokers and the controller are killed or paused, links between them and clients' connections
are cut. In the end all replicas must be in sync again, and hold the same on every node.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    command.add_argument("--seconds", type=float, default=20.0, metavar="N", help="how long to work (default 20)")
    command.add_argument(
        "--faults",
        metavar="LIST",
        default="",
        help=f"what to do to the cluster: {', '.join(FAULTS)}; kill and pause need --cluster local",
    )
    command.add_argument("--cluster", choices=("local",), help="start a cluster of our own on this machine")
    command.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help=f"how many brokers it has: 1, or {MIN_CLUSTER} to {MAX_CLUSTER} and a controller (default 1)",
    )
    command.add_argument(
        "--semantics",
        choices=(*SEMANTICS, ALL),
        help="show what is lost and doubled at most, at least and exactly once",
    )
    command.add_argument(
        "--patience",
        type=float,
        metavar="N",
        help="after so many seconds without getting on, a reader is stuck (default 20; groups elsewhere than local 60)",
    )
    command.add_argument("--seed", type=int, metavar="N", help="repeat the choices of an earlier run")
    command.add_argument("--allow", metavar="LIST", default="", help="kinds of anomalies to tell, but not to count")
    command.add_argument("--history", metavar="FILE", help="where to write the history (default: a temporary file)")
    command.add_argument("--judge", metavar="FILE", help="judge the history of an earlier run, and do nothing else")
    # How a node is started: for tests, which start nodes with planted bugs.
    command.add_argument("--node-command", help=argparse.SUPPRESS)
    add_connection_arguments(command)
    add_output_arguments(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    output = Output.of(options)
    return _judge_file(options, output) if options.judge is not None else _check(options, output)


def _judge_file(options: argparse.Namespace, output: Output) -> int:
    from semel.cli.check_output import anomalies, show_anomalies
    from semel.sim.history import History
    from semel.sim.judging.report import judge

    with open(options.judge, encoding="utf-8") as lines:
        try:
            history = History.from_lines(lines)
        except (ValueError, KeyError, TypeError) as error:
            raise WrongCall(f"{options.judge} is not a history of `semel check`: {error}") from error
    report = judge(history, allowed=_allowed(options))
    if output.is_json:
        output.json({"history": options.judge, "is_clean": report.is_clean, "anomalies": anomalies(report)})
    else:
        show_anomalies(report, output)
    return Exit.OK if report.is_clean else Exit.FAILED


def _check(options: argparse.Namespace, output: Output) -> int:
    import logging
    from contextlib import closing

    from semel.cli.waiting import watched_host
    from semel.host.real import real_host

    # What clients have to say of faults is in the history; --debug shows it as it comes.
    logging.getLogger("semel").addHandler(logging.NullHandler())
    # Faults of our own are no news.
    attacks = options.cluster is not None or options.faults
    with closing(real_host()) if attacks else watched_host() as host:
        return _checked(options, output, host)


def _checked(options: argparse.Namespace, output: Output, host: Host) -> int:
    import asyncio
    import shutil
    import tempfile
    from pathlib import Path

    from semel.cli.check_output import document, show
    from semel.sim.attack.checking import Check
    from semel.sim.attack.local_node import NodeDied

    seed = host.random.randrange(1 << 32) if options.seed is None else options.seed
    plan = _plan(options, f"check-{host.clock.wall_ms():x}", seed)
    history_path = Path(options.history or Path(tempfile.gettempdir()) / f"semel-{plan.name}.jsonl")
    history_path.touch()  # what cannot be written is better known now
    local_root = Path(tempfile.mkdtemp(prefix="semel-check-")) if plan.is_local else None
    check = Check(host, plan, local_root)
    is_kept = False
    try:
        try:
            asyncio.run(_watched(check, output))
        except NodeDied as error:
            is_kept = True
            raise CommandFailed(
                f"{error}; its data is in {local_root}, and what clients saw in {history_path}"
            ) from error
        report = check.judged()
        replicas = _compare_nodes(check)
        is_clean = report.is_clean and not (replicas is not None and replicas.findings.is_wrong)
        is_kept = not is_clean
    finally:
        _write(check, history_path)
        if local_root is not None and not is_kept:
            shutil.rmtree(local_root)
    if output.is_json:
        output.json(document(check, report, replicas, history_path))
    else:
        show(check, report, replicas, history_path, output)
    return Exit.OK if is_clean else Exit.FAILED


def _compare_nodes(check: Check) -> ComparedNodes | None:
    """Every two of the stopped nodes, as `semel log check --against` does it. None if there are none."""
    from itertools import combinations

    from semel.cli.check_output import ComparedNodes
    from semel.cli.log_against import compare_directories
    from semel.log.inspection.files import RealFiles
    from semel.log.inspection.findings import Findings

    if not check.directories:
        return None
    files, findings, offsets = RealFiles(), Findings(), 0
    for one, other in combinations(check.directories, 2):
        offsets += compare_directories(files, str(one), str(other), findings)
    return ComparedNodes(len(check.directories), offsets, findings)


async def _watched(check: Check, output: Output) -> None:
    import asyncio
    import contextlib

    from semel.cli.check_output import done_so_far

    loop = asyncio.get_running_loop()
    began_s = loop.time()
    work = loop.create_task(check.run())
    try:
        total_s = max(1, round(check.plan.seconds))
        with output.progress("checking", total_s, "s") as progress:
            while not work.done():
                await asyncio.wait([work], timeout=_TICK_S)
                progress.show(min(round(loop.time() - began_s), total_s), done_so_far(check))
        await work
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await work


def _write(check: Check, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in check.history.lines())


# -- what is asked for


def _plan(options: argparse.Namespace, name: str, seed: int) -> Plan:
    import shlex

    from semel.sim.attack.assault import ON_NODES, FaultKind
    from semel.sim.attack.checking import Plan
    from semel.sim.attack.local_node import SERVE
    from semel.sim.workload.semantics import Way

    if options.seconds <= 0:
        raise WrongCall(f"--seconds {options.seconds:g} is not allowed; allowed: more than 0")
    if options.nodes != 1 and not MIN_CLUSTER <= options.nodes <= MAX_CLUSTER:
        raise WrongCall(f"--nodes {options.nodes} is not allowed; allowed: 1, or {MIN_CLUSTER} to {MAX_CLUSTER}")
    if options.nodes != 1 and options.cluster is None:
        raise WrongCall("--nodes needs nodes of our own: add --cluster local")
    kinds = [FaultKind(name) for name in _listed("--faults", options.faults, FAULTS)]
    is_local = options.cluster is not None
    needs_nodes = [kind.value for kind in kinds if kind in ON_NODES]
    if needs_nodes and not is_local:
        raise WrongCall(f"--faults {','.join(needs_nodes)} needs nodes of our own: add --cluster local")
    if is_local and (options.bootstrap is not None or options.context is not None):
        raise WrongCall("--cluster local starts a cluster of its own: leave --bootstrap and --context out")
    settings = {} if is_local else client_settings(options)
    ways = [] if options.semantics is None else SEMANTICS if options.semantics == ALL else [options.semantics]
    plan = Plan(
        name=name,
        seed=seed,
        seconds=options.seconds,
        kinds=kinds,
        ways=[Way(way) for way in ways],
        bootstrap=_bootstrap(settings),
        settings={name: value for name, value in settings.items() if name not in _OWN_SETTINGS},
        is_local=is_local,
        node_count=options.nodes,
        node_command=SERVE if options.node_command is None else shlex.split(options.node_command),
        allowed=_allowed(options),
        load=_load(options, is_local=is_local),
    )
    if plan.is_encrypted and kinds:
        raise WrongCall("--faults cannot look into TLS connections: use a listener without TLS, or --cluster local")
    return plan


def _bootstrap(settings: Mapping[str, object]) -> str:
    """Every address with its port: a proxy needs both."""
    addresses = str(settings.get("bootstrap_servers", ""))
    for address in addresses.split(",") if addresses else ():
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit():
            raise WrongCall(f"--bootstrap {address.strip()!r} is not allowed; allowed: HOST:PORT")
    return addresses


def _load(options: argparse.Namespace, *, is_local: bool) -> Load:
    """A cluster of our own forgets dead members sooner than others do."""
    from semel.sim.workload.access import Load

    usual = Load()
    if options.patience is None:
        return Load(group_patience_s=usual.patience_s if is_local else usual.group_patience_s)
    if options.patience <= 0:
        raise WrongCall(f"--patience {options.patience:g} is not allowed; allowed: more than 0")
    return Load(patience_s=options.patience, group_patience_s=options.patience)


def _allowed(options: argparse.Namespace) -> frozenset[Kind]:
    from semel.sim.judging.anomalies import Kind

    names = {kind.value.replace(" ", "-"): kind for kind in Kind}
    return frozenset(names[name] for name in _listed("--allow", options.allow, tuple(names)))


def _listed(option: str, given: str, allowed: Sequence[str]) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in allowed:
            raise WrongCall(f"{option} {name!r} is not allowed; allowed: {', '.join(allowed)}")
    return names
