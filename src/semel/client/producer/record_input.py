"""What a program gives for a record becomes bytes, or is refused before it is part of any batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.errors import BadRecord, SemelError
from semel.client.serialization import Convert, Field, NotReady, SerializationContext
from semel.client.values import Headers
from semel.records import kernel
from semel.wire.topic_names import wrong_with_characters

MOST_TIMESTAMP_MS = 2**63 - 1


class Record(NamedTuple):
    """A record in which nothing is wrong that can be seen without the cluster."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int | None
    headers: bytes | None
    size: int
    given_value: Any
    """As the program gave it, for its own partitioner."""
    given_key: Any


def serialized(serialize: Convert | None, value: Any, topic: str, what: Field) -> Any:
    """Raises NotReady if the serializer does."""
    try:
        return value if serialize is None else serialize(value, SerializationContext(topic, what))
    except (NotReady, SemelError):
        raise
    except Exception as error:
        raise BadRecord(f"the {what} serializer failed on a {type(value).__name__}: {error!r}") from error


def as_bytes(value: Any, what: str) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise BadRecord(f"a {what} cannot be written as UTF-8: {error}") from None
    raise BadRecord(f"a {what} is bytes, a text or None, not {type(value).__name__}; or give a {what}_serializer")


def encoded_headers(headers: Headers | None) -> bytes | None:
    if headers is None:
        return None
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    try:
        return kernel.encode_headers(headers) if headers else None
    except (TypeError, ValueError, AttributeError) as error:
        raise BadRecord(f"headers are pairs of a text and bytes or None: {error}") from error


def check_timestamp(timestamp_ms: Any) -> None:
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms <= MOST_TIMESTAMP_MS:
        raise BadRecord(f"timestamp_ms is a whole number of milliseconds since 1970, not {timestamp_ms!r}")


def check_topic_name(topic: Any) -> None:
    """Whether brokers take such a name at all."""
    if not isinstance(topic, str) or not topic:
        raise BadRecord(f"a topic is named by a text, not by {topic!r}")
    wrong = wrong_with_characters(topic)
    if wrong is not None:
        raise BadRecord(wrong)


def check_partition(partition: Any) -> None:
    """Only that it can be one: how many there are is for the cluster to say."""
    if partition is not None and (not isinstance(partition, int) or partition < 0):
        raise BadRecord(f"a partition is a number from 0 on, not {partition!r}")
