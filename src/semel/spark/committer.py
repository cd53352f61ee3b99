"""Publishes a batch exactly once: an atomic "append batch b if the last one was b - 1". No Spark in here.

One transaction per batch, which is opened here and nowhere else:

    check what was staged -> InitProducerId -> read the marker -> done already
                                  ^                 |
                                  |                 v
                              no answer <- send all, write the marker, EndTxn -> done

InitProducerId comes first: it ends or aborts whatever an earlier committer has left, and fences it, so that the marker
which is read after it cannot change behind our back. A marker read before could be followed by a commit of the other
one. Whoever is fenced gives up; whoever does not know how its transaction ended starts again and reads it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semel.client.errors import (
    BadRecord,
    BadSetting,
    FatalError,
    ProducerFenced,
    RetriableError,
    SemelError,
    TransactionFailed,
)
from semel.client.producer.producer import Producer
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import load
from semel.host.api import Host
from semel.spark import steps
from semel.spark.marker import MarkerTopic
from semel.spark.publishing import Publishing
from semel.spark.sink_errors import OutcomeUnknown, Overtaken, RecordRefused, SinkError, StagedDataLost
from semel.spark.staging import Staged, StagingArea
from semel.spark.steps import Step
from semel.spark.succession import Succession
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.spark")

_RETRY_FOR_S = 300.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_CLOSE_S = 10.0
_BUFFER_BYTES = 64 << 20
_REQUEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Publication:
    """What is to be published, and which marker decides whether it is."""

    staged: Sequence[Staged]
    transactional_id: str
    succession: Succession | None
    """None: nobody asks whether it was published before."""
    run_id: str = ""

    @property
    def number(self) -> int:
        return -1 if self.succession is None else self.succession.number

    @property
    def record_count(self) -> int:
        return sum(one.record_count for one in self.staged)


class _Unsure(Exception):
    """This attempt has failed, and another one may not: its first step makes sure how this one ended."""


class Committer:
    """`reached` is called at each step: a hook for tests."""

    def __init__(
        self,
        host: Host,
        connection: Mapping[str, Any],
        producer: Mapping[str, Any],
        marker_topic: str,
        area: StagingArea,
        *,
        reached: steps.Hook = steps.reached,
        retry_for_s: float = _RETRY_FOR_S,
    ) -> None:
        self._host = host
        self._connection = dict(connection)
        self._producer = dict(producer)
        self._timeout_s = load(ProducerSettings, self._producer).transaction_timeout_ms / 1000
        self._marker_topic = marker_topic
        self._area = area
        self._reached = reached
        self._retry_for_s = retry_for_s

    async def commit(self, publication: Publication) -> bool:
        """Returns when the batch is committed: True if this call did it, False if it was done before. Raises SinkError
        or another error of the client; then nothing is known, and the same call may be made again by anybody."""
        deadline_s = _now_s() + self._retry_for_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                is_new = await self._once(publication)
                if not is_new:
                    logger.warning("batch %d was committed before: nothing is written again", publication.number)
                return is_new
            except RetriableError as error:
                if _now_s() + pause_s >= deadline_s:
                    raise
                logger.warning("a commit starts again from the beginning: %s", error)
            except _Unsure as unsure:
                cause = unsure.__cause__
                if _now_s() + pause_s >= deadline_s and cause is not None:
                    raise cause from cause.__cause__
                logger.warning("a commit starts again from the beginning: %s", cause)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _once(self, publication: Publication) -> bool:
        succession = publication.succession
        if succession is None:
            self._area.check(publication.staged)
            await self._reached(Step.CHECKED, publication.number)
            return await self._attempt(publication, None)
        async with MarkerTopic(self._host, self._connection, self._marker_topic) as markers:
            await markers.ensure()
            try:
                self._area.check(publication.staged)
            except StagedDataLost:
                # Another run may have committed the batch meanwhile, and cleaned up. That can be told without fencing
                # it: a committed marker stays true.
                found = await markers.last(succession.key)
                if found is None or not succession.is_done(found):
                    raise
                return False
            await self._reached(Step.CHECKED, publication.number)
            return await self._attempt(publication, markers)

    async def _attempt(self, publication: Publication, markers: MarkerTopic | None) -> bool:
        producer = Producer(host=self._host, **self._settings_for(publication))
        publishing: Publishing | None = None
        try:
            await producer.start()
            await producer.init_transactions()
            await self._reached(Step.INITIALISED, publication.number)
            if markers is not None and await self._is_done(publication, markers):
                return False
            await producer.begin()
            await self._reached(Step.BEGUN, publication.number)
            publishing = Publishing(producer, self._area, publication.staged, self._timeout_s)
            await self._publish(publication, publishing, producer)
            await self._end(producer, is_marked=markers is not None)
            await self._reached(Step.ENDED, publication.number)
            return True
        except SinkError:
            raise
        except SemelError as error:
            judged = self._judged(error, publishing)
            if judged is error:
                raise
            raise judged from error
        finally:
            # Aborts the transaction if it is open and ours: a later InitProducerId would do the same.
            await producer.close(_CLOSE_S)

    async def _is_done(self, publication: Publication, markers: MarkerTopic) -> bool:
        succession = publication.succession
        if succession is None:
            return False
        found = await markers.last(succession.key)
        await self._reached(Step.MARKER_READ, publication.number)
        return succession.is_done(found)

    async def _publish(self, publication: Publication, publishing: Publishing, producer: Producer) -> None:
        await publishing.send_all(lambda: self._reached(Step.HALF_PUBLISHED, publication.number))
        await self._reached(Step.PUBLISHED, publication.number)
        succession = publication.succession
        if succession is not None:
            marker = succession.marker(publication.transactional_id, publication.run_id, publication.record_count)
            await producer.send_and_wait(self._marker_topic, marker.encode(), succession.key.encode(), partition=0)
            await self._reached(Step.MARKED, publication.number)

    async def _end(self, producer: Producer, *, is_marked: bool) -> None:
        """EndTxn. Without a marker nobody could tell afterwards how the transaction ended: so it is asked again for as
        long as the broker keeps it."""
        if is_marked:
            await producer.commit()
            return
        deadline_s = _now_s() + self._timeout_s
        is_open = False
        while True:
            try:
                await producer.commit()
                return
            except SemelError as error:
                if not is_open and not isinstance(error, RetriableError):
                    raise
                is_open = True
                if _now_s() >= deadline_s or not isinstance(error, RetriableError):
                    raise OutcomeUnknown(f"whether the write was committed is not known: {error.text}") from error
                logger.warning("a commit is asked for again: %s", error)

    def _judged(self, error: SemelError, publishing: Publishing | None) -> Exception:
        """What the caller sees: a reason to give up, or _Unsure."""
        root = error
        while isinstance(root, TransactionFailed) and isinstance(root.__cause__, SemelError):
            root = root.__cause__
        if publishing is not None and publishing.is_late and not isinstance(root, RetriableError):
            return publishing.too_slow()
        if isinstance(root, ProducerFenced):
            return Overtaken(f"another commit has taken over the transactional id: {root.text}")
        if root.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            return BadSetting(
                f"kafka.transaction.timeout.ms is {self._timeout_s * 1000:.0f}, more than the brokers allow: lower it, "
                "or raise their transaction.max.timeout.ms"
            )
        if isinstance(root, BadRecord):
            return RecordRefused(f"a topic refuses what was staged for it, as if its settings had changed: {root.text}")
        if isinstance(root, FatalError):
            return root
        return _Unsure()

    def _settings_for(self, publication: Publication) -> dict[str, Any]:
        largest_bytes = max((topic.max_batch_bytes for one in publication.staged for topic in one.topics), default=0)
        return {
            **self._producer,
            "transactional_id": publication.transactional_id,
            "linger_ms": 0,
            "max_request_size": max(_REQUEST_BYTES, largest_bytes),
            "buffer_memory": max(_BUFFER_BYTES, largest_bytes),
        }


def _now_s() -> float:
    return asyncio.get_running_loop().time()
