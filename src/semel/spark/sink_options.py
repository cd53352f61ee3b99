"""The options and columns of a write: the names of Spark's own Kafka sink, and ours for delivering exactly once.

What is unknown, contradictory or of the wrong type is refused by name, on the driver, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from semel.client.errors import BadSetting
from semel.client.producer.settings import ALL, ProducerSettings
from semel.client.settings import MINUTE_MS
from semel.config.errors import UnknownSetting
from semel.spark.connection_options import PREFIX, client_settings, loaded

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

C = TypeVar("C", bound=StrEnum)

DEFAULT_MARKER_TOPIC = "__semel_pipelines"
DEFAULT_TRANSACTION_TIMEOUT_MS = 15 * MINUTE_MS

_STREAM_ONLY = ("checkpointLocation",)
_BATCH_ONLY = ("txnAppId", "txnVersion", "txnCheckpoint")
_BOTH = (
    "topic",
    "partitioner",
    "delivery",
    "transactionalIdPrefix",
    "deadLetterTopic",
    "markerTopic",
    "stagingLocation",
    "queryName",
    "path",
)
_OF_SOURCE = "it is an option of the source: leave it out of the write"
_REFUSED = {
    "subscribe": "it is an option of the source: a write goes to a topic, by the option or the column of that name",
    "subscribePattern": _OF_SOURCE,
    "assign": _OF_SOURCE,
    "startingOffsets": _OF_SOURCE,
    "endingOffsets": _OF_SOURCE,
    "maxOffsetsPerTrigger": _OF_SOURCE,
    "failOnDataLoss": _OF_SOURCE,
}
_LET_THROUGH = (
    "includeHeaders",
    "partition.metadata.cache.ttl.ms",
)  # Spark's own sink has it, and writes headers if there is such a column


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Partitioner(StrEnum):
    MURMUR2 = "murmur2"
    """By the key's hash, as all of Kafka's clients do; rows without a key as STICKY."""
    STICKY = "sticky"
    """Without regard to keys, many rows at a time to the same partition: the fewest and largest batches."""
    ROUND_ROBIN = "roundrobin"
    """Without regard to keys, one row after the other to the next partition."""


@dataclass(frozen=True)
class SinkOptions:
    topic: str | None
    """None: the column `topic` says it."""
    partitioner: Partitioner
    delivery: Delivery
    transactional_id_prefix: str
    dead_letter_topic: str | None
    marker_topic: str
    checkpoint_location: str | None
    staging_location: str | None
    txn_app_id: str | None
    txn_version: int | None
    txn_checkpoint: str | None
    """Of the query whose batch the version is."""
    query_name: str | None
    connection: dict[str, Any] = field(repr=False)  # it may hold a password
    """Settings for an admin."""
    producer: dict[str, Any] = field(repr=False)
    """Settings for a producer; its transactional id is not among them."""
    settings: ProducerSettings


def stream_options(options: Mapping[str, str]) -> SinkOptions:
    given = _check_names(options, _STREAM_ONLY, _BATCH_ONLY, "a streaming write, whose batches are numbered by Spark")
    return _read(given, options)


def batch_options(options: Mapping[str, str]) -> SinkOptions:
    given = _check_names(options, _BATCH_ONLY, (), "")
    read = _read(given, options)
    if (read.txn_app_id is None) != (read.txn_version is None):
        raise BadSetting("txnAppId and txnVersion go together: the name of the writer, and the number of this write")
    if read.txn_app_id is not None and read.delivery is Delivery.AT_LEAST_ONCE:
        raise BadSetting("txnAppId contradicts delivery=at-least-once: leave one of them out")
    if read.txn_checkpoint is not None and read.txn_app_id is None:
        raise BadSetting("txnCheckpoint says whose batch txnVersion is: set txnAppId and txnVersion as well")
    return read


def _check_names(
    options: Mapping[str, str], own: tuple[str, ...], others: tuple[str, ...], why_not: str
) -> dict[str, str]:
    """The options of ours, spelled as documented; Spark hands names over in small letters."""
    let_through = (*_LET_THROUGH, "checkpointLocation")
    spelled = {name.lower(): name for name in (*_BOTH, *own, *others, *_REFUSED, *let_through)}
    given = {}
    for name, value in options.items():
        if name.lower().startswith(PREFIX):
            continue
        known = spelled.get(name.lower())
        if known is None:
            names = [one.lower() if name == name.lower() else one for one in (*_BOTH, *own)]
            raise BadSetting(str(UnknownSetting(name, names, kind_of_name="option")))
        if known in others:
            raise BadSetting(f"{known} is not for {why_not}: leave it out")
        if known in _REFUSED:
            raise BadSetting(f"{known}: {_REFUSED[known]}")
        given[known] = value
    return given


def _read(given: Mapping[str, str], options: Mapping[str, str]) -> SinkOptions:
    delivery = _choice(Delivery, given, "delivery", Delivery.EXACTLY_ONCE)
    producer = {
        "transaction_timeout_ms": DEFAULT_TRANSACTION_TIMEOUT_MS,
        **client_settings(options, ProducerSettings),
        "enable_idempotence": True,
    }
    settings = loaded(ProducerSettings, producer, options)
    if settings.acks != ALL:
        raise BadSetting("kafka.acks: the sink needs acknowledgements of all replicas: leave it out")
    return SinkOptions(
        topic=_name(given, "topic"),
        partitioner=_choice(Partitioner, given, "partitioner", Partitioner.MURMUR2),
        delivery=delivery,
        transactional_id_prefix=given.get("transactionalIdPrefix", ""),
        dead_letter_topic=_name(given, "deadLetterTopic"),
        marker_topic=_name(given, "markerTopic") or DEFAULT_MARKER_TOPIC,
        checkpoint_location=_name(given, "checkpointLocation"),
        staging_location=_name(given, "stagingLocation"),
        txn_app_id=_name(given, "txnAppId"),
        txn_version=_version(given),
        txn_checkpoint=_name(given, "txnCheckpoint"),
        query_name=given.get("queryName"),
        connection=client_settings(options),
        producer=producer,
        settings=settings,
    )


def _name(given: Mapping[str, str], name: str) -> str | None:
    text = given.get(name)
    if text is not None and not text.strip():
        raise BadSetting(f"{name}: an empty text is not allowed")
    return text


def _choice(kind: type[C], given: Mapping[str, str], name: str, default: C) -> C:
    text = given.get(name)
    if text is None:
        return default
    try:
        return kind(text.strip().lower())
    except ValueError:
        raise BadSetting(f"{name}: {text!r} is not allowed; allowed: {', '.join(kind)}") from None


def _version(given: Mapping[str, str]) -> int | None:
    text = given.get("txnVersion")
    if text is None:
        return None
    try:
        version = int(text)
    except ValueError:
        version = -1
    if version < 0:
        raise BadSetting(f"txnVersion: {text!r} is not allowed; allowed: a whole number of at least 0")
    return version


# -- columns

_TEXT_OR_BYTES = "string or binary"
_ALLOWED = {
    "value": _TEXT_OR_BYTES,
    "key": _TEXT_OR_BYTES,
    "topic": "string",
    "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
}
COLUMNS = tuple(_ALLOWED)


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Refuses columns that cannot be written. Others than those known are left out, as by Spark's own sink."""
    fields = {name: [field for field in schema.fields if field.name == name] for name in _ALLOWED}
    for name, found in fields.items():
        if len(found) > 1:
            raise BadSetting(f"there are {len(found)} columns {name!r}: one is expected")
        if found and not _is_allowed(name, found[0].dataType):
            raise BadSetting(f"column {name!r} is {found[0].dataType.simpleString()}; it must be {_ALLOWED[name]}")
    if not fields["value"]:
        names = ", ".join(schema.fieldNames()) or "none"
        raise BadSetting(f"there is no column 'value', which must be {_TEXT_OR_BYTES}; the columns are: {names}")
    if options.topic is None and not fields["topic"]:
        raise BadSetting("no topic to write to: set the option topic, or add a column 'topic' of type string")


def _is_allowed(name: str, kind: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(kind, types.NullType):
        return name not in ("value", "topic")
    if name in ("value", "key"):
        return isinstance(kind, types.StringType | types.BinaryType)
    if name == "topic":
        return isinstance(kind, types.StringType)
    if name == "partition":
        return isinstance(kind, types.IntegerType | types.ShortType | types.ByteType | types.LongType)
    if name == "timestamp":
        return isinstance(kind, types.TimestampType)
    if not isinstance(kind, types.ArrayType) or not isinstance(kind.elementType, types.StructType):
        return False
    parts = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        len(parts) == len(kind.elementType.fields)
        and parts.keys() == {"key", "value"}
        and isinstance(parts["key"], types.StringType)
        and isinstance(parts["value"], types.BinaryType)
    )
