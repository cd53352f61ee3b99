"""DescribeConfigs (32), versions 1-4: the settings of topics and nodes, where each value comes from, and what it means.

Described are topics, nodes, the loggers of this node and groups. Left out: client metrics, which are refused.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from semel.broker import loggers
from semel.broker.authoriser import Operation
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers.config_resources import authorise_resource, check_node
from semel.broker.node_info import NodeInfo
from semel.config import DescribedSetting, describe_broker, describe_group, describe_topic
from semel.controller.image import GROUP_RESOURCE, LOGGER_RESOURCE, TOPIC_RESOURCE
from semel.controller.topic_names import wrong_with_name
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.lazy import lazily
from semel.wire.spec.describe_configs import (
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)


async def handle(
    request: DescribeConfigsRequest, context: RequestContext, *, node: NodeInfo, cluster: ClusterView, slices: Slices
) -> DescribeConfigsResponse:
    wanted: dict[tuple[int, str], _Wanted] = {}
    for resource in request.resources:
        _add(wanted, resource)
        if slices.step():
            await slices.next()
    described = lazily(partial(_described, request, context, node, cluster), list(wanted.values()))
    return DescribeConfigsResponse(results=described)


class _Wanted(NamedTuple):
    resource_type: int
    resource_name: str
    names: set[str] | None  # none for all of them


def _add(wanted: dict[tuple[int, str], _Wanted], resource: DescribeConfigsResource) -> None:
    """A resource that is named several times is described once, with all that is asked of it."""
    what = resource.resource_type, resource.resource_name
    # No names stand for all of them, null as well as an empty list.
    names = set(resource.configuration_keys or ()) or None
    known = wanted.get(what)
    if known is not None and known.names is not None and names is not None:
        known.names.update(names)
    elif known is None or known.names is not None:
        wanted[what] = _Wanted(*what, names)


def _described(
    request: DescribeConfigsRequest, context: RequestContext, node: NodeInfo, cluster: ClusterView, resource: _Wanted
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        authorise_resource(context, Operation.DESCRIBE_CONFIGS, resource)
        result.configs = [_encoded(setting, request) for setting in _settings(node, cluster, resource)]
    except Refused as refusal:
        result.error_code, result.error_message = refusal.code, refusal.text
    return result


def _settings(node: NodeInfo, cluster: ClusterView, resource: _Wanted) -> list[DescribedSetting]:
    name, wanted = resource.resource_name, resource.names
    if resource.resource_type == TOPIC_RESOURCE:
        wrong = wrong_with_name(name, ())
        if wrong is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
        if name not in cluster.image.topics:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return describe_topic(cluster.image.config(TOPIC_RESOURCE, name), node.config, names=wanted)
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "a group has a name: there are no settings for all groups here")
        return describe_group(cluster.image.group_settings(name), node.config, names=wanted)
    if resource.resource_type == LOGGER_RESOURCE:
        check_node(node, name)
        return loggers.described(wanted)
    if name not in ("", str(node.node_id)):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"known here are the settings of node {node.node_id} and, without a name, of the cluster; not of {name}",
        )
    return describe_broker(node.config, names=wanted, cluster_wide=not name)


def _encoded(setting: DescribedSetting, request: DescribeConfigsRequest) -> DescribedConfig:
    described = DescribedConfig(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.sensitive,
        config_type=setting.kind,
    )
    if request.include_synonyms:
        described.synonyms = [
            ConfigSynonym(name=synonym.name, value=synonym.value, source=synonym.source) for synonym in setting.synonyms
        ]
    if request.include_documentation:
        described.documentation = setting.documentation
    return described
