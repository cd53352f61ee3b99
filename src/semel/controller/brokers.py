"""Decisions on brokers: registration, fencing, controlled shutdown, unregistration, directories that are gone.

Each gives the records in the order in which Kafka writes them (CLUSTER.md 2.3). The states of a registration:

    register ──> FENCED ──wants to serve, has caught up──> UNFENCED ──wants to stop, leads something──> STOPPING
                   ^ │                                       │ │                                           │
                   │ └─────────────── silent, or wants it ───┘ └─ wants to stop, leads nothing             │
                   │                                           v                                           │
                   └────────────────────────────────────── STOPPED <── leads nothing, and all know it ─────┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from semel.config import BrokerConfig
from semel.controller.cluster_rules import ClusterRules
from semel.controller.image import METADATA_VERSION, MetadataImage
from semel.controller.levels import DIRECTORIES
from semel.controller.partition_changes import Wanted
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest
from semel.wire.spec.broker_registration import BrokerRegistrationRequest
from semel.wire.spec.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

# Kafka keeps the first ids for what is no directory.
_RESERVED_DIRECTORIES = 100


class BrokerState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    STOPPING = "in controlled shutdown"
    STOPPED = "may stop"


def check_epoch(image: MetadataImage, node_id: int, epoch: int) -> RegisterBrokerRecord:
    """The registration that a request belongs to. Raises Refused when another has taken its place."""
    broker = image.brokers.get(node_id)
    if broker is None:
        raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not registered")
    if broker.broker_epoch != epoch:
        raise Refused(
            ErrorCode.STALE_BROKER_EPOCH, f"the epoch of broker {node_id} is {broker.broker_epoch}, not {epoch}"
        )
    return broker


# -- registration


def register(
    image: MetadataImage, config: BrokerConfig, request: BrokerRegistrationRequest, epoch: int
) -> list[MetadataRecord]:
    """The records of a registration, its own last. `epoch` is that of a new incarnation; the same one again only amends
    what it has said, and keeps its epoch and state."""
    _check_registration(image, request)
    node_id = request.broker_id
    existing = image.brokers.get(node_id)
    record = RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in request.listeners
        ],
        features=[
            BrokerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ],
        rack=request.rack,
        log_dirs=list(request.log_dirs),
    )
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record.broker_epoch = existing.broker_epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        return [record]
    rules = ClusterRules(image, config, without={node_id})
    is_clean = existing is not None and existing.broker_epoch == request.previous_broker_epoch
    if image.has_elr and not is_clean:
        return [*rules.without_brokers((), unclean={node_id}, elr=True), record]
    return [*rules.without_brokers({node_id}), record]


def _check_registration(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    if request.is_migrating_zk_broker:
        raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers of ZooKeeper cannot register")
    if image.metadata_version >= DIRECTORIES:
        _check_directories(image, request.broker_id, request.log_dirs)
    ranges = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    if METADATA_VERSION not in ranges:
        raise Refused(ErrorCode.INVALID_REGISTRATION, f"broker {request.broker_id} does not name {METADATA_VERSION}")
    for name in {METADATA_VERSION, *image.features, *ranges}:
        level = image.metadata_version if name == METADATA_VERSION else image.features.get(name, 0)
        least, most = ranges.get(name, (0, 0))
        if not least <= level <= most:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {request.broker_id} knows {name} {least} to {most}, and this cluster is at {level}",
            )


def _check_directories(image: MetadataImage, node_id: int, directories: Sequence[bytes]) -> None:
    wrong = None
    if not directories:
        wrong = "names no directories"
    elif any(int.from_bytes(one, "big") < _RESERVED_DIRECTORIES for one in directories):
        wrong = "names a directory with a reserved id"
    elif len(set(directories)) < len(directories):
        wrong = "names a directory twice"
    for other, broker in image.brokers.items():
        if other != node_id and not set(directories).isdisjoint(broker.log_dirs):
            wrong = f"names a directory of broker {other}"
    if wrong is not None:
        raise Refused(ErrorCode.INVALID_REGISTRATION, f"broker {node_id} {wrong}")


def unregister(image: MetadataImage, config: BrokerConfig, node_id: int) -> list[MetadataRecord]:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not registered")
    rules = ClusterRules(image, config, without={node_id})
    return [
        *rules.without_brokers((), unclean={node_id}, elr=True),
        UnregisterBrokerRecord(broker_id=node_id, broker_epoch=broker.broker_epoch),
    ]


# -- states


def leads_something(image: MetadataImage, node_id: int) -> bool:
    return any(state.leader == node_id for _, _, state in image.partitions())


def next_state(
    state: BrokerState,
    request: BrokerHeartbeatRequest,
    registered_at: int,
    leads: Callable[[], bool],
    all_know: Callable[[], bool],
) -> BrokerState:
    """What a heartbeat makes of a broker. It has caught up with its own registration, not with the end of the log,
    which never stands still (KAFKA-13959). `all_know`: every active broker has seen who leads in its place."""
    if state is BrokerState.STOPPING:
        return BrokerState.STOPPED if not leads() and all_know() else state
    if state is BrokerState.FENCED:
        if request.want_shut_down:
            return BrokerState.STOPPED
        has_caught_up = request.current_metadata_offset >= registered_at
        return BrokerState.UNFENCED if has_caught_up and not request.want_fence else state
    if request.want_fence:
        return BrokerState.STOPPED if request.want_shut_down else BrokerState.FENCED
    if request.want_shut_down:
        return BrokerState.STOPPING if leads() else BrokerState.STOPPED
    return state


def fence(image: MetadataImage, config: BrokerConfig, node_id: int) -> list[MetadataRecord]:
    """Others lead in its place before it counts as gone."""
    return [
        *ClusterRules(image, config, without={node_id}).without_brokers({node_id}),
        _change(image, node_id, fenced=1),
    ]


def unfence(image: MetadataImage, config: BrokerConfig, node_id: int) -> list[MetadataRecord]:
    return [
        _change(image, node_id, fenced=-1),
        *ClusterRules(image, config, with_broker=node_id).leaderless(),
    ]


def begin_shutdown(image: MetadataImage, config: BrokerConfig, node_id: int) -> list[MetadataRecord]:
    """Leaderships go to others, or to nobody where there is none (KAFKA-14296); the broker stays unfenced and serves
    until all know."""
    moved = ClusterRules(image, config, without={node_id}).without_brokers({node_id})
    if image.brokers[node_id].in_controlled_shutdown:
        return [*moved]
    return [_change(image, node_id, in_controlled_shutdown=1), *moved]


_DECISIONS: Mapping[BrokerState, Callable[[MetadataImage, BrokerConfig, int], list[MetadataRecord]]] = {
    BrokerState.FENCED: fence,
    BrokerState.UNFENCED: unfence,
    BrokerState.STOPPING: begin_shutdown,
    BrokerState.STOPPED: fence,
}


def enter(state: BrokerState, image: MetadataImage, config: BrokerConfig, node_id: int) -> list[MetadataRecord]:
    """The records of a broker's move into a state."""
    if state is BrokerState.STOPPED and image.brokers[node_id].fenced:
        return []
    return _DECISIONS[state](image, config, node_id)


def _change(
    image: MetadataImage, node_id: int, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=node_id,
        broker_epoch=image.brokers[node_id].broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


# -- directories


def lose_directories(
    image: MetadataImage, config: BrokerConfig, node_id: int, offline: Sequence[bytes]
) -> list[MetadataRecord]:
    """Directories of a broker cannot be used any more: for the replicas in them it is as if it were fenced."""
    broker = image.brokers[node_id]
    lost = [one for one in broker.log_dirs if one in offline]
    if not lost:
        return []
    left = [one for one in broker.log_dirs if one not in offline]
    rules = ClusterRules(image, config, without={node_id})
    records: list[MetadataRecord] = []
    for topic, index, state in image.partitions():
        if node_id in state.replicas and state.directory_of(node_id) in lost:
            isr = tuple(one for one in state.isr if one != node_id)
            record = rules.changed(topic, index, state, Wanted(rules.election(topic.name), isr=isr))
            if record is not None:
                records.append(record)
    records.append(BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.broker_epoch, log_dirs=left))
    return records


def cordon_directories(image: MetadataImage, node_id: int, cordoned: Sequence[bytes] | None) -> list[MetadataRecord]:
    """Directories that get no new replicas (KIP-1066); None says nothing of them."""
    broker = image.brokers[node_id]
    if cordoned is None or set(cordoned) == set(broker.cordoned_log_dirs or ()):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=node_id, broker_epoch=broker.broker_epoch, cordoned_log_dirs=list(cordoned)
        )
    ]


def can_take_replicas(broker: RegisterBrokerRecord) -> bool:
    """Whether a broker may get new replicas: not while it stops, nor when all of its directories are cordoned."""
    cordoned = broker.cordoned_log_dirs or ()
    is_cordoned = bool(broker.log_dirs) and all(one in cordoned for one in broker.log_dirs)
    return not broker.in_controlled_shutdown and not is_cordoned
