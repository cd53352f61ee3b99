"""What `semel cluster start` does: the nodes of a cluster as children of this process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from semel.cli.connection import pairs
from semel.cli.failures import CommandFailed, Exit
from semel.cli.output import Output
from semel.local.layout import LocalNode, data_path, log_path
from semel.local.local_cluster import CannotOpen, LocalCluster
from semel.local.node_process import NodeDied

_LOOK_S = 0.2
_SAME_S = 0.5
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(options: argparse.Namespace) -> int:
    settings = pairs(options.set, "--set")
    is_kept = options.dir is not None
    root = Path(options.dir if is_kept else tempfile.mkdtemp(prefix="semel-cluster-"))
    cluster = LocalCluster(root, brokers=options.nodes, settings=settings)
    try:
        return _run(cluster, Output.of(options), is_kept=is_kept)
    except (CannotOpen, NodeDied) as error:
        raise CommandFailed(str(error)) from error
    finally:
        cluster.close()
        if not is_kept:
            shutil.rmtree(root, ignore_errors=True)


def _run(cluster: LocalCluster, output: Output, *, is_kept: bool) -> int:
    began_s = time.monotonic()
    with _told_to_end():
        with suppress(_ToldToEnd):
            cluster.open()
            cluster.start()
            start_ms = round((time.monotonic() - began_s) * 1000)
            if output.is_json:
                output.json_line(_document(cluster))
            else:
                _show(output, cluster, start_ms)
            output.stream.flush()
            _watch(output, cluster)
            return Exit.FAILED
        # From here on another signal ends it at once.
        if not output.is_json:
            output.note("stopping ...")
        cluster.stop()
    if output.is_json:
        output.json_line({"event": "stopped"})
    else:
        output.line(f"The cluster has stopped{'' if is_kept else ', and its data is removed'}.")
    return Exit.OK


class _ToldToEnd(BaseException):
    """SIGINT or SIGTERM, for the first time."""


@contextmanager
def _told_to_end() -> Iterator[None]:
    """The first signal raises _ToldToEnd, another KeyboardInterrupt: unless it comes so soon that it is the same one,
    sent to a process and to its group."""
    told_s: float | None = None

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if told_s is None:
            told_s = now_s
            raise _ToldToEnd
        if now_s > told_s + _SAME_S:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, hear) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(output: Output, cluster: LocalCluster) -> None:
    """Tells of nodes that end although nobody asked them to; returns when none is left."""
    told: set[int] = set()
    while len(told) < len(cluster.processes):
        time.sleep(_LOOK_S)
        for node in cluster.layout.nodes:
            process = cluster.process(node.node_id)
            code = process.ended_with
            if code is None or node.node_id in told:
                continue
            told.add(node.node_id)
            if output.is_json:
                output.json_line({"event": "ended", "id": node.node_id, "code": code})
                output.stream.flush()
                continue
            why = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has ended with code {code}"
            output.note(f"node {node.node_id} {why}; start it again with: {_again(cluster, node)}")
            if code > 0:
                output.note(f"  the end of {log_path(cluster.root, node)}:\n{process.last_words()}")


def _again(cluster: LocalCluster, node: LocalNode) -> str:
    return f"semel serve --data {shlex.quote(str(data_path(cluster.root, node)))}"


def _document(cluster: LocalCluster) -> dict[str, object]:
    layout = cluster.layout
    return {
        "event": "ready",
        "bootstrap": layout.bootstrap_servers,
        "nodes": [
            {
                "id": node.node_id,
                "address": node.address,
                "pid": cluster.process(node.node_id).pid,
                "roles": list(node.roles),
            }
            for node in layout.nodes
        ],
        "cluster_id": layout.cluster_id,
        "dir": str(cluster.root),
    }


def _show(output: Output, cluster: LocalCluster, start_ms: int) -> None:
    layout = cluster.layout
    rows = [
        (node.node_id, ", ".join(node.roles), node.address, cluster.process(node.node_id).pid) for node in layout.nodes
    ]
    output.table(("NODE", "ROLES", "ADDRESS", "PID"), rows)
    output.line()
    output.line(f"A cluster of {len(layout.brokers)}, ready after {start_ms} ms; with data and logs in")
    output.line(f"  {cluster.root}")
    output.line()
    first = layout.brokers[0].address
    output.line("Try, in another terminal:")
    output.line(f"  semel cluster status --bootstrap {first}")
    output.line(f"  semel produce payments 10.00 --bootstrap {first}")
    output.line(f"  kill -9 {cluster.process(layout.brokers[-1].node_id).pid}    # and the others go on")
    output.line()
    output.line("Ctrl-C stops all of them.")
