"""What goes on in a cluster at the moment, as a document: nodes, throughput, lag, open transactions.

Everything comes from Kafka's own APIs, so it is there for Apache Kafka as well. Rates are differences between two
looks. A part that a broker does not tell, or not soon, is None.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from semel.client.admin.admin import Admin
from semel.client.errors import SemelError
from semel.client.metadata import NO_NODE, Topic, TopicPartition
from semel.views.places import ends_of
from semel.views.transactions import OPEN_STATES, known, transaction_document

T = TypeVar("T")

PATIENCE_S = 5.0
# Groups and transactions that are asked about; a look at all of thousands would load the cluster.
MOST_ASKED = 200


class Activity:
    """Looks again and again: it remembers the last look, for rates."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._ends: Mapping[TopicPartition, int] = {}
        self._looked_s = 0.0

    async def look(self) -> dict[str, Any]:
        """Raises a SemelError if no broker answers at all."""
        admin = self._admin
        cluster = await admin.describe_cluster()
        topics = await admin.list_topics(include_internal=True)
        led = [
            TopicPartition(topic.name, number)
            for topic in topics.values()
            for number, partition in topic.partitions.items()
            if partition.leader_id != NO_NODE
        ]
        ends, round_trips, groups, transactions = await asyncio.gather(
            _or_none(ends_of(admin, led)),
            asyncio.gather(*(self._round_trip_ms(node_id) for node_id in cluster.nodes)),
            _or_none(self._groups()),
            _or_none(self._transactions()),
        )
        rates = self._rates(ends)
        all_partitions = [one for topic in topics.values() for one in topic.partitions.values()]
        return {
            "cluster_id": cluster.cluster_id,
            "nodes": [
                {
                    "node": node_id,
                    "address": f"{node.host}:{node.port}",
                    "leads": sum(one.leader_id == node_id for one in all_partitions),
                    "records_per_s": _sum(rates, topics, node_id),
                    "round_trip_ms": round_trip_ms,
                }
                for (node_id, node), round_trip_ms in zip(cluster.nodes.items(), round_trips, strict=True)
            ],
            "offline_partitions": sum(one.leader_id == NO_NODE for one in all_partitions),
            "under_replicated_partitions": sum(len(one.in_sync) < len(one.replicas) for one in all_partitions),
            "topics": _busiest(rates, topics),
            "groups": groups,
            "transactions": transactions,
        }

    async def _round_trip_ms(self, node_id: int) -> float | None:
        began_s = time.monotonic()
        answer = await _or_none(self._admin.describe_versions([node_id]))
        return None if answer is None else round((time.monotonic() - began_s) * 1000, 1)

    def _rates(self, ends: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, float] | None:
        """Records a second; None before the second look."""
        now_s = time.monotonic()
        before, before_s = self._ends, self._looked_s
        self._ends, self._looked_s = ends or {}, now_s
        if not before or ends is None:
            return None
        passed_s = max(now_s - before_s, 1e-3)
        return {place: max(0, end - before[place]) / passed_s for place, end in ends.items() if place in before}

    async def _groups(self) -> list[dict[str, Any]]:
        """Those that are furthest behind first."""
        listed = await self._admin.list_groups()
        names = [name for name, group in listed.items() if group.kind in ("classic", "consumer")][:MOST_ASKED]
        lags = await self._admin.group_lag(names) if names else {}
        found = [
            {
                "group": name,
                "state": listed[name].state,
                "lag": sum(one.lag or 0 for one in places.values()),
                "partitions": len(places),
            }
            for name, places in lags.items()
        ]
        return sorted(found, key=lambda one: -int(str(one["lag"])))

    async def _transactions(self) -> list[dict[str, Any]]:
        """Those that are open, the oldest first."""
        listed = await self._admin.list_transactions(states=OPEN_STATES)
        described = await known(self._admin, list(listed)[:MOST_ASKED])
        now_ms = time.time_ns() // 1_000_000
        found = [transaction_document(one, now_ms) for one in described.values() if one.state in OPEN_STATES]
        return sorted(found, key=lambda one: -(one["age_ms"] or 0))


async def _or_none(asked: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await asked
    except (SemelError, TimeoutError):
        return None


def _sum(rates: Mapping[TopicPartition, float] | None, topics: Mapping[str, Topic], node_id: int) -> float | None:
    if rates is None:
        return None
    led = [rate for (name, number), rate in rates.items() if topics[name].partitions[number].leader_id == node_id]
    return round(sum(led), 1)


def _busiest(rates: Mapping[TopicPartition, float] | None, topics: Mapping[str, Topic]) -> list[dict[str, Any]] | None:
    """Topics that are written to, the busiest first; None before the second look."""
    if rates is None:
        return None
    by_topic: dict[str, float] = {}
    for (name, _), rate in rates.items():
        by_topic[name] = by_topic.get(name, 0) + rate
    return [
        {"topic": name, "partitions": len(topics[name].partitions), "records_per_s": round(rate, 1)}
        for name, rate in sorted(by_topic.items(), key=lambda one: -one[1])
        if rate > 0
    ]
