"""Fetch (1), versions 4-18: batches as file ranges, long polls, sessions, topic ids; for consumers, and for followers.

A replica id says that a follower asks. What it asks for counts: it moves the high watermark. So it has to come by a
listener for brokers, from one who may act as a node of the cluster.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping

from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.fetch_sessions import NO_REPLICA, FetchSession, FetchSessions
from semel.broker.fetching import Fetch
from semel.broker.long_fetch import LongFetch
from semel.broker.node_info import NodeInfo
from semel.broker.parked_fetch import ParkedFetch
from semel.broker.read_failures import ReadFailures
from semel.broker.replica_fetching import ReplicaFetch, replica_of
from semel.broker.topics import Topics
from semel.config import ListenerKind
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.spec.fetch import FetchRequest, FetchResponse

_TOPIC_IDS_SINCE = 13
# Partitions that one fetch looks at in one turn of the loop.
_MOST_AT_ONCE = 200


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
    slices: Slices,
) -> FetchResponse | ParkedFetch | Coroutine[None, None, FetchResponse]:
    replica_id = replica_of(request).replica_id
    is_replica = replica_id > NO_REPLICA
    try:
        if is_replica:
            context.authorise_node(listeners)
        sessions = replica_sessions if is_replica else fetch_sessions
        uses_ids = context.version >= _TOPIC_IDS_SINCE
        now_ms = clock.monotonic_ms()
        session = sessions.find(request, uses_ids, now_ms, max(replica_id, NO_REPLICA))
        of_whom = ReplicaFetch if is_replica else Fetch
        fetch = of_whom(request, context, session, node, cluster, topics, read_failures)
        if context.is_long or len(session.unsettled) > _MOST_AT_ONCE:
            return _in_slices(fetch, request, session, sessions, now_ms, slices)
        session.update(request)
        sessions.keep(session, request, now_ms)
    except Refused as refusal:
        return FetchResponse(error_code=refusal.code)
    fetch.read()
    if fetch.is_complete and not fetch.cold:
        return fetch.response()
    return ParkedFetch(fetch, request.max_wait_ms)


async def _in_slices(
    fetch: Fetch,
    request: FetchRequest,
    session: FetchSession,
    sessions: FetchSessions,
    now_ms: int,
    slices: Slices,
) -> FetchResponse:
    await session.update_in_slices(request, slices)
    try:
        sessions.keep(session, request, now_ms)
    except Refused as refusal:
        return FetchResponse(error_code=refusal.code)
    return await LongFetch(fetch, request.max_wait_ms, slices).response()
