"""Where this node has the cluster changed: decisions are asked for here, whichever node makes them.

Callers cannot tell a controller in this process from one behind a connection. So every method takes and returns plain
values, each item of a request is decided on its own, and an answer comes when all that it rests on is committed: also
a refusal, because a topic that exists already may be one that was decided a moment ago. What is true of the cluster
when a method returns is to be read in this node's committed image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from semel.broker.internal_topic_rules import check_settings, new_topic, refuse_if_internal
from semel.controller.active_controller import ActiveController
from semel.controller.controller import Controller, CreatedTopic, NewTopic
from semel.controller.image import TOPIC_RESOURCE, MetadataImage
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from semel.wire.spec.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from semel.wire.spec.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

R = TypeVar("R")

# Decisions of one request that are committed together.
_AT_ONCE = 50


@dataclass(frozen=True)
class NewPartitions:
    """How many partitions a topic is to have, and where the new ones are to be, if that is said."""

    topic: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True)
class ConfigChange:
    """Operations on the settings of one resource, each a code, a name and a value. With `replaces`, settings that are
    not named go back to their defaults."""

    resource_type: int
    resource_name: str
    operations: Sequence[tuple[int, str, str | None]]
    replaces: bool = False


class ControllerChannel(Protocol):
    """What a broker asks for itself. Results are in the order of what was asked: for each item what came of it, or why
    it was refused."""

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | Refused]: ...

    async def allocate_producer_ids(self) -> range:
        """A block of ids that nobody has had or will have; raises Refused."""

    # What brokers say of themselves, in Kafka's messages: what is refused is an error code in the answer.

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse: ...

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse: ...

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse: ...

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse: ...


class AdminChannel(ControllerChannel, Protocol):
    """And what clients ask for, on the node that has the active controller: others send their requests on to it."""

    async def delete_topics(self, topic_ids: Sequence[bytes]) -> list[Refused | None]: ...

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[Refused | None]: ...

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[Refused | None]: ...


class LocalController:
    """The channel of a node that holds a controller. Whatever is asked for while that is not active, or while it loses
    its term, is refused with NOT_CONTROLLER."""

    def __init__(
        self, current: Callable[[], Controller], committed: Callable[[], MetadataImage], slices: Slices
    ) -> None:
        """`current` raises Refused when the controller is not active."""
        self._current = current
        self.active = ActiveController(current, committed)
        self._slices = slices

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | Refused]:
        return await self._decided(partial(self._create, topic, validate_only) for topic in wanted)

    def _create(self, wanted: NewTopic, validate_only: bool, controller: Controller) -> CreatedTopic:
        if wanted.name in INTERNAL_TOPICS:
            wanted = new_topic(wanted, controller.config, controller.metadata.decided)
        return controller.create_topic(wanted, validate_only=validate_only)

    async def delete_topics(self, topic_ids: Sequence[bytes]) -> list[Refused | None]:
        return await self._decided(partial(self._delete, topic_id) for topic_id in topic_ids)

    def _delete(self, topic_id: bytes, controller: Controller) -> None:
        """What is decided counts, not what is committed: a topic that is just being deleted is not there any more."""
        topic = controller.metadata.decided.topic_by_id(topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id.hex()}")
        refuse_if_internal(topic.name, "deleted")
        controller.delete_topic(topic)

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[Refused | None]:
        return await self._decided(partial(self._add_partitions, one, validate_only) for one in wanted)

    def _add_partitions(self, wanted: NewPartitions, validate_only: bool, controller: Controller) -> None:
        refuse_if_internal(wanted.topic, "given more partitions: every group and transactional id would move")
        controller.create_partitions(wanted.topic, wanted.count, wanted.assignments, validate_only=validate_only)

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[Refused | None]:
        return await self._decided(partial(self._alter, change, validate_only) for change in changes)

    def _alter(self, change: ConfigChange, validate_only: bool, controller: Controller) -> None:
        is_internal = change.resource_type == TOPIC_RESOURCE and change.resource_name in INTERNAL_TOPICS
        controller.alter_config(
            change.resource_type,
            change.resource_name,
            change.operations,
            replaces=change.replaces,
            validate_only=validate_only,
            check=partial(check_settings, change.resource_name, controller.config, controller.metadata.decided)
            if is_internal
            else None,
        )

    async def allocate_producer_ids(self) -> range:
        block, committed = self._current().allocate_producer_ids()
        await committed
        return block

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return await self.active.register_broker(request)

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return await self.active.heartbeat(request)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self.active.alter_partition(request)

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return await self.active.assign_replicas_to_dirs(request)

    async def _decided(self, decisions: Iterable[Callable[[Controller], R]]) -> list[R | Refused]:
        """One by one, in slices of the loop; then it waits for what they rest on.

        So it does after some of them, too: what one flush commits is carried out in one turn. When the term ends, what
        was not committed by then is refused, and what has not been looked at.
        """
        results: list[R | Refused] = []
        waiting = list(decisions)
        certain = 0  # of them
        try:
            controller = self._current()
            for number, decide in enumerate(waiting, 1):
                try:
                    results.append(decide(controller))
                except Refused as refusal:
                    results.append(refusal)
                if number % _AT_ONCE == 0:
                    await _committed(controller)
                    certain = number
                if self._slices.step():
                    await self._slices.next()
            await _committed(controller)
        except Refused as refusal:
            return [*results[:certain], *[refusal] * (len(waiting) - certain)]
        return results


async def _committed(controller: Controller) -> None:
    committed = controller.metadata.when_committed()
    if committed is not None:
        await committed
