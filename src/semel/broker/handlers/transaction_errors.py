"""Error codes that older versions of the transaction APIs do not know, and what they are told instead."""

import logging

from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

_FENCED_SINCE = 2
_ABORTABLE_SINCE = 4
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)

logger = logging.getLogger("semel.broker")


def note_fenced(refusal: Refused) -> None:
    """A line for whoever looks why a producer was fenced: the answer has a code, and mostly no room for words."""
    if refusal.code in _FENCED:
        logger.debug("a producer is fenced: %.300s", refusal.text)


def code_for(refusal: Refused, version: int) -> ErrorCode:
    """For AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: their versions learned the codes together."""
    note_fenced(refusal)
    if refusal.code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if refusal.code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code
