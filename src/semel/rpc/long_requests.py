"""Requests with many entries and answers of many bytes: read and written in slices, within the budget of memory.

A request is long when its frame is not small and holds more entries than one slice of its decoder; an answer is long
when its encoder has not done with it after one slice. All others are neither counted nor divided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from semel.host.api import Part
from semel.rpc.budget import MemoryBudget, Owner
from semel.rpc.buffers import size_of
from semel.rpc.served import CloseConnection, Parts
from semel.rpc.slices import Slices
from semel.wire.codec import Decoding, sliced_decoder, sliced_encoder
from semel.wire.errors import WireError
from semel.wire.frame import framed_response, response_start
from semel.wire.schema import Message, Response

M = TypeVar("M", bound=Message)

# Frames up to this size are not worth looking at: a few hundred entries fit.
SMALL_FRAME_BYTES = 4 << 10
# About what an entry takes as an object, with what its answer takes.
ENTRY_BYTES = 300
# So much is counted at a time.
_TAKEN_BYTES = 64 << 10
# So many parts of an answer are joined to one piece while it is made.
_PARTS_TO_JOIN = 2000
_OVER = object()


class Account:
    """What one long request holds of the budget besides its frame. `frame_bytes` are counted by its connection."""

    def __init__(self, budget: MemoryBudget, frame_bytes: int = 0) -> None:
        self._budget = budget
        self._frame_bytes = frame_bytes
        self._held = {Owner.REQUEST: 0, Owner.ANSWER: 0}

    async def take(self, size_bytes: int, owner: Owner) -> None:
        """Waits until there is memory."""
        budget = self._budget
        if not budget.take(size_bytes, owner):
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            holds = self._frame_bytes + sum(self._held.values())
            waiter = budget.take_later(size_bytes, lambda: _done(granted), owner, holds_bytes=holds)
            try:
                await granted
            except asyncio.CancelledError:
                if waiter.is_waiting:
                    budget.forget(waiter)
                else:
                    budget.give_back(size_bytes, owner)
                raise
        self._held[owner] += size_bytes

    def take_anyway(self, size_bytes: int, owner: Owner) -> None:
        """What is in memory already."""
        self._budget.take_anyway(size_bytes, owner)
        self._held[owner] += size_bytes

    def close(self) -> None:
        for owner, size_bytes in self._held.items():
            self._held[owner] = 0
            self._budget.give_back(size_bytes, owner)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class LongRequests:
    """What the requests of a node share."""

    def __init__(self, slices: Slices, budget: MemoryBudget, most_entries: Callable[[], int]) -> None:
        """`most_entries`: of one request; one that has more is refused with its connection."""
        self.slices = slices
        self.budget = budget
        self._most_entries = most_entries

    def account(self, frame_bytes: int = 0) -> Account:
        return Account(self.budget, size_of(frame_bytes) if frame_bytes else 0)

    def decoded_at_once(self, cls: type[M], version: int, frame: memoryview, position: int) -> M | None:
        """None: it has many entries, and is for `decoded`."""
        decoding = sliced_decoder(cls, version)(frame, position, self._most_entries())
        try:
            next(decoding)
        except StopIteration as end:
            return cast(M, end.value[0])
        return None

    async def decoded(self, cls: type[M], version: int, frame: memoryview, position: int, account: Account) -> M:
        most = self._most_entries()
        decoding: Decoding[M] = sliced_decoder(cls, version)(frame, position, most)
        entries = counted = 0
        try:
            while True:
                entries += next(decoding)
                if entries > most:
                    raise CloseConnection(f"{cls.__name__} with more than {most} entries (max.request.entries)")
                if (entries - counted) * ENTRY_BYTES >= _TAKEN_BYTES:
                    await account.take((entries - counted) * ENTRY_BYTES, Owner.REQUEST)
                    counted = entries
                if self.slices.step():
                    await self.slices.next()
        except StopIteration as end:
            return cast(M, end.value[0])
        except WireError as error:
            raise CloseConnection(str(error)) from error

    def is_made_at_once(self, answer: LongAnswer) -> bool:
        """Makes an answer until the slice is over."""
        while not answer.is_over and answer.uncounted_bytes < _TAKEN_BYTES and not self.slices.step():
            answer.go_on()
        return answer.is_over

    async def finished(self, answer: LongAnswer) -> Parts:
        """The parts of its frame, when all of them are made."""
        account = self.account()
        try:
            while not answer.is_over:
                if answer.uncounted_bytes >= _TAKEN_BYTES:
                    await account.take(answer.count(), Owner.ANSWER)
                if self.slices.step():
                    await self.slices.next()
                answer.go_on()
            return answer.parts()
        finally:
            account.close()  # from here on the connection counts what its peer does not read


class LongAnswer:
    """An answer that is being written: perhaps not a long one, then it is over at once."""

    def __init__(self, response: Response, version: int, correlation_id: int) -> None:
        self.response = response
        self._version = version
        self._correlation_id = correlation_id
        self._parts: list[Any] = []
        self._encoding = sliced_encoder(type(response), version)(response, self._parts.append)
        self.is_over = next(self._encoding, _OVER) is _OVER
        self.is_short = self.is_over
        if not self.is_short:
            self._pieces: list[Any] = []
            self._bytes = 0
            self._bytes_in_memory = 0
            self._counted_bytes = 0
            self._join_if_many()

    def go_on(self) -> None:
        self.is_over = next(self._encoding, _OVER) is _OVER
        self._join_if_many()

    def _join_if_many(self) -> None:
        if len(self._parts) >= _PARTS_TO_JOIN:
            self._join()

    def _join(self) -> None:
        """A number for each field takes ten times the memory of its bytes."""
        run: list[bytes] = []
        for part in self._parts:
            if type(part) is bytes:
                run.append(part)
            else:
                self._add_joined(run)
                self._add(part)
        self._add_joined(run)
        self._parts.clear()

    def _add_joined(self, run: list[bytes]) -> None:
        if run:
            joined = b"".join(run)
            run.clear()
            self._bytes_in_memory += len(joined)
            self._add(joined)

    def _add(self, part: Part) -> None:
        self._pieces.append(part)
        self._bytes += len(part)

    @property
    def uncounted_bytes(self) -> int:
        return self._bytes_in_memory - self._counted_bytes

    def count(self) -> int:
        uncounted, self._counted_bytes = self.uncounted_bytes, self._bytes_in_memory
        return uncounted

    def parts(self) -> Parts:
        """The whole frame."""
        if self.is_short:
            return cast(Parts, framed_response(self._correlation_id, type(self.response), self._version, self._parts))
        self._join()
        pieces = self._pieces
        start = response_start(self._correlation_id, type(self.response), self._version, self._bytes)
        if pieces and type(pieces[0]) is bytes:
            pieces[0] = start + pieces[0]
        else:
            pieces.insert(0, start)
        return pieces
