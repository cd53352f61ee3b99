"""UpdateFeatures (key 57): raises or lowers the finalized level of features."""

from semel.wire.schema import I8, I16, I32, Array, Bool, Request, Response, Str, Struct, field


class FeatureUpdate(Struct):
    feature: Str = ""
    max_version_level: I16 = 0
    allow_downgrade: Bool = field(default=False, until=0)
    upgrade_type: I8 = field(default=1, since=1)


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible=0):
    timeout_ms: I32 = 60000
    feature_updates: Array[FeatureUpdate] = ()
    validate_only: Bool = field(default=False, since=1)


class FeatureUpdateResult(Struct):
    feature: Str = ""
    error_code: I16 = 0
    error_message: Str | None = None


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
    results: Array[FeatureUpdateResult] = field(default=(), until=1)
