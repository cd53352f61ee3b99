"""UpdateFeatures (57), versions 0-2: raises or lowers finalized levels, all of a request or none.

Left out: timeouts, because the answer comes as soon as the decision is committed.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.controller.features import Update, UpgradeType
from semel.log.errors import Refused
from semel.wire.spec.update_features import (
    FeatureUpdate,
    FeatureUpdateResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_TYPES_SINCE = 1
_NO_RESULTS_SINCE = 2


async def handle(
    request: UpdateFeaturesRequest, context: RequestContext, *, active_controller: ActiveController
) -> UpdateFeaturesResponse:
    refused: Refused | None
    try:
        context.authorise_cluster(Operation.ALTER)
    except Refused as refusal:
        refused = refusal
    else:
        updates = [_update(one, context.version) for one in request.feature_updates]
        refused = await active_controller.update_features(updates, validate_only=request.validate_only)
    if refused is not None:
        return UpdateFeaturesResponse(error_code=refused.code, error_message=refused.text)
    if context.version >= _NO_RESULTS_SINCE:
        return UpdateFeaturesResponse()
    return UpdateFeaturesResponse(results=[FeatureUpdateResult(feature=one.feature) for one in request.feature_updates])


def _update(one: FeatureUpdate, version: int) -> Update:
    if version >= _TYPES_SINCE:
        return Update(one.feature, one.max_version_level, one.upgrade_type)
    is_downgrade = one.allow_downgrade
    return Update(
        one.feature, one.max_version_level, UpgradeType.SAFE_DOWNGRADE if is_downgrade else UpgradeType.UPGRADE
    )
