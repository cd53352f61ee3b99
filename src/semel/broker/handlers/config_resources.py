"""What has settings, for the APIs that read and change them: topics, nodes, the cluster as a whole, groups, and the
loggers of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from semel.broker import loggers
from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.broker.controller_channel import AdminChannel, ConfigChange
from semel.broker.node_info import NodeInfo
from semel.controller.image import BROKER_RESOURCE, GROUP_RESOURCE, LOGGER_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode


class ConfigResource(Protocol):
    """What all requests of this kind name. A node's name is its number, the cluster's is empty."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


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


def check_node(node: NodeInfo, name: str) -> None:
    """A logger belongs to one node, which has to be named."""
    if name != str(node.node_id):
        raise Refused(ErrorCode.INVALID_REQUEST, f"the loggers of node {node.node_id} are here, not of {name[:20]!r}")


class Alteration(NamedTuple):
    """What is to be done to the settings of one resource: operations, each a code, a name and a value."""

    resource: ConfigResource
    operations: Sequence[tuple[int, str, str | None]]


async def alter(
    alterations: Sequence[Alteration],
    controller: AdminChannel,
    node: NodeInfo,
    context: RequestContext,
    slices: Slices,
    *,
    replaces: bool = False,
    validate_only: bool,
) -> list[tuple[int, str | None]]:
    """Error code and message of each: every resource on its own, answered when all changes are committed."""
    named = Counter((resource.resource_type, resource.resource_name) for resource, _ in alterations)
    results: list[Refused | None] = [None] * len(alterations)
    changes: dict[int, ConfigChange] = {}
    for place, (resource, operations) in enumerate(alterations):
        kind, name = resource.resource_type, resource.resource_name
        try:
            if named[kind, name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "a resource may be named once in a request")
            authorise_resource(context, Operation.ALTER_CONFIGS, resource)
            if kind == LOGGER_RESOURCE:
                alter_loggers(node, name, operations, replaces=replaces, validate_only=validate_only)
            else:
                changes[place] = ConfigChange(kind, name, operations, replaces)
        except Refused as refusal:
            results[place] = refusal
        if slices.step():
            await slices.next()
    altered = await controller.alter_configs(list(changes.values()), validate_only=validate_only)
    for place, result in zip(changes, altered, strict=True):
        results[place] = result
    return [(ErrorCode.NONE, None) if result is None else (result.code, result.text) for result in results]


def alter_loggers(
    node: NodeInfo,
    name: str,
    operations: Sequence[tuple[int, str, str | None]],
    *,
    replaces: bool,
    validate_only: bool,
) -> None:
    check_node(node, name)
    if replaces:
        raise Refused(ErrorCode.INVALID_REQUEST, "the levels of loggers are changed by IncrementalAlterConfigs only")
    loggers.alter(operations, validate_only=validate_only)
