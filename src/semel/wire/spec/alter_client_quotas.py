"""AlterClientQuotas (key 49): sets and removes quotas of users and clients."""

from semel.wire.schema import F64, I16, I32, Array, Bool, Request, Response, Str, Struct


class QuotaEntity(Struct):
    entity_type: Str = ""
    entity_name: Str | None = None


class QuotaOperation(Struct):
    key: Str = ""
    value: F64 = 0.0
    remove: Bool = False


class QuotaAlteration(Struct):
    entity: Array[QuotaEntity] = ()
    ops: Array[QuotaOperation] = ()


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible=1):
    entries: Array[QuotaAlteration] = ()
    validate_only: Bool = False


class QuotaAlterationResult(Struct):
    error_code: I16 = 0
    error_message: Str | None = None
    entity: Array[QuotaEntity] = ()


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible=1):
    throttle_time_ms: I32 = 0
    entries: Array[QuotaAlterationResult] = ()
