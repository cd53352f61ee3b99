"""Offsets of partitions in the JSON forms of Spark's own Kafka source, in options and in checkpoints.

`{"orders":{"0":23,"1":-1}}`: by topic, by partition. In options -2 stands for the earliest offset, -1 for the latest.
In checkpoints every offset is that of the next record to read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]

LATEST = -1
EARLIEST = -2

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000},"topicB":{"0":1700000000000}}'
_PARTITIONS_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'


def offsets_of(option: str, text: str) -> Offsets:
    """An option's offsets by partition: those of records, EARLIEST and LATEST."""
    return _numbers(option, text, EARLIEST, _OFFSETS_EXAMPLE)


def times_of(option: str, text: str) -> Offsets:
    """An option's times by partition, in milliseconds since 1970."""
    return _numbers(option, text, 0, _TIMES_EXAMPLE)


def partitions_of(option: str, text: str) -> frozenset[TopicPartition]:
    found = set()
    for topic, numbers in _topics(option, text, _PARTITIONS_EXAMPLE):
        if not isinstance(numbers, list):
            raise _unreadable(option, text, _PARTITIONS_EXAMPLE)
        for number in numbers:
            if type(number) is not int or number < 0:
                raise _unreadable(option, text, _PARTITIONS_EXAMPLE)
            found.add(TopicPartition(topic, number))
    if not found:
        raise BadSetting(f"{option}: {text!r} names no partition; expected is, for example, {_PARTITIONS_EXAMPLE}")
    return frozenset(found)


def _numbers(option: str, text: str, least: int, example: str) -> Offsets:
    found: Offsets = {}
    for topic, partitions in _topics(option, text, example):
        if not isinstance(partitions, dict):
            raise _unreadable(option, text, example)
        for name, number in partitions.items():
            if not name.isdecimal() or type(number) is not int or number < least:
                raise _unreadable(option, text, example)
            found[TopicPartition(topic, int(name))] = number
    return found


def _topics(option: str, text: str, example: str) -> Iterable[tuple[str, Any]]:
    try:
        read = json.loads(text)
    except ValueError:
        raise _unreadable(option, text, example) from None
    if not isinstance(read, dict):
        raise _unreadable(option, text, example)
    return read.items()


def _unreadable(option: str, text: str, example: str) -> BadSetting:
    return BadSetting(f"{option}: {text!r} cannot be read; expected is, for example, {example}")


def from_checkpoint(offset: Mapping[str, Any]) -> Offsets:
    """A checkpoint's offset; ours, or one that Spark's own Kafka source wrote."""
    try:
        return {
            TopicPartition(topic, int(number)): int(next_offset)
            for topic, partitions in offset.items()
            for number, next_offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise BadSetting(
            f"the checkpoint's offset {json.dumps(offset)[:200]} is not one of this source: "
            f"expected is, for example, {_OFFSETS_EXAMPLE}"
        ) from None


def to_checkpoint(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """In order of topic and partition: Spark compares offsets as texts."""
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found
