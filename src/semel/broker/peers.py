"""Requests from this broker to the others, each by its listener for brokers.

A connection answers in order, and a fetch that waits for data holds up what is behind it. So whoever sends such
requests has a `Peers` of its own, with connections of its own.
"""

from __future__ import annotations

from functools import partial

from semel.broker.cluster_view import ClusterView
from semel.broker.node_info import NodeInfo
from semel.host.api import Host
from semel.peer.caller import PeerCaller
from semel.peer.calls import Calls
from semel.peer.errors import PeerError
from semel.security.listeners import outgoing


class Peers(Calls):
    """`purpose` is part of the client id, which the other node's log tells."""

    def __init__(self, host: Host, node: NodeInfo, cluster: ClusterView, listener: str, purpose: str) -> None:
        secured = outgoing(node.config, listener, "sasl.mechanism.inter.broker.protocol", host.jobs)
        super().__init__(
            host,
            partial(cluster.endpoints, listener, include_fenced=True),
            client_id=f"broker-{node.node_id}-{purpose}",
            max_frame_bytes=node.config.int("socket.request.max.bytes"),
            tls=secured.tls,
            login=secured.login,
        )


__all__ = ["PeerCaller", "PeerError", "Peers"]
