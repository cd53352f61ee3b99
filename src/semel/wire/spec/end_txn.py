"""EndTxn (key 26): commits or aborts a transaction. From version 5 on the answer carries the producer's next epoch."""

from semel.wire.schema import I16, I32, I64, Bool, Request, Response, Str, field


class EndTxnRequest(Request, key=26, versions="0-5", flexible=3):
    transactional_id: Str = ""
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    committed: Bool = False


class EndTxnResponse(Response, key=26, versions="0-5", flexible=3):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    producer_id: I64 = field(default=-1, since=5)
    producer_epoch: I16 = field(default=-1, since=5)
