"""The consumer's settings, and which of them contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from semel.client.consumer.reset_policy import ResetPolicy
from semel.client.errors import BadSetting
from semel.client.serialization import converter
from semel.client.settings import MINUTE_MS, SECOND_MS, ConnectionSettings, option
from semel.config.settings import INT_MAX
from semel.records.batch import DEFAULT_MAX_DECOMPRESSED_BYTES

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

CLASSIC = "classic"
CONSUMER = "consumer"

_ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")
_LARGEST_BATCH_BYTES = INT_MAX


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(ConnectionSettings):
    group_id: str | None = option(None, "The group to read with; without one nothing is shared and nothing committed.")
    group_instance_id: str | None = option(
        None, "A name that stays the same over restarts: the member comes back to its partitions (static membership)."
    )
    group_protocol: str = option(
        CLASSIC, "How the group shares partitions: classic, or consumer (KIP-848).", choices=(CLASSIC, CONSUMER)
    )
    group_remote_assignor: str | None = option(
        None, "The broker's assignor to use with group_protocol consumer; without it the broker chooses."
    )
    partition_assignment_strategy: Any = option(
        DEFAULT_ASSIGNORS,
        "The assignors of the classic protocol, the preferred one first: names, classes or objects.",
        typed="AssignorChoice | Sequence[AssignorChoice]",
    )
    session_timeout_ms: int = option(
        45 * SECOND_MS, "A member that is silent for so long is taken for dead.", minimum=1, maximum=INT_MAX
    )
    heartbeat_interval_ms: int = option(3 * SECOND_MS, "How often a member says that it lives.", minimum=1)
    max_poll_interval_ms: int = option(
        5 * MINUTE_MS,
        "A program that does not poll for so long gives its partitions to others.",
        minimum=1,
        maximum=INT_MAX,
    )
    max_poll_records: int = option(500, "The most records that one poll returns.", minimum=1)
    auto_offset_reset: str = option(
        "latest",
        "Where to begin without a position: earliest, latest, none (an error), or by_duration:P1DT2H, so long ago.",
        normalise=_lower,
    )
    enable_auto_commit: bool | None = option(
        None,
        "Whether positions are committed while polling; by default if there is a group_id.",
        kafka_default="true",
    )
    auto_commit_interval_ms: int = option(5 * SECOND_MS, "How often positions are committed.", minimum=1)
    isolation_level: str = option(
        "read_uncommitted",
        "Whether records of open and aborted transactions are shown.",
        choices=tuple(_ISOLATION_LEVELS),
        normalise=_lower,
    )
    fetch_min_bytes: int = option(1, "The broker answers when it has so much, or when the wait is over.", minimum=0)
    fetch_max_bytes: int = option(
        50 << 20, "The most that one answer of a broker brings; a larger batch comes alone.", minimum=1, maximum=INT_MAX
    )
    fetch_max_wait_ms: int = option(500, "How long the broker waits for fetch_min_bytes.", minimum=0, maximum=INT_MAX)
    max_partition_fetch_bytes: int = option(
        1 << 20,
        "The most that one answer brings of a partition; a larger batch comes alone.",
        minimum=1,
        maximum=_LARGEST_BATCH_BYTES,
    )
    max_decompressed_bytes: int = option(
        DEFAULT_MAX_DECOMPRESSED_BYTES, "The most memory that the records of one batch may take.", minimum=1024
    )
    check_crcs: bool = option(True, "Whether every batch is checked against its checksum.")
    client_rack: str = option("", "Where this consumer is, so that a near replica is read.")
    key_deserializer: Any = option(
        None, "Makes a key of bytes: a function, or one of `semel.serializers`; None stays None.", typed=""
    )
    value_deserializer: Any = option(
        None, "Makes a value of bytes: a function, or one of `semel.serializers`; None stays None.", typed=""
    )
    exclude_internal_topics: bool = option(True, "Whether patterns and topics() pass over the broker's own topics.")
    allow_auto_create_topics: bool = option(
        True, "Whether a topic that is subscribed to but missing may be created, if the broker does that."
    )
    default_api_timeout_ms: int = option(MINUTE_MS, "How long a call that asks the broker may take.", minimum=1)

    def __post_init__(self) -> None:
        """A properties file gives assignors as one text."""
        assignors = self.partition_assignment_strategy
        if isinstance(assignors, str):
            assignors = tuple(name.strip() for name in assignors.split(",") if name.strip())
        elif not isinstance(assignors, list | tuple):
            assignors = (assignors,)
        object.__setattr__(self, "partition_assignment_strategy", tuple(assignors))

    def check(self) -> None:
        super().check()
        ResetPolicy.parse(self.auto_offset_reset)
        if self.group_id is not None and not self.group_id:
            raise BadSetting("group_id: an empty text is not allowed; leave it out to read without a group")
        if self.group_id is None:
            self._check_without_group()
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise BadSetting(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} contradicts session_timeout_ms="
                f"{self.session_timeout_ms}: several heartbeats should fit into a session, at least one must"
            )
        if self.fetch_max_bytes >= self.max_frame_bytes:
            raise BadSetting(
                f"fetch_max_bytes={self.fetch_max_bytes} contradicts max_frame_bytes={self.max_frame_bytes}: "
                "an answer with so many bytes would be refused"
            )
        self._check_protocol()
        for name in ("key_deserializer", "value_deserializer"):
            converter(name, getattr(self, name))

    def _check_without_group(self) -> None:
        if self.enable_auto_commit:
            raise BadSetting("enable_auto_commit=True contradicts group_id=None: offsets are committed for a group")
        if self.group_instance_id is not None:
            raise BadSetting(
                f"group_instance_id={self.group_instance_id!r} contradicts group_id=None: it names a member of a group"
            )

    def _check_protocol(self) -> None:
        if self.group_protocol == CLASSIC and self.group_remote_assignor is not None:
            raise BadSetting(
                f"group_remote_assignor={self.group_remote_assignor!r} contradicts group_protocol='classic': "
                "set group_protocol='consumer', or partition_assignment_strategy instead"
            )
        if self.group_protocol == CLASSIC and not self.partition_assignment_strategy:
            raise BadSetting("partition_assignment_strategy: at least one assignor is needed")
        if self.group_protocol == CONSUMER and self.partition_assignment_strategy != DEFAULT_ASSIGNORS:
            raise BadSetting(
                "partition_assignment_strategy contradicts group_protocol='consumer', where the broker assigns: "
                "set group_remote_assignor instead"
            )

    @property
    def auto_commits(self) -> bool:
        return self.group_id is not None and self.enable_auto_commit is not False

    @property
    def isolation(self) -> int:
        """As on the wire."""
        return _ISOLATION_LEVELS[self.isolation_level]

    @property
    def reads_committed(self) -> bool:
        return self.isolation == READ_COMMITTED

    @property
    def reset_policy(self) -> ResetPolicy:
        return ResetPolicy.parse(self.auto_offset_reset)

    @property
    def api_timeout_s(self) -> float:
        return self.default_api_timeout_ms / SECOND_MS
