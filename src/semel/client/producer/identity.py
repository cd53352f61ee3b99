"""Who an idempotent producer without transactions is: an id from the broker, and an epoch that it raises itself.

Epochs of such a producer mean nothing to the cluster as a whole: each partition only asks that they never go back. So a
partition whose sequence has a gap moves to the next epoch at once, and the others follow when they are idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel.client.cluster import Cluster
from semel.client.errors import FatalError, RestartProducerError, SemelError, error_for, is_retriable
from semel.client.producer.batch import Identity
from semel.wire.errors import ErrorCode
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

LAST_EPOCH = 32766


class IdempotentIdentity:
    """`current` is None until the broker has given an id. `obtained` is called when it has; `failure` says why it
    never will."""

    def __init__(self, cluster: Cluster, obtained: Callable[[], None]) -> None:
        self.current: Identity | None = None
        self.failure: SemelError | None = None
        self._cluster = cluster
        self._obtained = obtained
        self._asking: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Ask for an id, unless that is being done."""
        if self._asking is None and self.failure is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    def raised(self) -> Identity | None:
        """The next epoch. None when all are used up: then another id is on its way."""
        if self.current is None:
            return None
        if self.current.epoch >= LAST_EPOCH:
            self.current = None
            self.ask()
            return None
        self.current = self.current._replace(epoch=self.current.epoch + 1)
        return self.current

    async def _ask(self) -> None:
        """Any node can answer: the least loaded one is asked, another one after a failure."""
        failures = 0
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=(1 << 31) - 1)
        while True:
            try:
                answer = await self._cluster.call_any(request, InitProducerIdResponse)
                if answer.error_code == ErrorCode.NONE:
                    self.current = Identity(answer.producer_id, answer.producer_epoch)
                    break
                if not is_retriable(answer.error_code):
                    self.failure = error_for(answer.error_code, "asking for a producer id")
                    break
            except (FatalError, RestartProducerError) as error:
                self.failure = error
                break
            except SemelError:
                self._cluster.stale()
            failures += 1
            await asyncio.sleep(self._cluster.backoff_s(failures))
        self._asking = None
        self._obtained()

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
