"""Several real nodes for a test, which replicate from each other, and whose links can be cut."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from semel.local.cuts import ALL_CLIENTS
from semel.local.layout import data_path
from semel.local.local_cluster import LocalCluster
from semel.local.node_process import NodeProcess
from semel.sync import Admin
from semel.testing.living import Living, kafka_settings

CLIENTS = ALL_CLIENTS
"""In `cut`: stands for all clients."""
_QUICK = {"group.initial.rebalance.delay.ms": "0"}


class ClusterNode(NamedTuple):
    """`address` is where clients find a broker; a controller is found by the other nodes only."""

    node_id: int
    roles: tuple[str, ...]
    address: str
    is_running: bool


class Cluster(Living):
    """A cluster of so many nodes, each in a process of its own.

        with Cluster(nodes=3) as cluster:
            producer = semel.sync.Producer(bootstrap_servers=cluster.bootstrap_servers)
            cluster.kill(1)
            ...
            cluster.start_node(1)

    Nodes are 1, 2, 3 and so on. With three or more of them, the first three are `controllers` as well, of which one may
    be down; and topics have three replicas, of which two must be in sync, unless settings say otherwise. Settings hold
    for every node, and are given as to `Broker`.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        settings: Mapping[str, object] | None = None,
        directory: str | Path | None = None,
        **kafka: Any,
    ) -> None:
        super().__init__(directory)
        self._nodes = nodes
        self._settings = {**_QUICK, **kafka_settings(settings, kafka)}
        self._local: LocalCluster | None = None

    @property
    def _cluster(self) -> LocalCluster:
        if self._local is None:
            local = LocalCluster(self.directory, brokers=self._nodes, settings=self._settings, can_cut=True)
            local.open()
            self._local = local
        return self._local

    # -- what it is

    @property
    def bootstrap_servers(self) -> str:
        """For clients: the addresses of all brokers."""
        return self._cluster.layout.bootstrap_servers

    @property
    def nodes(self) -> dict[int, ClusterNode]:
        """All nodes by number."""
        cluster = self._cluster
        return {
            node.node_id: ClusterNode(node.node_id, node.roles, node.address, self._process(node.node_id).is_running)
            for node in cluster.layout.nodes
        }

    @property
    def brokers(self) -> list[int]:
        return [node.node_id for node in self._cluster.layout.brokers]

    @property
    def controllers(self) -> list[int]:
        """Those that elect the active one among them."""
        return [node.node_id for node in self._cluster.layout.controllers]

    def controller_id(self) -> int:
        """The controller that is active now, as the nodes say that answer."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return admin.describe_quorum().leader_id

    def controller_address(self, node_id: int) -> str:
        """Where the other nodes, and Kafka's tools with --bootstrap-controller, find a controller."""
        return self._cluster.layout.node(node_id).controller_address

    def pid(self, node_id: int) -> int:
        return self._process(node_id).pid

    def log(self, node_id: int) -> str:
        """The end of what a node has logged since it was started."""
        return self._process(node_id).last_words()

    def data(self, node_id: int) -> Path:
        """The data directory of a node."""
        cluster = self._cluster
        return data_path(cluster.root, cluster.layout.node(node_id))

    def _process(self, node_id: int) -> NodeProcess:
        return self._cluster.process(node_id)

    # -- its life

    def start(self) -> None:
        """Starts all nodes; raises NodeDied, with the end of its log, if one of them does not come up."""
        self._cluster.start()

    def stop(self) -> None:
        """Clean stops of all nodes."""
        self._cluster.stop()

    def start_node(self, node_id: int) -> None:
        """Starts a node that was killed or stopped: on the same data, at the same address."""
        self._cluster.start_node(node_id)

    def stop_node(self, node_id: int) -> None:
        """A clean stop: a broker first hands over what it leads."""
        self._process(node_id).stop()

    def kill(self, node_id: int) -> None:
        """As `kill -9`."""
        self._process(node_id).kill()

    def restart(self, node_id: int) -> None:
        """Kills it if it runs, and starts it again."""
        self.kill(node_id)
        self.start_node(node_id)

    def pause(self, node_id: int) -> None:
        """It stands still and answers nothing until `resume`; its connections stay open."""
        self._process(node_id).pause()

    def resume(self, node_id: int) -> None:
        self._process(node_id).resume()

    def mend(self) -> None:
        self.heal()
        for node_id, node in self.nodes.items():
            self.resume(node_id)
            if not node.is_running:
                self.start_node(node_id)

    # -- its links

    def cut(self, one: int, other: int, *, is_one_way: bool = False) -> None:
        """Nothing goes between two nodes any more, or between a node and CLIENTS; one way: nothing from the first to
        the second. Connections stay open, and what is sent waits until `heal`, as if packets were lost. A node that
        connects gets a connection on which nobody answers."""
        self._check(one, other)
        pairs = [(one, other)] if is_one_way else [(one, other), (other, one)]
        self._cluster.cuts.cut(pairs)

    def isolate(self, node_id: int) -> None:
        """Cuts a node off from all others, not from clients."""
        for other in self.nodes:
            if other != node_id:
                self.cut(node_id, other)

    def delay(self, one: int, other: int, seconds: float, *, is_one_way: bool = False) -> None:
        """What is sent between two nodes, or a node and CLIENTS, arrives so much later. 0 ends that, and `heal`."""
        self._check(one, other)
        self._cluster.cuts.delay([(one, other)] if is_one_way else [(one, other), (other, one)], seconds)

    def heal(self) -> None:
        """All cuts and delays are over."""
        self._cluster.cuts.heal()

    def _check(self, *node_ids: int) -> None:
        for node_id in node_ids:
            if node_id != CLIENTS:
                self._cluster.layout.node(node_id)

    def _close(self) -> None:
        if self._local is not None:
            self._local.close()
            self._local = None
