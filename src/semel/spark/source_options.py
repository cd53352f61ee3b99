"""The options of a read: the names, forms and defaults of Spark's own Kafka source, but for read_committed.

What is unknown, contradictory or without meaning here is refused by name, before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from semel.client.admin.settings import AdminSettings
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.spark.connection_options import PREFIX, client_settings, loaded, unknown_option
from semel.spark.offsets import EARLIEST, LATEST, Offsets, offsets_of, partitions_of, times_of

DEFAULT_ISOLATION_LEVEL = "read_committed"
DEFAULT_GROUP_PREFIX = "semel-spark"
DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000
_FETCH_BYTES = 8 << 20
"""What one answer brings of a partition: as much as makes a good Arrow batch."""
_FETCH_WAIT_MS = 5
"""Only what is there already is read. A fetch that waits for more would hold up the one for the next range."""

_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_KNOWN = (
    *_STRATEGIES,
    *_STARTING,
    *_ENDING,
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxRecordsPerPartition",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "queryName",
    "checkpointLocation",
    "path",
)
_OF_SINK = "it is an option of the sink"
_REFUSED = {
    "topic": f"{_OF_SINK}: give subscribe, subscribePattern or assign to a read",
    "deadLetterTopic": _OF_SINK,
    "transactionalIdPrefix": _OF_SINK,
    "delivery": _OF_SINK,
    "partitioner": _OF_SINK,
    "markerTopic": _OF_SINK,
    "stagingLocation": _OF_SINK,
    "txnAppId": _OF_SINK,
    "txnCheckpoint": _OF_SINK,
    "txnVersion": _OF_SINK,
    "useDeprecatedOffsetFetching": "offsets are always asked for without joining a group: leave it out",
    "maxBytesPerTrigger": "an end is chosen by offsets, whose sizes are not known: set maxOffsetsPerTrigger",
    "maxFilesPerTrigger": "topics have no files: set maxOffsetsPerTrigger",
}
_BY_LOWER_NAME = {name.lower(): name for name in (*_KNOWN, *_REFUSED)}

_TIME = re.compile(r"(\d+)\s*([a-z]*)")
_TIME_UNITS_MS = {
    "": 1.0, "us": 0.001, "ms": 1.0, "s": 1e3, "m": 60e3, "min": 60e3, "h": 3600e3, "d": 86400e3,
}  # fmt: skip


@dataclass(frozen=True)
class Topics:
    """By name, whatever partitions they have."""

    names: frozenset[str]


@dataclass(frozen=True)
class Pattern:
    """Topics in whose names the pattern is found."""

    regex: re.Pattern[str]


@dataclass(frozen=True)
class Partitions:
    """These and no others."""

    partitions: frozenset[TopicPartition]


Strategy: TypeAlias = Topics | Pattern | Partitions


class NoMatch(Enum):
    """What to do where no record is as young as a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True)
class End:
    """EARLIEST or LATEST, for all partitions."""

    offset: int


@dataclass(frozen=True)
class ByOffset:
    """An offset, EARLIEST or LATEST for each partition; `option` says so."""

    option: str
    offsets: Offsets


@dataclass(frozen=True)
class ByTime:
    """One time for all partitions, or one for each. Where there is no record so young, an end is the latest offset."""

    option: str
    times_ms: int | Offsets
    no_match: NoMatch


Where: TypeAlias = End | ByOffset | ByTime


@dataclass(frozen=True)
class SourceOptions:
    strategy: Strategy
    starting: Where
    ending: Where
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: float
    max_records_per_partition: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    include_headers: bool
    group_id: str
    poll_timeout_ms: int
    fetch_attempts: int
    fetch_retry_ms: int
    connection: dict[str, Any] = field(repr=False)  # it may hold a password
    """Settings for an admin."""
    consumer: dict[str, Any] = field(repr=False)
    """Settings for a consumer that reads what it is told to, and nothing else."""

    @property
    def isolation_level(self) -> str:
        return str(self.consumer["isolation_level"])

    @property
    def start_moves(self) -> bool:
        """Whether the start, looked up again later, could be another one."""
        if isinstance(self.starting, ByOffset):
            return LATEST in self.starting.offsets.values()
        return self.starting != End(EARLIEST)


def options_of_any_read(options: Mapping[str, str]) -> SourceOptions:
    """For what does not depend on whether a stream or a batch is read."""
    return _read(check_names(options), options, default_start=EARLIEST)


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    given = check_names(options)
    for name in _ENDING:
        if name in given:
            raise BadSetting(f"{name}: a stream has no end: leave it out, or read with spark.read")
    return _read(given, options, default_start=LATEST)


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    read = _read(check_names(options), options, default_start=EARLIEST)
    if read.starting == End(LATEST) or (isinstance(read.starting, ByOffset) and read.start_moves):
        raise BadSetting("startingOffsets: a batch that begins at the latest offset is empty: give another start")
    if read.ending == End(EARLIEST) or (isinstance(read.ending, ByOffset) and EARLIEST in read.ending.offsets.values()):
        raise BadSetting("endingOffsets: a batch that ends at the earliest offset is empty: give another end")
    return read


def check_names(options: Mapping[str, str]) -> dict[str, str]:
    """The options of ours, spelled as documented. Those of Kafka are checked elsewhere, by `client_settings`."""
    given = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(PREFIX):
            continue
        known = _BY_LOWER_NAME.get(lower)
        if known is None:
            raise unknown_option(name, _KNOWN)
        if known in _REFUSED:
            raise BadSetting(f"{known}: {_REFUSED[known]}")
        given[known] = value
    return given


def _read(given: Mapping[str, str], options: Mapping[str, str], *, default_start: int) -> SourceOptions:
    fewest, most = _positive(given, "minOffsetsPerTrigger"), _positive(given, "maxOffsetsPerTrigger")
    if fewest is not None and most is not None and fewest > most:
        raise BadSetting(f"minOffsetsPerTrigger={fewest} contradicts maxOffsetsPerTrigger={most}")
    delay = given.get("maxTriggerDelay")
    return SourceOptions(
        strategy=_strategy(given),
        starting=_where(given, _STARTING, default_start, _no_match(given)),
        ending=_where(given, _ENDING, LATEST, NoMatch.LATEST),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=fewest,
        max_trigger_delay_ms=DEFAULT_MAX_TRIGGER_DELAY_MS if delay is None else _time_ms("maxTriggerDelay", delay),
        max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
        min_partitions=_positive(given, "minPartitions"),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        include_headers=_boolean(given, "includeHeaders", False),
        group_id=_group_id(given, options),
        poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or DEFAULT_POLL_TIMEOUT_MS,
        fetch_attempts=_positive(given, "fetchOffset.numRetries") or 3,
        fetch_retry_ms=_number(given, "fetchOffset.retryIntervalMs", 0, 1000),
        connection=client_settings(options, AdminSettings),
        consumer=_consumer_settings(options),
    )


def _consumer_settings(options: Mapping[str, str]) -> dict[str, Any]:
    """Readers join no group and commit nothing; what they cannot find is told, not looked for elsewhere."""
    settings = {
        "isolation_level": DEFAULT_ISOLATION_LEVEL,
        "max_partition_fetch_bytes": _FETCH_BYTES,
        "fetch_max_wait_ms": _FETCH_WAIT_MS,
        **client_settings(options, ConsumerSettings),
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
    }
    settings.pop("group_id", None)
    loaded(ConsumerSettings, settings, options)
    return settings


def _strategy(given: Mapping[str, str]) -> Strategy:
    named = [name for name in _STRATEGIES if name in given]
    if len(named) != 1:
        found = " and ".join(named) or "none"
        raise BadSetting(f"exactly one of {', '.join(_STRATEGIES)} says what is read; given: {found}")
    name, value = named[0], given[named[0]].strip()
    if name == "assign":
        return Partitions(partitions_of(name, value))
    if name == "subscribePattern":
        if not value:
            raise BadSetting("subscribePattern: an empty pattern is not allowed")
        try:
            return Pattern(re.compile(value))
        except re.error as error:
            raise BadSetting(f"subscribePattern: {value!r} is no regular expression: {error}") from None
    topics = frozenset(part.strip() for part in value.split(",") if part.strip())
    if not topics:
        raise BadSetting(f"subscribe: {given[name]!r} names no topic")
    return Topics(topics)


def _where(given: Mapping[str, str], names: tuple[str, str, str], default: int, no_match: NoMatch) -> Where:
    """A time for all goes before times by partition, and these before offsets; as in Spark's own source."""
    time, times, offsets = names
    if time in given:
        return ByTime(time, _number(given, time, 0, 0), no_match)
    if times in given:
        return ByTime(times, times_of(times, given[times]), no_match)
    text = given.get(offsets)
    if text is None:
        return End(default)
    ends = {"earliest": End(EARLIEST), "latest": End(LATEST)}
    return ends.get(text.strip().lower()) or ByOffset(offsets, offsets_of(offsets, text))


def _no_match(given: Mapping[str, str]) -> NoMatch:
    name = "startingOffsetsByTimestampStrategy"
    text = given.get(name, NoMatch.ERROR.value)
    try:
        return NoMatch(text.strip().lower())
    except ValueError:
        raise BadSetting(f"{name}: {text!r} is not allowed; allowed: error, latest") from None


def _group_id(given: Mapping[str, str], options: Mapping[str, str]) -> str:
    """The group for which progress is committed, for whoever looks at its lag: the same one after every restart.

    Spark tells a source neither its query nor its checkpoint; unless the options do, what is read gives the name.
    """
    lower = {name.lower(): value for name, value in options.items()}
    if lower.get("kafka.group.id"):
        return lower["kafka.group.id"]
    prefix = given.get("groupIdPrefix") or DEFAULT_GROUP_PREFIX
    name = given.get("queryName") or next(given[strategy] for strategy in _STRATEGIES if strategy in given)
    return f"{prefix}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-')}"


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise BadSetting(f"{name}: {text!r} is not allowed; allowed: true, false")
    return text.strip().lower() == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    return _number(given, name, 1, 0) if name in given else None


def _number(given: Mapping[str, str], name: str, least: int, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise BadSetting(f"{name}: {text!r} is not allowed; allowed: a whole number of at least {least}")
    return number


def _time_ms(name: str, text: str) -> float:
    found = _TIME.fullmatch(text.strip().lower())
    if found is None or found[2] not in _TIME_UNITS_MS:
        raise BadSetting(f"{name}: {text!r} is not allowed; allowed: a number with us, ms, s, m, h or d, such as 15m")
    return int(found[1]) * _TIME_UNITS_MS[found[2]]
