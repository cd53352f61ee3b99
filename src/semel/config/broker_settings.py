"""The settings of a node: its connections, its topics and its logs.

Names, types, defaults, bounds and which of them can change at run time are Kafka 4's; `kafka_default` stands where
our default is another. What makes a node one of several is in node_settings.py, settings of the group and transaction
coordinators are in coordinator_settings.py.
"""

from __future__ import annotations

from semel.config.accepted_settings import ACCEPTED
from semel.config.coordinator_settings import COORDINATOR
from semel.config.listeners import ADDRESS_FORM
from semel.config.node_settings import NODE
from semel.config.security_settings import SECURITY
from semel.config.settings import INT_MAX, LONG_MAX, Kind, Setting, by_name

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.LIST

MEBIBYTE = 1024 * 1024
HOUR_MS = 60 * 60 * 1000
COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
CLEANUP_POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
# Kafka 4 raised this from 14 bytes to 1 MiB (KIP-1030); small segments make logs easy to test.
MIN_SEGMENT_BYTES = 14

# Settings that are declared and not read say so in these words; tests/unit/config/test_config_effects.py finds them.
NO_JITTER = "Accepted and without effect: a segment is closed when it is as old as segment.ms says, none sooner."
NO_DELETE_DELAY = (
    "Accepted and without effect: the files of a deleted segment go at once, and whoever reads them keeps them open."
)


UNCLEAN_ELECTION = (
    "Whether a replica that is out of sync may become leader when no other is left, which loses acknowledged records."
)

# fmt: off
MONITORING = [
    Setting("metrics.listener", STRING, None,
            "Where /metrics, /health and /ready are served over HTTP; nobody logs in there, so only a trusted network "
            "should reach it.", form=ADDRESS_FORM, kafka_default="none"),
    Setting("metrics.max.series", INT, 20_000,
            "How many time series one metric shows at most; semel_metrics_left_out counts the others.",
            minimum=1, needs_restart=False, kafka_default="none"),
]

CONNECTIONS = [
    Setting("max.connections", INT, INT_MAX,
            "How many connections this node accepts; further ones are closed, and idle ones already when connections "
            "take half of the descriptors that the process may have (ulimit -n).",
            minimum=0, needs_restart=False),
    Setting("max.connections.per.ip", INT, INT_MAX, "How many connections this node accepts from one address.",
            minimum=0, needs_restart=False),
    Setting("connections.max.idle.ms", LONG, 10 * 60 * 1000,
            "A connection without a request for this long is closed; -1 keeps it for ever.", minimum=1, also=-1),
    Setting("socket.request.max.bytes", INT, 100 * MEBIBYTE,
            "The largest request; a connection that announces a larger one is closed.", minimum=1),
    Setting("socket.send.buffer.bytes", INT, 100 * 1024,
            "How much the system holds of answers to one connection; more is for clients far away, and -1 leaves it to "
            "the system, whose choice makes fetches on one machine slower.", minimum=1, also=-1),
    Setting("sasl.server.max.receive.size", INT, 512 * 1024,
            "The largest request on a connection that has yet to authenticate.", minimum=1),
    Setting("queued.max.request.bytes", LONG, 256 * MEBIBYTE,
            "How many bytes of requests this node holds in memory at once, over all connections, as they really come; "
            "past that it stops reading until some are answered, and closes connections whose request does not come "
            "on; -1 sets no limit.",
            minimum=1, also=-1, kafka_default="-1"),
    Setting("max.request.entries", INT, 50_000,
            "How many entries (topics, partitions, names and the like) one request may have; a connection that sends "
            "more is closed.", minimum=1, needs_restart=False, kafka_default="none"),
    Setting("max.incremental.fetch.session.cache.slots", INT, 1000, "How many fetch sessions are kept.", minimum=0),
    Setting("max.incremental.fetch.session.partitions", INT, 50_000,
            "How many partitions one fetch session may have; a fetch of more is answered without a session, as are "
            "fetches when all sessions take a quarter of queued.max.request.bytes.",
            minimum=0, kafka_default="none"),
    Setting("fetch.max.bytes", INT, 55 * MEBIBYTE,
            "The most that one fetch returns, except that the first batch is always returned whole.", minimum=1024),
    Setting("max.request.partition.size.limit", INT, 2000,
            "How many partitions one answer to DescribeTopicPartitions lists.", minimum=1),
]

TOPICS = [
    Setting("num.partitions", INT, 1, "The partition count of a topic created without one.", minimum=1),
    Setting("default.replication.factor", INT, 1, "The replica count of a topic created without one.", minimum=1),
    Setting("auto.create.topics.enable", BOOLEAN, True,
            "Whether asking for the metadata of an unknown topic creates it, if the client allows it too."),
    Setting("delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted."),
    Setting("min.insync.replicas", INT, 1,
            "How many replicas, the leader included, must be in sync before a write with acks=all is taken; no more "
            "than a partition has.",
            minimum=1, needs_restart=False),
    Setting("unclean.leader.election.enable", BOOLEAN, False, UNCLEAN_ELECTION, needs_restart=False),
    Setting("message.max.bytes", INT, MEBIBYTE + 12,
            "The largest record batch taken, after compression.", minimum=0, needs_restart=False),
    Setting("compression.type", STRING, "producer",
            "The compression that batches are stored with; producer keeps what the producer chose.",
            choices=COMPRESSION_TYPES, needs_restart=False),
    Setting("compression.gzip.level", INT, -1, "The level for compression.type gzip; -1 is the library's own choice.",
            minimum=1, maximum=9, also=-1, needs_restart=False),
    Setting("compression.lz4.level", INT, 9, "The level for compression.type lz4.",
            minimum=1, maximum=17, needs_restart=False),
    Setting("compression.zstd.level", INT, 3, "The level for compression.type zstd.",
            minimum=-131072, maximum=22, needs_restart=False),
]

LOGS = [
    Setting("log.segment.bytes", INT, 1024 * MEBIBYTE,
            "A segment is closed before it grows past this size; Kafka 4 refuses less than 1 MiB, semel takes what "
            "Kafka took before.", minimum=MIN_SEGMENT_BYTES, needs_restart=False),
    Setting("log.roll.ms", LONG, None, "A segment is closed when its first record is this old; log.roll.hours if not "
            "set.", minimum=1, needs_restart=False),
    Setting("log.roll.hours", INT, 7 * 24, "A segment is closed when its first record is this old; log.roll.ms comes "
            "first.", minimum=1),
    Setting("log.roll.jitter.ms", LONG, None, NO_JITTER, minimum=0, needs_restart=False),
    Setting("log.roll.jitter.hours", INT, 0, NO_JITTER, minimum=0),
    Setting("log.retention.ms", LONG, None, "Segments whose newest record is older than this are deleted, -1 keeps "
            "them; log.retention.minutes if not set.", minimum=1, also=-1, needs_restart=False),
    Setting("log.retention.minutes", INT, None, "The same in minutes, if log.retention.ms is not set; "
            "log.retention.hours if neither is.", minimum=1, also=-1),
    Setting("log.retention.hours", INT, 7 * 24, "The same in hours, if neither log.retention.ms nor "
            "log.retention.minutes is set.", minimum=1, also=-1),
    Setting("log.retention.bytes", LONG, -1, "The oldest segments of a partition are deleted while it stays at least "
            "this large without them; -1 sets no limit.", minimum=-1, needs_restart=False),
    Setting("log.retention.check.interval.ms", LONG, 5 * 60 * 1000, "How often logs are checked for segments to "
            "delete.", minimum=1),
    Setting("log.cleanup.policy", LIST, ("delete",), "What happens to old records: delete drops whole segments by age "
            "and size, compact keeps the last record of each key; an empty list keeps everything.",
            choices=CLEANUP_POLICIES, needs_restart=False),
    Setting("log.segment.delete.delay.ms", LONG, 60_000, NO_DELETE_DELAY, minimum=0, needs_restart=False),
    Setting("log.index.interval.bytes", INT, 4096, "About how many bytes of a log lie between two index entries.",
            minimum=0, needs_restart=False),
    Setting("log.index.size.max.bytes", INT, 10 * MEBIBYTE, "A segment is closed when its offset index is this large.",
            minimum=4, needs_restart=False),
    Setting("log.flush.interval.messages", LONG, 1, "How many records may be written before they must be flushed to "
            "disk; 1 means that a write with acks=all is answered, and can be read, only once it is on disk.",
            minimum=1, needs_restart=False, kafka_default=str(LONG_MAX)),
    Setting("log.flush.interval.ms", LONG, None, "How long a written record may wait to be flushed to disk; "
            "log.flush.scheduler.interval.ms if not set.", minimum=0, needs_restart=False),
    Setting("log.flush.scheduler.interval.ms", LONG, LONG_MAX, "How often logs are checked for records that have "
            "waited too long to be flushed.", minimum=1),
    Setting("log.flush.offset.checkpoint.interval.ms", INT, 60_000, "How often the point up to which logs are known "
            "to be flushed is saved; recovery starts there.", minimum=0),
    Setting("log.preallocate", BOOLEAN, False, "Accepted and without effect: semel never allocates a segment ahead of "
            "its data.", needs_restart=False),
    Setting("log.message.timestamp.type", STRING, "CreateTime", "Whether records carry the time the producer gave "
            "them, or the time they were appended.", choices=TIMESTAMP_TYPES, needs_restart=False),
    Setting("log.message.timestamp.before.max.ms", LONG, LONG_MAX, "How far a record's timestamp may lie in the past; "
            "further is refused, unless the timestamp is the time of append.", minimum=0, needs_restart=False),
    Setting("log.message.timestamp.after.max.ms", LONG, HOUR_MS, "How far a record's timestamp may lie in the future; "
            "further is refused, unless the timestamp is the time of append.", minimum=0, needs_restart=False),
]

CLEANER = [
    Setting("log.cleaner.enable", BOOLEAN, True, "Whether logs are compacted at all; without it the internal topics "
            "grow for ever."),
    Setting("log.cleaner.backoff.ms", LONG, 15_000, "How long the cleaner sleeps when no log needs cleaning.",
            minimum=0, needs_restart=False),
    Setting("log.cleaner.dedupe.buffer.size", LONG, 128 * MEBIBYTE, "About how many bytes the cleaner's map from keys "
            "to offsets may take; a log with more keys is compacted in several passes.",
            minimum=1024, needs_restart=False),
    Setting("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, "A log is compacted when at least this share of it is "
            "not compacted yet.", minimum=0, maximum=1, needs_restart=False),
    Setting("log.cleaner.delete.retention.ms", LONG, 24 * HOUR_MS, "How long compaction keeps the deletion of a key, "
            "so that readers can see it.", minimum=0, needs_restart=False),
    Setting("log.cleaner.min.compaction.lag.ms", LONG, 0, "A record younger than this is not compacted.",
            minimum=0, needs_restart=False),
    Setting("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, "A record older than this is compacted even if the "
            "log is clean enough.", minimum=1, needs_restart=False),
]

REPLICATION = [
    Setting("replica.lag.time.max.ms", LONG, 30_000,
            "How long a follower that has not caught up with its leader stays among the in-sync replicas.", minimum=1),
    Setting("replica.fetch.max.bytes", INT, MEBIBYTE,
            "How many bytes of one partition a follower asks for at a time; a batch that is larger comes all the same.",
            minimum=0),
    Setting("replica.fetch.response.max.bytes", INT, 10 * MEBIBYTE,
            "How many bytes a follower asks for in one fetch.", minimum=0),
    Setting("replica.fetch.min.bytes", INT, 1, "How many bytes a follower's fetch waits for.", minimum=0),
    Setting("replica.fetch.wait.max.ms", INT, 500, "How long a follower's fetch waits for them at most.", minimum=0),
    Setting("replica.fetch.backoff.ms", INT, 1000,
            "How long a follower waits after a failed fetch at most; the first pauses are shorter.", minimum=0),
    Setting("replica.socket.timeout.ms", INT, 30_000,
            "How long a follower waits for an answer of its leader before it connects again.", minimum=1),
    Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000,
            "How often it is noted how far each log is committed, if there are logs with other replicas.", minimum=1),
]
# fmt: on

# Settings that say one thing, mostly in several units; the first that is set decides.
SAME_THING = (
    ("log.dirs", "log.dir"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)

# The first of each pair must not exceed the second.
ORDERED = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("broker.heartbeat.interval.ms", "broker.session.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    # A request larger than the whole budget could never be read.
    ("socket.request.max.bytes", "queued.max.request.bytes"),
)

BROKER_SETTINGS = by_name(
    [*NODE, *MONITORING, *CONNECTIONS, *TOPICS, *LOGS, *CLEANER, *REPLICATION, *COORDINATOR, *SECURITY, *ACCEPTED]
)
