"""The settings of the client as type checkers and editors see them.

Written by `make docs` from the declarations (semel.client.document_options); a test compares them. Serializers are
arguments of their own, because the types of keys and values come from them.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    from semel.client.consumer.membership.assignors import Assignor

    AssignorChoice: TypeAlias = str | type[Assignor] | Assignor


class TokenProvider(Protocol):
    def token(self) -> object: ...


class ConnectionOptions(TypedDict, total=False):
    bootstrap_servers: str | Sequence[str]
    """Where to ask for the cluster first: one or more host:port."""
    client_id: str
    """The name under which the broker logs this client."""
    bootstrap_timeout_ms: int
    """How long to look for the first broker before giving up."""
    request_timeout_ms: int
    """How long to wait for one answer; the connection is closed then."""
    retry_backoff_ms: int
    """The first pause before trying again; each next one is twice as long."""
    retry_backoff_max_ms: int
    """The longest pause before trying again."""
    reconnect_backoff_ms: int
    """The first pause before connecting to the same node again."""
    reconnect_backoff_max_ms: int
    """The longest pause before connecting to the same node again."""
    connections_max_idle_ms: int
    """A connection that was not used for so long is closed."""
    metadata_max_age_ms: int
    """How old the knowledge of who leads what may get."""
    max_frame_bytes: int
    """The largest answer that is accepted; a larger one ends the connection."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Whether to encrypt (SSL) and to log in (SASL)."""
    ssl_cafile: str | None
    """PEM file of the authorities to trust; without it the system's."""
    ssl_certfile: str | None
    """PEM file of the client's certificate, for mutual TLS."""
    ssl_keyfile: str | None
    """PEM file of the client's key, if it is not in ssl_certfile."""
    ssl_password: str | None
    """The password of the client's key."""
    ssl_key_password: str | None
    """As ssl_password."""
    ssl_check_hostname: bool
    """Whether the broker's certificate must bear its host name."""
    ssl_context: ssl.SSLContext | None
    """A ready ssl.SSLContext, instead of the settings above."""
    ssl_truststore_location: str | None
    """As ssl_cafile; stores other than PEM are refused."""
    ssl_truststore_type: str | None
    """PEM; others are refused."""
    ssl_truststore_certificates: str | None
    """The authorities to trust, as PEM text."""
    ssl_keystore_location: str | None
    """As ssl_certfile; stores other than PEM are refused."""
    ssl_keystore_type: str | None
    """PEM; others are refused."""
    ssl_keystore_certificate_chain: str | None
    """The client's certificate, as PEM text."""
    ssl_keystore_key: str | None
    """The client's key, as PEM text."""
    ssl_endpoint_identification_algorithm: str | None
    """Kafka's way to say ssl_check_hostname: https checks, an empty text does not."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    """How to log in."""
    sasl_plain_username: str | None
    """The user, for PLAIN and SCRAM."""
    sasl_username: str | None
    """As sasl_plain_username."""
    sasl_plain_password: str | None
    """The password, for PLAIN and SCRAM."""
    sasl_password: str | None
    """As sasl_plain_password."""
    sasl_oauth_token_provider: Callable[[], object] | TokenProvider | None
    """A function, or an object with a method `token`, that gives the token for OAUTHBEARER; may be async."""
    sasl_jaas_config: str | None
    """Kafka's JAAS line, for PLAIN and SCRAM, instead of user and password."""


class ProducerOptions(ConnectionOptions, total=False):
    acks: Literal["all", -1, 0, 1]
    """Who must have a record before it counts as written: all (-1), the leader (1), nobody (0)."""
    enable_idempotence: bool
    """Whether each record is written once and in order, whatever is retried."""
    retries: int
    """How often a batch is sent again after it failed."""
    max_in_flight_requests_per_connection: int
    """How many requests may wait for their answers on one connection."""
    batch_size: int
    """How many bytes of records, before compression, go into a batch."""
    max_batch_size: int
    """As batch_size."""
    linger_ms: float | None
    """How long a batch that is not full waits for more records. Without it: 5 ms, but not when somebody awaits
    one."""
    buffer_memory: int
    """How many bytes of records may wait to be sent."""
    max_request_size: int
    """The largest request, and so the largest record."""
    max_block_ms: int
    """How long a call waits for room, for metadata, or for the transaction's coordinator."""
    delivery_timeout_ms: int
    """How long a record may take from send to acknowledgement, retries included."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """How batches are compressed."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """As compression_type."""
    compression_level: int | None
    """The codec's own level; without it the codec's default."""
    partitioner: Callable[[str, Any, Any, list[int]], int] | None
    """Chooses the partition: function(topic, key, value, partitions) -> number; key's hash or sticky without it."""
    transactional_id: str | None
    """The name under which transactions survive a restart of this producer."""
    transaction_timeout_ms: int
    """After which the broker aborts a transaction that was not ended."""


class ConsumerOptions(ConnectionOptions, total=False):
    group_id: str | None
    """The group to read with; without one nothing is shared and nothing committed."""
    group_instance_id: str | None
    """A name that stays the same over restarts: the member comes back to its partitions (static membership)."""
    group_protocol: Literal["classic", "consumer"]
    """How the group shares partitions: classic, or consumer (KIP-848)."""
    group_remote_assignor: str | None
    """The broker's assignor to use with group_protocol consumer; without it the broker chooses."""
    partition_assignment_strategy: AssignorChoice | Sequence[AssignorChoice]
    """The assignors of the classic protocol, the preferred one first: names, classes or objects."""
    session_timeout_ms: int
    """A member that is silent for so long is taken for dead."""
    heartbeat_interval_ms: int
    """How often a member says that it lives."""
    max_poll_interval_ms: int
    """A program that does not poll for so long gives its partitions to others."""
    max_poll_records: int
    """The most records that one poll returns."""
    auto_offset_reset: str
    """Where to begin without a position: earliest, latest, none (an error), or by_duration:P1DT2H, so long ago."""
    enable_auto_commit: bool | None
    """Whether positions are committed while polling; by default if there is a group_id."""
    auto_commit_interval_ms: int
    """How often positions are committed."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """Whether records of open and aborted transactions are shown."""
    fetch_min_bytes: int
    """The broker answers when it has so much, or when the wait is over."""
    fetch_max_bytes: int
    """The most that one answer of a broker brings; a larger batch comes alone."""
    fetch_max_wait_ms: int
    """How long the broker waits for fetch_min_bytes."""
    max_partition_fetch_bytes: int
    """The most that one answer brings of a partition; a larger batch comes alone."""
    max_decompressed_bytes: int
    """The most memory that the records of one batch may take."""
    check_crcs: bool
    """Whether every batch is checked against its checksum."""
    client_rack: str
    """Where this consumer is, so that a near replica is read."""
    exclude_internal_topics: bool
    """Whether patterns and topics() pass over the broker's own topics."""
    allow_auto_create_topics: bool
    """Whether a topic that is subscribed to but missing may be created, if the broker does that."""
    default_api_timeout_ms: int
    """How long a call that asks the broker may take."""


class AdminOptions(ConnectionOptions, total=False):
    default_api_timeout_ms: int
    """How long a call is tried again before it fails with its last error."""
