"""The settings of a topic: what CreateTopics and AlterConfigs accept for one.

A topic setting takes kind, default, bounds and choices from the broker setting that gives it its default, as in
Kafka, so they are declared once; where Kafka bounds the two differently, the declaration here says so.
"""

from __future__ import annotations

from semel.config.broker_settings import BROKER_SETTINGS, HOUR_MS, NO_DELETE_DELAY, NO_JITTER, UNCLEAN_ELECTION
from semel.config.settings import LONG_MAX, Form, Kind, Setting, Synonym, by_name


def _inherits(name: str, broker_name: str, sentence: str) -> Setting:
    """A topic setting that is the broker setting under another name."""
    parent = BROKER_SETTINGS[broker_name]
    return parent._replace(
        name=name, sentence=sentence, needs_restart=False, synonyms=(Synonym(broker_name),), kafka_default=None
    )


def _is_throttled_replica(text: str) -> bool:
    partition, _, broker = text.partition(":")
    return text == "*" or (text.isascii() and partition.isdigit() and broker.isdigit())


_THROTTLED = Form(_is_throttled_replica, "partition:broker pairs, or *")

# fmt: off
TOPIC_SETTINGS = by_name([
    _inherits("cleanup.policy", "log.cleanup.policy",
              "What happens to old records: delete drops whole segments by age and size, compact keeps the last record "
              "of each key; an empty list keeps everything."),
    _inherits("compression.type", "compression.type",
              "The compression that batches are stored with; producer keeps what the producer chose."),
    _inherits("compression.gzip.level", "compression.gzip.level",
              "The level for compression.type gzip; -1 is the library's own choice."),
    _inherits("compression.lz4.level", "compression.lz4.level", "The level for compression.type lz4."),
    _inherits("compression.zstd.level", "compression.zstd.level", "The level for compression.type zstd."),
    _inherits("delete.retention.ms", "log.cleaner.delete.retention.ms",
              "How long compaction keeps the deletion of a key, so that readers can see it."),
    _inherits("file.delete.delay.ms", "log.segment.delete.delay.ms",
              NO_DELETE_DELAY),
    _inherits("flush.messages", "log.flush.interval.messages",
              "How many records may be written before they must be flushed to disk; 1 means that a write with acks=all "
              "is answered, and can be read, only once it is on disk."),
    Setting("flush.ms", Kind.LONG, LONG_MAX, "How long a written record may wait to be flushed to disk.",
            minimum=0, needs_restart=False,
            synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms"))),
    _inherits("index.interval.bytes", "log.index.interval.bytes",
              "About how many bytes of the log lie between two index entries."),
    _inherits("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms",
              "A record older than this is compacted even if the log is clean enough."),
    _inherits("max.message.bytes", "message.max.bytes", "The largest record batch taken, after compression."),
    _inherits("message.timestamp.type", "log.message.timestamp.type",
              "Whether records carry the time the producer gave them, or the time they were appended."),
    _inherits("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms",
              "How far a record's timestamp may lie in the past; further is refused, unless the timestamp is the time "
              "of append."),
    _inherits("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms",
              "How far a record's timestamp may lie in the future; further is refused, unless the timestamp is the "
              "time of append."),
    _inherits("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio",
              "The log is compacted when at least this share of it is not compacted yet."),
    _inherits("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms",
              "A record younger than this is not compacted."),
    _inherits("min.insync.replicas", "min.insync.replicas",
              "How many replicas, the leader included, must be in sync before a write with acks=all is taken; no more "
              "than a partition has."),
    _inherits("preallocate", "log.preallocate",
              "Accepted and without effect: semel never allocates a segment ahead of its data."),
    _inherits("retention.bytes", "log.retention.bytes",
              "The oldest segments of a partition are deleted while it stays at least this large without them; -1 sets "
              "no limit."),
    Setting("retention.ms", Kind.LONG, 7 * 24 * HOUR_MS,
            "Segments whose newest record is older than this are deleted; -1 keeps them.",
            minimum=-1, needs_restart=False,
            synonyms=(Synonym("log.retention.ms"), Synonym("log.retention.minutes", 60_000),
                      Synonym("log.retention.hours", HOUR_MS))),
    _inherits("segment.bytes", "log.segment.bytes",
              "A segment is closed before it grows past this size; Kafka 4 refuses less than 1 MiB, semel takes what "
              "Kafka took before."),
    _inherits("segment.index.bytes", "log.index.size.max.bytes",
              "A segment is closed when its offset index is this large."),
    Setting("segment.jitter.ms", Kind.LONG, 0,
            NO_JITTER, minimum=0, needs_restart=False,
            synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS))),
    Setting("segment.ms", Kind.LONG, 7 * 24 * HOUR_MS, "A segment is closed when its first record is this old.",
            minimum=1, needs_restart=False, synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS))),
    _inherits("unclean.leader.election.enable", "unclean.leader.election.enable",
              UNCLEAN_ELECTION),
    Setting("remote.storage.enable", Kind.BOOLEAN, False,
            "Whether old segments of the topic are moved to other storage, which semel does not do.",
            needs_restart=False, off_because="semel keeps all data on its own disk"),
    Setting("remote.log.copy.disable", Kind.BOOLEAN, False,
            "Accepted and without effect: nothing is copied to other storage.", needs_restart=False),
    Setting("remote.log.delete.on.disable", Kind.BOOLEAN, False,
            "Accepted and without effect: nothing is in other storage.", needs_restart=False),
    _inherits("local.retention.bytes", "log.local.retention.bytes",
              "Accepted and without effect: all data is on the node's own disk, and retention.bytes says how much."),
    _inherits("local.retention.ms", "log.local.retention.ms",
              "Accepted and without effect: all data is on the node's own disk, and retention.ms says how long."),
    Setting("leader.replication.throttled.replicas", Kind.LIST, (),
            "Accepted and without effect: the replicas whose leader would be throttled.",
            form=_THROTTLED, needs_restart=False),
    Setting("follower.replication.throttled.replicas", Kind.LIST, (),
            "Accepted and without effect: the replicas whose follower would be throttled.",
            form=_THROTTLED, needs_restart=False),
])
# fmt: on
