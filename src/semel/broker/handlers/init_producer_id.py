"""InitProducerId (22), versions 0-5: an id for an idempotent producer, or the next epoch of a transactional id.

An id for an idempotent producer needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic. Left out: two-phase
commit (version 6).
"""

from __future__ import annotations

import logging

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType
from semel.broker.context import RequestContext
from semel.broker.handlers.transaction_errors import note_fenced
from semel.broker.producer_ids import ProducerIds
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("semel.broker")

_NONE = -1
_FENCED_SINCE = 4


async def handle(
    request: InitProducerIdRequest,
    context: RequestContext,
    *,
    transactions: TransactionCoordinator,
    producer_ids: ProducerIds,
) -> InitProducerIdResponse:
    try:
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            raise Refused(ErrorCode.INVALID_REQUEST, "a producer that has an id has an epoch, too")
        if request.transactional_id is not None:
            context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            told = await transactions.initialise(
                request.transactional_id,
                Identity(request.producer_id, request.producer_epoch),
                request.transaction_timeout_ms,
            )
            return InitProducerIdResponse(producer_id=told.producer_id, producer_epoch=told.epoch)
        if not context.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) and not (
            context.allows_any(Operation.WRITE, ResourceType.TOPIC)
        ):
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"{context.principal} may not write to any topic with a sequence",
            )
        # A producer without a transactional id that lost its sequence asks with its old id: it gets a new one, too.
        return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)
    except Refused as refusal:
        note_fenced(refusal)
        code = refusal.code
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            # The response has no room for words, and this one is for the operator.
            logger.critical("%s", refusal.text)
        if code == ErrorCode.PRODUCER_FENCED and context.version < _FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
