"""Which node coordinates a group or a transactional id: asked once, asked again when the answer turns out to be old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from semel.client.cluster import Cluster
from semel.client.errors import FatalError, SemelError, TimedOut, error_for, is_retriable
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request, Response
from semel.wire.spec.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

R = TypeVar("R", bound=Response)

MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""After these the coordinator is looked up again."""


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[CoordinatorKind, str], int] = {}

    async def find(self, kind: CoordinatorKind, key: str) -> int:
        """The node's id. Asks once if it is not known; raises errors of the client."""
        known = self._known.get((kind, key))
        if known is not None and known in self._cluster.view.nodes:
            return known
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        answer = await self._cluster.call_any(request, FindCoordinatorResponse)
        if answer.coordinators:
            found = answer.coordinators[0]
            code, message, node_id = found.error_code, found.error_message, found.node_id
        else:
            code, message, node_id = answer.error_code, answer.error_message, answer.node_id
        if code != ErrorCode.NONE:
            raise error_for(code, f"looking for the coordinator of {key!r}", message)
        if node_id not in self._cluster.view.nodes:
            await self._cluster.refresh()
        self._known[kind, key] = node_id
        return node_id

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        self._known.pop((kind, key), None)

    async def call(
        self,
        kind: CoordinatorKind,
        key: str,
        request: Request,
        response: type[R],
        *,
        code_of: Callable[[R], int],
        timeout_s: float,
        at_least: int = 0,
        at_most: int = 1 << 15,
        retry: Callable[[int], bool] = is_retriable,
    ) -> R:
        """Asks the coordinator, wherever it is, until the answer's code needs no retry or the time is over.

        Only for requests that may be repeated. Returns the answer also when its code is an error; after a timeout
        raises TimedOut with the last reason.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        attempts = self._cluster.attempts(deadline_s)
        reason = "no answer"
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    node_id = await self.find(kind, key)
                    answer = await self._cluster.call(node_id, request, response, at_least=at_least, at_most=at_most)
                code = code_of(answer)
                if code == ErrorCode.NONE or not retry(code):
                    return answer
                reason = error_for(code, type(request).__name__.removesuffix("Request")).text
                if code in MOVED:
                    self.forget(kind, key)
            except FatalError:
                raise
            except TimeoutError:
                raise TimedOut(f"the coordinator of {key!r} did not answer in time; last: {reason}") from None
            except SemelError as error:
                reason = error.text
                self.forget(kind, key)
                self._cluster.stale()
            pause_s = attempts.pause_s()
            if pause_s is None:
                raise TimedOut(f"the coordinator of {key!r} did not answer in time; last: {reason}")
            await asyncio.sleep(pause_s)
