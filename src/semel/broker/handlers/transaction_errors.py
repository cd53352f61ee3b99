"""Error codes that older versions of the transaction APIs do not know, and what they are told instead."""

from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

_FENCED_SINCE = 2
_ABORTABLE_SINCE = 4


def code_for(refusal: Refused, version: int) -> ErrorCode:
    """For AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: their versions learned the codes together."""
    if refusal.code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if refusal.code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code
