"""What has settings, for the three APIs that read and change them: topics, nodes, and the cluster as a whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from semel.broker.authoriser import Operation
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.internal_topics import check_settings
from semel.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode


class ConfigResource(Protocol):
    """What all requests of this kind name. A node's name is its number, the cluster's is empty."""

    resource_type: int
    resource_name: str


def authorise_resource(context: RequestContext, operation: Operation, resource: ConfigResource) -> None:
    if resource.resource_type == TOPIC_RESOURCE:
        context.authorise_topic(operation, resource.resource_name)
    elif resource.resource_type == BROKER_RESOURCE:
        context.authorise_cluster(operation)
    else:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {resource.resource_type} have no settings here: topics ({TOPIC_RESOURCE}) and "
            f"brokers ({BROKER_RESOURCE}) do",
        )


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

    async def committed(self) -> None:
        if self._waits_for:
            await asyncio.gather(*self._waits_for)
