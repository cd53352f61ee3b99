"""A transaction, request by request, beside the records that each request has made the cluster write.

One traced request is under way at a time, so that what has been written since the last one is its doing. What is
written after the answer (the end of a transaction is, in part) is a step of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from semel.client.cluster import Cluster
from semel.client.errors import SemelError
from semel.live.proxy import Exchange
from semel.live.transaction_words import TRACED, answer_text, error_of, request_text
from semel.live.written import Place, Written, end_of, partition_count, written_from
from semel.log.inspection.decode import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.wire.primitives import coordinator_partition
from semel.wire.schema import Response

_END_TXN = 26
_COMPLETE = ("CompleteCommit", "CompleteAbort")
_LATER_S = 10.0
_LOOK_S = 0.02


class Step(NamedTuple):
    """One request with its answer; `api` is None for what was written after an answer."""

    number: int
    api: str | None
    version: int
    asks: str
    answer: str
    is_refused: bool
    writes: tuple[Written, ...]

    def as_json(self) -> dict[str, Any]:
        writes = [
            {"topic": one.place.topic, "partition": one.place.partition, "offset": one.offset, "what": one.what}
            for one in self.writes
        ]
        shown = {"number": self.number, "api": self.api, "version": self.version, "asks": self.asks}
        return {**shown, "answer": self.answer, "is_refused": self.is_refused, "writes": writes}


class TransactionTrace:
    """An Observer of a proxy. `cluster` reaches the cluster without the proxy; `told` gets every step, in order."""

    def __init__(self, cluster: Cluster, told: Callable[[Step], None]) -> None:
        self._cluster = cluster
        self._told = told
        self._turn = asyncio.Lock()
        self._holder: Exchange | None = None
        self._ends: dict[Place, int] = {}
        self._producers: set[int] = set()
        self._ids: set[str] = set()
        self._absent: set[str] = set()
        self._number = 0
        self._later: asyncio.Task[None] | None = None

    async def asked(self, exchange: Exchange) -> Awaitable[Response] | None:
        if exchange.key not in TRACED or not _is_transactional(exchange):
            return None
        await self._turn.acquire()
        self._holder = exchange
        await self._watch(exchange.key, exchange.request())
        return None

    async def answered(self, exchange: Exchange, frame: bytes) -> None:
        if exchange is not self._holder:
            return
        request, response = exchange.request(), exchange.response(frame)
        self._learn(response)
        await self._watch(exchange.key, request)  # topics that this request has made are there now
        writes = await self._writes()
        error = error_of(response)
        text = error or answer_text(response)
        self._tell(exchange, request_text(request, self._cluster.topic_names), text, error is not None, writes)
        is_open = exchange.key == _END_TXN and error is None and not any(one.state in _COMPLETE for one in writes)
        if is_open:
            self._later = asyncio.get_running_loop().create_task(self._see_the_end())
        else:
            self._let_go()

    def lost(self, exchange: Exchange) -> None:
        if exchange is self._holder:
            self._let_go()

    async def ended(self) -> None:
        """Waits for what is written after the last answer."""
        if self._later is not None:
            await self._later

    def _let_go(self) -> None:
        self._holder = None
        self._turn.release()

    async def _see_the_end(self) -> None:
        """The coordinator writes markers, and that they are written, in its own time."""
        deadline_s = asyncio.get_running_loop().time() + _LATER_S
        found: list[Written] = []
        try:
            while asyncio.get_running_loop().time() < deadline_s:
                found += await self._writes()
                if any(one.state in _COMPLETE for one in found):
                    break
                await asyncio.sleep(_LOOK_S)
            self._tell(None, "", "", False, found)
        finally:
            self._let_go()

    def _tell(
        self, exchange: Exchange | None, asks: str, answer: str, is_refused: bool, writes: Iterable[Written]
    ) -> None:
        self._number += exchange is not None
        name = None if exchange is None or exchange.api is None else exchange.api.name
        version = -1 if exchange is None else exchange.version
        self._told(Step(self._number, name, version, asks, answer, is_refused, tuple(writes)))

    # -- what to look at

    async def _watch(self, key: int, request: Any) -> None:
        """The partitions that a request may write to, from their present end on."""
        for place, is_new in await self._places(key, request):
            if place not in self._ends:
                try:
                    self._ends[place] = 0 if is_new else await end_of(self._cluster, place)
                except SemelError:
                    continue  # it has no leader yet: looked at again with the answer

    async def _places(self, key: int, request: Any) -> list[tuple[Place, bool]]:
        """With each, whether its topic was made since it was first looked for, so that all of it is news."""
        ids, groups = _transactional_ids(key, request), _groups(request)
        self._ids.update(ids)
        places: list[tuple[Place, bool]] = []
        for topic, keys in ((TRANSACTIONS_TOPIC, ids), (OFFSETS_TOPIC, groups)):
            count = await partition_count(self._cluster, topic) if keys else None
            if count is None:
                self._absent.update([topic] if keys else [])
                continue
            places += [(Place(topic, coordinator_partition(one, count)), topic in self._absent) for one in keys]
        for topic_data in getattr(request, "topic_data", ()):
            name = topic_data.name or await self._name_of(topic_data.topic_id)
            if name and await partition_count(self._cluster, name) is not None:
                places += [(Place(name, one.index), False) for one in topic_data.partition_data]
        return places

    async def _name_of(self, topic_id: bytes) -> str | None:
        if topic_id not in self._cluster.topic_names:
            self._cluster.watch_all(True)
            await self._cluster.refresh()
        return self._cluster.topic_names.get(topic_id)

    def _learn(self, response: Any) -> None:
        producer_id = getattr(response, "producer_id", -1)
        if producer_id >= 0:
            self._producers.add(producer_id)

    async def _writes(self) -> list[Written]:
        """What is new in all partitions that are looked at, and is of the transactions that are traced."""
        found: list[Written] = []
        for place, offset in list(self._ends.items()):
            try:
                written, self._ends[place] = await written_from(self._cluster, place, offset)
            except SemelError:
                continue  # a leader has moved: found when it is asked again
            found += [one for one in written if self._is_ours(one)]
        return found

    def _is_ours(self, one: Written) -> bool:
        if one.place.topic == TRANSACTIONS_TOPIC:
            return one.key in self._ids
        return one.producer_id in self._producers


def _is_transactional(exchange: Exchange) -> bool:
    """A produce or a search for a coordinator may be of something else."""
    request = exchange.request()
    if hasattr(request, "transactional_id"):
        return request.transactional_id is not None
    return exchange.key != 10 or bool(_transactional_ids(10, request) or _groups(request))


def _transactional_ids(key: int, request: Any) -> list[str]:
    if key == 10:
        return _sought(request, 1)
    name = getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", None)
    return [name] if name else []


def _groups(request: Any) -> list[str]:
    if hasattr(request, "coordinator_keys"):
        return []  # a group is looked for by consumers as well; it counts when offsets come
    return [request.group_id] if getattr(request, "group_id", None) else []


def _sought(request: Any, kind: int) -> list[str]:
    if request.key_type != kind:
        return []
    return list(request.coordinator_keys) or [request.key]
