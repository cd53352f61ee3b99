"""Writes from tasks at once, without transactions: for comparison, and where duplicates after a failure do no harm.

A task that is run again writes its rows again. Within one run of a task the producer is idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from semel.spark.staging import Placement, StagedTopic
from semel.sync.producer import Producer

_REQUEST_BYTES = 1 << 20
_BUFFER_BYTES = 32 << 20


class DirectWriter:
    def __init__(self, producer: Mapping[str, Any]) -> None:
        self._settings = dict(producer)
        self._producer: Producer | None = None
        self._waiting: list[tuple[str, int, bytearray]] = []
        self._waiting_bytes = 0
        self._records = 0

    def add(self, topic: StagedTopic, placement: Placement, partition: int, batch: bytearray, records: int) -> None:
        if self._producer is None:
            largest_bytes = max(_REQUEST_BYTES, topic.max_batch_bytes)
            limits = {"max_request_size": largest_bytes, "buffer_memory": max(_BUFFER_BYTES, largest_bytes)}
            self._producer = Producer(**{**self._settings, **limits, "linger_ms": 0})
        self._waiting.append((topic.name, partition, batch))
        self._waiting_bytes += len(batch)
        self._records += records
        if self._waiting_bytes >= _BUFFER_BYTES:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        if self._producer is not None and waiting:
            self._producer.send_batches(waiting)

    def finish(self) -> int:
        """Returns when everything is written: how many records that were."""
        self._send()
        return self._records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            self._producer.close()
