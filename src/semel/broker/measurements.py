"""What a node's metrics are worth now, read from its parts when somebody asks.

Each metric is a generator of samples that is walked through in small steps, with the node serving in between: what is
listed is copied first, one reference for each item, because it may change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from semel.broker.cluster_view import NO_NODE
from semel.broker.topics import OfflinePartition, Replica
from semel.metrics import node_metrics as metrics
from semel.metrics.counts_kernel import TopicCounts
from semel.metrics.declaration import Metric
from semel.metrics.exposition import Measured, Sample, single
from semel.replication.partition import Partition
from semel.version import VERSION
from semel.wire.apis import API
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.broker_part import BrokerPart
    from semel.broker.controller_part import ControllerPart
    from semel.host.loop_turns import LoopTurns

_AGES_S = (0, 10, 60, 300, 900)
# Items that are looked at before others may have their turn.
_AT_ONCE = 500
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)

_OF_TOPICS: tuple[tuple[Metric, Callable[[TopicCounts], int]], ...] = (
    (metrics.RECORDS_IN, lambda counts: counts.records_in),
    (metrics.BYTES_IN, lambda counts: counts.bytes_in),
    (metrics.BYTES_OUT, lambda counts: counts.bytes_out),
    (metrics.REPLICATION_BYTES_OUT, lambda counts: counts.replication_bytes_out),
    (metrics.FAILED_PRODUCES, lambda counts: counts.refused),
    (metrics.BATCHES_IN, lambda counts: counts.batches_in),
    (metrics.DUPLICATES, lambda counts: counts.duplicates),
)
_OF_LOGS: tuple[tuple[Metric, Callable[[Replica], int]], ...] = (
    (metrics.LOG_SIZE, lambda replica: replica.log.size_bytes),
    (metrics.LOG_START, lambda replica: replica.log.start_offset),
    (metrics.LOG_END, lambda replica: replica.log.end_offset),
)


def measured(broker: Broker, turns: LoopTurns | None) -> Iterator[Measured | None]:
    """All metrics of a node that has started. None: others may have their turn. `turns`: of its loop, if they are
    counted."""
    yield from _of_node(broker, turns)
    yield from _of_requests(broker)
    yield Measured(metrics.FLUSH_TIME, [((), broker.counts.flushes.times)])
    yield single(metrics.FLUSH_RECORDS, broker.counts.flushes.records)
    if broker.broker_part is not None:
        yield from _of_broker(broker, broker.broker_part)
    if broker.controller_part is not None:
        yield from _of_controller(broker, broker.controller_part)


def _of_node(broker: Broker, turns: LoopTurns | None) -> Iterator[Measured]:
    node, server, budget = broker.node, broker.server, broker.budget
    yield Measured(metrics.NODE_INFO, [((str(node.node_id), node.cluster_id, VERSION), 1)])
    by_listener = dict.fromkeys(broker.bound, 0)
    for connection in list(server.connections):
        by_listener[connection.listener] = by_listener.get(connection.listener, 0) + 1
    yield Measured(metrics.CONNECTIONS, [((name,), count) for name, count in by_listener.items()])
    yield single(metrics.ACCEPTED, server.newest_connection)
    yield single(metrics.REFUSED, server.refused)
    yield single(metrics.MEMORY_USED, budget.used_bytes)
    yield single(metrics.MEMORY_LIMIT, budget.limit_bytes)
    yield single(metrics.MEMORY_WAITING, budget.waiting)
    if turns is not None:
        by = {"processor": turns.by_processor, "clock": turns.by_clock}
        yield Measured(metrics.SLOW_TURNS, [((name,), slow.count) for name, slow in by.items()])
        yield Measured(metrics.LONGEST_TURN, [((name,), slow.longest_ns / 1e9) for name, slow in by.items()])
    disk, root = broker.host.disk, broker.store.root
    yield single(metrics.DISK_FREE, disk.free_bytes(root))
    yield single(metrics.DISK_SIZE, disk.total_bytes(root))


def _of_requests(broker: Broker) -> Iterator[Measured]:
    counts = broker.counts.requests
    times = [((API[key].name,), of_api) for key, of_api in sorted(counts.times.items())]
    yield Measured(metrics.REQUEST_COUNT, [(labels, of_api.count) for labels, of_api in times])
    yield Measured(metrics.REQUEST_TIME, times)
    errors = sorted(counts.errors.items())
    named = [((API[key].name, ErrorCode(code).name), count) for (key, code), count in errors]
    yield Measured(metrics.REQUEST_ERRORS, named)
    yield single(metrics.FENCED, sum(count for (_, code), count in errors if code in _FENCED))


def _of_broker(broker: Broker, part: BrokerPart) -> Iterator[Measured | None]:
    for metric, of_counts in _OF_TOPICS:
        yield Measured(metric, _each_topic(part, of_counts))
    for metric, of_log in _OF_LOGS:
        yield Measured(metric, _each_log(part, of_log))
    yield Measured(metrics.STABLE_LAG, _stable_lags(part))
    yield from _of_replication(broker, part)
    yield from _of_transactions(broker, part)
    yield from _of_groups(part)


def _replicas(part: BrokerPart) -> Iterator[tuple[tuple[str, str], Replica | OfflinePartition]]:
    for topic in list(part.topics.by_name.values()):
        for index, replica in list(topic.partitions.items()):
            yield (topic.name, str(index)), replica


def _each_topic(part: BrokerPart, of: Callable[[TopicCounts], int]) -> Iterator[Sample]:
    for topic in list(part.topics.by_name.values()):
        yield (topic.name,), of(topic.counts)


def _each_log(part: BrokerPart, of: Callable[[Replica], int]) -> Iterator[Sample]:
    for labels, replica in _replicas(part):
        if isinstance(replica, Replica):
            yield labels, of(replica)


def _stable_lags(part: BrokerPart) -> Iterator[Sample]:
    for labels, replica in _replicas(part):
        if isinstance(replica, Replica) and isinstance(replica.term, Partition) and not replica.term.is_closed:
            yield labels, replica.log.high_watermark - replica.log.last_stable_offset


def _of_replication(broker: Broker, part: BrokerPart) -> Iterator[Measured | None]:
    here = led = offline = lacking = too_few = 0
    for _, replica in _replicas(part):
        here += 1
        if isinstance(replica, OfflinePartition):
            offline += 1
        elif isinstance(replica.term, Partition) and not replica.term.is_closed:
            led += 1
            replicas = replica.term.replicas
            if replicas is not None and len(replicas.in_sync.isr) < len(replicas.in_sync.replicas):
                lacking += 1
                too_few += not replicas.has_enough
        if here % _AT_ONCE == 0:
            yield None
    yield single(metrics.LEADERS, led)
    yield single(metrics.REPLICAS, here)
    yield single(metrics.UNDER_REPLICATED, lacking)
    yield single(metrics.UNDER_MIN_ISR, too_few)
    yield single(metrics.OFFLINE_REPLICAS, offline)
    yield single(metrics.ISR_SHRINKS, broker.counts.isr.shrinks)
    yield single(metrics.ISR_EXPANDS, broker.counts.isr.expands)


def _of_controller(broker: Broker, part: ControllerPart) -> Iterator[Measured | None]:
    yield single(metrics.ACTIVE_CONTROLLER, part.is_active)
    if not part.is_active:
        return
    partitions = without_leader = 0
    topics = list(broker.image.topics.values())
    for topic in topics:
        for state in list(topic.partitions.values()):
            partitions += 1
            without_leader += state.leader == NO_NODE
            if partitions % _AT_ONCE == 0:
                yield None
    yield single(metrics.OFFLINE_PARTITIONS, without_leader)
    yield single(metrics.TOPIC_COUNT, len(topics))
    yield single(metrics.PARTITION_COUNT, partitions)
    brokers = broker.image.brokers.values()
    fenced = sum(node.fenced for node in brokers)
    yield single(metrics.ACTIVE_BROKERS, len(brokers) - fenced)
    yield single(metrics.FENCED_BROKERS, fenced)


def _of_transactions(broker: Broker, part: BrokerPart) -> Iterator[Measured | None]:
    now_ms = broker.host.clock.wall_ms()
    by_age = dict.fromkeys(_AGES_S, 0)
    oldest_s = 0.0
    for number, started_ms in enumerate(part.transactions.open_since_ms(), start=1):
        if started_ms >= 0:
            age_s = max(0, now_ms - started_ms) / 1000
            oldest_s = max(oldest_s, age_s)
            for least_s in _AGES_S:
                by_age[least_s] += age_s >= least_s
        if number % _AT_ONCE == 0:
            yield None
    yield Measured(metrics.OPEN_TRANSACTIONS, [((str(least_s),), count) for least_s, count in by_age.items()])
    yield single(metrics.OLDEST_TRANSACTION, oldest_s)


def _of_groups(part: BrokerPart) -> Iterator[Measured | None]:
    groups = 0
    for _ in part.groups.sizes():
        groups += 1
        if groups % _AT_ONCE == 0:
            yield None
    yield single(metrics.GROUP_COUNT, groups)
    yield Measured(metrics.GROUP_MEMBERS, (((group_id,), count) for group_id, count in part.groups.sizes()))
    yield Measured(metrics.GROUP_OFFSET, _committed(part, with_end=False))
    yield Measured(metrics.GROUP_LAG, _committed(part, with_end=True))


def _committed(part: BrokerPart, *, with_end: bool) -> Iterator[Sample]:
    for group_id, topic, index, offset in part.groups.committed():
        labels = (group_id, topic, str(index))
        if not with_end:
            yield labels, offset
            continue
        known = part.topics.by_name.get(topic)
        replica = None if known is None else known.partitions.get(index)
        if isinstance(replica, Replica):
            yield labels, max(0, replica.log.high_watermark - offset)
