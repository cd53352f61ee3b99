"""The settings of the group coordinator and of the transaction coordinator; they are settings of the node.

Replica counts of the internal topics keep Kafka's defaults, which a small cluster cannot meet: the sentences say
what semel does then, so that a node alone works without settings.
"""

from __future__ import annotations

from semel.config.settings import INT_MAX, Kind, Setting

BOOLEAN, INT, SHORT, LONG, LIST = Kind.BOOLEAN, Kind.INT, Kind.SHORT, Kind.LONG, Kind.LIST

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

# fmt: off
GROUPS = [
    Setting("group.min.session.timeout.ms", INT, 6000,
            "The shortest session timeout that a member of a classic group may ask for.", minimum=0),
    Setting("group.max.session.timeout.ms", INT, 30 * MINUTE_MS,
            "The longest session timeout that a member of a classic group may ask for.", minimum=0),
    Setting("group.initial.rebalance.delay.ms", INT, 3000,
            "How long a new classic group waits for more members before its first rebalance; a node alone does not "
            "wait unless this is set.", minimum=0),
    Setting("group.max.size", INT, INT_MAX, "How many members a classic group may have.", minimum=1),
    Setting("group.max.metadata.bytes", INT, 8 * 1024 * 1024,
            "How many bytes of metadata the members of one group may bring together, with some hundred for each member "
            "and name; a member that brings more is refused, and so are all when those of all groups take a quarter of "
            "queued.max.request.bytes.", minimum=1, kafka_default="none"),
    Setting("group.consumer.session.timeout.ms", INT, 45_000,
            "A member of a KIP-848 group that is silent for this long is removed.", minimum=1),
    Setting("group.consumer.min.session.timeout.ms", INT, 45_000,
            "The shortest session timeout that a KIP-848 group may be given.", minimum=1),
    Setting("group.consumer.max.session.timeout.ms", INT, 60_000,
            "The longest session timeout that a KIP-848 group may be given.", minimum=1),
    Setting("group.consumer.heartbeat.interval.ms", INT, 5000,
            "How often members of a KIP-848 group are told to send a heartbeat.", minimum=1),
    Setting("group.consumer.min.heartbeat.interval.ms", INT, 5000,
            "The shortest heartbeat interval that a KIP-848 group may be given.", minimum=1),
    Setting("group.consumer.max.heartbeat.interval.ms", INT, 15_000,
            "The longest heartbeat interval that a KIP-848 group may be given.", minimum=1),
    Setting("group.consumer.max.size", INT, INT_MAX, "How many members a KIP-848 group may have.", minimum=1),
    Setting("group.consumer.assignors", LIST, ("uniform", "range"),
            "The assignors that a KIP-848 group may ask for; the first is used when it asks for none.",
            choices=("uniform", "range"), entries=(1, 2)),
    Setting("group.consumer.regex.refresh.interval.ms", INT, 10 * MINUTE_MS,
            "Accepted and without effect: topics are matched with subscribed patterns whenever topics come or go.",
            minimum=10_000),
]

OFFSETS = [
    Setting("offsets.topic.num.partitions", INT, 50,
            "The partition count of __consumer_offsets; it must not change once the topic is there.", minimum=1),
    Setting("offsets.topic.replication.factor", SHORT, 3,
            "The replica count of __consumer_offsets; a cluster of fewer nodes takes as many as it has.", minimum=1),
    Setting("offsets.topic.segment.bytes", INT, 100 * 1024 * 1024,
            "The segment size of __consumer_offsets; small segments are compacted and loaded sooner.", minimum=1),
    Setting("offsets.topic.compression.codec", INT, 0,
            "The compression of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", minimum=0, maximum=4),
    Setting("offsets.retention.minutes", INT, 7 * 24 * 60,
            "How long committed offsets are kept after their group became empty.", minimum=1),
    Setting("offsets.retention.check.interval.ms", LONG, 10 * MINUTE_MS,
            "How often committed offsets are checked for expiry.", minimum=1),
    Setting("offsets.commit.timeout.ms", INT, 5000,
            "How long a commit of offsets may wait until it is durable; then the client is told to try again.",
            minimum=1),
    Setting("offset.metadata.max.bytes", INT, 4096,
            "The longest text that may be committed along with an offset.", minimum=0),
]

TRANSACTIONS = [
    Setting("producer.id.expiration.ms", INT, DAY_MS,
            "How long a partition remembers a producer that no longer writes; later duplicates are not recognised.",
            minimum=1, needs_restart=False),
    Setting("producer.id.expiration.check.interval.ms", INT, 10 * MINUTE_MS,
            "How often partitions are checked for producers to forget.", minimum=1),
    Setting("transactional.id.expiration.ms", INT, 7 * DAY_MS,
            "How long a transactional id without a transaction is remembered.", minimum=1),
    Setting("transaction.max.timeout.ms", INT, 15 * MINUTE_MS,
            "The longest transaction timeout that a producer may ask for.", minimum=1),
    Setting("transaction.state.log.num.partitions", INT, 50,
            "The partition count of __transaction_state; it must not change once the topic is there.", minimum=1),
    Setting("transaction.state.log.replication.factor", SHORT, 3,
            "The replica count of __transaction_state; a cluster of fewer nodes takes as many as it has.", minimum=1),
    Setting("transaction.state.log.min.isr", INT, 2,
            "The min.insync.replicas of __transaction_state; never more than the replicas it has.", minimum=1),
    Setting("transaction.state.log.segment.bytes", INT, 100 * 1024 * 1024,
            "The segment size of __transaction_state; small segments are compacted and loaded sooner.", minimum=1),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000,
            "How often transactions that timed out are looked for and aborted.", minimum=1),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 60 * MINUTE_MS,
            "How often expired transactional ids are looked for and removed.", minimum=1),
    Setting("transaction.partition.verification.enable", BOOLEAN, True,
            "Whether the first write of a transaction to a partition is checked with the coordinator (KIP-890).",
            needs_restart=False),
    Setting("transaction.two.phase.commit.enable", BOOLEAN, False,
            "Accepted and without effect: transactions that take part in a two-phase commit (KIP-939) are not served."),
]
# fmt: on

COORDINATOR = [*GROUPS, *OFFSETS, *TRANSACTIONS]
