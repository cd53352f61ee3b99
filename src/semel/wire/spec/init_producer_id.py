"""InitProducerId (key 22): gives a producer its id and epoch, and ends what its transactional id left open.

Version 6 belongs to two-phase commit (KIP-939).
"""

from semel.wire.schema import I16, I32, I64, Bool, Request, Response, Str, field


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible=2):
    transactional_id: Str | None = None
    transaction_timeout_ms: I32 = 0
    producer_id: I64 = field(default=-1, since=3)
    producer_epoch: I16 = field(default=-1, since=3)
    enable_2pc: Bool = field(default=False, since=6)
    keep_prepared_txn: Bool = field(default=False, since=6)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible=2):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    producer_id: I64 = -1
    producer_epoch: I16 = 0
    ongoing_txn_producer_id: I64 = field(default=-1, since=6)
    ongoing_txn_producer_epoch: I16 = field(default=-1, since=6)
