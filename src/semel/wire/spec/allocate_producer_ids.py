"""AllocateProducerIds (key 67): a broker gets a block of producer ids from the controller."""

from semel.wire.schema import I16, I32, I64, Request, Response


class AllocateProducerIdsRequest(Request, key=67, versions="0", flexible=0):
    broker_id: I32 = 0
    broker_epoch: I64 = -1


class AllocateProducerIdsResponse(Response, key=67, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    producer_id_start: I64 = 0
    producer_id_len: I32 = 0
