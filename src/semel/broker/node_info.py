"""Who this node is, and its settings in force."""

from __future__ import annotations

from dataclasses import dataclass

from semel.config import BrokerConfig


@dataclass
class NodeInfo:
    """`config` is replaced whenever a setting changes: ask for it each time. Only the Broker replaces it."""

    node_id: int
    config: BrokerConfig
    cluster_id: str = ""
    broker_epoch: int = -1  # of this start; -1 until it is registered
