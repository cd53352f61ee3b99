"""The active controller as other nodes and administrators see it: Kafka's requests in, Kafka's answers out.

An answer is given when all that it rests on is committed, a refusal as well: what it was refused for may have been
decided a moment ago. When the term ends before, or this controller is not active, the answer is NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from semel.controller.brokers import check_epoch
from semel.controller.controller import Controller
from semel.controller.credentials import users_of
from semel.controller.features import Update
from semel.controller.image import MetadataImage
from semel.controller.leaders import elect_leaders
from semel.controller.reassignment import ongoing, reassign
from semel.log.errors import Refused
from semel.security.access_rules import AccessRule
from semel.wire.spec.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from semel.wire.spec.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from semel.wire.spec.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from semel.wire.spec.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from semel.wire.spec.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from semel.wire.spec.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from semel.wire.spec.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from semel.wire.spec.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from semel.wire.spec.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from semel.wire.spec.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

R = TypeVar("R")
Q = TypeVar("Q")


class ActiveController:
    def __init__(self, current: Callable[[], Controller], committed: Callable[[], MetadataImage]) -> None:
        """`current` raises Refused when this controller is not active."""
        self._current = current
        self._committed = committed

    def check(self) -> None:
        """Raises Refused while this controller is not active."""
        self._current()

    # -- brokers

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return await self._answered(
            lambda controller: controller.brokers.register(request),
            lambda refusal: BrokerRegistrationResponse(error_code=refusal.code),
        )

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return await self._answered(
            lambda controller: controller.brokers.heartbeat(request),
            lambda refusal: BrokerHeartbeatResponse(error_code=refusal.code),
        )

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self._answered(
            lambda controller: controller.brokers.alter_partition(request),
            lambda refusal: AlterPartitionResponse(error_code=refusal.code),
        )

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return await self._answered(
            lambda controller: controller.brokers.assign_directories(request),
            lambda refusal: AssignReplicasToDirsResponse(error_code=refusal.code),
        )

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        def allocate(controller: Controller) -> AllocateProducerIdsResponse:
            check_epoch(controller.metadata.decided, request.broker_id, request.broker_epoch)
            block, _ = controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
            return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))

        return await self._answered(allocate, lambda refusal: AllocateProducerIdsResponse(error_code=refusal.code))

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        def unregister(controller: Controller) -> UnregisterBrokerResponse:
            controller.brokers.unregister(request.broker_id)
            return UnregisterBrokerResponse()

        return await self._answered(
            unregister,
            lambda refusal: UnregisterBrokerResponse(error_code=refusal.code, error_message=refusal.text),
        )

    # -- controllers

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        def register(controller: Controller) -> ControllerRegistrationResponse:
            controller.register_controller(request)
            return ControllerRegistrationResponse()

        return await self._answered(
            register,
            lambda refusal: ControllerRegistrationResponse(error_code=refusal.code, error_message=refusal.text),
        )

    # -- for administrators

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        def elect(controller: Controller) -> ElectLeadersResponse:
            records, results = elect_leaders(controller.rules(), request)
            controller.write(records)
            return ElectLeadersResponse(replica_election_results=results)

        return await self._answered(elect, lambda refusal: ElectLeadersResponse(error_code=refusal.code))

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        def alter(controller: Controller) -> AlterPartitionReassignmentsResponse:
            records, responses = reassign(controller.rules(), request)
            controller.write(records)
            return AlterPartitionReassignmentsResponse(
                responses=responses, allow_replication_factor_change=request.allow_replication_factor_change
            )

        return await self._answered(
            alter,
            lambda refusal: AlterPartitionReassignmentsResponse(error_code=refusal.code, error_message=refusal.text),
        )

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        topics = ongoing(self._committed(), request.topics)
        return ListPartitionReassignmentsResponse(topics=topics)

    async def create_acls(self, wanted: Sequence[AccessRule]) -> Sequence[Refused | None]:
        """For each rule why it was refused, if it was."""
        return await self._answered(
            lambda controller: controller.create_acls(wanted), lambda refusal: [refusal] * len(wanted)
        )

    async def delete_acls(self, filters: Sequence[AccessRule]) -> Sequence[list[AccessRule] | Refused]:
        """For each filter the rules that it has deleted."""
        return await self._answered(
            lambda controller: controller.delete_acls(filters), lambda refusal: [refusal] * len(filters)
        )

    async def alter_credentials(self, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
        def alter(controller: Controller) -> dict[str, Refused | None]:
            return controller.alter_credentials(request)

        results = await self._answered(alter, lambda refusal: dict.fromkeys(users_of(request), refusal))
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=user)
                if refusal is None
                else AlterUserScramCredentialsResult(user=user, error_code=refusal.code, error_message=refusal.text)
                for user, refusal in results.items()
            ]
        )

    async def update_features(self, updates: Sequence[Update], *, validate_only: bool) -> Refused | None:
        """All of them or none; None when all are finalized."""

        def update(controller: Controller) -> None:
            controller.update_features(updates, validate_only=validate_only)

        return await self._answered(update, lambda refusal: refusal)

    async def _answered(self, decide: Callable[[Controller], R], refuse: Callable[[Refused], Q]) -> R | Q:
        answer: R | Q
        try:
            controller = self._current()
            try:
                answer = decide(controller)
            except Refused as refusal:
                answer = refuse(refusal)
            committed = controller.metadata.when_committed()
            if committed is not None:
                await committed
        except Refused as refusal:  # the term has ended: nobody knows whether what it rests on will count
            return refuse(refusal)
        return answer
