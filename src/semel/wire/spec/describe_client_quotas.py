"""DescribeClientQuotas (key 48): the quotas of the users and clients that match a filter."""

from semel.wire.schema import F64, I8, I16, I32, Array, Bool, Request, Response, Str, Struct


class QuotaFilterComponent(Struct):
    entity_type: Str = ""
    match_type: I8 = 0
    match: Str | None = None


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible=1):
    components: Array[QuotaFilterComponent] = ()
    strict: Bool = False


class QuotaEntity(Struct):
    entity_type: Str = ""
    entity_name: Str | None = None


class QuotaValue(Struct):
    key: Str = ""
    value: F64 = 0.0


class QuotaEntry(Struct):
    entity: Array[QuotaEntity] = ()
    values: Array[QuotaValue] = ()


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible=1):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
    entries: Array[QuotaEntry] | None = ()
