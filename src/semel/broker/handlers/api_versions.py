"""ApiVersions (18), versions 0-5: what this node serves, and the features that the cluster has agreed on.

A client of version 5 may say which cluster and which node it takes this for (KIP-1242). If it was misrouted, it is told
to start again from its bootstrap servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers import served_on
from semel.broker.node_info import NodeInfo
from semel.config import ListenerKind
from semel.controller.levels import SUPPORTED_FEATURES
from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_SOFTWARE_SINCE = 3
# Before, Java's clients fail over a feature that begins at 0 (KAFKA-17011).
_LEAST_OF_ZERO_SINCE = 4
_TARGET_SINCE = 5
_NO_NODE = -1


def handle(
    request: ApiVersionsRequest,
    context: RequestContext,
    *,
    node: NodeInfo,
    cluster: ClusterView,
    listeners: Mapping[str, ListenerKind],
) -> ApiVersionsResponse:
    code = _refusal(node, request, context.version)
    if code is not None:
        return ApiVersionsResponse(error_code=code)
    features = cluster.image.features
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=served.advertised_min, max_version=served.max_version)
            for key, served in served_on(listeners[context.listener]).items()
        ],
        supported_features=[
            SupportedFeature(name=name, min_version=least, max_version=most)
            for name, (least, most) in SUPPORTED_FEATURES.items()
            if least > 0 or context.version >= _LEAST_OF_ZERO_SINCE
        ],
        finalized_features_epoch=cluster.features_epoch,
        finalized_features=[
            FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.items()
        ],
    )


def _refusal(node: NodeInfo, request: ApiVersionsRequest, version: int) -> ErrorCode | None:
    if version >= _SOFTWARE_SINCE and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return ErrorCode.INVALID_REQUEST
    if version < _TARGET_SINCE or (request.cluster_id is None and request.node_id == _NO_NODE):
        return None
    if request.cluster_id is None or request.node_id == _NO_NODE:
        return ErrorCode.INVALID_REQUEST
    is_meant = (request.cluster_id, request.node_id) == (node.cluster_id, node.node_id)
    return None if is_meant else ErrorCode.REBOOTSTRAP_REQUIRED
