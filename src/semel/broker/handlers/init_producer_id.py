"""InitProducerId (22), versions 0-5: a producer id for a producer that wants idempotence.

Not served yet: transactional ids. They are refused, so that no client believes to have a transaction.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(broker: Broker, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    try:
        if request.transactional_id is not None:
            context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served by this version of semel")
        context.authorise_cluster(Operation.IDEMPOTENT_WRITE)
        # A producer without a transactional id that lost its sequence asks with its old id: it gets a new one, too.
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
    except Refused as refusal:
        return InitProducerIdResponse(error_code=refusal.code, producer_id=-1, producer_epoch=-1)
