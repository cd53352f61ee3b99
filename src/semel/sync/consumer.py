"""The blocking consumer. Heartbeats go on, on the loop's thread, while the program works between two polls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from semel.client.consumer import consumer as asynchronous
from semel.client.metadata import TopicPartition
from semel.client.values import Message
from semel.sync.loop_thread import Face, blocking, direct

_ITERATION_POLL_MS = 1000


class Consumer(Face[asynchronous.Consumer]):
    """`listener` is called on the loop's thread, inside a poll: it must not call this consumer."""

    def __init__(self, *topics: str | Iterable[str], **settings: Any) -> None:
        super().__init__(lambda: asynchronous.Consumer(*topics, **settings))

    async def _close(self, timeout_s: float | None) -> None:
        await self._core.close(timeout_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error, what was handed out last does not count as done: auto-commit leaves it to the next reader."""
        self._end(lambda timeout_s: self._core.__aexit__(kind, error, trace), None)

    def __iter__(self) -> Iterator[Message]:
        """Records one after the other, without end. Who leaves the loop early gets the rest the next time."""
        while True:
            batch = self.poll(timeout_ms=_ITERATION_POLL_MS)
            left = {partition: iter(messages) for partition, messages in batch.items()}
            try:
                for messages in left.values():
                    yield from messages
            finally:
                self._rewind({partition: next(messages, None) for partition, messages in left.items()})

    def _rewind(self, following: dict[TopicPartition, Message | None]) -> None:
        """What was not handed out must not be committed as read."""
        first = {partition: message for partition, message in following.items() if message is not None}
        if first and self._is_open:
            for partition in self.assignment() & first.keys():
                self.seek(partition, first[partition].offset)

    getone = blocking(asynchronous.Consumer.getone)
    getmany = blocking(asynchronous.Consumer.getmany)
    poll = blocking(asynchronous.Consumer.poll)
    poll_columns = blocking(asynchronous.Consumer.poll_columns)

    subscribe = direct(asynchronous.Consumer.subscribe)
    unsubscribe = blocking(asynchronous.Consumer.unsubscribe)
    assign = direct(asynchronous.Consumer.assign)
    assignment = direct(asynchronous.Consumer.assignment)
    subscription = direct(asynchronous.Consumer.subscription)
    pause = direct(asynchronous.Consumer.pause)
    resume = direct(asynchronous.Consumer.resume)
    paused = direct(asynchronous.Consumer.paused)

    seek = direct(asynchronous.Consumer.seek)
    seek_to_beginning = blocking(asynchronous.Consumer.seek_to_beginning)
    seek_to_end = blocking(asynchronous.Consumer.seek_to_end)
    position = blocking(asynchronous.Consumer.position)
    highwater = direct(asynchronous.Consumer.highwater)
    last_stable_offset = direct(asynchronous.Consumer.last_stable_offset)
    lag = direct(asynchronous.Consumer.lag)

    commit = blocking(asynchronous.Consumer.commit)
    commit_async = direct(asynchronous.Consumer.commit_async)
    committed = blocking(asynchronous.Consumer.committed)
    committed_with_metadata = blocking(asynchronous.Consumer.committed_with_metadata)
    group_metadata = direct(asynchronous.Consumer.group_metadata)

    beginning_offsets = blocking(asynchronous.Consumer.beginning_offsets)
    end_offsets = blocking(asynchronous.Consumer.end_offsets)
    offsets_for_times = blocking(asynchronous.Consumer.offsets_for_times)
    partitions_for_topic = blocking(asynchronous.Consumer.partitions_for_topic)
    topics = blocking(asynchronous.Consumer.topics)
