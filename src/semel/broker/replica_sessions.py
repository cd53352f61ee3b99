"""Fetch sessions of followers. What they know all of is the log up to its end, not up to the high watermark.

An append wakes the fetch that waits. A high watermark that moves does not, or every batch would cost two fetches: it is
told with the next answer. Partitions in which a follower is at the end are not looked at with each request, yet each
request says that it is there still: that is counted when it is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from semel.broker.fetch_sessions import FetchSession, Key
from semel.replication.partition import Partition
from semel.wire.spec.fetch import FetchRequest


@dataclass(eq=False)
class ReplicaSession(FetchSession):
    _at_end: set[Key] = field(default_factory=set)

    def _updating(self, request: FetchRequest) -> Iterator[None]:
        yield from super()._updating(request)
        for wanted in request.topics:
            name = wanted.topic_id if self.uses_ids else wanted.topic
            for one in wanted.partitions:
                key = (name, one.partition)
                self._at_end.discard(key)  # it says for itself where it is
                # It may have dropped the last answer: then what was told is told again.
                self.told.pop(key, None)
                yield

    def note_read(self, key: Key, partition: Partition) -> None:
        super().note_read(key, partition)
        self._at_end.add(key)
        partition.watch(self, partial(self._committed, key, partition))

    def watch(self, key: Key, partition: Partition) -> None:
        if key not in self._watched:
            self._watched[key] = partition
            partition.watch_end(self, partial(self._news, key))

    def _committed(self, key: Key, partition: Partition) -> None:
        """To be told with the next answer, whatever that is for; an append still wakes."""
        partition.unwatch(self)
        if key in self._watched:
            self.unsettled[key] = None

    def _unwatch(self, key: Key) -> None:
        partition = self._watched.pop(key, None)
        if partition is None:
            return
        partition.unwatch_end(self)
        partition.unwatch(self)
        if key in self._at_end:
            self._at_end.discard(key)
            if partition.replicas is not None:
                partition.replicas.note_at_end(self.replica_id, self.used_ms)
