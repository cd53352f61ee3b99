"""A request whose connection is gone before the task has begun that its handler goes on in."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any, cast

from broker_harness import Node, simulated

from semel.broker.authoriser import AllowAll
from semel.broker.router import Router
from semel.rpc.served import DeferredReply
from semel.wire.frame import request_bytes
from semel.wire.spec.init_producer_id import InitProducerIdRequest

LENGTH_BYTES = 4


class Connection:
    lane_bytes = 0
    listener = "PLAINTEXT"
    principal = "User:ANONYMOUS"
    host = "127.0.0.1"
    is_authenticated = True


@simulated()
async def test_a_request_that_is_cancelled_before_its_task_began_leaves_nothing_behind(node: Node) -> None:
    node.hold_flushes()
    router = Router(
        AllowAll(), node.broker.roles, node.broker.generation, node.broker.long_requests, node.broker.counts.requests
    )
    frame = request_bytes(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4, 1, "raw")
    later = router.dispatch(cast(Any, Connection()), memoryview(frame)[LENGTH_BYTES:])
    assert isinstance(later, DeferredReply)
    with warnings.catch_warnings(record=True) as told:
        # Of a coroutine that was never awaited. What others have left open may be noticed here, too, and is not meant.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", RuntimeWarning)
        later.future.cancel()
        await asyncio.wait([later.future])
        del later
        gc.collect()
    assert [str(warning.message) for warning in told] == []
