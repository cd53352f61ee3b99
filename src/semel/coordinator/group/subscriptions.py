"""What members of the classic consumer protocol put into their metadata: the topics they want.

Only the beginning, which is the same in every version, is read: int16 version, then the names. Other protocol types
(Kafka Connect's) and bytes that do not follow the form are not known: None.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error

CONSUMER_PROTOCOL = "consumer"
_HEAD = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    try:
        _, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        topics = set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct_error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def all_subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None when any of them cannot be read."""
    everything: set[str] = set()
    for one in metadata:
        topics = subscribed_topics(one)
        if topics is None:
            return None
        everything |= topics
    return frozenset(everything)
