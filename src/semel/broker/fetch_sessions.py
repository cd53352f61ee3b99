"""Incremental fetch sessions (KIP-227): a reader says once which partitions it reads, then only what changed.

A session is found by id and stepped by epoch, so a request that was lost or sent twice is noticed. The cache holds a
bounded number of sessions; when it is full, one that has not been used for two minutes makes room, or the new one is
not kept, which the client understands. Nor is one kept that has too many partitions, or for which the budget of memory
has no room; one that outgrows that ends, and its client begins anew.

A request looks only at partitions that may have something to tell. Those of which the reader knows all call when that
is over: so it costs what there is to tell, however many partitions the session has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from sys import maxsize
from typing import TypeAlias

from semel.log.errors import Refused
from semel.replication.partition import Partition
from semel.rpc.budget import NO_LIMIT, MemoryBudget, Owner
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition

NO_SESSION = 0
NO_REPLICA = -1
_FINAL_EPOCH, _INITIAL_EPOCH = -1, 0
_LARGEST_EPOCH = (1 << 31) - 1
_EVICTABLE_AFTER_MS = 120_000

# Topic name (or id, from version 13 on) and partition.
Key: TypeAlias = tuple[str | bytes, int]

# About what they take.
_SESSION_BYTES = 2000
_PARTITION_BYTES = 600


@dataclass(slots=True)
class Told:
    """What the client was last told of a partition; a change is news."""

    high_watermark: int = -1
    log_start_offset: int = -1
    had_error: bool = False


@dataclass(eq=False)
class FetchSession:
    """Also of a request without a session, which is not kept.

    `unsettled` are the partitions to be read, in this order: those that gave data move to the end, so that none
    starves. The others are watched; so are, while a fetch waits, those that it has found too little in."""

    session_id: int = NO_SESSION
    epoch: int = _FINAL_EPOCH
    is_kept: bool = False
    uses_ids: bool = False
    isolation_level: int = 0
    partitions: dict[Key, FetchRequestPartition] = field(default_factory=dict)
    unsettled: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    told: dict[Key, Told] = field(default_factory=dict)
    used_ms: int = 0
    replica_id: int = NO_REPLICA
    counted_bytes: int = 0  # of the budget
    _watched: dict[Key, Partition] = field(default_factory=dict)
    _waiting: dict[object, Callable[[], None]] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Brings it up to date with a request."""
        for _ in self._updating(request):
            pass

    async def update_in_slices(self, request: FetchRequest, slices: Slices) -> None:
        await slices.each(self._updating(request))

    def _updating(self, request: FetchRequest) -> Iterator[None]:
        for forgotten in request.forgotten_topics_data:
            topic = forgotten.topic_id if self.uses_ids else forgotten.topic
            for index in forgotten.partitions:
                self._forget((topic, index))
                yield
        if request.isolation_level != self.isolation_level:
            self.isolation_level = request.isolation_level
            self.unsettled.update(dict.fromkeys(self.partitions))
        for wanted in request.topics:
            name = wanted.topic_id if self.uses_ids else wanted.topic
            for partition in wanted.partitions:
                key = (name, partition.partition)
                self.partitions[key] = partition
                self.unsettled[key] = None
                yield

    def _forget(self, key: Key) -> None:
        self.partitions.pop(key, None)
        self.unsettled.pop(key, None)
        self.told.pop(key, None)
        self._unwatch(key)

    def note_read(self, key: Key, partition: Partition) -> None:
        """The reader knows all of it. No await between finding that and this: nothing that comes is missed."""
        self.watch(key, partition)
        self.unsettled.pop(key, None)

    def watch(self, key: Key, partition: Partition) -> None:
        """Until there is something new in it, which ends the watch: a reader that is behind costs writers nothing."""
        if key not in self._watched:
            self._watched[key] = partition
            partition.watch(self, partial(self._news, key))

    def _unwatch(self, key: Key) -> None:
        partition = self._watched.pop(key, None)
        if partition is not None:
            partition.unwatch(self)

    def _news(self, key: Key) -> None:
        self._unwatch(key)
        self.unsettled[key] = None
        for wake in list(self._waiting.values()):
            wake()

    def wait(self, waiter: object, wake: Callable[[], None]) -> None:
        """Calls `wake` when there is news of a partition that is watched."""
        self._waiting[waiter] = wake

    def leave(self, waiter: object) -> None:
        self._waiting.pop(waiter, None)
        if not self.is_kept:
            self.end()

    def end(self) -> None:
        """Nobody asks for it again. Who still waits in it has until its time is up."""
        self.is_kept = False
        for key in list(self._watched):
            self._unwatch(key)


class FetchSessions:
    """Of consumers, or with `make` of others."""

    def __init__(
        self,
        random: Random,
        slots: int,
        make: Callable[..., FetchSession] = FetchSession,
        *,
        most_partitions: int = maxsize,
        budget: MemoryBudget | None = None,
    ) -> None:
        """`most_partitions`: of one session. Without a budget there is no limit."""
        self._random = random
        self._slots = slots
        self._most_partitions = most_partitions
        self._budget = budget or MemoryBudget(NO_LIMIT)
        self._make = make
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, uses_ids: bool, now_ms: int, replica_id: int = NO_REPLICA) -> FetchSession:
        """The session that a request belongs to, brought up to date with it; raises Refused for an unknown one."""
        session = self.find(request, uses_ids, now_ms, replica_id)
        session.update(request)
        self.keep(session, request, now_ms)
        return session

    def find(self, request: FetchRequest, uses_ids: bool, now_ms: int, replica_id: int = NO_REPLICA) -> FetchSession:
        """The session that a request belongs to, which is to be brought up to date with it, and then given to `keep`.
        Raises Refused for an unknown one."""
        if request.session_epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
            replaced = self._sessions.get(request.session_id)
            if replaced is not None:
                self._drop(replaced)
            return self._make(uses_ids=uses_ids, used_ms=now_ms, replica_id=replica_id)
        known = self._sessions.get(request.session_id)
        if known is None or known.replica_id != replica_id:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if request.session_epoch != known.epoch:
            raise Refused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {known.session_id} is at epoch {known.epoch}, not {request.session_epoch}",
            )
        if known.uses_ids != uses_ids:
            raise Refused(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a fetch session goes on with topic names or ids as it began"
            )
        known.epoch = 1 if known.epoch == _LARGEST_EPOCH else known.epoch + 1
        known.used_ms = now_ms
        self._sessions.move_to_end(known.session_id)
        return known

    def keep(self, session: FetchSession, request: FetchRequest, now_ms: int) -> None:
        """A session that has been brought up to date is kept, if it wants to be and may. Raises Refused for one that
        was kept before and may not any more."""
        if session.is_kept:
            if not self._count(session):
                self._drop(session)
                raise Refused(
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session.session_id} has too many partitions"
                )
        elif request.session_epoch == _INITIAL_EPOCH and session.partitions and session.session_id == NO_SESSION:
            self._keep_new(session, now_ms)

    def _keep_new(self, session: FetchSession, now_ms: int) -> None:
        if len(session.partitions) > self._most_partitions:
            return
        is_full = len(self._sessions) >= self._slots
        if is_full and not self._end_one_out_of_use(now_ms):
            return
        while not self._count(session):
            if not self._end_one_out_of_use(now_ms):
                return
        while session.session_id == NO_SESSION or session.session_id in self._sessions:
            session.session_id = self._random.randrange(1, 1 << 31)
        session.epoch = 1
        session.is_kept = True
        self._sessions[session.session_id] = session

    def _count(self, session: FetchSession) -> bool:
        """Whether it may be as large as it is."""
        if len(session.partitions) > self._most_partitions:
            return False
        size_bytes = _SESSION_BYTES + _PARTITION_BYTES * len(session.partitions)
        grown_bytes = size_bytes - session.counted_bytes
        if grown_bytes > 0 and not self._budget.take(grown_bytes, Owner.SESSION):
            return False
        if grown_bytes < 0:
            self._budget.give_back(-grown_bytes, Owner.SESSION)
        session.counted_bytes = size_bytes
        return True

    def _end_one_out_of_use(self, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms < _EVICTABLE_AFTER_MS:
            return False
        self._drop(oldest)
        return True

    def _drop(self, session: FetchSession) -> None:
        self._sessions.pop(session.session_id, None)
        session.end()
        self._budget.give_back(session.counted_bytes, Owner.SESSION)
        session.counted_bytes = 0
