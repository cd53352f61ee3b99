"""The channel of a broker whose controller is another node: requests to whichever controller is active now.

It is found again when it says that it is active no more, or does not answer. What is asked for may then have been done
or not: so everything here can be asked again, or says when it was done before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from semel.broker.node_info import NodeInfo
from semel.controller.controller import CreatedTopic, NewTopic
from semel.host.api import Host
from semel.host.complaints import Complaints
from semel.log.errors import Refused
from semel.peer.backoff import Backoff
from semel.peer.caller import PeerCaller
from semel.peer.errors import PeerError
from semel.quorum.leadership import Leadership
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request, Response
from semel.wire.spec.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from semel.wire.spec.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from semel.wire.spec.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from semel.wire.spec.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from semel.wire.spec.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger("semel.broker")

R = TypeVar("R", bound=Response)

ANSWER_S = 30.0
"""How long a request is tried until its caller is told that no controller answers."""
_ATTEMPT_S = 10.0
_RETRY_FIRST_MS, _RETRY_MOST_MS = 20, 1000


class RemoteController:
    """`until` waits for something to be true of this node's committed image."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        leadership: Leadership,
        calls: PeerCaller,
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        topic_exists: Callable[[str], bool],
    ) -> None:
        self._node = node
        self._leadership = leadership
        self._calls = calls
        self._until = until
        self._topic_exists = topic_exists
        self._backoff = Backoff(host.random, _RETRY_FIRST_MS, _RETRY_MOST_MS)
        self._complaints = Complaints(logger)

    # -- any request

    async def ask(
        self,
        request: Request,
        response: type[R],
        *,
        timeout_s: float = ANSWER_S,
        at_least: int = 0,
        at_most: int,
        attempt_s: float = _ATTEMPT_S,
    ) -> R:
        """The active controller's answer, or Refused when there is none in time. An answer may be an error."""
        asking = self._asked(request, response, timeout_s, at_least, at_most, attempt_s)
        # In a task of its own: a handler that has just begun has none, and a time limit needs one.
        return await asyncio.get_running_loop().create_task(asking)

    async def _asked(
        self,
        request: Request,
        response: type[R],
        timeout_s: float,
        at_least: int,
        at_most: int,
        attempt_s: float,
    ) -> R:
        problem = "it is not known which node it is"
        try:
            async with asyncio.timeout(timeout_s):
                failures = 0
                while True:
                    leader = await self._leadership.known()
                    try:
                        answer = await self._calls.call(
                            leader.node_id,
                            request,
                            response,
                            timeout_s=min(attempt_s, timeout_s),
                            at_least=at_least,
                            at_most=at_most,
                        )
                    except PeerError as error:
                        problem = error.text
                        self._complaints.say(
                            "unreachable", logging.WARNING, "the controller cannot be asked: %s", error
                        )
                    else:
                        if not _is_elsewhere(answer):
                            return answer
                        problem = f"node {leader.node_id} is not the active controller any more"
                    failures += 1
                    await asyncio.sleep(self._backoff.delay_s(failures))
        except TimeoutError:
            text = f"no controller has answered within {timeout_s:g} s: {problem}"
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, text) from None

    # -- what this broker needs for itself

    async def register_broker(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return await self.ask(request, BrokerRegistrationResponse, timeout_s=self._session_s, at_most=4)

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return await self.ask(request, BrokerHeartbeatResponse, timeout_s=self._session_s, at_most=2)

    @property
    def _session_s(self) -> float:
        return self._node.config.int("broker.session.timeout.ms") / 1000

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self.ask(request, AlterPartitionResponse, at_least=2, at_most=3)

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return await self.ask(request, AssignReplicasToDirsResponse, at_most=0)

    async def allocate_producer_ids(self) -> range:
        request = AllocateProducerIdsRequest(broker_id=self._node.node_id, broker_epoch=self._node.broker_epoch)
        answer = await self.ask(request, AllocateProducerIdsResponse, at_most=0)
        if answer.error_code:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise Refused(code, f"the controller gives out no producer ids: {ErrorCode(answer.error_code).name}")
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | Refused]:
        """For topics that this node needs itself. Those that were made, or were there, are in its image afterwards."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted],
            timeout_ms=round(ANSWER_S * 1000),
            validate_only=validate_only,
        )
        answer = await self.ask(request, CreateTopicsResponse, at_least=5, at_most=7)
        results = {result.name: result for result in answer.topics}
        made = [_made(topic, results.get(topic.name)) for topic in wanted]
        there = [
            topic.name
            for topic, result in zip(wanted, made, strict=True)
            if not isinstance(result, Refused) or result.code == ErrorCode.TOPIC_ALREADY_EXISTS
        ]
        if not validate_only:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._until(lambda: all(map(self._topic_exists, there)))
            except TimeoutError:
                text = f"this node has not heard of new topics within {ANSWER_S:g} s"
                return [Refused(ErrorCode.REQUEST_TIMED_OUT, text) for _ in wanted]
        return made


def _is_elsewhere(answer: Response) -> bool:
    codes = {getattr(answer, "error_code", 0)}
    if isinstance(answer, CreateTopicsResponse):
        codes = {topic.error_code for topic in answer.topics}
    return ErrorCode.NOT_CONTROLLER in codes


def _creatable(wanted: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=wanted.name,
        num_partitions=wanted.partitions,
        replication_factor=wanted.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in wanted.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in wanted.configs.items()],
    )


def _made(wanted: NewTopic, result: CreatableTopicResult | None) -> CreatedTopic | Refused:
    if result is None:
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller has not answered for {wanted.name!r}")
    if result.error_code:
        return Refused(ErrorCode(result.error_code), result.error_message or "the controller has refused it")
    return CreatedTopic(
        wanted.name,
        result.topic_id,
        result.num_partitions,
        result.replication_factor,
        {one.name: one.value for one in result.configs or () if one.value is not None},
        None,
    )
