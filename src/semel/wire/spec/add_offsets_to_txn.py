"""AddOffsetsToTxn (key 25): adds a group's offsets to a transaction."""

from semel.wire.schema import I16, I32, I64, Request, Response, Str


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible=3):
    transactional_id: Str = ""
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    group_id: Str = ""


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible=3):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
