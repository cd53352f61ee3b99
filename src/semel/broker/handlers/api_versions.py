"""ApiVersions (18), versions 0-4: what this node serves, and the features that the cluster has agreed on."""

from __future__ import annotations

import re

from semel.broker.broker import SUPPORTED_FEATURES, Broker
from semel.broker.context import RequestContext
from semel.broker.handlers import HANDLERS
from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def handle(broker: Broker, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.version >= 3 and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    features = broker.image.features
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=served.advertised_min, max_version=served.max_version)
            for key, served in HANDLERS.items()
        ],
        supported_features=[
            SupportedFeature(name=name, min_version=0, max_version=level) for name, level in SUPPORTED_FEATURES.items()
        ],
        finalized_features_epoch=broker.features_epoch,
        finalized_features=[
            FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.items()
        ],
    )
