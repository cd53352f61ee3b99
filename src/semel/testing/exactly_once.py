"""Whether a pipeline has written each record once: what stands in its topics, compared by the identity of records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from semel.client.metadata import TopicPartition
from semel.client.values import Message
from semel.sync.consumer import Consumer

Identify: TypeAlias = Callable[[Message[bytes, bytes]], Hashable]

_POLL_MS = 100
_SHOWN = 10


def identity(message: Message[bytes, bytes]) -> Hashable:
    """The key, or the value of a record that has none."""
    return message.value if message.key is None else message.key


def assert_exactly_once(
    input_topic: str,
    output_topic: str,
    *,
    bootstrap_servers: str,
    identify: Identify = identity,
    identify_output: Identify | None = None,
    timeout_s: float = 30.0,
    **settings: Any,
) -> None:
    """Raises AssertionError unless the output has one record for each of the input, as a reader of committed data sees.

    Records of both belong together by what `identify` makes of them: the key, or the value of a record without one. As
    many as the input has of one identity, the output must have. Waits until the output has them all, `timeout_s` at
    most; what comes later is not seen, so stop the pipeline first, or let it come to rest.
    """
    with Consumer(
        bootstrap_servers=bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest", **settings
    ) as consumer:
        deadline_s = time.monotonic() + timeout_s
        wanted = _Reading(consumer, input_topic, identify)
        wanted.read_to_end(deadline_s)
        found = _Reading(consumer, output_topic, identify if identify_output is None else identify_output)
        while True:
            found.read_to_end(deadline_s)
            if not wanted.counts - found.counts or time.monotonic() >= deadline_s:
                break
            time.sleep(_POLL_MS / 1000)
    problems = _lost(wanted, found) + _extra(wanted, found)
    if problems:
        raise AssertionError(
            f"{output_topic} has not each record of {input_topic} once "
            f"({wanted.counts.total()} in, {found.counts.total()} out):\n" + "\n".join(problems)
        )


class _Reading:
    """What was read of one topic so far."""

    def __init__(self, consumer: Consumer[bytes, bytes], topic: str, identify: Identify) -> None:
        self.topic = topic
        self.counts: Counter[Hashable] = Counter()
        self.places: dict[Hashable, list[str]] = {}
        self.open_in: list[str] = []
        """Partitions that end in a transaction that is still open."""
        self._consumer = consumer
        self._identify = identify
        self._positions: dict[TopicPartition, int] = {}

    def read_to_end(self, deadline_s: float) -> None:
        """To the last stable offset as it is now."""
        consumer = self._consumer
        numbers = consumer.partitions_for_topic(self.topic)
        if numbers is None:
            return
        partitions = [TopicPartition(self.topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        for partition in partitions:
            if partition in self._positions:
                consumer.seek(partition, self._positions[partition])
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            if time.monotonic() >= deadline_s:
                break
            for messages in consumer.poll(timeout_ms=_POLL_MS).values():
                for message in messages:
                    self._note(message)
        self._positions = {partition: consumer.position(partition) for partition in partitions}
        self.open_in = [
            str(partition)
            for partition in partitions
            if (consumer.highwater(partition) or 0) > (consumer.last_stable_offset(partition) or 0)
        ]

    def _note(self, message: Message[bytes, bytes]) -> None:
        found = self._identify(message)
        self.counts[found] += 1
        self.places.setdefault(found, []).append(f"{message.topic}-{message.partition} offset {message.offset}")


def _lost(wanted: _Reading, found: _Reading) -> list[str]:
    lost = wanted.counts - found.counts
    lines = [f"  {name!r} is missing: it was read from {wanted.places[name][0]}" for name in list(lost)[:_SHOWN]]
    if len(lost) > _SHOWN:
        lines.append(f"  and {len(lost) - _SHOWN} more are missing")
    if lost and found.open_in:
        lines.append(f"  a transaction is still open in {', '.join(found.open_in)}")
    return lines


def _extra(wanted: _Reading, found: _Reading) -> list[str]:
    extra = found.counts - wanted.counts
    lines = [
        f"  {name!r} is there {found.counts[name]} times instead of {wanted.counts[name]}: "
        + ", ".join(found.places[name][:_SHOWN])
        for name in list(extra)[:_SHOWN]
    ]
    if len(extra) > _SHOWN:
        lines.append(f"  and {len(extra) - _SHOWN} more are there too often")
    return lines
