"""A term in which this node decides: append, and tell when what was decided counts.

Records of one decision go into one batch, so that a crash leaves all of them or none. `decided` includes what is not
committed yet, and further decisions are made on it; nobody is told of it. It ends with the term: the next controller,
here or elsewhere, begins with what is committed. Many decisions share one flush.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from semel.controller.image import MetadataImage
from semel.controller.levels import versioned
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.log.types import Epoch, Offset
from semel.quorum.term import NotLeading, Term
from semel.records.build import build_batch
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import AbortTransactionRecord, MetadataRecord, encode_metadata_record


class Decision(NamedTuple):
    """One batch that this node has written."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    epoch: Epoch
    records: Sequence[MetadataRecord]


class MetadataTerm:
    """`write` is the only way to change cluster metadata. When the term is over, it and all that wait get
    NOT_CONTROLLER: nobody knows whether what was written will count."""

    def __init__(self, term: Term, decided: MetadataImage, clock: Clock, *, aborts: bool = False) -> None:
        """`aborts`: an earlier controller has left a transaction open."""
        self.decided = decided
        self.epoch = term.epoch
        self._term = term
        self._clock = clock
        self._is_over = False
        self._decisions: deque[Decision] = deque()
        self._waiting: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        if aborts:
            self.write([AbortTransactionRecord(reason="the controller that began it has ended")])

    @property
    def is_over(self) -> bool:
        return self._is_over or self._term.is_over

    @property
    def next_offset(self) -> Offset:
        """Where the next record will stand."""
        return self._term.next_offset

    def write(self, records: Sequence[MetadataRecord]) -> asyncio.Future[None]:
        """Appends one decision. The future is done when it is committed and everyone here has been told."""
        written = list(versioned(records, self.decided.metadata_version))
        values: list[bytes | None] = [encode_metadata_record(*one) for one in written]
        batch = build_batch(values, base_timestamp_ms=self._clock.wall_ms())
        try:
            end_offset = self._term.append(batch) + 1
        except NotLeading as error:
            raise _not_controller(self.epoch) from error
        base_offset = end_offset - len(written)
        for record, _ in written:
            self.decided.replay(record)
        decision = [copy.copy(record) for record, _ in written]
        self._decisions.append(Decision(base_offset, end_offset, len(batch), self.epoch, decision))
        return self._waiter(end_offset)

    def when_committed(self) -> asyncio.Future[None] | None:
        """None when everything decided so far is committed, and in this node's image; otherwise a future of it."""
        if self.is_over:
            return self._waiter(self.next_offset)
        return self._waiter(self._decisions[-1].end_offset) if self._decisions else None

    def _waiter(self, end_offset: Offset) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_over:
            _fail(future, self.epoch)
        else:
            self._waiting.append((end_offset, future))
        return future

    # -- for the image of this node

    def decision_at(self, offset: Offset) -> Decision | None:
        """What this node has written at this offset, if it is not published yet."""
        found = self._decisions[0] if self._decisions else None
        return found if found is not None and found.base_offset == offset else None

    def published(self, next_offset: Offset) -> None:
        """Everything below is in the committed image."""
        while self._decisions and self._decisions[0].end_offset <= next_offset:
            self._decisions.popleft()
        while self._waiting and self._waiting[0][0] <= next_offset:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def end(self) -> None:
        self._is_over = True
        self._decisions.clear()
        while self._waiting:
            _fail(self._waiting.popleft()[1], self.epoch)


def _not_controller(epoch: Epoch) -> Refused:
    return Refused(ErrorCode.NOT_CONTROLLER, f"this controller is not active any more: its epoch {epoch} is over")


def _fail(future: asyncio.Future[None], epoch: Epoch) -> None:
    if not future.done():
        future.set_exception(_not_controller(epoch))
        future.exception()  # whoever waited may have gone, and then it is no error that nobody hears of it
