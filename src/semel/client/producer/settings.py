"""The producer's settings, and which of them contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from semel.client.errors import BadSetting
from semel.client.serialization import converter
from semel.client.settings import MINUTE_MS, SECOND_MS, ConnectionSettings, option
from semel.config.settings import INT_MAX, LONG_MAX

ALL = -1
MOST_IN_FLIGHT = 5
"""As many batches per producer and partition as a broker remembers to tell duplicates by."""

_LINGER_MS = 5
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def _acks(value: Any) -> Any:
    return ALL if isinstance(value, str) and value.strip().lower() == "all" else value


def _codec(value: Any) -> Any:
    return "none" if value is None else value.lower() if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(ConnectionSettings):
    acks: int = option(
        ALL,
        "Who must have a record before it counts as written: all (-1), the leader (1), nobody (0).",
        minimum=-1,
        maximum=1,
        kafka_default="all",
        normalise=_acks,
        typed='Literal["all", -1, 0, 1]',
    )
    enable_idempotence: bool = option(True, "Whether each record is written once and in order, whatever is retried.")
    retries: int = option(INT_MAX, "How often a batch is sent again after it failed.", minimum=0)
    max_in_flight_requests_per_connection: int = option(
        MOST_IN_FLIGHT, "How many requests may wait for their answers on one connection.", minimum=1
    )
    batch_size: int = option(
        16384, "How many bytes of records, before compression, go into a batch.", minimum=1, aliases=("max_batch_size",)
    )
    linger_ms: float | None = option(
        None,
        "How long a batch that is not full waits for more records. Without it: 5 ms, but not when somebody awaits one.",
        minimum=0,
        kafka_default="5",
    )
    buffer_memory: int = option(32 << 20, "How many bytes of records may wait to be sent.", minimum=1, maximum=LONG_MAX)
    max_request_size: int = option(1 << 20, "The largest request, and so the largest record.", minimum=1)
    max_block_ms: int = option(
        MINUTE_MS, "How long a call waits for room, for metadata, or for the transaction's coordinator.", minimum=0
    )
    delivery_timeout_ms: int = option(
        2 * MINUTE_MS, "How long a record may take from send to acknowledgement, retries included.", minimum=1
    )
    compression_type: str = option(
        "none", "How batches are compressed.", choices=tuple(_CODECS), normalise=_codec, aliases=("compression",)
    )
    compression_level: int | None = option(None, "The codec's own level; without it the codec's default.")
    partitioner: Any = option(
        None,
        "Chooses the partition: function(topic, key, value, partitions) -> number; key's hash or sticky without it.",
        typed="Callable[[str, Any, Any, list[int]], int] | None",
    )
    key_serializer: Any = option(None, "Makes bytes of a key: a function, or one of `semel.serializers`.", typed="")
    value_serializer: Any = option(None, "Makes bytes of a value: a function, or one of `semel.serializers`.", typed="")
    transactional_id: str | None = option(None, "The name under which transactions survive a restart of this producer.")
    transaction_timeout_ms: int = option(
        MINUTE_MS, "After which the broker aborts a transaction that was not ended.", minimum=1
    )

    def check(self) -> None:
        super().check()
        if self.transactional_id is not None and not self.transactional_id:
            raise BadSetting("transactional_id: an empty text is not allowed")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise BadSetting(
                f"transactional_id={self.transactional_id!r} contradicts enable_idempotence=False: "
                "transactions need idempotence; leave enable_idempotence at True"
            )
        if not (self.partitioner is None or callable(self.partitioner)):
            raise BadSetting(f"partitioner: {self.partitioner!r} is not allowed; allowed: a function")
        for name in ("key_serializer", "value_serializer"):
            converter(name, getattr(self, name))
        if self.enable_idempotence:
            self._check_idempotence()
        linger_ms = self.linger_s * SECOND_MS
        if self.delivery_timeout_ms < linger_ms + self.request_timeout_ms:
            raise BadSetting(
                f"delivery_timeout_ms={self.delivery_timeout_ms} contradicts linger_ms={linger_ms:g} and "
                f"request_timeout_ms={self.request_timeout_ms}: it must be at least their sum"
            )

    def _check_idempotence(self) -> None:
        reason = "contradicts enable_idempotence=True (the default)"
        if self.acks != ALL:
            raise BadSetting(f"acks={self.acks} {reason}: set acks='all', or enable_idempotence=False")
        if self.retries == 0:
            raise BadSetting(f"retries=0 {reason}: set retries above 0, or enable_idempotence=False")
        if self.max_in_flight_requests_per_connection > MOST_IN_FLIGHT:
            raise BadSetting(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection} {reason}: "
                f"set it to at most {MOST_IN_FLIGHT}, as many batches as brokers remember, or enable_idempotence=False"
            )

    @property
    def codec(self) -> int:
        return _CODECS[self.compression_type]

    @property
    def linger_s(self) -> float:
        return (_LINGER_MS if self.linger_ms is None else self.linger_ms) / SECOND_MS

    @property
    def delivery_timeout_s(self) -> float:
        return self.delivery_timeout_ms / SECOND_MS

    @property
    def max_block_s(self) -> float:
        return self.max_block_ms / SECOND_MS
