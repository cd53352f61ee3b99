"""A cluster on one machine: nodes, each a process, in one directory that a later start finds.

Ports are held as long as the cluster is open, so a node that is down finds its own free. Nothing here is a thread or a
task: `start` and `stop` block, `spawn` and `until_ready` are the same for programs with an event loop.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from semel.broker.identity import WrongDirectory, format_directory, new_id
from semel.config import load_config
from semel.host.real import real_host
from semel.local.cuts import Cuts
from semel.local.layout import (
    OWN_SETTINGS,
    Layout,
    LocalNode,
    data_path,
    listening_on,
    log_path,
    new_layout,
    ports_for,
    read_layout,
    with_more,
    write_layout,
)
from semel.local.node_process import SERVE, STOP_TIMEOUT_S, NodeDied, NodeProcess, until_ready, wait_until_ready
from semel.local.ports import HeldPorts

_HAND_OVER_S = 1.0
_LOOK_S = 0.01
_LOCK = "cluster.lock"


class CannotOpen(Exception):
    """The directory, or what is asked for, does not allow this cluster."""


class LocalCluster:
    """`brokers`: how many, or None for as many as the directory has (3 in a new one). `settings` are for every node."""

    def __init__(
        self,
        root: Path,
        *,
        brokers: int | None = None,
        settings: Mapping[str, str] | None = None,
        can_cut: bool = False,
        command: Sequence[str] = SERVE,
    ) -> None:
        self.root = root.absolute()
        self.processes: dict[int, NodeProcess] = {}
        self.cuts = Cuts()
        self._asked_brokers = brokers
        self._asked_settings = dict(settings or {})
        self._can_cut = can_cut
        self._command = command
        self._ports = HeldPorts()
        self._lock = -1
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            raise CannotOpen("the cluster is not open")
        return self._layout

    # -- the directory

    def open(self) -> None:
        """Finds or makes the cluster in the directory, formats what is new, holds the ports. Raises CannotOpen."""
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._check_directory()
        self._take_lock()
        try:
            layout = read_layout(self.root)
            if layout is not None:
                self._ports.hold(port for node in layout.nodes for port in node.advertised.values())
            layout = self._wanted(layout)
            count = sum(len(node.advertised) for node in layout.nodes)
            layout = listening_on(layout, self._ports.take(count) if self._can_cut else None)
            self._check_settings(layout)
        except (ValueError, OSError) as error:
            raise CannotOpen(str(error)) from error
        self._format(layout)
        write_layout(self.root, layout)
        self._layout = layout
        self.processes = {node.node_id: self._process(node) for node in layout.nodes}

    def _check_directory(self) -> None:
        if self.root.is_dir() and read_layout(self.root) is None:
            foreign = [name for name in sorted(os.listdir(self.root)) if name != _LOCK]
            if foreign:
                raise CannotOpen(
                    f"{self.root} is no directory of a cluster, and not empty (it holds {foreign[0]!r}): choose a new "
                    "or empty directory"
                )
        self.root.mkdir(parents=True, exist_ok=True)

    def _take_lock(self) -> None:
        self._lock = os.open(self.root / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotOpen(
                f"the cluster in {self.root} is running already: stop it, or choose another --dir"
            ) from None

    def _wanted(self, layout: Layout | None) -> Layout:
        """What the directory has, with what was asked for."""
        if layout is None:
            brokers = 3 if self._asked_brokers is None else self._asked_brokers
            if brokers < 1:
                raise CannotOpen(f"a cluster of {brokers} nodes is not possible: it needs at least one")
            cluster_id = _random_id()
            return new_layout(cluster_id, brokers, self._asked_settings, self._ports.take(ports_for(brokers)))
        brokers, has = self._asked_brokers or 0, len(layout.brokers)
        if self._asked_brokers is not None and brokers < has:
            raise CannotOpen(f"{self.root} holds a cluster of {has} nodes, and its nodes cannot be taken away here")
        if brokers > has:
            layout = with_more(layout, brokers, self._ports.take(ports_for(brokers - has, has_controllers=True)))
        return layout.with_settings(self._asked_settings)

    def _check_settings(self, layout: Layout) -> None:
        """Before anything is started: every node would say the same."""
        for name in sorted(OWN_SETTINGS.intersection(layout.settings)):
            raise CannotOpen(f"{name} cannot be set: the cluster gives each of its nodes one of its own")
        for node in layout.nodes:
            load_config(None, {}, layout.settings_of(node, self.root))

    def _format(self, layout: Layout) -> None:
        host = real_host()
        try:
            for node in layout.nodes:
                identity, _ = format_directory(
                    host.disk, str(data_path(self.root, node)), layout.cluster_id, node.node_id, host.random
                )
                if (identity.cluster_id, identity.node_id) != (layout.cluster_id, node.node_id):
                    raise CannotOpen(f"{data_path(self.root, node)} belongs to another node or cluster: move it away")
        except WrongDirectory as error:
            raise CannotOpen(str(error)) from error
        finally:
            host.close()

    def _process(self, node: LocalNode) -> NodeProcess:
        command = [*self._command, "--data", str(data_path(self.root, node))]
        return NodeProcess(f"node {node.node_id}", command, log_path(self.root, node))

    # -- life

    def start(self) -> None:
        """Starts all nodes at the same time, and returns when all are ready. Raises NodeDied, with none left."""
        self.spawn()
        try:
            wait_until_ready(list(self.processes.values()))
        except BaseException:
            self.kill_all()
            raise

    def spawn(self) -> None:
        if self._can_cut:
            self.cuts.start(self.layout)
        for process in self.processes.values():
            process.spawn()
        self.cuts.wait_until_ready()

    async def until_ready(self) -> None:
        await until_ready(list(self.processes.values()))

    def start_node(self, node_id: int) -> None:
        process = self.process(node_id)
        process.spawn()
        wait_until_ready([process])

    def process(self, node_id: int) -> NodeProcess:
        return self.processes[self.layout.node(node_id).node_id]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Clean stops: first the brokers, which have to tell the controller, then that. Raises NodeDied at the end if
        one of them did not make it in time."""
        late: list[NodeDied] = []
        for is_broker in (True, False):
            group = [self.processes[node.node_id] for node in self.layout.nodes if node.is_broker == is_broker]
            running = [process for process in group if process.is_running]
            for process in running:
                process.ask_to_stop()
            # Nobody is left in the end to whom something could be handed over: it is tried, and not waited for.
            hand_over_until_s = time.monotonic() + _HAND_OVER_S
            while any(process.is_running for process in running) and time.monotonic() < hand_over_until_s:
                time.sleep(_LOOK_S)
            for process in running:
                process.hurry()
            for process in running:
                try:
                    process.stop(timeout_s)
                except NodeDied as error:
                    late.append(error)
        self.cuts.close()
        if late:
            raise late[0]

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.kill()
        self.cuts.close()

    def close(self) -> None:
        """Whatever happened, no process is left, and the directory is free."""
        self.kill_all()
        self._ports.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _random_id() -> str:
    from random import SystemRandom

    return new_id(SystemRandom())
