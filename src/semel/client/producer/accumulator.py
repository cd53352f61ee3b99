"""Gathers records into batches, one lane per partition, within `buffer.memory`.

Lanes with something to send are active; the sender looks at those alone. Whoever finds the memory full waits in line,
for a bounded time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from semel.client.errors import BufferFull, Closed, RecordTooLarge, SemelError
from semel.client.producer.batch import RECORD_OVERHEAD_BYTES, ProducerBatch
from semel.client.producer.lane import Lane
from semel.client.producer.settings import ProducerSettings
from semel.client.producer.unseen import UnseenFailures
from semel.records.batch import HEADER_BYTES

_LARGEST_OVERHEAD_BYTES = HEADER_BYTES + 32


class Accumulator:
    def __init__(self, settings: ProducerSettings) -> None:
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.active: dict[Lane, None] = {}
        self.free_bytes = settings.buffer_memory
        self.line: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Who waits for room, and for how much: the first comes first, and nobody passes."""
        self.unfinished: dict[ProducerBatch, None] = {}
        """Batches that are neither written nor failed."""
        self.awaited: Callable[[], None] | None = None
        """Called when somebody begins to wait for a batch."""
        self.unseen = UnseenFailures()
        """Failures that nobody has looked at."""
        self._batch_bytes = min(settings.batch_size, settings.max_request_size)
        self._limit_bytes = settings.buffer_memory
        self.max_record_bytes = min(settings.max_request_size, settings.buffer_memory)
        self.max_content_bytes = self.max_record_bytes - RECORD_OVERHEAD_BYTES - _LARGEST_OVERHEAD_BYTES
        """The most that key, value and headers of a record may have together."""
        self._max_block_s = settings.max_block_s

    @property
    def used_bytes(self) -> int:
        return self._limit_bytes - self.free_bytes

    def lane(self, topic: str, partition: int) -> Lane:
        known = self.lanes.get((topic, partition))
        if known is None:
            known = self.lanes[topic, partition] = Lane(topic, partition)
        return known

    # -- adding

    def record_bytes(self, key: bytes | None, value: bytes | None, headers: bytes | None) -> int:
        """What a record counts; refuses one that no request could carry."""
        size = RECORD_OVERHEAD_BYTES
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers is not None:
            size += len(headers)
        self.check_size(size + _LARGEST_OVERHEAD_BYTES)
        return size

    def check_size(self, size: int) -> None:
        if size > self.max_record_bytes:
            raise RecordTooLarge(f"{size} bytes are more than a request may have: {self.max_record_bytes}")

    def take_room(self, size: int) -> bool:
        """Takes memory for a record, if there is some and nobody waits for it."""
        if size > self.free_bytes or self.line:
            return False
        self.free_bytes -= size
        return True

    async def wait_for_room(self, size: int) -> None:
        """Returns when `size` bytes are taken for the caller; raises BufferFull after `max.block.ms`."""
        if self.take_room(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self.line.append(entry)
        try:
            async with asyncio.timeout(self._max_block_s):
                await turn
        except TimeoutError:
            if not _was_granted(turn):
                raise BufferFull(
                    f"{self.used_bytes} bytes wait to be sent, and no room came within {self._max_block_s:g} s"
                ) from None
        except asyncio.CancelledError:
            if _was_granted(turn):
                self.release(size)
            raise
        finally:
            if entry in self.line:
                self.line.remove(entry)
                self._admit()

    def open_batch(self, lane: Lane, size: int, loop: asyncio.AbstractEventLoop) -> ProducerBatch:
        """The batch that takes a record of this size: the last one, or a new one."""
        last = lane.open
        if last is not None and not last.is_full:
            if last.size_bytes + size <= self._batch_bytes:
                return last
            last.close()
        batch = ProducerBatch(lane.topic, lane.partition, loop.time(), self._batch_bytes)
        batch.awaited = self.awaited
        self.free_bytes -= HEADER_BYTES
        lane.open = batch
        self._add(lane, batch)
        return batch

    def add_sealed(self, lane: Lane, batch: ProducerBatch) -> None:
        """A batch whose bytes are there, and paid for."""
        if lane.open is not None:
            lane.open.close()
        self._add(lane, batch)

    def _add(self, lane: Lane, batch: ProducerBatch) -> None:
        batch.unseen_failures = self.unseen
        lane.waiting.append(batch)
        self.active[lane] = None
        self.unfinished[batch] = None

    def replace_by_halves(self, lane: Lane, batch: ProducerBatch) -> None:
        """Sends a batch that was too large in two."""
        lane.forget(batch)
        del self.unfinished[batch]
        for half in reversed(batch.split()):
            lane.put_back(half)
            self.unfinished[half] = None
        self.active[lane] = None

    # -- ending

    def finish(self, batch: ProducerBatch, error: SemelError | None) -> None:
        """The batch is written or has failed: tells those who wait, and gives its memory back."""
        if batch.done:
            return
        batch.finish(error)
        del self.unfinished[batch]
        self.release(batch.size_bytes)

    def release(self, size: int) -> None:
        self.free_bytes += size
        self._admit()

    def _admit(self) -> None:
        while self.line:
            size, turn = self.line[0]
            # A record that alone exceeds what is free goes through when nothing else is there.
            if size > self.free_bytes and self.used_bytes > 0:
                return
            self.line.popleft()
            if not turn.done():
                self.free_bytes -= size
                turn.set_result(None)

    async def wait_for_all(self) -> None:
        """Returns when every batch that is there now is written or has failed. Later ones do not matter."""
        for batch in list(self.unfinished):
            await batch.wait()

    def fail_waiting(self, error: SemelError) -> None:
        """Everything that is not under way fails; also what lies in wait for another attempt."""
        for lane in list(self.active):
            for batch in list(lane.waiting):
                lane.waiting.remove(batch)
                lane.failed(batch)
                self.finish(batch, error)
        self.active.clear()

    def fail_all(self, error: SemelError) -> None:
        """At the end: also what is under way."""
        self.fail_waiting(error)
        for lane in self.lanes.values():
            for batch in lane.in_flight:
                batch.in_doubt = True
                self.finish(batch, error)

    def close(self) -> None:
        for _, turn in self.line:
            if not turn.done():
                turn.set_exception(Closed("the producer was closed"))
        self.line.clear()


def _was_granted(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None
