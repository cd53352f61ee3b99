"""Real nodes for the tests of your programs: `Broker` is one, `Cluster` several that replicate from each other.

    from semel.testing import Broker

    def test_payments_are_written() -> None:
        with Broker() as broker:
            producer = semel.sync.Producer(bootstrap_servers=broker.bootstrap_servers)
            ...

Nodes are processes of their own, on free ports of 127.0.0.1, with data in a directory that is removed at the end. They
can be killed, stopped, paused, cut off and started again. None outlives the test, also if that is killed.
"""

from semel.local.node_process import NodeDied as NodeDied
from semel.testing.broker import Broker as Broker
from semel.testing.cluster import CLIENTS as CLIENTS
from semel.testing.cluster import Cluster as Cluster
from semel.testing.exactly_once import assert_exactly_once as assert_exactly_once

__all__ = ["CLIENTS", "Broker", "Cluster", "NodeDied", "assert_exactly_once"]
