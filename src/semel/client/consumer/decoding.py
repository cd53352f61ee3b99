"""Batches become messages: decoded whole, one batch at a time, and passed through the program's deserializers."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Any

from semel.client.consumer.fetched import Batch
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import DeserializerFailed
from semel.client.metadata import TopicPartition
from semel.client.serialization import Convert, NotReady, SerializationContext, converter
from semel.client.values import AnyMessage, Message
from semel.records.read import read_messages


class Decoder:
    def __init__(self, settings: ConsumerSettings) -> None:
        self._max_decompressed_bytes = settings.max_decompressed_bytes
        self._of_key = converter("key_deserializer", settings.key_deserializer)
        self._of_value = converter("value_deserializer", settings.value_deserializer)
        self._is_plain = self._of_key is None and self._of_value is None

    def messages(
        self, partition: TopicPartition, batch: Batch, first_offset: int
    ) -> tuple[list[AnyMessage], DeserializerFailed | None]:
        """The messages from an offset on, up to the first that a deserializer failed on. Raises RecordError, and
        NotReady if the first one needs something that must be fetched."""
        messages = read_messages(
            batch.data,
            batch.header,
            partition.topic,
            partition.partition,
            first_offset,
            Message,
            max_decompressed_bytes=self._max_decompressed_bytes,
        )
        if self._is_plain:
            return messages, None
        made: list[AnyMessage] = []
        of_key = SerializationContext(partition.topic, "key")
        of_value = SerializationContext(partition.topic, "value")
        for message in messages:
            try:
                made.append(
                    message._replace(
                        key=_deserialized(self._of_key, message.key, of_key),
                        value=_deserialized(self._of_value, message.value, of_value),
                    )
                )
            except Exception as error:
                if isinstance(error, NotReady) and not made:
                    raise
                text = f"{partition}, offset {message.offset}: the deserializer failed: {error!r}"
                failure = DeserializerFailed(text, partition=partition, offset=message.offset)
                failure.__cause__ = error
                return made, failure
        return made, None


def _deserialized(convert: Convert | None, data: bytes | None, context: SerializationContext) -> Any:
    return data if convert is None or data is None else convert(data, context)


class Decoded:
    """The messages of one batch on their way to the program.

    When they are handed out one by one, `iterator`, a list's own, alone knows how far that is: nothing is counted per
    message. It also obeys when it is told where to go on.
    """

    __slots__ = ("batch", "end_epoch", "end_offset", "handed", "iterator", "messages")

    def __init__(self, messages: list[AnyMessage], batch: Batch, end_offset: int, end_epoch: int) -> None:
        self.messages = messages
        self.batch = batch
        self.end_offset = end_offset
        """Where reading goes on when all are handed out: past whatever may not be seen behind them."""
        self.end_epoch = end_epoch
        self.handed = 0
        self.iterator: Any = None

    def one_by_one(self) -> Iterator[AnyMessage]:
        """An iterator over what is left, good until `stop`."""
        self.stop()
        self.iterator = iter(self.messages)
        if self.handed:
            self.iterator.__setstate__(self.handed)
        return self.iterator  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Whoever still holds the iterator finds it at its end: what is left will be given out anew, or never."""
        if self.iterator is not None:
            self.count()
            self.iterator.__setstate__(len(self.messages))
            self.iterator = None

    def count(self) -> int:
        """How many messages the program has been given."""
        if self.iterator is not None:
            self.handed = len(self.messages) - length_hint(self.iterator)
        return self.handed

    def take(self, most: int) -> list[AnyMessage]:
        self.stop()
        start, self.handed = self.handed, min(self.handed + most, len(self.messages))
        if start == 0 and self.handed == len(self.messages):
            return self.messages
        return self.messages[start : self.handed]

    def position(self, before: int) -> int:
        """Where the program stands, if it stood at `before` when it was given the first."""
        handed = self.count()
        if handed == 0:
            return before
        return self.end_offset if handed == len(self.messages) else self.messages[handed - 1].offset + 1

    def in_hand(self) -> int | None:
        """The offset of the message that the program works on, if they are handed out one by one."""
        handed = self.count()
        return self.messages[handed - 1].offset if self.iterator is not None and handed else None
