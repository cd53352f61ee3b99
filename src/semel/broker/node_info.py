"""Who this node is, and its settings in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semel.config import BrokerConfig
from semel.wire.schema import NO_UUID

NO_BROKER_EPOCH = -1


@dataclass
class NodeInfo:
    """`config` is replaced whenever a setting changes: ask for it each time. Only the Broker replaces it."""

    node_id: int
    config: BrokerConfig
    cluster_id: str = ""
    directories: Sequence[bytes] = ()  # the id of its one directory; none, if that has no proper one
    # Of the registration of this start: the offset of its record, so every start has a higher one.
    broker_epoch: int = NO_BROKER_EPOCH

    @property
    def directory_id(self) -> bytes:
        return self.directories[0] if self.directories else NO_UUID
