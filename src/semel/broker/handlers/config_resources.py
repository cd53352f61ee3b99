"""What has settings, for the APIs that read and change them: topics, nodes, the cluster as a whole, groups, and the
loggers of a node."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from semel.broker import loggers
from semel.broker.authoriser import Operation, ResourceType
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.internal_topics import check_settings
from semel.controller.image import BROKER_RESOURCE, GROUP_RESOURCE, LOGGER_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode


class ConfigResource(Protocol):
    """What all requests of this kind name. A node's name is its number, the cluster's is empty."""

    resource_type: int
    resource_name: str


_SERVED = (
    f"topics ({TOPIC_RESOURCE}), brokers ({BROKER_RESOURCE}), broker loggers ({LOGGER_RESOURCE}) and groups "
    f"({GROUP_RESOURCE}) have settings here"
)


def authorise_resource(context: RequestContext, operation: Operation, resource: ConfigResource) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC_RESOURCE:
        context.authorise_topic(operation, name)
    elif kind in (BROKER_RESOURCE, LOGGER_RESOURCE):
        context.authorise_cluster(operation)
    elif kind == GROUP_RESOURCE:
        context.authorise(operation, ResourceType.GROUP, name)
    elif kind == METRICS_RESOURCE:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"client metrics ({METRICS_RESOURCE}) have no settings here, because semel takes no telemetry of clients; "
            f"{_SERVED}",
        )
    else:
        raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {kind} are not known; {_SERVED}")


def check_node(broker: Broker, name: str) -> None:
    """A logger belongs to one node, which has to be named."""
    if name != str(broker.node_id):
        raise Refused(ErrorCode.INVALID_REQUEST, f"the loggers of node {broker.node_id} are here, not of {name[:20]!r}")


class Alterations:
    """The changes of one request: each resource on its own, one wait for all of them."""

    def __init__(
        self, broker: Broker, context: RequestContext, resources: Sequence[ConfigResource], *, validate_only: bool
    ) -> None:
        self._broker = broker
        self._context = context
        self._named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
        self._validate_only = validate_only
        self._waits_for: list[asyncio.Future[None]] = []

    def decide(
        self, resource: ConfigResource, operations: Sequence[tuple[int, str, str | None]], *, replaces: bool = False
    ) -> tuple[int, str | None]:
        """Error code and message of one resource."""
        try:
            if self._named[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "a resource may be named once in a request")
            authorise_resource(self._context, Operation.ALTER_CONFIGS, resource)
            if resource.resource_type == LOGGER_RESOURCE:
                return self._alter_loggers(resource.resource_name, operations, replaces=replaces)
            committed = self._broker.controller.alter_config(
                resource.resource_type,
                resource.resource_name,
                operations,
                replaces=replaces,
                validate_only=self._validate_only,
                check=self._check_of(resource),
            )
        except Refused as refusal:
            return refusal.code, refusal.text
        if committed is not None:
            self._waits_for.append(committed)
        return ErrorCode.NONE, None

    def _check_of(self, resource: ConfigResource) -> Callable[[Mapping[str, str]], None] | None:
        if resource.resource_type != TOPIC_RESOURCE or resource.resource_name not in INTERNAL_TOPICS:
            return None
        return partial(check_settings, self._broker, resource.resource_name)

    def _alter_loggers(
        self, node: str, operations: Sequence[tuple[int, str, str | None]], *, replaces: bool
    ) -> tuple[int, str | None]:
        check_node(self._broker, node)
        if replaces:
            raise Refused(
                ErrorCode.INVALID_REQUEST, "the levels of loggers are changed by IncrementalAlterConfigs only"
            )
        loggers.alter(operations, validate_only=self._validate_only)
        return ErrorCode.NONE, None

    async def committed(self) -> None:
        if self._waits_for:
            await asyncio.gather(*self._waits_for)
