"""The blocking consumer. Heartbeats go on, on the loop's thread, while the program works between two polls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from semel.client.consumer import consumer as asynchronous
from semel.client.metadata import TopicPartition
from semel.client.serialization import Deserializer
from semel.client.values import K, Message, V
from semel.sync.loop_thread import BlockingClient, blocking, direct

if TYPE_CHECKING:
    from semel.client.option_types import ConsumerOptions

_ITERATION_POLL_MS = 1000


class Consumer(BlockingClient[asynchronous.Consumer[K, V]], Generic[K, V]):
    """`listener` is called on the loop's thread, inside a poll: it must not call this consumer."""

    def __init__(
        self,
        *topics: str | Iterable[str],
        key_deserializer: Callable[[bytes], K] | Deserializer[K] | None = None,
        value_deserializer: Callable[[bytes], V] | Deserializer[V] | None = None,
        listener: Any = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(
            lambda: asynchronous.Consumer(
                *topics,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                listener=listener,
                **settings,
            )
        )

    async def _close(self, timeout_s: float | None) -> None:
        await self._core.close(timeout_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error, what was handed out last does not count as done: auto-commit leaves it to the next reader."""
        self._end(lambda timeout_s: self._core.__aexit__(kind, error, trace), None)

    def __iter__(self) -> Iterator[Message[K, V]]:
        """Records one after the other, without end. Who leaves the loop early gets the rest the next time."""
        while True:
            batch = self.poll(timeout_ms=_ITERATION_POLL_MS)
            left = {partition: iter(messages) for partition, messages in batch.items()}
            try:
                for messages in left.values():
                    yield from messages
            finally:
                self._rewind({partition: next(messages, None) for partition, messages in left.items()})

    def _rewind(self, following: dict[TopicPartition, Message[K, V] | None]) -> None:
        """What was not handed out must not be committed as read."""
        first = {partition: message for partition, message in following.items() if message is not None}
        if first and self._is_open:
            for partition in self.assignment() & first.keys():
                self.seek(partition, first[partition].offset)

    def getone(self, *partitions: TopicPartition) -> Message[K, V]:
        """The next message, of any partition or of those given; waits for it."""
        return self._run(self._core.getone(*partitions))

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Message[K, V]]]:
        """What is there now, or comes within the time; at most `max_records` (max_poll_records without)."""
        return self._run(self._core.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records))

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[Message[K, V]]]:
        """`getmany` by Kafka's name."""
        return self._run(self._core.poll(timeout_ms, max_records))

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
    metrics = direct(asynchronous.Consumer.metrics)
    samples = direct(asynchronous.Consumer.samples)

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
