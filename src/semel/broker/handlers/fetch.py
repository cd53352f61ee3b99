"""Fetch (1), versions 4-18: batches as file ranges, long polls, sessions, topic ids; for consumers, and for followers.

A replica id says that a follower asks. What it asks for counts: it moves the high watermark. So it has to come by a
listener for brokers, from one who may act as a node of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.fetch_sessions import NO_REPLICA, FetchSessions
from semel.broker.fetching import Fetch
from semel.broker.node_info import NodeInfo
from semel.broker.parked_fetch import ParkedFetch
from semel.broker.read_failures import ReadFailures
from semel.broker.replica_fetching import ReplicaFetch, replica_of
from semel.broker.topics import Topics
from semel.config import ListenerKind
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.wire.spec.fetch import FetchRequest, FetchResponse

_TOPIC_IDS_SINCE = 13


def handle(
    request: FetchRequest,
    context: RequestContext,
    *,
    node: NodeInfo,
    listeners: Mapping[str, ListenerKind],
    cluster: ClusterView,
    topics: Topics,
    fetch_sessions: FetchSessions,
    replica_sessions: FetchSessions,
    read_failures: ReadFailures,
    clock: Clock,
) -> FetchResponse | ParkedFetch:
    replica_id = replica_of(request).replica_id
    is_replica = replica_id > NO_REPLICA
    try:
        if is_replica:
            context.authorise_node(listeners)
        sessions = replica_sessions if is_replica else fetch_sessions
        uses_ids = context.version >= _TOPIC_IDS_SINCE
        session = sessions.begin(request, uses_ids, clock.monotonic_ms(), max(replica_id, NO_REPLICA))
    except Refused as refusal:
        return FetchResponse(error_code=refusal.code)
    of_whom = ReplicaFetch if is_replica else Fetch
    fetch = of_whom(request, context, session, node, cluster, topics, read_failures)
    fetch.read()
    if fetch.is_complete and not fetch.cold:
        return fetch.response()
    return ParkedFetch(fetch, request.max_wait_ms)
