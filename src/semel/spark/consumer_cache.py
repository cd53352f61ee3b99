"""Consumers that stay open in a worker between batches: connecting again for every batch would cost more than reading.

A worker reads one range at a time, so one consumer for the same settings is as a rule enough. It is taken out while it
is used, stays where the last range ended, and is closed when nobody has wanted it for a while.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from semel.client.errors import PositionError
from semel.client.metadata import TopicPartition
from semel.sync import Consumer

IDLE_S = 60.0
_MOST_IDLE = 4

Key = tuple[tuple[str, Any], ...]


class KeptConsumer:
    """A consumer and where it stands. Fetching rests while it is not used."""

    def __init__(self, key: Key, consumer: Consumer) -> None:
        self.key = key
        self.consumer = consumer
        self._place: TopicPartition | None = None
        self._offset = -1

    def go_to(self, place: TopicPartition, offset: int) -> None:
        """What was fetched already is kept, if the last range ended here."""
        if self._place != place:
            self.consumer.assign([place])
            self.consumer.seek(place, offset)
            self._place = place
            return
        if self._offset != offset:
            self.consumer.seek(place, offset)
        self.consumer.resume(place)

    def rest(self) -> None:
        if self._place is None:
            return
        self.consumer.pause(self._place)
        try:
            self._offset = self.consumer.position(self._place)
        except PositionError:  # it cannot be read on from here; the next range begins with a seek
            self._offset = -1


class ConsumerCache:
    def __init__(self, connect: Callable[..., Consumer] = Consumer, idle_s: float = IDLE_S) -> None:
        self._connect = connect
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[KeptConsumer] = []
        self._timer: threading.Timer | None = None

    def take(self, settings: Mapping[str, Any]) -> KeptConsumer:
        """An idle one for the same settings, or a new one. It is the caller's until `give_back` or `discard`."""
        key = tuple(sorted(settings.items()))
        with self._lock:
            for kept in reversed(self._idle):
                if kept.key == key:
                    self._idle.remove(kept)
                    return kept
        return KeptConsumer(key, self._connect(**settings))

    def give_back(self, kept: KeptConsumer) -> None:
        kept.rest()
        with self._lock:
            self._idle.append(kept)
            surplus, self._idle = self._idle[:-_MOST_IDLE], self._idle[-_MOST_IDLE:]
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(self._idle_s, self.close)
            self._timer.daemon = True
            self._timer.start()
        for old in surplus:
            self.discard(old)

    def discard(self, kept: KeptConsumer) -> None:
        kept.consumer.close(0)

    def close(self) -> None:
        """Ends those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._timer = None
        for kept in idle:
            self.discard(kept)

    def forget(self) -> None:
        """After a fork: the connections are those of the parent process."""
        self._lock = threading.Lock()
        self._idle = []
        self._timer = None


CACHE = ConsumerCache()
os.register_at_fork(after_in_child=CACHE.forget)
