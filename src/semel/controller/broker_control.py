"""What brokers ask of the active controller: to be registered, to be alive, to have another ISR.

Sessions are kept here and nowhere else; everything else is in the log. Each method decides and writes without an await:
the caller waits until what was decided is committed before it answers. Raises Refused with the code for the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from semel.config import BrokerConfig
from semel.controller import brokers
from semel.controller.brokers import BrokerState, check_epoch
from semel.controller.cluster_rules import ClusterRules
from semel.controller.directories import assign_directories
from semel.controller.image import MetadataImage
from semel.controller.isr import alter_partitions
from semel.controller.levels import CORDONED_DIRECTORIES, DIRECTORIES
from semel.controller.metadata_term import MetadataTerm
from semel.controller.sessions import Sessions
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from semel.wire.spec.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from semel.wire.spec.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from semel.wire.spec.metadata_records import MetadataRecord

logger = logging.getLogger("semel.controller")

# Kafka's controllers write no larger batches. A decision that need not be whole is written in several.
MOST_RECORDS = 10_000


def write_in_batches(metadata: MetadataTerm, records: Sequence[MetadataRecord]) -> None:
    for first in range(0, len(records), MOST_RECORDS):
        metadata.write(records[first : first + MOST_RECORDS])


class BrokerControl:
    def __init__(
        self, metadata: MetadataTerm, config: Callable[[], BrokerConfig], clock: Clock, cluster_id: Callable[[], str]
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._cluster_id = cluster_id
        self.sessions = Sessions(config().int("broker.session.timeout.ms"))

    @property
    def _image(self) -> MetadataImage:
        return self._metadata.decided

    def activate(self, own_node: int | None) -> None:
        """This controller decides from now on. `own_node`: the broker of this process, which has yet to register."""
        now_ms = self._clock.monotonic_ms()
        self.sessions.begin(self._image, self._metadata.next_offset, now_ms, own_node=own_node)

    def register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        node_id, known = request.broker_id, self._image.brokers.get(request.broker_id)
        if request.cluster_id != self._cluster_id():
            raise Refused(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"broker {node_id} is of cluster {request.cluster_id}, this is {self._cluster_id()}",
            )
        is_same = known is not None and known.incarnation_id == request.incarnation_id
        now_ms, timeout_ms = self._clock.monotonic_ms(), self.sessions.timeout_ms
        if known is not None and not is_same and self.sessions.has_session(node_id, known.broker_epoch, now_ms):
            raise Refused(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"another broker {node_id} was heard of less than {timeout_ms} ms ago",
            )
        records = brokers.register(self._image, self._config(), request, self._metadata.next_offset)
        write_in_batches(self._metadata, records)
        epoch = self._image.brokers[node_id].broker_epoch
        self.sessions.register(node_id, epoch, self._metadata.next_offset - 1)
        what = "has amended its registration" if is_same else "has registered"
        logger.info("broker %d %s, epoch %d, partitions changed %d", node_id, what, epoch, len(records) - 1)
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def unregister(self, node_id: int) -> None:
        write_in_batches(self._metadata, brokers.unregister(self._image, self._config(), node_id))
        self.sessions.remove(node_id)
        logger.info("broker %d is unregistered", node_id)

    def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        node_id, sessions = request.broker_id, self.sessions
        broker = check_epoch(self._image, node_id, request.broker_epoch)
        state = self._state(node_id)
        entered = brokers.next_state(
            state,
            request,
            sessions.registered_at(node_id),
            lambda: brokers.leads_something(self._image, node_id),
            lambda: sessions.all_have_seen(sessions.shutdown_offset(node_id) or 0, self._image),
        )
        if entered is not state:
            write_in_batches(self._metadata, brokers.enter(entered, self._image, self._config(), node_id))
            logger.info("broker %d was %s, and is %s", node_id, state.value, entered.value)
        sessions.touch(node_id, broker.broker_epoch, request.current_metadata_offset, self._clock.monotonic_ms())
        if entered is BrokerState.STOPPING:
            sessions.begin_shutdown(node_id, self._metadata.next_offset - 1)
        elif entered is BrokerState.STOPPED:
            sessions.end(node_id)
        self._follow_directories(request)
        return BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= sessions.registered_at(node_id),
            is_fenced=entered in (BrokerState.FENCED, BrokerState.STOPPED),
            should_shut_down=entered is BrokerState.STOPPED,
        )

    def _state(self, node_id: int) -> BrokerState:
        if self._image.brokers[node_id].fenced:
            return BrokerState.FENCED
        return BrokerState.UNFENCED if self.sessions.shutdown_offset(node_id) is None else BrokerState.STOPPING

    def _follow_directories(self, request: BrokerHeartbeatRequest) -> None:
        node_id, level = request.broker_id, self._image.metadata_version
        if level >= DIRECTORIES and request.offline_log_dirs:
            records = brokers.lose_directories(self._image, self._config(), node_id, request.offline_log_dirs)
            write_in_batches(self._metadata, records)
        if level >= CORDONED_DIRECTORIES:
            write_in_batches(
                self._metadata, brokers.cordon_directories(self._image, node_id, request.cordoned_log_dirs)
            )

    def fence_silent(self) -> None:
        """Fences whoever was not heard of for too long, one after the other, so that each sees what became of the one
        before. To be called every `sessions.check_interval_ms`."""
        for node_id in self.sessions.expired(self._clock.monotonic_ms()):
            broker = self._image.brokers.get(node_id)
            if broker is not None and not broker.fenced:
                write_in_batches(self._metadata, brokers.fence(self._image, self._config(), node_id))
                logger.warning(
                    "broker %d is fenced: nothing was heard of it for %d ms", node_id, self.sessions.timeout_ms
                )
            self.sessions.end(node_id)

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        check_epoch(self._image, request.broker_id, request.broker_epoch)
        records, topics = alter_partitions(ClusterRules(self._image, self._config()), request)
        write_in_batches(self._metadata, records)
        return AlterPartitionResponse(topics=topics)

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        check_epoch(self._image, request.broker_id, request.broker_epoch)
        records, directories = assign_directories(ClusterRules(self._image, self._config()), request)
        write_in_batches(self._metadata, records)
        return AssignReplicasToDirsResponse(directories=directories)
